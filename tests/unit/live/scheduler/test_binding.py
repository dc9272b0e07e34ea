"""What a scheduler makes of bindings that fail, or whose answers are lost."""

import asyncio
import json
from collections.abc import Callable

import pytest
from aiohttp import web
from structlog.testing import capture_logs
from tests.support.servers.bindings import Answer, Bindings, bind, hang_up, says
from tests.support.servers.fake_api_server import clock, failure
from tests.support.servers.live_cluster import PODS, LiveDouble, node, pod, with_double

from steersman.cluster.model import Pod, PodClass, Requests
from steersman.cluster.objects.api.metadata import StoredMeta
from steersman.cluster.objects.api.pods import LivePod, PodSpec
from steersman.cluster.pod_query import PodQuery
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.kubernetes.client import Client
from steersman.live.scheduler.binder import Binder, BindOutcome, binding, is_bound_so
from steersman.live.scheduler.ordering import QueuedPod
from steersman.live.scheduler.scheduler import Scheduler, SchedulerOptions
from steersman.policies.decision.decider import NodeChoice


async def lost(double: LiveDouble, request: web.Request) -> web.StreamResponse:
    """It is done, and nobody hears of it."""
    await bind(double, request)
    return hang_up(request)


async def elsewhere(double: LiveDouble, _: web.Request) -> web.StreamResponse:
    """Another scheduler was faster."""
    double.bind("web", "node-7")
    return failure(409, "Conflict")


async def taken(double: LiveDouble, _: web.Request) -> web.StreamResponse:
    """Another scheduler of the same name was faster, and decided the same."""
    double.bind("web", "node-1")
    return failure(409, "Conflict")


async def done_before(double: LiveDouble, request: web.Request) -> web.Response:
    """The server tried again itself when its database had not answered, or a request came after its repetition."""
    await bind(double, request)
    return failure(409, "Conflict")


def cached(double: LiveDouble) -> CachedPod:
    made = double.put(PODS, pod("web"))
    return CachedPod("default/web", made["metadata"]["uid"], Pod("web", PodClass(Requests(cpu_milli=1000))), 1)


async def dropped(_: LiveDouble, request: web.Request) -> web.StreamResponse:
    return hang_up(request)


@pytest.mark.parametrize(
    ("answers", "outcome", "attempts"),
    [
        ([bind], BindOutcome.BOUND, 1),
        ([lost], BindOutcome.BOUND, 1),
        ([dropped, bind], BindOutcome.BOUND, 2),
        ([says(429), says(429), bind], BindOutcome.BOUND, 3),
        ([says(503), lost], BindOutcome.BOUND, 2),
        ([says(409)], BindOutcome.LOST, 1),
        ([elsewhere], BindOutcome.TAKEN, 1),
        ([taken], BindOutcome.BOUND, 1),
        ([done_before], BindOutcome.BOUND, 1),
        ([says(503), elsewhere], BindOutcome.TAKEN, 2),
        ([says(404)], BindOutcome.LOST, 1),
        ([says(403)], BindOutcome.REFUSED, 1),
        ([says(500)], BindOutcome.REFUSED, 6),
    ],
)
@with_double
async def test_binding_outcome_follows_from_the_responses(
    double: LiveDouble, client: Client, answers: list[Answer], outcome: BindOutcome, attempts: int
) -> None:
    bindings = Bindings(double, *answers)
    found, _ = await Binder(client).bind(cached(double), "node-1", 0)
    assert found is outcome
    assert len(bindings.came) == attempts
    placed = double.objects[PODS, "web"]["spec"].get("nodeName")
    assert (placed == "node-1") == (outcome is BindOutcome.BOUND)


@pytest.mark.parametrize(
    ("answers", "count"),
    [
        ([bind], 0),
        ([lost], 0),
        ([taken], 1),
        ([elsewhere], 1),
        ([says(429), taken], 1),
        # The first attempt may have succeeded on the server.
        ([says(503), taken], 0),
        ([says(504), taken], 0),
        ([dropped, taken], 0),
        ([says(503), elsewhere], 1),
    ],
)
@with_double
async def test_binding_of_another_scheduler_counts_unless_it_may_be_ours(
    double: LiveDouble, client: Client, answers: list[Answer], count: int
) -> None:
    Bindings(double, *answers)
    binder = Binder(client)
    await binder.bind(cached(double), "node-1", 0)
    assert binder.taken == count


@pytest.mark.parametrize(("index", "is_so"), [("0-2", True), ("0-1", False), (None, False)])
def test_pod_with_other_devices_counts_as_bound_by_another(index: str | None, is_so: bool) -> None:
    shares = Requests(cpu_milli=1000, gpu_count=2, gpu_milli=500)
    wanted = binding(CachedPod("default/web", "1", Pod("web", PodClass(shares)), 1), "node-1", 0b101)
    notes = {"other": "x"} if index is None else {"alibabacloud.com/gpu-index": index}
    found = LivePod(StoredMeta("web", annotations=notes), PodSpec(node_name="node-1"))
    assert is_bound_so(found, wanted) == is_so
    assert not is_bound_so(LivePod(StoredMeta("web", annotations=notes)), wanted)


