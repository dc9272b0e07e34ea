"""An event loop in another thread. Probes and the lease run in it, also while the main event loop is busy."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


@contextmanager
def side_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Yield an event loop that runs in a thread during the block. What is started in it must end in the block."""
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="probes and lease", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def run_in_loop(loop: asyncio.AbstractEventLoop, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in an event loop of another thread, and return what it returns.

    A cancellation is passed on, and this waits until the coroutine has ended.
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
    entered = await run_in_loop(loop, manager.__aenter__)
    try:
        yield entered
    finally:
        await run_in_loop(loop, lambda: manager.__aexit__(None, None, None))
