"""Pods of one tenant that fit nowhere cost the pods of others nothing, however many there are and whatever they ask."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from tests.support.hostile import KINDS, hostile_pod
from tests.support.waking import Lane, Object
from tests.unit.apps.scheduler.test_waking import World

from steersman.apps.scheduler import hints
from steersman.apps.scheduler.ordering import QueuedPod
from steersman.apps.scheduler.queue import FAILURES, UNSCHEDULABLE_SECONDS
from steersman.apps.scheduler.scheduler import Scheduler
from steersman.core import event_loop
from steersman.kubernetes.cache import store
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.kubernetes.cache.store import NUMBERS_OF_WAITING

PODS = 60
RULES_OF_A_POD = 40
"""More than any of the pods has."""


def machine(name: str, cpu: str = "8") -> Object:
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "a"}
    status = {"allocatable": {"cpu": cpu, "memory": "9Gi", "pods": "99"}}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def small_pod(name: str, namespace: str = "other") -> Object:
    container = {"name": "c", "resources": {"requests": {"cpu": "100m"}}}
    spec = {"schedulerName": "steersman", "containers": [container]}
    return {"kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def play(test: Callable[[World], None]) -> None:
    async def run() -> None:
        test(World())

    asyncio.run(run())


@pytest.mark.parametrize(
    ("kind", "has_room"),
    [*((kind, False) for kind in KINDS), ("anti-affinity", True), ("node selector", True), ("node affinity", True)],
)
def test_pods_that_fit_nowhere_leave_a_bounded_number_of_classes_and_rules(kind: str, has_room: bool) -> None:
    def test(world: World) -> None:
        world.apply("create", machine("node"))
        # It is what their rules about other pods refuse.
        world.apply("create", small_pod("running", "full"))
        world.run()
        for i in range(PODS):
            world.apply("create", hostile_pod(kind, i, has_room=has_room, scheduler="steersman"))
        world.run()
        state = world.scheduler.cache.state
        assert state.numbers <= NUMBERS_OF_WAITING + RULES_OF_A_POD
        assert len(state.class_arrays.gpu_count) == len(state.classes)
        assert len(state.term_arrays.matched) <= 2 * NUMBERS_OF_WAITING
        world.apply("create", small_pod("small"))
        world.run()
        assert world.node_of("other/small") == "node"

    play(test)


def test_pods_of_others_wait_for_a_bounded_number_of_attempts() -> None:
    def test(world: World) -> None:
        world.apply("create", machine("node"))
        for i in range(PODS):
            world.apply("create", hostile_pod("anti-affinity", i, has_room=False, scheduler="steersman"))
        world.apply("create", small_pod("small"))
        scheduler = world.scheduler
        while not world.node_of("other/small"):
            queued = scheduler.queue.pop()
            assert queued is not None
            scheduler._schedule_one(queued)
        assert world.attempts.failed_attempts <= FAILURES

    play(test)


def test_pod_without_numbers_is_woken_when_a_node_has_room() -> None:
    def test(world: World) -> None:
        world.apply("create", machine("node"))
        for i in range(PODS):
            world.apply("create", hostile_pod("anti-affinity", i, has_room=False, scheduler="steersman"))
        world.run()
        last = f"full/anti-affinity-{PODS - 1}"
        assert world.scheduler.cache.pods[last].class_id < 0
        for i in range(PODS):
            world.apply("create", machine(f"large-{i}", cpu="20000"))
        world.run(seconds=60.0)
        assert world.node_of(last)

    play(test)


def test_large_annotations_of_pending_pods_are_not_stored() -> None:
    def test(world: World) -> None:
        world.apply("create", machine("node"))
        world.apply("create", hostile_pod("annotations", 1, has_room=False, scheduler="steersman"))
        (pod,) = world.scheduler.cache.pods.values()
        assert pod.notes == {}

    play(test)


def apply_pod_with_claim(world: World, name: str, namespace: str) -> None:
    claim, pod = Lane("x", "steersman").claim(), small_pod(name, namespace)
    claim["metadata"] = {"name": name, "namespace": namespace}
    pod["spec"]["nodeSelector"] = {"pool": "none"}
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    world.apply("create", claim)
    world.apply("create", pod)


@pytest.mark.parametrize(
    ("limit", "looks"), [(0.0, []), (2.0, ["full", "other"]), (4.0, ["full", "other", "full", "full"])]
)
def test_search_for_woken_pods_looks_at_some_pods_with_claims_of_each_namespace(
    limit: float, looks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def test(world: World) -> None:
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
        monkeypatch.setattr("steersman.apps.scheduler.hints.time.thread_time", lambda: float(len(looked_at)))
        world.apply("create", machine("more"))
        scheduler._wake()
        assert looked_at == looks
        monkeypatch.undo()
        world.apply("create", {**machine("other"), "metadata": {"name": "other", "labels": {"pool": "none"}}})
        world.run(seconds=60.0)
        assert scheduler.queue.unschedulable < PODS

    play(test)


def hostile_in(namespace: str, kind: str, i: int, message: str = "") -> Object:
    """A hostile pod of a namespace; with a message it was tried before."""
    pod = hostile_pod(kind, i, has_room=False, scheduler="steersman")
    pod["metadata"]["namespace"] = namespace
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {**pod, "status": {"conditions": [condition] if message else []}}


@pytest.mark.parametrize("kind", ["anti-affinity", "node selector", "labels"])
def test_pods_of_many_namespaces_leave_a_bounded_number_of_classes_and_rules(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "ALL_NUMBERS_OF_WAITING", 50)

    def test(world: World) -> None:
        world.apply("create", machine("node"))
        for i in range(PODS):
            world.apply("create", hostile_in(f"full-{i}", kind, i))
        world.run()
        assert world.scheduler.cache.state.numbers <= 50 + RULES_OF_A_POD
        world.apply("create", small_pod("small"))
        world.run()
        assert world.node_of("other/small") == "node"

    play(test)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_new_pod_goes_before_pods_of_many_namespaces_that_were_tried(is_restarted: bool) -> None:
    def test(world: World) -> None:
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
        world.scheduler._schedule_one(first)
        before = world.attempts.failed_attempts
        world.run()
        assert world.attempts.failed_attempts == before + PODS, "each is tried all the same"

    play(test)


def test_reasons_that_the_api_has_are_not_written_again_after_a_restart() -> None:
    def test(world: World) -> None:
        told: list[str] = []

        def unschedulable(queued: QueuedPod, why: str, _: float) -> None:
            if why != queued.message:
                told.append(queued.pod.key)

        world.scheduler.reporter.unschedulable = unschedulable  # type: ignore[method-assign]
        world.apply("create", machine("node"))
        same, other = "0/7 nodes are available: 7 Insufficient cpu.", "0/7 nodes are available: 7 Too many pods."
        world.apply("create", hostile_in("full", "tolerations", 0, same))
        world.apply("create", hostile_in("full", "tolerations", 1, other))
        # The leader tries this one after it was seen here.
        world.apply("create", hostile_in("full", "tolerations", 2))
        world.apply("create", hostile_in("full", "tolerations", 2, same))
        world.apply("create", hostile_in("full", "tolerations", 3))
        world.run()
        assert told == ["full/tolerations-3", "full/tolerations-1"]

    play(test)


def test_search_for_woken_pods_does_not_read_all_pods_that_share_no_group() -> None:
    def test(world: World) -> None:
        world.apply("create", machine("node"))
        for i in range(PODS):
            world.apply("create", hostile_pod("volumes", i, has_room=False, scheduler="steersman"))
        world.run()
        queue = world.scheduler.queue
        assert queue.unschedulable == PODS
        assert not queue.groups()
        assert {name: len(pods) for name, pods in queue.singles.items()} == {("full", True): PODS}

    play(test)


def test_scheduler_gives_way_after_some_milliseconds_of_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    world_of: list[World] = []
    # Each attempt takes a millisecond.
    monkeypatch.setattr(
        event_loop, "time", SimpleNamespace(monotonic=lambda: world_of[0].attempts.failed_attempts / 1000)
    )

    async def run() -> None:
        world_of.append(world := World())
        world.apply("create", machine("node"))
        for i in range(PODS):
            world.apply("create", hostile_pod("tolerations", i, has_room=False, scheduler="steersman"))
        loop = asyncio.create_task(world.scheduler._loop())
        attempts = [0]
        while attempts[-1] < PODS:
            await asyncio.sleep(0)
            attempts.append(world.attempts.failed_attempts)
        loop.cancel()
        assert max(after - before for before, after in itertools.pairwise(attempts)) <= 6

    asyncio.run(run())


@pytest.mark.parametrize(
    ("kind", "looks"), [("anti-affinity", False), ("node selector", False), ("affinity", True), ("spread", True)]
)
def test_pods_that_a_binding_cannot_help_are_not_looked_at_after_it(
    kind: str, looks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "NUMBERS_OF_WAITING", 24)

    def test(world: World) -> None:
        world.apply("create", machine("node"))
        for i in range(PODS):
            world.apply("create", hostile_pod(kind, i, has_room=False, scheduler="steersman"))
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

    play(test)


@pytest.mark.parametrize("numbers", [0, NUMBERS_OF_WAITING])
def test_pod_whose_rules_change_while_it_waits_is_tried_again(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "NUMBERS_OF_WAITING", numbers)

    def test(world: World) -> None:
        world.apply("create", machine("node"))
        world.apply("create", hostile_pod("node selector", 0, has_room=True, scheduler="steersman"))
        world.run()
        changed = hostile_pod("affinity", 0, has_room=True, scheduler="steersman")
        changed["metadata"]["name"] = "node-selector-0"
        world.apply("create", changed)
        world.run()
        world.apply("create", {**machine("other"), "metadata": {"name": "other", "labels": {"pool-0": "0"}}})
        world.run(seconds=60.0)
        assert world.attempts.failed_attempts >= 2

    play(test)
