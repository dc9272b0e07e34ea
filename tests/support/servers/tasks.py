"""Servers that run as a task while a test asks them."""

from __future__ import annotations

import asyncio
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
