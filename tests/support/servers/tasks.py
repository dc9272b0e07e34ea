"""Servers that run as a task while a test asks them, and what a test waits for."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def serving(server: Coroutine[Any, Any, object], is_ready: Callable[[], bool]) -> AsyncIterator[None]:
    """Run a server until the end of the block, which begins once it is ready. Raises what ends the server before."""
    task = asyncio.create_task(server)
    try:
        while not is_ready():
            await asyncio.sleep(0.01)
            if task.done():
                task.result()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until something holds, which may have to be awaited."""
    end = time.monotonic() + seconds
    while not (await found if inspect.isawaitable(found := holds()) else found):
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.02)
