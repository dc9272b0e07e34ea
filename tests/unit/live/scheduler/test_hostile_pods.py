"""Pods of one tenant that fit nowhere cost the pods of others nothing, however many there are and whatever they ask."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace

import pytest
from tests.support.hostile import KINDS, hostile_pod
from tests.support.virtual_scheduler import VirtualScheduler, in_event_loop
from tests.support.waking import Lane, Object

from steersman.core import event_loop
from steersman.kubernetes.cache import store
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.kubernetes.cache.store import NUMBERS_OF_WAITING
from steersman.live.scheduler import hints
from steersman.live.scheduler.queue import FAILURES, UNSCHEDULABLE_SECONDS
from steersman.live.scheduler.scheduler import Scheduler

PODS = 60
RULES_OF_A_POD = 40
"""More than any of the pods has."""


def machine(name: str, cpu: str = "8") -> Object:
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "a"}
    status = {"allocatable": {"cpu": cpu, "memory": "9Gi", "pods": "99"}}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def fill(world: VirtualScheduler, kind: str, *, has_room: bool = False) -> None:
    for i in range(PODS):
        world.apply("create", hostile_pod(kind, i, has_room=has_room, scheduler="steersman"))


def small_pod(name: str, namespace: str = "other") -> Object:
    container = {"name": "c", "resources": {"requests": {"cpu": "100m"}}}
    spec = {"schedulerName": "steersman", "containers": [container]}
    return {"kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


@pytest.fixture
def world() -> VirtualScheduler:
    made = VirtualScheduler()
    made.list_volumes()
    return made


@pytest.mark.parametrize(
    ("kind", "has_room"),
    [*((kind, False) for kind in KINDS), ("anti-affinity", True), ("node selector", True), ("node affinity", True)],
)
@in_event_loop
def test_pods_that_fit_nowhere_leave_a_bounded_number_of_classes_and_rules(
    world: VirtualScheduler, kind: str, has_room: bool
) -> None:
    world.apply("create", machine("node"))
    # It is what their rules about other pods refuse.
    world.apply("create", small_pod("running", "full"))
    world.run()
    fill(world, kind, has_room=has_room)
    world.run()
    state = world.scheduler.cache.state
    assert state.numbers <= NUMBERS_OF_WAITING + RULES_OF_A_POD
    assert len(state.class_arrays.gpu_count) == len(state.classes)
    assert len(state.term_arrays.matched) <= 2 * NUMBERS_OF_WAITING
    world.apply("create", small_pod("small"))
    world.run()
    assert world.node_of("other/small") == "node"


@in_event_loop
def test_pods_of_others_wait_for_a_bounded_number_of_attempts(world: VirtualScheduler) -> None:
    world.apply("create", machine("node"))
    fill(world, "anti-affinity")
    world.apply("create", small_pod("small"))
    scheduler = world.scheduler
    while not world.node_of("other/small"):
        queued = scheduler.queue.pop()
        assert queued is not None
        scheduler.schedule_one(queued)
    assert world.reports.failed_attempts <= FAILURES


@in_event_loop
def test_pod_without_numbers_is_woken_when_a_node_has_room(world: VirtualScheduler) -> None:
    world.apply("create", machine("node"))
    fill(world, "anti-affinity")
    world.run()
    last = f"full/anti-affinity-{PODS - 1}"
    assert world.scheduler.cache.pods[last].class_id < 0
    for i in range(PODS):
        world.apply("create", machine(f"large-{i}", cpu="20000"))
    world.run(seconds=60.0)
    assert world.node_of(last)


@in_event_loop
def test_large_annotations_of_pending_pods_are_not_stored(world: VirtualScheduler) -> None:
    world.apply("create", machine("node"))
    world.apply("create", hostile_pod("annotations", 1, has_room=False, scheduler="steersman"))
    (pod,) = world.scheduler.cache.pods.values()
    assert pod.notes == {}


def apply_pod_with_claim(world: VirtualScheduler, name: str, namespace: str) -> None:
    claim, pod = Lane("x", "steersman").claim(), small_pod(name, namespace)
    claim["metadata"] = {"name": name, "namespace": namespace}
    pod["spec"]["nodeSelector"] = {"pool": "none"}
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    world.apply("create", claim)
    world.apply("create", pod)


@pytest.mark.parametrize(
    ("limit", "looks"), [(0.0, []), (2.0, ["full", "other"]), (4.0, ["full", "other", "full", "full"])]
)
@in_event_loop
def test_search_for_woken_pods_looks_at_some_pods_with_claims_of_each_namespace(
    world: VirtualScheduler, limit: float, looks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.apply("create", machine("node"))
    world.apply("create", Lane("x", "steersman").storage_class(provisioner="csi.example.com"))
    for i in range(PODS):
        apply_pod_with_claim(world, f"claims-{i}", "full")
    apply_pod_with_claim(world, "claims", "other")
    world.run(seconds=60.0)
    scheduler = world.scheduler
    assert scheduler.queue.unschedulable == PODS + 1
    looked_at: list[str] = []

    def room(_: Scheduler, pod: CachedPod, __: set[int]) -> int:
        looked_at.append(pod.pod.namespace)
        return 0

    monkeypatch.setattr(Scheduler, "_room", room)
    monkeypatch.setattr(hints, "SEARCH_SECONDS", limit)
    # Each look at a pod takes a second.
    monkeypatch.setattr("steersman.live.scheduler.hints.time.thread_time", lambda: float(len(looked_at)))
    world.apply("create", machine("more"))
    scheduler.refresh()
    assert looked_at == looks
    monkeypatch.undo()
    world.apply("create", {**machine("other"), "metadata": {"name": "other", "labels": {"pool": "none"}}})
    world.run(seconds=60.0)
    assert scheduler.queue.unschedulable < PODS


def hostile_in(namespace: str, kind: str, i: int, message: str = "") -> Object:
    """A hostile pod of a namespace; with a message it was tried before."""
    pod = hostile_pod(kind, i, has_room=False, scheduler="steersman")
    pod["metadata"]["namespace"] = namespace
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {**pod, "status": {"conditions": [condition] if message else []}}


@pytest.mark.parametrize("kind", ["anti-affinity", "node selector", "labels"])
@in_event_loop
def test_pods_of_many_namespaces_leave_a_bounded_number_of_classes_and_rules(
    world: VirtualScheduler, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "ALL_NUMBERS_OF_WAITING", 50)
    world.apply("create", machine("node"))
    for i in range(PODS):
        world.apply("create", hostile_in(f"full-{i}", kind, i))
    world.run()
    assert world.scheduler.cache.state.numbers <= 50 + RULES_OF_A_POD
    world.apply("create", small_pod("small"))
    world.run()
    assert world.node_of("other/small") == "node"


@pytest.mark.parametrize("is_restarted", [False, True])
@in_event_loop
def test_new_pod_goes_before_pods_of_many_namespaces_that_were_tried(
    world: VirtualScheduler, is_restarted: bool
) -> None:
    world.apply("create", machine("node"))
    for i in range(PODS):
        message = "0/1 nodes are available: 1 Insufficient cpu." if is_restarted else ""
        world.apply("create", hostile_in(f"full-{i}", "node selector", i, message))
    if not is_restarted:
        world.run()
        world.now += UNSCHEDULABLE_SECONDS
    world.apply("create", small_pod("small"))
    first = world.scheduler.queue.pop()
    assert first is not None
    assert first.pod.key == "other/small"
    world.scheduler.schedule_one(first)
    before = world.reports.failed_attempts
    world.run()
    assert world.reports.failed_attempts == before + PODS, "each is tried all the same"


@in_event_loop
def test_reasons_that_the_api_has_are_not_written_again_after_a_restart(world: VirtualScheduler) -> None:
    world.apply("create", machine("node"))
    same, other = "0/7 nodes are available: 7 Insufficient cpu.", "0/7 nodes are available: 7 Too many pods."
    world.apply("create", hostile_in("full", "tolerations", 0, same))
    world.apply("create", hostile_in("full", "tolerations", 1, other))
    # The leader tries this one after it was seen here.
    world.apply("create", hostile_in("full", "tolerations", 2))
    world.apply("create", hostile_in("full", "tolerations", 2, same))
    world.apply("create", hostile_in("full", "tolerations", 3))
    world.run()
    assert [key for key, _ in world.reports.told] == ["full/tolerations-3", "full/tolerations-1"]


@in_event_loop
def test_search_for_woken_pods_does_not_read_all_pods_that_share_no_group(world: VirtualScheduler) -> None:
    world.apply("create", machine("node"))
    fill(world, "volumes")
    world.run()
    queue = world.scheduler.queue
    assert queue.unschedulable == PODS
    assert not queue.groups()
    assert {name: len(pods) for name, pods in queue.singles.items()} == {("full", True): PODS}


async def test_scheduler_gives_way_after_some_milliseconds_of_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    world = VirtualScheduler()
    # Each attempt takes a millisecond.
    monkeypatch.setattr(event_loop, "time", SimpleNamespace(monotonic=lambda: world.reports.failed_attempts / 1000))

    async def connected(_: int) -> None: ...

    world.apply("create", machine("node"))
    fill(world, "tolerations")
    for reflector in world.cache.reflectors:
        reflector.synced.set()
    monkeypatch.setattr(world.scheduler.client, "open_connections", connected)
    loop = asyncio.create_task(world.scheduler.schedule())
    attempts = [0]
    while attempts[-1] < PODS:
        await asyncio.sleep(0)
        attempts.append(world.reports.failed_attempts)
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    assert max(after - before for before, after in itertools.pairwise(attempts)) <= 6


@pytest.mark.parametrize(
    ("kind", "looks"), [("anti-affinity", False), ("node selector", False), ("affinity", True), ("spread", True)]
)
@in_event_loop
def test_pods_that_a_binding_cannot_help_are_not_looked_at_after_it(
    world: VirtualScheduler, kind: str, looks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "NUMBERS_OF_WAITING", 24)
    world.apply("create", machine("node"))
    fill(world, kind)
    world.apply("create", small_pod("small"))
    world.run(seconds=60.0)
    looked_at: list[str] = []

    def room(_: Scheduler, pod: CachedPod, __: set[int]) -> int:
        looked_at.append(pod.key)
        return 0

    monkeypatch.setattr(Scheduler, "_room", room)
    world.apply("create", small_pod("other"))
    world.run(seconds=60.0)
    assert world.node_of("other/other")
    assert bool(looked_at) == looks
    # What frees a node may help any pod.
    world.apply("delete", small_pod("small"))
    world.run(seconds=60.0)
    assert len(set(looked_at)) == PODS


@pytest.mark.parametrize("numbers", [0, NUMBERS_OF_WAITING])
@in_event_loop
def test_pod_whose_rules_change_while_it_waits_is_tried_again(
    world: VirtualScheduler, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "NUMBERS_OF_WAITING", numbers)
    world.apply("create", machine("node"))
    world.apply("create", hostile_pod("node selector", 0, has_room=True, scheduler="steersman"))
    world.run()
    changed = hostile_pod("affinity", 0, has_room=True, scheduler="steersman")
    changed["metadata"]["name"] = "node-selector-0"
    world.apply("create", changed)
    world.run()
    world.apply("create", {**machine("other"), "metadata": {"name": "other", "labels": {"pool-0": "0"}}})
    world.run(seconds=60.0)
    assert world.reports.failed_attempts >= 2
