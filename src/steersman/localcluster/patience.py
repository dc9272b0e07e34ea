"""How long to wait for what takes the longer the more of it there is: as long as it goes on."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from steersman.errors import SteersmanError

AGAIN_SECONDS = 5.0
POLL_SECONDS = 0.25


class Patience:
    """Ends when nothing has become less for a while.

    Args:
        seconds: for how long.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._fewest = math.inf
        self._since = time.monotonic()

    def ends(self, left: int) -> bool:
        """Whether it is too long since there were fewer left than ever before; `left` is how many there are now."""
        if left < self._fewest:
            self._fewest, self._since = left, time.monotonic()
        return time.monotonic() > self._since + self.seconds


class StillThereError(SteersmanError):
    """What was deleted does not go away.

    Attributes:
        left: how much of it.
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
    """Delete until nothing is left; how much there was.

    Args:
        delete: called again and again: who makes more may not have been gone the first time.
        count: how much is there.
        report: told how much of how much is gone.
        seconds: for which it may become no less.
        looks: in so many in a row there must be nothing, where somebody may make it anew, which takes a moment.

    Raises:
        StillThereError: it became no less for longer.
    """
    before, empty = await count(), 0
    patience, passed = Patience(seconds), asyncio.Event()
    deleting = asyncio.create_task(_delete_repeatedly(delete, passed))  # a collection of thousands takes a minute
    try:
        with suppress(TimeoutError):  # a short pass is waited for, a long one reported on
            await asyncio.wait_for(passed.wait(), POLL_SECONDS)
        while True:
            if deleting.done():
                deleting.result()
            left = await count()
            report(before - min(left, before), before)
            empty = empty + 1 if passed.is_set() and not left else 0
            if empty == looks:
                return before
            if patience.ends(left) and left:
                raise StillThereError(left)
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
