"""Coroutines in a command: a signal cancels them in good order, and what the API cannot do now it is asked again."""

from __future__ import annotations

import asyncio
import random
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

import uvloop

from steersman.kube.client import ApiError, UnreachableError
from steersman.signals import SIGNALS

T = TypeVar("T")

PATIENCE_SECONDS = 60.0
WAIT_SECONDS = (0.2, 5.0)
CONCURRENCY = 32


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end. A signal that asks to end cancels it, so that it can leave things in order.

    Raises:
        KeyboardInterrupt: it was cancelled by a signal and did not end well in spite of it.
    """
    received: list[signal.Signals] = []
    former = {number: signal.getsignal(number) for number in SIGNALS}
    replaced = [number for number, handler in former.items() if callable(handler) or handler is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        replaced = []

    async def watched() -> T:
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
                signal.signal(number, former[number])

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(watched())
    except asyncio.CancelledError:
        if received and callable(handler := former[received[0]]):
            handler(received[0], None)  # it knows how this process ends
        raise KeyboardInterrupt from None


async def insist(ask: Callable[[], Awaitable[T]], patience: float = PATIENCE_SECONDS) -> T:
    """The answer of the API to what may be asked twice, after a while if it is away or too busy just now.

    Raises:
        UnreachableError: it is away for longer than `patience` seconds.
        ApiError: it says no.
    """
    until = asyncio.get_running_loop().time() + patience
    wait = WAIT_SECONDS[0]
    while True:
        try:
            return await ask()
        except (ApiError, UnreachableError) as error:
            passing = isinstance(error, UnreachableError) or error.status in (429, 500, 502, 503, 504)
            if not passing or asyncio.get_running_loop().time() > until:
                raise
        await asyncio.sleep(wait * random.uniform(0.5, 1.0))
        wait = min(2 * wait, WAIT_SECONDS[1])


async def at_once(jobs: Iterable[Callable[[], Awaitable[object]]], concurrency: int = CONCURRENCY) -> None:
    """Do jobs in their order, some at a time. The first failure is raised when those under way were stopped."""
    left = iter(jobs)

    async def work() -> None:
        for job in left:
            await job()

    workers = [asyncio.create_task(work()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


class Background:
    """Tasks that run beside a block and end with it; the first one that fails ends the block, too.

    Args:
        coroutines: what they do.
    """

    def __init__(self, *coroutines: Coroutine[Any, Any, None]) -> None:
        self._coroutines = coroutines
        self._tasks: list[asyncio.Task[None]] = []
        self._failed: BaseException | None = None

    async def __aenter__(self) -> None:
        inside = asyncio.current_task()
        assert inside is not None

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None and self._failed is None:
                self._failed = error
                inside.cancel()

        for coroutine in self._coroutines:
            task = asyncio.create_task(coroutine)
            task.add_done_callback(ended)
            self._tasks.append(task)

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._failed is not None:
            raise self._failed
