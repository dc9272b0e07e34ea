"""`workload replay` on a cluster: pods come and go at their times, however often the replay is stopped."""

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.errors import raises
from tests.support.servers.fake_api_server import clock, failing
from tests.support.servers.live_cluster import CONFIG_MAPS, PODS, LiveDouble, with_double
from tests.support.servers.live_cluster import pod as pod_in_api

from steersman.cluster.model import SHARED_GPUS, Constraints, Pod, PodClass, Requests
from steersman.cluster.objects.decoding import pod_from_object
from steersman.core.errors import SteersmanError, UsageError
from steersman.kubernetes.client import Client
from steersman.live.load import commands, run_state
from steersman.live.load.commands import RunTarget
from steersman.live.load.replay import CONCURRENCY, ReplaySpeed, ReplayStats, placed, scheduled_pods
from steersman.live.load.run_state import RUN, pod_object

USUAL = ReplaySpeed()
SMALL = PodClass(Requests(1000, 1 << 30))


def pods(*times: tuple[float | None, float | None], prefix: str = "p", **more: object) -> list[Pod]:
    """Pods that are created and deleted then."""
    return [
        Pod(f"{prefix}-{i}", SMALL, creation_time=start, deletion_time=end, **more)  # type: ignore[arg-type]
        for i, (start, end) in enumerate(times)
    ]


async def replay(
    client: Client, found: list[Pod], pace: ReplaySpeed = USUAL, *, resume: bool = False, **more: bool
) -> ReplayStats:
    return await commands.replay_pods(RunTarget(client, "default"), found, pace, lambda *_: None, resume=resume, **more)


@with_double
async def test_pods_arrive_on_time_and_run_for_their_duration_after_binding(double: LiveDouble, client: Client) -> None:
    found = pods((100, 160), (110, None), (130, 140))
    double.bind_after = 2.0
    times: dict[tuple[str, str], float] = {}

    async def note(request):
        times[request.method, request.path] = clock()

    double.fault = note
    tally = await replay(client, found, ReplaySpeed(speed=10.0))
    assert tally == ReplayStats(created=3, deleted=2)
    assert sorted(double.named(PODS)) == ["p-1"]
    assert [path for method, path in double.requests if method == "POST"] == [CONFIG_MAPS, PODS, PODS, PODS]
    assert times["DELETE", f"{PODS}/p-0"] == pytest.approx(0.0 + 2.0 + 6.0, abs=0.1)
    assert times["DELETE", f"{PODS}/p-2"] == pytest.approx(3.0 + 2.0 + 1.0, abs=0.1)
    assert not double.named(CONFIG_MAPS)


@with_double
async def test_pods_without_times_come_at_once_or_at_a_rate(double: LiveDouble, client: Client) -> None:
    found = pods(*[(None, None)] * 200)
    await replay(client, found)
    assert (len(double.named(PODS)), clock() < 0.5) == (200, True)
    for name in list(double.named(PODS)):
        double.remove(PODS, name)
    start = clock()
    await replay(client, found, ReplaySpeed(rate=50.0))
    assert clock() - start == pytest.approx(200 / 50, abs=0.2)


@with_double
async def test_pods_are_counted_after_their_time_to_bind(double: LiveDouble, client: Client) -> None:
    double.bind_after = 3.0
    assert await replay(client, pods(*[(None, None)] * 5)) == ReplayStats(created=5)
    assert 3.0 <= clock() < 4.0
    double.bind_after = None
    start = clock()
    assert await replay(client, pods((None, None), prefix="waits")) == ReplayStats(created=1, waiting=1)
    assert clock() - start < 15


@with_double
async def test_missing_namespaces_are_reported_or_created_on_request(double: LiveDouble, client: Client) -> None:
    found = [*pods((None, None), namespace="b"), *pods((None, None), namespace="a"), *pods((None, None))]
    with raises(SteersmanError, "'a'", "1", "--create-namespaces"):
        await replay(client, found)
    assert not any(method == "POST" for method, _ in double.requests)
    assert await replay(client, found, create_namespaces=True) == ReplayStats(created=3)
    assert {"a", "b"} <= double.named("/api/v1/namespaces").keys()


@with_double
async def test_creations_run_concurrently(double: LiveDouble, client: Client) -> None:
    most, now = 0, 0

    async def slow(request):
        nonlocal most, now
        if request.method == "POST" and request.path == PODS:
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.2)
            now -= 1

    double.fault = slow
    await replay(client, pods(*[(None, None)] * 300))
    assert most == CONCURRENCY
    assert clock() < 1.5


@with_double
async def test_replay_stops_waiting_for_unbound_pods(double: LiveDouble, client: Client) -> None:
    double.bind_after = None
    tally = await replay(client, pods((0, 10), (0, None)))
    assert tally == ReplayStats(created=2, waiting=2)
    assert clock() == pytest.approx(60.0, abs=2.0)


