"""Give way to other tasks of an event loop by time."""

from __future__ import annotations

import asyncio
import time

SLICE_SECONDS = 0.02
"""Time after which a task gives way; probes, the lease and watches wait for so long at most."""


class TimeSlices:
    """Time of one task since it last gave way."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    async def give_way(self) -> None:
        """Let other tasks run if this one has run for a slice."""
        if time.monotonic() - self._began >= SLICE_SECONDS:
            await asyncio.sleep(0)
            self._began = time.monotonic()
