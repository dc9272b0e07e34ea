"""Pacing in an event loop: exponential backoff between attempts of a request, and giving way to other tasks."""

from __future__ import annotations

import asyncio
import random
import time


class Backoff:
    """Waits that double up to a limit, with jitter, so that clients do not retry at the same time.

    Args:
        initial: seconds of the first wait.
        most: seconds of the longest wait.
    """

    def __init__(self, initial: float, most: float) -> None:
        self._initial, self._most = initial, most
        self.seconds = initial  # the next wait without jitter

    def reset(self) -> None:
        self.seconds = self._initial

    async def wait(self, at_least: float = 0.0) -> None:
        """Sleep for half to all of the next wait; for `at_least` as many seconds as a server says in `Retry-After`."""
        seconds, self.seconds = self.seconds * random.uniform(0.5, 1.0), min(2.0 * self.seconds, self._most)
        await asyncio.sleep(max(at_least * random.uniform(1.0, 1.25), seconds))


SLICE_SECONDS = 0.005  # time after which a task gives way; a binding waits for it at each of its four steps


class TimeSlices:
    """Time of one task since it last gave way."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    async def give_way(self) -> None:
        """Let other tasks run if this one has run for a slice."""
        if time.monotonic() - self._began >= SLICE_SECONDS:
            await asyncio.sleep(0)
            self._began = time.monotonic()
