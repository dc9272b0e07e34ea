"""Events: what is written, what is counted instead, and that they wait for nobody and nobody for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.support.servers.fake_api_server import KubeDouble, clock, failure, in_jumping_time, play

from steersman.kubernetes import events
from steersman.kubernetes.client import Client
from steersman.kubernetes.events import EventRecorder, ObjectReference, shortened

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
POD = ObjectReference("default", "web-1", "uid-1")


def pod(index: int) -> ObjectReference:
    return ObjectReference("default", f"web-{index}", f"uid-{index}")


def with_recorder(story: Callable[[KubeDouble, EventRecorder], Any], **options: Any) -> None:
    async def main() -> None:
        async with (
            KubeDouble() as server,
            Client(server.config()) as client,
            EventRecorder(client, instance="here", clock=clock, **options) as recorder,
        ):
            await story(server, recorder)

    play(main())


def written(server: KubeDouble) -> list[dict[str, Any]]:
    return list(server.named(EVENTS).values())


def test_event_names_reason_pod_and_reporter() -> None:
    async def story(server: KubeDouble, recorder: EventRecorder) -> None:
        recorder.record(POD, "Scheduled", "Successfully assigned default/web-1 to node-3", action="Binding")
        await asyncio.sleep(1)
        (event,) = written(server)
        assert event["metadata"]["name"].startswith("web-1.")
        assert event["metadata"]["namespace"] == "default"
        assert event["eventTime"].endswith("Z")
        del event["metadata"], event["eventTime"]
        assert event == {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "action": "Binding",
            "reason": "Scheduled",
            "note": "Successfully assigned default/web-1 to node-3",
            "type": "Normal",
            "reportingController": "steersman",
            "reportingInstance": "here",
            "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "web-1", "uid": "uid-1"},
        }

    with_recorder(story)


def test_equal_events_become_a_series_and_others_do_not() -> None:
    async def story(server: KubeDouble, recorder: EventRecorder) -> None:
        for _ in range(2):
            recorder.record(POD, "FailedScheduling", "0/3 nodes are available", "Warning")
            await asyncio.sleep(1)
        recorder.record(POD, "FailedScheduling", "0/4 nodes are available", "Warning")
        recorder.record(pod(2), "FailedScheduling", "0/3 nodes are available", "Warning")
        await asyncio.sleep(1)
        assert [event.get("series", {}).get("count") for event in written(server)] == [2, None, None]
        for _ in range(100):  # counted, and not told one by one
            recorder.record(POD, "FailedScheduling", "0/3 nodes are available", "Warning")
            await asyncio.sleep(1)
        assert sum(1 for method, _ in server.requests if method == "PATCH") < 6
        await asyncio.sleep(40)
        series = written(server)[0]["series"]
        assert series["count"] == 102
        assert series["lastObservedTime"].endswith("Z")
        await asyncio.sleep(400)
        recorder.record(POD, "FailedScheduling", "0/3 nodes are available", "Warning")
        await asyncio.sleep(1)
        assert len(written(server)) == 4  # too long ago to be the same
        assert "series" not in written(server)[3]

    with_recorder(story)


def test_events_repeated_during_a_write_are_counted() -> None:
    async def story(server: KubeDouble, recorder: EventRecorder) -> None:
        async def slow(_: web.Request) -> None:
            await asyncio.sleep(1)

        server.fault = slow
        recorder.record(POD, "FailedScheduling", "no", "Warning")
        await asyncio.sleep(0.5)
        recorder.record(POD, "FailedScheduling", "no", "Warning")
        await asyncio.sleep(3)
        assert [event["series"]["count"] for event in written(server)] == [2]

    with_recorder(story)


def test_pending_counts_are_written_at_the_end() -> None:
    ended: list[KubeDouble] = []

    async def story(server: KubeDouble, recorder: EventRecorder) -> None:
        for _ in range(5):
            recorder.record(POD, "FailedScheduling", "no", "Warning")
            await asyncio.sleep(1)
        ended.append(server)

    with_recorder(story)
    assert written(ended[0])[0]["series"]["count"] == 5


def test_expired_event_is_created_again() -> None:
    async def story(server: KubeDouble, recorder: EventRecorder) -> None:
        recorder.record(POD, "FailedScheduling", "no", "Warning")
        await asyncio.sleep(1)
        server.objects.clear()
        recorder.record(POD, "FailedScheduling", "no", "Warning")
        await asyncio.sleep(1)
        assert written(server)[0]["series"]["count"] == 2
        assert recorder.failed == 0

    with_recorder(story)


def test_recording_never_blocks_and_drops_the_oldest() -> None:
    async def story(server: KubeDouble, recorder: EventRecorder) -> None:
        before = clock()
        for index in range(30):
            recorder.record(pod(index), "Scheduled", "yes")
        assert clock() == before
        assert not server.requests
        await asyncio.sleep(1)
        assert [event["regarding"]["name"] for event in written(server)] == [f"web-{i}" for i in range(20, 30)]
        assert (recorder.sent, recorder.dropped, recorder.failed) == (10, 20, 0)
        recorder.record(pod(0), "Scheduled", "yes")  # it was dropped, so it is news
        await asyncio.sleep(1)
        assert written(server)[-1]["regarding"]["name"] == "web-0"

    with_recorder(story, room=10)


def test_event_writes_are_serial_during_binding() -> None:
    busy = True

    async def story(server: KubeDouble, recorder: EventRecorder) -> None:
        nonlocal busy
        there, most = 0, 0

        async def slow(_: web.Request) -> None:
            nonlocal there, most
            there += 1
            most = max(most, there)
            await asyncio.sleep(1)
            there -= 1

        server.fault = slow
        for index in range(60):
            recorder.record(pod(index), "Scheduled", "yes")
        await asyncio.sleep(10)
        assert most == 1
        assert 8 <= recorder.sent <= 10
        busy = False
        await asyncio.sleep(10)
        assert most == events.SENDING
        assert recorder.sent == 60

    with_recorder(story, busy=lambda: busy)


def test_remaining_events_are_written_at_the_end() -> None:
    ended: list[KubeDouble] = []

    async def story(server: KubeDouble, recorder: EventRecorder) -> None:
        async def slow(_: web.Request) -> None:
            await asyncio.sleep(0.1)

        server.fault = slow
        for index in range(200):
            recorder.record(pod(index), "Scheduled", "yes")
        ended.append(server)

    with_recorder(story, busy=lambda: True)
    assert len(written(ended[0])) == 200


@in_jumping_time
async def test_shutdown_does_not_wait_for_a_dead_server() -> None:
    async def hang(_: web.Request) -> None:
        await asyncio.sleep(1000)

    async with KubeDouble() as server, Client(server.config()) as client:
        server.fault = hang
        async with EventRecorder(client, clock=clock) as recorder:
            for index in range(50):
                recorder.record(pod(index), "Scheduled", "yes")
            await asyncio.sleep(1)
            began = clock()
        assert clock() - began < 5.1
        assert recorder.dropped == 50
        server.fault = None


def test_short_outage_loses_no_events() -> None:
    async def story(server: KubeDouble, recorder: EventRecorder) -> None:
        async def fail(_: web.Request) -> web.Response:
            return failure(500, "InternalError")

        server.fault = fail
        recorder.record(POD, "Scheduled", "yes")
        await asyncio.sleep(1.5)
        assert not written(server)
        server.fault = None
        await asyncio.sleep(3)
        assert len(written(server)) == 1
        assert (recorder.sent, recorder.failed) == (1, 0)

    with_recorder(story)


def test_an_event_whose_answer_was_lost_is_not_written_twice() -> None:
    async def story(server: KubeDouble, recorder: EventRecorder) -> None:
        async def lose(request: web.Request) -> web.Response:
            server.fault = None
            server.put(EVENTS, await request.json())
            return failure(504, "Timeout")

        server.fault = lose
        recorder.record(POD, "Scheduled", "yes")
        await asyncio.sleep(5)
        assert len(written(server)) == 1
        assert (recorder.sent, recorder.failed) == (1, 0)

    with_recorder(story)


def test_failures_are_logged_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(events.log, "warning", lambda _, **found: said.append(found), raising=False)

    async def story(server: KubeDouble, recorder: EventRecorder) -> None:
        async def forbid(_: web.Request) -> web.Response:
            return failure(403, "Forbidden")

        server.fault = forbid
        for index in range(100):
            recorder.record(pod(index), "Scheduled", "yes")
            await asyncio.sleep(1)
        assert recorder.failed == 100
        assert [each["failed"] for each in said] == [1, 60]
        assert "HTTP 403" in said[0]["error"]

    with_recorder(story)


def test_event_name_fits_long_pod_names() -> None:
    async def story(server: KubeDouble, recorder: EventRecorder) -> None:
        recorder.record(ObjectReference("default", "x" * 235 + "." + "y" * 17, "uid"), "Scheduled", "yes")
        await asyncio.sleep(1)
        name = written(server)[0]["metadata"]["name"]
        assert len(name) <= 253
        assert ".." not in name

    with_recorder(story)


@given(st.text(max_size=2000))
def test_note_is_truncated_at_a_character(note: str) -> None:
    note = note.encode(errors="ignore").decode()
    short = shortened(note)
    assert len(short.encode()) <= 1024
    assert short == note or (short.endswith("...") and note.startswith(short[:-3]) and len(note.encode()) > 1024)
