"""A new leader makes sure that no binding of the last one succeeds any more."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from aiohttp import web
from tests.support.servers.fake_api_server import failure
from tests.support.servers.live_cluster import NODES, PODS, LiveDouble, node, pod, with_double
from tests.unit.live.scheduler.test_binding import made

from steersman.kubernetes.client import Client
from steersman.live.scheduler.binder import Binder, BindOutcome
from steersman.live.scheduler.scheduler import Scheduler
from steersman.live.scheduler.takeover import LEADER_KEY, fence

BINDINGS = f"{PODS}/web/binding"


async def bind(double: LiveDouble, request: web.Request) -> web.StreamResponse | None:
    """Bind as the API server does: only the version of the pod that the binding names."""
    if not request.path.endswith("/binding"):
        return None
    wanted = (await request.json())["metadata"]
    there = double.objects[PODS, wanted["name"]]
    if there["spec"].get("nodeName") or wanted.get("resourceVersion") not in (
        None,
        there["metadata"]["resourceVersion"],
    ):
        return failure(409, "Conflict")
    double.bind(wanted["name"], "node-1")
    return web.json_response({}, status=201)


def filled(double: LiveDouble, client: Client) -> Scheduler:
    """A scheduler that knows of one node and one pod that waits."""
    double.bind_after = None
    double.fault = lambda request: bind(double, request)
    scheduler = made(client)
    scheduler.cache.upsert_node(raw(double.put(NODES, node("node-1"))))
    scheduler.cache.upsert_pod(raw(double.put(PODS, pod("web", scheduler="steersman"))))
    return scheduler


def raw(obj: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(obj))


@with_double
async def test_binding_decided_before_the_takeover_is_rejected(double: LiveDouble, client: Client) -> None:
    last, new = filled(double, client), filled(double, client)
    late = last.cache.pods["default/web"]
    await fence(client, new.cache, "steersman", "new", 4)
    assert double.objects[PODS, "web"]["metadata"]["annotations"][LEADER_KEY] == "new"
    leads = True

    def objection(_: str) -> str:
        nonlocal leads
        leads, is_first = False, leads
        return "" if is_first else "we lead no longer"

    # It is frozen between its first look at the lease and the write.
    binder = Binder(client, lambda _: "")
    binder.objection = objection
    binder._send = Binder(client)._send  # type: ignore[method-assign]
    assert (await binder.bind(late, "node-1", 0))[0] is BindOutcome.LOST
    assert not double.objects[PODS, "web"]["spec"].get("nodeName")
    assert (await new.binder.bind(new.cache.pods["default/web"], "node-1", 0))[0] is BindOutcome.BOUND


@with_double
async def test_bindings_of_the_last_leader_count(double: LiveDouble, client: Client) -> None:
    new = filled(double, client)
    double.bind("web", "node-1")
    await fence(client, new.cache, "steersman", "new", 4)
    assert new.cache.pods["default/web"].node == "node-1"
    assert len(new.cache.state.placements) == 1


@pytest.mark.parametrize(("status", "attempts"), [(403, 1), (404, 1), (500, 2)])
@with_double
async def test_unpatchable_pod_is_retried_unless_hopeless(
    double: LiveDouble, client: Client, status: int, attempts: int
) -> None:
    new, tried = filled(double, client), 0

    async def refuse(request: web.Request) -> web.StreamResponse | None:
        nonlocal tried
        tried += request.method == "PATCH"
        return failure(status, "Because") if tried == 1 else None

    double.fault = refuse
    await fence(client, new.cache, "steersman", "new", 4)
    assert tried == attempts


@with_double
async def test_status_change_does_not_block_binding(double: LiveDouble, client: Client) -> None:
    scheduler = filled(double, client)
    known = double.objects[PODS, "web"]
    double.put(PODS, {**known, "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled"}]}})
    assert (await scheduler.binder.bind(scheduler.cache.pods["default/web"], "node-1", 0))[0] is BindOutcome.BOUND
    assert double.requests.count(("POST", BINDINGS)) == 2


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({"labels": {"example.com/x": "y"}}, BindOutcome.LOST),
        ({"annotations": {"alibabacloud.com/gpu-count": "1"}}, BindOutcome.LOST),
        ({"annotations": {"example.com/x": "y"}}, BindOutcome.BOUND),
    ],
)
@with_double
async def test_pod_is_decided_again_if_what_is_read_of_it_changed(
    double: LiveDouble, client: Client, change: dict[str, dict[str, str]], outcome: BindOutcome
) -> None:
    scheduler = filled(double, client)
    known = double.objects[PODS, "web"]
    double.put(PODS, {**known, "metadata": {**known["metadata"], **change}})
    assert (await scheduler.binder.bind(scheduler.cache.pods["default/web"], "node-1", 0))[0] is outcome


@with_double
async def test_no_binding_is_sent_after_the_lease_ended(double: LiveDouble, client: Client) -> None:
    scheduler = filled(double, client)
    asked = 0

    def objection(_: str) -> str:
        nonlocal asked
        asked += 1
        return "we lead no longer" if asked > 1 else ""

    scheduler.binder.objection = objection
    outcome, why = await scheduler.binder.bind(scheduler.cache.pods["default/web"], "node-1", 0)
    assert (outcome, why) == (BindOutcome.LOST, "we lead no longer")
    assert ("POST", BINDINGS) not in double.requests


@with_double
async def test_connections_are_open_before_the_first_binding(double: LiveDouble, client: Client) -> None:
    double.put(NODES, node("node-1"))
    scheduler = made(client, lambda: True)
    scheduler.succeeds = lambda: "new"
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(scheduler.watch()), group.create_task(scheduler.schedule())]
        await asyncio.sleep(1)
        assert double.requests.count(("GET", "/version")) == scheduler.options.in_flight
        for task in tasks:
            task.cancel()