@pytest.mark.parametrize("seconds", [0.05, 1.5, 3.2, 7.5])
@with_double
async def test_killed_replay_resumes_without_duplicate_pods(double: LiveDouble, client: Client, seconds) -> None:
    found = pods(*[(i * 0.1, i * 0.1 + 2.0 if i % 2 else None) for i in range(60)])
    made: list[str] = []
    put = double.put

    def count(collection, obj):
        if collection == PODS and (collection, obj["metadata"]["name"]) not in double.objects:
            made.append(obj["metadata"]["name"])
        return put(collection, obj)

    double.put = count  # type: ignore[method-assign]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await replay(client, found)
    state = json.loads(double.named(CONFIG_MAPS)["steersman-workload"]["data"]["state.json"])
    assert state["done"] <= len(made) < 61
    with raises(SteersmanError):
        await replay(client, found[1:], resume=True)
    await replay(client, found, resume=True)
    assert sorted(made) == sorted(pod.name for pod in found)
    assert sorted(double.named(PODS)) == sorted(pod.name for pod in found if pod.deletion_time is None)


@with_double
async def test_removed_replay_leaves_nothing(double: LiveDouble, client: Client) -> None:
    found = pods(*((float(second), None) for second in range(20)))
    running = asyncio.create_task(replay(client, found))
    await asyncio.sleep(5.5)
    await run_state.clean(client, lambda *_: None)
    assert not double.named(PODS)
    with raises(SteersmanError):
        await running
    assert not double.named(PODS)


@with_double
async def test_foreign_pod_or_missing_namespace_fails_in_one_line(double: LiveDouble, client: Client) -> None:
    double.put(PODS, pod_in_api("p-1"))
    with raises(SteersmanError, "default/p-1"):
        await replay(client, pods((None, None), (None, None)))
    await run_state.clean(client, lambda *_: None)
    assert list(double.named(PODS)) == ["p-1"]
    with raises(SteersmanError, "'prod'", "--create-namespaces"):
        await replay(client, pods((None, None), namespace="prod"))


@with_double
async def test_api_rejection_names_the_pod(double: LiveDouble, client: Client) -> None:
    double.fault = failing(403, PODS)
    with raises(SteersmanError, "default/p-0"):
        await replay(client, pods((None, None)))


@with_double
async def test_priorities_become_classes_and_existing_ones_are_used(double: LiveDouble, client: Client) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    double.put(classes, {"metadata": {"name": "theirs"}, "value": 7})
    found = [replace(pod, priority=value) for pod, value in zip(pods(*[(None, None)] * 4), (0, 7, 8, -3), strict=True)]
    await replay(client, found)
    named = {name: pod["spec"].get("priorityClassName") for name, pod in double.named(PODS).items()}
    assert named == {"p-0": None, "p-1": "theirs", "p-2": "steersman-8", "p-3": "steersman-minus-3"}
    assert double.named(classes)["steersman-minus-3"]["value"] == -3
    with raises(SteersmanError, "2000000000", "1000000000"):
        await replay(client, [replace(found[0], name="x", priority=2_000_000_000)])


def test_created_pod_equals_the_trace_pod():
    pod = Pod(
        "gpu",
        PodClass(
            Requests(500, 1 << 30, gpu_count=2, gpu_milli=1000, gpu_resource=SHARED_GPUS),
            Constraints(gpu_models=("A", "B")),
        ),
        labels={"app": "x"},
        priority=5,
        owner="Job/j",
        creation_time=3.0,
        deletion_time=9.0,
    )
    made = pod_object(pod, "id", "image", "high")
    assert made["metadata"]["annotations"] == {
        "alibabacloud.com/gpu-count": "2",
        "alibabacloud.com/gpu-milli": "1000",
        "alibabacloud.com/gpu-card-model": "A|B",
        "steersman.dev/owner": "Job/j",
    }
    assert (made["spec"]["priorityClassName"], made["spec"]["containers"][0]["image"]) == ("high", "image")
    assert made["metadata"]["labels"][RUN] == "id"
    read = pod_from_object(made)
    assert (read.requests, read.owner, read.labels["app"]) == (pod.requests, "Job/j", "x")


@given(
    st.lists(st.tuples(st.none() | st.floats(0, 1e6), st.floats(0, 1e6), st.booleans()), min_size=1, max_size=20),
    st.floats(0.01, 1e4),
)
def test_times_are_scaled_from_the_first_pod_on(lives, speed):
    found = pods(*[(start, (start or 0) + runs if ends else None) for start, runs, ends in lives])
    plan = scheduled_pods(found, ReplaySpeed(speed))
    assert sorted(each.pod.name for each in plan) == sorted(pod.name for pod in found)
    assert [each.at for each in plan] == sorted(each.at for each in plan)
    assert plan[0].at == 0.0
    for each in plan:
        if each.pod.deletion_time is None:
            assert each.runs is None
        else:
            length = each.pod.deletion_time - (each.pod.creation_time or 0.0)
            assert each.runs == pytest.approx(length / speed)


def test_invalid_options_are_reported():
    with raises(UsageError, "--speed", "0"):
        ReplaySpeed(speed=0)
    with raises(UsageError, "--rate", "1"):
        ReplaySpeed(rate=-1)
    both = [Pod("a", SMALL, namespace="x"), Pod("a", SMALL, namespace="y")]
    assert [pod.scheduler_name for pod in placed(both, "mine", "")] == ["mine", "mine"]
    with raises(UsageError, "--namespace"):
        placed(both, "", "z")
