"""A reflector whose server is unwell."""

import asyncio
from collections.abc import Set
from contextlib import suppress
from types import SimpleNamespace

import msgspec
import pytest
from aiohttp import web
from tests.support.servers.fake_api_server import Fault, clock, failure
from tests.support.servers.live_cluster import NODES, LiveDouble, node, on_double, with_double

from steersman.cluster.objects.api.metadata import named_object
from steersman.kubernetes import watch
from steersman.kubernetes.client import Client
from steersman.kubernetes.watch import SILENCE_SECONDS, EventType, Reflector


class Names:
    """Knows what there is."""

    def __init__(self) -> None:
        self.there: set[str] = set()

    def keep(self, keys: Set[str]) -> None:
        self.there &= keys

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        name = named_object(obj).metadata.name
        self.there = self.there - {name} if kind == "DELETED" else self.there | {name}


def watches(fault: Fault) -> Fault:
    """A fault of watches alone."""

    async def answer(request: web.Request) -> web.StreamResponse | None:
        return await fault(request) if "watch" in request.query else None

    return answer


def asked_in_a_minute(fault: Fault) -> int:
    """How many requests a reflector makes in a minute with this fault, after which it must be in step again."""
    asked = 0

    async def test(double: LiveDouble, client: Client) -> None:
        nonlocal asked
        double.put(NODES, node("one"))
        names = Names()
        reflector = Reflector(client, NODES, names)
        task = asyncio.create_task(reflector.run())
        await asyncio.sleep(1)
        double.end_watches()
        double.fault = fault
        began = len(double.requests)
        await asyncio.sleep(60)
        asked = len(double.requests) - began
        double.put(NODES, node("two"))
        double.fault = None
        async with asyncio.timeout(15):
            while names.there != {"one", "two"}:
                await asyncio.sleep(0.1)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    on_double(test)
    return asked


def test_expired_versions_are_retried_with_backoff() -> None:
    async def gone(_: web.Request) -> web.StreamResponse:
        return failure(410, "Expired")

    assert 5 < asked_in_a_minute(watches(gone)) < 40


def test_closed_watches_are_retried_with_backoff() -> None:
    async def ended(_: web.Request) -> web.StreamResponse:
        return web.Response()

    assert 5 < asked_in_a_minute(watches(ended)) < 40


def test_malformed_stream_is_retried_with_backoff() -> None:
    async def nonsense(_: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>\nthis is no API server\n</html>\n")

    assert 5 < asked_in_a_minute(nonsense) < 40


@with_double
async def test_relist_reports_missed_changes(double: LiveDouble, client: Client) -> None:
    double.put(NODES, node("one"))
    names = Names()
    reflector = Reflector(client, NODES, names)
    task = asyncio.create_task(reflector.run())
    await reflector.synced.wait()
    for turn in range(3):
        while not double.watches:
            await asyncio.sleep(0.01)
        double.watches.clear()  # open still, and silent
        double.put(NODES, node(f"new-{turn}"))
        began = clock()
        await reflector.relist()
        assert f"new-{turn}" in names.there
        assert clock() - began < 0.05  # it is no failure, after which one would wait
    while not double.watches:
        await asyncio.sleep(0.01)
    double.put(NODES, node("last"))
    await asyncio.sleep(0.5)
    assert "last" in names.there  # the watch goes on from there
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("hangs", [True, False])
@with_double
async def test_age_counts_from_the_last_message(
    double: LiveDouble, client: Client, hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is an event, or the end of a watch that the server ends."""
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=clock))

    async def silent(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    reflector = Reflector(client, NODES, Names())
    task = asyncio.create_task(reflector.run())
    while not double.watches:
        await asyncio.sleep(0.01)
    await asyncio.sleep(SILENCE_SECONDS / 3)
    double.put(NODES, node("last"))
    last = clock()
    double.fault = silent
    await asyncio.sleep(SILENCE_SECONDS / 3)
    assert reflector.age == 0
    if not hangs:
        double.end_watches()
        last = clock()
    await asyncio.sleep(SILENCE_SECONDS)
    assert reflector.age == pytest.approx(clock() - last, abs=1)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
