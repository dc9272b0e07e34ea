"""Coroutines of a command: cancellation by signals, retries of API requests, bounded concurrency, background tasks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, TypeVar, cast

import uvloop

from steersman.core.early_signals import SIGNALS
from steersman.core.event_loop import Backoff
from steersman.kubernetes.client import MISSING, ApiError, Client, UnreachableError, is_transient

T = TypeVar("T")
PATIENCE_SECONDS = 60.0  # time after which a transient error is no longer retried
WAIT_SECONDS = (0.2, 5.0)  # first and longest delay between two attempts
CONCURRENCY = 32
CLOSING_SECONDS = 0.5


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


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end. A termination signal cancels it, so that it can clean up.

    Raises:
        KeyboardInterrupt: a signal cancelled the coroutine and it did not return a result.
    """
    received: list[signal.Signals] = []
    previous_handlers = {number: signal.getsignal(number) for number in SIGNALS}
    replaced = [
        number for number, handler in previous_handlers.items() if callable(handler) or handler is signal.SIG_DFL
    ]
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main:
        # Python handles signals in the main thread alone.
        replaced = []

    async def run_with_handlers() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def interrupt(number: signal.Signals) -> None:
            received.append(number)
            task.cancel()

        for number in replaced:
            loop.add_signal_handler(number, interrupt, number)
        try:
            return await main
        finally:
            for number in replaced:
                loop.remove_signal_handler(number)
                # `remove_signal_handler` leaves the system's default behind, not the previous handler.
                signal.signal(number, previous_handlers[number])
            if not is_main:
                # TLS connections that were cancelled are still closing; uvloop does not close a loop that has some.
                await asyncio.sleep(CLOSING_SECONDS)

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run_with_handlers())
    except asyncio.CancelledError:
        if received and callable(handler := previous_handlers[received[0]]):
            handler(received[0], None)  # the previous handler defines how this process ends
        raise KeyboardInterrupt from None


class StopRequest:
    """Request of another thread that a coroutine ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._cancel: Callable[[], object] | None = None

    def set(self) -> None:
        """Cancel the coroutine that runs now, or any that is run later."""
        with self._lock:
            self._is_set = True
            if self._cancel is not None:
                self._cancel()

    async def run(self, main: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of a coroutine, None if it was cancelled by `set`."""
        task, loop = asyncio.create_task(main), asyncio.get_running_loop()
        with self._lock:
            self._cancel = partial(loop.call_soon_threadsafe, task.cancel)
            if self._is_set:
                task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            # A signal cancels the task that waits, too.
            if not self._is_set or cast("asyncio.Task[Any]", asyncio.current_task()).cancelling():
                raise
            return None
        finally:
            with self._lock:
                self._cancel = None


async def retry_transient(ask: Callable[[], Awaitable[T]], patience: float = PATIENCE_SECONDS) -> T:
    """Return the response to an idempotent API request; retry with backoff while the API is unreachable or overloaded.

    Raises:
        UnreachableError: the API is unreachable for longer than `patience`.
        ApiError: the API refuses the request, or is overloaded for longer than `patience`.
    """
    deadline = asyncio.get_running_loop().time() + patience
    backoff = Backoff(*WAIT_SECONDS)
    while True:
        try:
            return await ask()
        except (ApiError, UnreachableError) as error:
            if not is_transient(error) or asyncio.get_running_loop().time() > deadline:
                raise
        await backoff.wait()


async def get_if_exists(client: Client, path: str) -> Any | None:
    """Return an object of the API, None if there is none."""
    try:
        return await client.get(path)
    except ApiError as error:
        if error.status != MISSING:
            raise
        return None


async def delete_if_exists(client: Client, path: str, query: Mapping[str, str] | None = None) -> None:
    """Delete an object of the API, as `retry_transient` does."""
    try:
        await retry_transient(lambda: client.delete(path, query))
    except ApiError as error:
        if error.status != MISSING:
            raise


async def run_concurrently(jobs: Iterable[Callable[[], Awaitable[object]]], concurrency: int = CONCURRENCY) -> None:
    """Run jobs in order, at most `concurrency` at a time. The first failure cancels the running jobs and is raised."""
    # One iterator for all workers, so that each job is taken once.
    remaining = iter(jobs)

    async def run_jobs() -> None:
        for job in remaining:
            await job()

    workers = [asyncio.create_task(run_jobs()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


class BackgroundTasks:
    """Tasks that run during an `async with` block and are cancelled at its end; a failing task cancels the block."""

    def __init__(self, *coroutines: Coroutine[Any, Any, None]) -> None:
        self._coroutines = coroutines
        self._tasks: list[asyncio.Task[None]] = []
        self._failed: BaseException | None = None

    async def __aenter__(self) -> None:
        block_task = asyncio.current_task()
        assert block_task is not None

        def on_done(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None and self._failed is None:
                self._failed = error
                block_task.cancel()

        for coroutine in self._coroutines:
            task = asyncio.create_task(coroutine)
            task.add_done_callback(on_done)
            self._tasks.append(task)

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._failed is not None:
            # In place of the CancelledError that `on_done` caused.
            raise self._failed
