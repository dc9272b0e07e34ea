"""Event loop in a thread of its own, for what must go on whatever the main event loop does: probes and the lease."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

T = TypeVar("T")


class SideLoop:
    """Event loop that runs in a thread during a `with` block.

    Attributes:
        loop: the event loop.
    """

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="probes and lease", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the thread; what was started in its loop has ended."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def run_in_loop(loop: asyncio.AbstractEventLoop, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in an event loop of another thread, and return what it returns.

    If this is cancelled, so is the coroutine, and it has ended when this ends.
    """
    ended: concurrent.futures.Future[T] = concurrent.futures.Future()
    tasks: list[asyncio.Task[T]] = []

    def start() -> None:
        task = loop.create_task(main())
        tasks.append(task)
        task.add_done_callback(finish)

    def finish(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            ended.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            ended.set_exception(error)
        else:
            ended.set_result(task.result())

    loop.call_soon_threadsafe(start)
    waiting = asyncio.wrap_future(ended)
    while True:
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            if waiting.done():
                raise
            # `start` comes first in the other loop.
            loop.call_soon_threadsafe(lambda: tasks[0].cancel())


@asynccontextmanager
async def entered_in_loop(
    loop: asyncio.AbstractEventLoop, manager: AbstractAsyncContextManager[T, None]
) -> AsyncIterator[T]:
    """Enter and leave an asynchronous context manager in an event loop of another thread."""
    entered = await run_in_loop(loop, lambda: manager.__aenter__())
    try:
        yield entered
    finally:
        await run_in_loop(loop, lambda: manager.__aexit__(None, None, None))
