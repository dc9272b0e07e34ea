"""Limit expensive requests to a share of the event loop's time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

A = TypeVar("A")
R = TypeVar("R")


class TimeBudget:
    """CPU seconds of the event loop's thread that may be spent on something: a share of all time, saved up to a limit.

    A request that starts while time is left may take more; the following ones are refused until the debt is paid.

    Args:
        share: share of elapsed time, 0 to 1.
        most: seconds that are saved up at most, and at the start.
        clock: elapsed seconds.
        cpu: CPU seconds of the thread; a machine that is busy with something else costs nothing.
    """

    def __init__(
        self,
        share: float,
        most: float,
        clock: Callable[[], float] = time.perf_counter,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._share, self._most, self._clock, self._cpu = share, most, clock, cpu
        self._left, self._as_of = most, clock()

    @property
    def is_spent(self) -> bool:
        """Return whether no time is left."""
        now = self._clock()
        self._left = min(self._most, self._left + self._share * (now - self._as_of))
        self._as_of = now
        return self._left <= 0

    @contextmanager
    def charged(self) -> Iterator[None]:
        """Charge the CPU time of the block."""
        began = self._cpu()
        try:
            yield
        finally:
            self._left -= self._cpu() - began

    def charging(self, function: Callable[[A], R]) -> Callable[[A], R]:
        """Return a function that does the same and charges its CPU time."""

        def charged(argument: A) -> R:
            with self.charged():
                return function(argument)

        return charged
