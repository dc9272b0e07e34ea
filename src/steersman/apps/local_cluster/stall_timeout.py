"""Wait for work of unknown size for as long as it makes progress."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from steersman.core.errors import SteersmanError

AGAIN_SECONDS = 5.0
POLL_SECONDS = 0.25


class StallTimeout:
    """Timeout since the last progress.

    Args:
        seconds: the timeout.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._fewest = math.inf
        self._since = time.monotonic()

    def ends(self, left: int) -> bool:
        """Return whether the timeout has passed since `left`, the amount that is left, last reached a new minimum."""
        if left < self._fewest:
            self._fewest, self._since = left, time.monotonic()
        return time.monotonic() > self._since + self.seconds


class DeletionTimeoutError(SteersmanError):
    """Deleted objects do not go away.

    Attributes:
        left: number of objects left.
    """

    def __init__(self, left: int) -> None:
        self.left = left
        super().__init__(f"{left} are still there or there again")


async def until_gone(
    delete: Callable[[], Awaitable[None]],
    count: Callable[[], Awaitable[int]],
    report: Callable[[int, int], None],
    seconds: float,
    looks: int = 1,
) -> int:
    """Delete until nothing is left, and return how much there was.

    Args:
        delete: called repeatedly: a controller may have created more after the first time.
        count: returns how much is left.
        report: called with how much is gone, and of how much.
        seconds: timeout since the last progress.
        looks: number of consecutive counts that must be zero, where a controller may create objects again.

    Raises:
        DeletionTimeoutError: there was no progress for longer.
    """
    before, empty = await count(), 0
    patience, passed = StallTimeout(seconds), asyncio.Event()
    deleting = asyncio.create_task(_delete_repeatedly(delete, passed))  # a collection of thousands takes a minute
    try:
        with suppress(TimeoutError):  # wait for a short pass, report on a long one
            async with asyncio.timeout(POLL_SECONDS):
                await passed.wait()
        while True:
            if deleting.done():
                # It never ends by itself, so this raises its error.
                deleting.result()
            left = await count()
            report(before - min(left, before), before)
            empty = empty + 1 if passed.is_set() and not left else 0
            if empty == looks:
                return before
            # `ends` first, since it also records progress.
            if patience.ends(left) and left:
                raise DeletionTimeoutError(left)
            await asyncio.sleep(POLL_SECONDS)
    finally:
        deleting.cancel()
        await asyncio.gather(deleting, return_exceptions=True)


async def _delete_repeatedly(delete: Callable[[], Awaitable[None]], passed: asyncio.Event) -> None:
    """Delete every few seconds until cancelled; `passed` is set when the first pass is over."""
    while True:
        await delete()
        passed.set()
        await asyncio.sleep(AGAIN_SECONDS)
