"""Ctrl-C, and the requests to end that take its path: SIGTERM, and SIGHUP when the terminal goes away."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], None]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a run to end; each of them raises KeyboardInterrupt inside `interruptible`."""


ONE_REQUEST_SECONDS = 1.0
"""A key that is held down, or a Ctrl-C that several senders pass on, is one request."""


class Received:
    """Which signal asked the program to end, None as long as none did."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._raised = -math.inf

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        self.signal = number
        now = time.monotonic()
        if now - self._raised > ONE_REQUEST_SECONDS:
            self._raised = now
            raise KeyboardInterrupt

    def status(self) -> int:
        """What a shell is told of a program that a signal ended; 130 (Ctrl-C) where none was seen."""
        return 128 + (self.signal or signal.SIGINT)


@contextmanager
def interruptible() -> Iterator[Received]:
    """Every signal that asks to end raises KeyboardInterrupt inside, but one that is ignored (`nohup`) stays so.

    After one came the program is about to end, and signals are ignored, so that nothing disturbs that.
    """
    received = Received()
    former = _handle(received.interrupt, lambda found: found in (signal.SIG_DFL, signal.default_int_handler))
    try:
        yield received
    finally:
        for number, handler in former.items():
            signal.signal(number, handler if received.signal is None else signal.SIG_IGN)


@contextmanager
def undisturbed() -> Iterator[None]:
    """For cleaning up after an interruption, which is short: another Ctrl-C inside changes nothing."""
    former = _handle(_nothing, callable)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass


def _handle(handler: Handler, replaced: Callable[[Any], bool]) -> dict[int, Any]:
    """Handle the signals whose handler may be replaced; what these were. Only the main thread can; none elsewhere."""
    former: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if replaced(signal.getsignal(number)):
                former[number] = signal.signal(number, handler)
    return former