@pytest.mark.parametrize(("asked", "least", "most"), [("3", 3.0, 5.0), ("86400", 30.0, 46.0), ("soon", 0.1, 0.2)])
@with_double
async def test_retry_after_is_honoured_up_to_a_limit(
    double: LiveDouble, client: Client, asked: str, least: float, most: float
) -> None:
    bindings = Bindings(double, says(429, asked), bind)
    assert (await Binder(client).bind(cached(double), "node-1", 0))[0] is BindOutcome.BOUND
    first, second = bindings.came
    assert least <= second - first <= most + 0.1
    assert not bindings.looks()  # the server says that it did nothing


@with_double
async def test_binding_is_skipped_when_no_longer_valid(double: LiveDouble, client: Client) -> None:
    bindings = Bindings(double, says(503))
    binder = Binder(client, lambda node: f"{node} is gone" if len(bindings.came) == 2 else "")
    assert await binder.bind(cached(double), "node-1", 0) == (BindOutcome.LOST, "node-1 is gone")
    assert len(bindings.came) == 2


class FirstNode:
    """Decides for the first node."""

    name = "first"
    asks_first = answers_once = False

    def choose(self, query: PodQuery) -> NodeChoice:
        return NodeChoice(0, 0)

    def changed(self, slot: int) -> None: ...


class Notes:
    """Hears what happens."""

    def decided(self, seconds: float, cpu_seconds: float) -> None: ...

    def scheduled(self, queued: QueuedPod, node: str, seconds: float) -> None: ...

    def unschedulable(self, queued: QueuedPod, why: str, seconds: float) -> None:
        raise AssertionError(why)

    def failed(self, queued: QueuedPod, node: str, why: str, seconds: float) -> None: ...


def made(client: Client, may_decide: Callable[[], bool] = lambda: True) -> Scheduler:
    """A scheduler that always takes the first node."""
    return Scheduler(
        client,
        lambda _: FirstNode(),  # type: ignore[arg-type,return-value]
        Notes(),
        SchedulerOptions(),
        may_decide,
        clock=clock,
    )


def nodes_of(double: LiveDouble) -> dict[str, str]:
    return {name: each["spec"].get("nodeName", "") for name, each in double.named(PODS).items()}


@with_double
async def test_recreated_pod_is_bound_after_the_binding_of_its_namesake(double: LiveDouble, client: Client) -> None:
    """A pod of a StatefulSet that is bound, deleted and made anew before the binding's answer is here.

    The new one is under way then, and the first attempt to bind it fails after that.
    """

    async def replaced(double: LiveDouble, request: web.Request) -> web.StreamResponse:
        answer = await bind(double, request)
        double.remove(PODS, "web")
        double.put(PODS, pod("web", scheduler="steersman"))
        await asyncio.sleep(0.5)  # the watch tells sooner
        return answer

    async def refused(_: LiveDouble, __: web.Request) -> web.StreamResponse:
        await asyncio.sleep(1)
        return failure(403, "Forbidden")

    bindings = Bindings(double, replaced, refused, bind)
    double.put("/api/v1/nodes", node("node-1"))
    double.put(PODS, pod("web", scheduler="steersman"))
    scheduler = made(client)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(scheduler.watch()), group.create_task(scheduler.schedule())]
        end = clock() + 20
        while clock() < end and (len(bindings.came) < 2 or nodes_of(double) != {"web": "node-1"}):
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
    assert len(bindings.came) == 3


@with_double
async def test_malformed_response_requeues_the_pod(double: LiveDouble, client: Client) -> None:
    Bindings(double, says(503))
    double.put("/api/v1/nodes", node("node-1"))
    there = double.put(PODS, pod("web", scheduler="steersman"))
    scheduler = made(client)
    scheduler.cache.upsert_node(json.dumps(double.objects["/api/v1/nodes", "node-1"]).encode())  # type: ignore[arg-type]
    scheduler.cache.upsert_pod(json.dumps(there).encode())  # type: ignore[arg-type]
    scheduler.decider = FirstNode()  # type: ignore[assignment]

    async def nonsense(*_: object) -> tuple[BindOutcome, str]:
        raise RuntimeError("nonsense")

    scheduler.binder.bind = nonsense  # type: ignore[method-assign,assignment]
    queued = scheduler.queue.pop()
    assert queued is not None
    with capture_logs() as log:
        scheduler.schedule_one(queued)
        while scheduler.in_flight:
            await asyncio.sleep(0)
    assert [each["error"] for each in log] == ["RuntimeError('nonsense')"]
    assert scheduler.queue.counts()["backoff"] == 1
    assert not scheduler.cache.state.placements


@with_double
async def test_new_leader_relists_before_deciding(double: LiveDouble, client: Client) -> None:
    """Its watch may be behind: here it never tells that the last leader bound a pod."""
    leads = False
    bindings = Bindings(double, bind)
    double.put("/api/v1/nodes", node("node-1"))
    double.put(PODS, pod("web", scheduler="steersman"))
    scheduler = made(client, lambda: leads)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(scheduler.watch())
        for reflector in scheduler.cache.reflectors:
            await reflector.synced.wait()
        await asyncio.sleep(1)
        double.watches.clear()  # they are open still, and tell nothing more
        double.bind("web", "node-1")
        leads = True
        scheduling = group.create_task(scheduler.schedule())
        await asyncio.sleep(1)
        assert scheduler.cache.pods["default/web"].node == "node-1"
        lists = [reflector.lists for reflector in scheduler.cache.reflectors]
        assert (lists[:2], sum(lists[2:])) == ([2, 2], 0)
        assert not bindings.came
        for task in (watching, scheduling):
            task.cancel()
