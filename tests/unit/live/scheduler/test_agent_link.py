"""The scheduler's end of the connection to an agent that dies and is started again."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from multiprocessing.connection import Connection

import pytest

from steersman.live.scheduler.agent_link import ABSENT, AgentLink, Question


def until_free(link: AgentLink, *, is_free: bool) -> None:
    end = time.monotonic() + 30
    while link.is_free_or_count() != is_free:
        assert time.monotonic() < end
        time.sleep(0.01)


def ready() -> tuple[Connection, Connection]:
    here, there = multiprocessing.Pipe()
    there.send("ready")
    return here, there


@pytest.mark.parametrize("deaths", [1, 3])
def test_agent_that_was_started_again_is_asked(deaths: int) -> None:
    here, there = ready()
    link = AgentLink(here, asks_fallback=False)
    until_free(link, is_free=True)
    for _ in range(deaths):
        there.close()
        question = Question({}, -1, None)
        assert asyncio.run(link.ask(question)) is None
        until_free(link, is_free=False)
        absent = link.results[ABSENT]
        here, there = ready()
        link.replace(here)
        until_free(link, is_free=True)
        assert link.results[ABSENT] >= absent
    there.send(7)
    assert asyncio.run(link.ask(Question({}, -1, None))) == 7
    link.close(0.1)


def test_agent_that_was_started_again_is_not_asked_before_it_is_ready() -> None:
    here, there = ready()
    link = AgentLink(here, asks_fallback=False)
    until_free(link, is_free=True)
    there.close()
    assert asyncio.run(link.ask(Question({}, -1, None))) is None
    here, there = multiprocessing.Pipe()
    link.replace(here)
    assert not link.is_free_or_count()
    there.send("ready")
    until_free(link, is_free=True)
    link.close(0.1)


def test_agent_that_was_started_again_while_the_event_loop_was_busy_is_asked() -> None:
    here, there = ready()
    link = AgentLink(here, asks_fallback=False)
    until_free(link, is_free=True)

    async def story() -> Connection:
        asking = asyncio.create_task(link.ask(Question({}, -1, None)))
        await asyncio.sleep(0)
        there.close()
        time.sleep(0.2)
        here, again = ready()
        link.replace(here)
        assert await asking is None
        return again

    again = asyncio.run(story())
    until_free(link, is_free=True)
    again.close()
    link.close(0.1)
