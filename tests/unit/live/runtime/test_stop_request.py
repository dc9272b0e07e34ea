"""A coroutine that another thread stops."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from steersman.live.runtime.tasks import StopRequest


async def sleeping(started: threading.Event, cleaned: list[str]) -> str:
    try:
        started.set()
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.01)
        cleaned.append("cleaned")
    return "done"


def test_other_threads_stop_it_and_it_cleans_up_first():
    stop, started, cleaned = StopRequest(), threading.Event(), list[str]()
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(asyncio.run, stop.run(sleeping(started, cleaned)))
        assert started.wait(5)
        stop.set()
        assert running.result(5) is None
    assert cleaned == ["cleaned"]
    stop.set()  # its loop is closed: nothing is left to cancel


def test_request_before_it_began_holds():
    stop, started = StopRequest(), threading.Event()
    stop.set()
    assert asyncio.run(stop.run(sleeping(started, []))) is None
    assert not started.is_set()


def test_results_and_errors_are_those_of_the_coroutine():
    async def failing() -> None:
        raise ValueError("no")

    assert asyncio.run(StopRequest().run(asyncio.sleep(0, 7))) == 7
    with pytest.raises(ValueError, match="no"):
        asyncio.run(StopRequest().run(failing()))


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_cancellation_of_the_waiting_task_is_no_request(is_stopped: bool):
    stop, started, cleaned = StopRequest(), threading.Event(), list[str]()
    waiting = asyncio.create_task(stop.run(sleeping(started, cleaned)))
    while not started.is_set():
        await asyncio.sleep(0)
    if is_stopped:
        stop.set()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert cleaned == ["cleaned"]
