"""Pods of one tenant that fit nowhere cost the pods of others nothing, however many there are and whatever they ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.support.hostile import KINDS, hostile_pod
from tests.support.waking import Lane, Object
from tests.unit.apps.scheduler.test_waking import World

from steersman.apps.scheduler import hints
from steersman.apps.scheduler.queue import FAILURES
from steersman.apps.scheduler.scheduler import Scheduler
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
