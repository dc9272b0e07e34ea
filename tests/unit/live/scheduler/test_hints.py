"""What comes free wakes the pods that it may help, and no others."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.errors import check_text
from tests.support.virtual_scheduler import VirtualScheduler, in_event_loop
from tests.unit.kubernetes.cache.test_cluster_cache import node, pod, raw

from steersman.cluster.objects.decoding import GANG_KEY


@pytest.fixture
def world() -> VirtualScheduler:
    """Two nodes of 4 CPUs that are full."""
    made = VirtualScheduler()
    for name in ("n0", "n1"):
        made.cache.upsert_node(raw(node(name, cpu=4, labels={"zone": name})))
        made.cache.upsert_pod(raw(pod(f"full-{name}", cpu="4", on=name)))
    return made


@in_event_loop
def test_freed_node_wakes_only_as_many_pods_as_fit(world: VirtualScheduler) -> None:
    for i in range(20):
        world.cache.upsert_pod(raw(pod(f"small{i}", cpu="1")))
        world.cache.upsert_pod(raw(pod(f"large{i}", cpu="8")))
    assert len(world.tried()) == 40
    assert world.tried() == []
    assert world.reports.decisions == 2, "one for each class"
    world.cache.delete_pod("default/full-n0")
    assert world.tried() == [f"small{i}" for i in range(4)]
    assert world.reports.decisions == 2 + 4


@in_event_loop
def test_pods_of_higher_priority_are_woken(world: VirtualScheduler) -> None:
    for i in range(4):
        world.cache.upsert_pod(raw(pod(f"low{i}", cpu="4")))
    world.cache.upsert_pod(raw(pod("high", cpu="4", priority=9)))
    assert len(world.tried()) == 5
    world.cache.delete_pod("default/full-n0")
    assert world.tried()[0] == "high"


@in_event_loop
def test_binding_wakes_pods_with_affinity_to_it(world: VirtualScheduler) -> None:
    world.cache.upsert_node(raw(node("n2", cpu=4, labels={"zone": "n2"})))
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    world.cache.upsert_pod(raw(pod("follows", affinity=near)))
    assert world.tried() == ["follows"]
    world.cache.upsert_pod(raw(pod("x0", on="n2")))
    assert world.tried() == ["follows"]
    assert world.node_of("default/follows") == "n2"


@in_event_loop
def test_pending_reason_is_reported_once_while_only_counts_change(world: VirtualScheduler) -> None:
    world.cache.upsert_pod(raw(pod("large", cpu="8")))
    world.tried()
    for i in range(5):
        world.cache.upsert_node(raw(node(f"more{i}", cpu=2)))
        world.queue.move_all_to_backoff()
        world.tried()
    ((_, why),) = world.reports.told
    assert "0/2 nodes" in why


@in_event_loop
def test_gang_whose_pods_are_placed_one_by_one_is_told_once(world: VirtualScheduler) -> None:
    """One pod of a gang says so at its first attempt, and others say nothing."""
    for name in ("g0", "g1", "alone"):
        obj: dict[str, Any] = pod(name, cpu="1")
        if name != "alone":
            obj["metadata"]["annotations"] = {GANG_KEY: "ring"}
        world.cache.upsert_pod(raw(obj))
    for _ in range(2):
        world.tried()
        world.queue.move_all_to_backoff()
    ((key, said),) = [(key, what) for key, what in world.reports.told if "gang" in what]
    assert key == "default/g0"
    check_text(said)
    assert said.startswith("GangIgnored: gang ring: ")
