"""Give way to other tasks of an event loop by time."""

from __future__ import annotations

import asyncio
import time

SLICE_SECONDS = 0.005
"""Time after which a task gives way. A binding waits for so long at each of its four steps, from watch to answer."""


class TimeSlices:
    """Time of one task since it last gave way."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    async def give_way(self) -> None:
        """Let other tasks run if this one has run for a slice."""
        if time.monotonic() - self._began >= SLICE_SECONDS:
            await asyncio.sleep(0)
            self._began = time.monotonic()
