"""Which pods go before a pod in the queue, why, and what would put it further ahead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.cluster.state import ClusterState
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.live.scheduler.ordering import PodOrdering
from steersman.live.scheduler.queue import SchedulingQueue
from steersman.orders.live_order import LiveOrder
from steersman.orders.registry import find_order
from steersman.orders.run_time_history import RunTimeHistory
from steersman.simulation.prediction.moment import ClusterMoment
from steersman.simulation.prediction.queue_place import QueuePlace, WaitingQueue
from steersman.workloads.workload import Recorded, Workload

NODES = tuple(Node(f"n{i}", 64_000, 64 << 30, gpu_count=8) for i in range(2))


def pod(name: str, gpus: int = 1, seconds: float | None = 3600.0, priority: int = 0) -> Pod:
    requests = Requests(cpu_milli=1000, gpu_count=gpus, gpu_milli=1000)
    return Pod(name, PodClass(requests), priority=priority, estimated_seconds=seconds)


def moment(*waiting: tuple[Pod, float]) -> ClusterMoment:
    """Return a cluster with one running pod, and others with the seconds that they waited."""
    pods = (pod("running"), *(each for each, _ in waiting))
    recorded = (Recorded("n0", 1), *(None for _ in waiting))
    began = np.array([-10.0, *(-waited for _, waited in waiting)])
    return ClusterMoment(Workload("w", NODES, pods, recorded=recorded, from_now=True), began, RunTimeHistory())


def place(there: ClusterMoment, name: str, order: str, ageing: float | None = None) -> QueuePlace:
    found = find_order(order)
    number = next(i for i, each in enumerate(there.workload.pods) if each.name == name)
    asked = found if ageing is None else replace(found, ageing=ageing)
    return WaitingQueue(there, asked).place(there.workload.pods[number], float(there.began[number]))


def reasons(found: QueuePlace) -> dict[str, str]:
    return {each.pod.removeprefix("default/"): each.reason for each in found.first}


THERE = moment(
    (pod("old", gpus=8, seconds=7200.0), 5000.0),
    (pod("urgent", priority=5), 10.0),
    (pod("short", seconds=60.0), 20.0),
    (pod("asked", gpus=4, seconds=3600.0), 100.0),
    (pod("young", gpus=4, seconds=3600.0), 50.0),
)


def test_every_pod_ahead_has_its_reason() -> None:
    by_age = place(THERE, "asked", "age")
    assert reasons(by_age) == {"urgent": "priority", "old": "age"}
    assert (by_age.ahead, by_age.waiting) == (2, 4)
    assert reasons(place(THERE, "asked", "shortest")) == {"urgent": "priority", "short": "order"}
    assert reasons(place(THERE, "young", "shortest")) == {"urgent": "priority", "short": "order", "asked": "age"}


def test_pods_of_the_same_second_go_as_they_are_listed() -> None:
    """Times of the API have whole seconds, and pods of a batch have the same one."""
    there = moment((pod("a"), 30.0), (pod("b"), 30.0), (pod("c"), 30.0))
    for order in ("age", "shortest"):
        assert [place(there, name, order).ahead for name in "abc"] == [0, 1, 2]
        assert reasons(place(there, "b", order)) == {"a": "age"}
        queue = WaitingQueue(there, find_order(order))
        assert [there.workload.pods[i].name for i in queue.turn()] == ["a", "b", "c"]
        assert queue.ahead(pod("new"), 0.0) == 3
        assert queue.ahead(pod("as old"), -30.0) == 3


def test_ageing_is_a_reason() -> None:
    found = place(THERE, "asked", "shortest", ageing=3000.0)
    assert reasons(found) == {"urgent": "priority", "old": "waited too long", "short": "order"}
    assert list(reasons(found)) == ["urgent", "old", "short"], "in turn"


def test_changes_are_tried() -> None:
    found = {each.change: each.ahead for each in place(THERE, "asked", "smallest").changes}
    assert found == {"with priority 6": 0, "with 1 GPU": 1}
    assert place(THERE, "urgent", "smallest").changes == (), "nobody is before it"


def test_a_longer_wait_helps_where_the_order_weighs_it() -> None:
    """With f = -(w / r)^3 n, a pod of an hour that waits passes one of two hours that has waited for longer."""
    there = moment((pod("long", seconds=7200.0), 1000.0), (pod("asked", seconds=3600.0), 400.0))
    assert [each.change for each in place(there, "asked", "wfp3").changes if each.change.startswith("waiting")] == [
        "waiting for 10 min more, if no other pod arrives"
    ]
    assert not [each for each in place(there, "asked", "age").changes if each.change.startswith("waiting")]


def test_a_stated_run_time_is_tried_where_none_is_stated() -> None:
    there = moment((pod("other", seconds=1000.0), 50.0), (pod("asked", seconds=None), 10.0))
    found = {each.change: each.ahead for each in place(there, "asked", "shortest").changes}
    assert found["stating a run time of 10 min"] == 0
    assert "stating a run time of 1 h" not in found


@pytest.mark.parametrize("order", ["age", "smallest", "largest", "shortest", "area", "wfp3", "unicef", "f1"])
@pytest.mark.parametrize("seed", range(5))
def test_the_live_queue_pops_in_the_same_turn(order: str, seed: int) -> None:
    """The pods ahead are those that the queue of `steersman schedule` would try before."""
    random = np.random.default_rng(seed)
    waiting = [
        (
            pod(f"p{i}", int(random.integers(1, 9)), float(random.integers(60, 7200)), int(random.integers(0, 2))),
            float(random.integers(1, 5000)),
        )
        for i in range(12)
    ]
    there = moment(*sorted(waiting, key=lambda each: -each[1]))
    now = [float(there.began.min())]
    live = LiveOrder(find_order(order), RunTimeHistory(), clock=lambda: now[0])
    queue = SchedulingQueue(lambda: now[0], PodOrdering(live, lambda: now[0]))
    queue.follow_cluster(ClusterState(NODES))
    for i, each in enumerate(there.workload.pods):
        if not there.runs(i):
            now[0] = float(there.began[i])
            queue.add(CachedPod(f"default/{each.name}", each.name, each, 1))
    now[0] = 0.0
    popped = []
    while (queued := queue.pop()) is not None:
        popped.append(queued.pod.pod.name)
        queue.remove(queued.pod.key)
    assert [place(there, name, order).ahead for name in popped] == list(range(12))
