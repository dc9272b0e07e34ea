"""What runs in the event loop of another thread goes on while the main one is blocked."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from steersman.live.runtime.tasks import entered_in_loop, run_in_loop, side_loop


async def test_side_loop_goes_on_while_the_main_loop_is_blocked() -> None:
    with side_loop() as side:
        beats = []

        async def beat() -> None:
            while True:
                beats.append(threading.current_thread())
                await asyncio.sleep(0.01)

        beating = asyncio.create_task(run_in_loop(side, beat))
        await asyncio.sleep(0.1)
        before = len(beats)
        time.sleep(0.5)
        assert len(beats) > before + 5
        assert threading.main_thread() not in beats
        beating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beating


async def test_result_and_error_come_back() -> None:
    with side_loop() as side:

        async def result() -> int:
            return 7

        async def fail() -> None:
            raise KeyError("here")

        assert await run_in_loop(side, result) == 7
        with pytest.raises(KeyError, match="here"):
            await run_in_loop(side, fail)


async def test_cancelled_coroutine_has_ended_before_its_caller() -> None:
    with side_loop() as side:
        ended = []

        async def work() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.1)
                ended.append(True)

        working = asyncio.create_task(run_in_loop(side, work))
        await asyncio.sleep(0.05)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert ended


async def test_coroutine_of_the_main_loop_is_cancelled_from_the_side_loop() -> None:
    with side_loop() as side:
        main, events = asyncio.get_running_loop(), []

        async def lead() -> None:
            assert threading.current_thread() is threading.main_thread()
            try:
                await asyncio.sleep(60)
            finally:
                events.append("lead ended")

        async def elect() -> None:
            task = asyncio.create_task(run_in_loop(main, lead))
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.wait({task})
            events.append("released")

        await run_in_loop(side, elect)
        assert events == ["lead ended", "released"]


async def test_context_manager_is_entered_and_left_in_the_side_loop() -> None:
    with side_loop() as side:
        loops = []

        @asynccontextmanager
        async def manager() -> AsyncIterator[str]:
            loops.append(asyncio.get_running_loop())
            yield "entered"
            loops.append(asyncio.get_running_loop())

        async with entered_in_loop(side, manager()) as value:
            assert value == "entered"
        assert loops == [side, side]
