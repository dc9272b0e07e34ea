"""Orders of a live cluster: sizes, groups, and what no live cluster can follow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests.support.errors import raises

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.cluster.state import ClusterState
from steersman.core.errors import UsageError
from steersman.core.interface import HEAD
from steersman.orders.live_order import ClusterSize, LiveOrder, check_live, cluster_size, free_share, live_order
from steersman.orders.order import AGE, ANYBODY, BUILT_IN, EASY, Floats, Order
from steersman.orders.registry import find_order
from steersman.orders.run_time_history import RunTimeHistory
from steersman.orders.scores import LEARNED, LINEAR, learned_size
from steersman.simulation.run import Simulator
from steersman.workloads.workload import Workload

GIB = 1 << 30
NODES = (Node("a", 8000, 64 * GIB, gpu_count=4), Node("b", 24000, 64 * GIB, gpu_count=4), Node("c", 32000, 128 * GIB))


def requests(cpus: float, gib: float, gpus: int = 0, milli: int = 1000) -> Requests:
    return Requests(round(1000 * cpus), round(gib * GIB), gpu_count=gpus, gpu_milli=milli if gpus else 0)


def test_size_is_the_dominant_share_in_gpus() -> None:
    """Of 8 GPUs, 64 CPUs and 256 GiB: a quarter of the memory counts as 2 GPUs."""
    size = cluster_size(ClusterState(NODES), ClusterSize())
    assert (size.gpus, size.cpus, size.capacity) == (8, 64, 8)
    assert size.of(requests(1, 1, 3)) == 3
    assert size.of(requests(1, 1, 1, 500)) == 0.5
    assert size.of(requests(16, 1, 1)) == 2
    assert size.of(requests(1, 64)) == 2


def test_size_is_in_cpus_without_gpus() -> None:
    """Of 32 CPUs and 128 GiB: half of the memory counts as 16 CPUs."""
    size = cluster_size(ClusterState(NODES[2:]), ClusterSize())
    assert (size.gpus, size.capacity) == (0, 32)
    assert size.of(requests(4, 1)) == 4
    assert size.of(requests(1, 64)) == 16


def test_sizes_are_those_of_simulations() -> None:
    """A simulation of the same nodes and pods orders by the same sizes."""
    wanted = [requests(1, 1, 3), requests(1, 1, 1, 500), requests(16, 1, 1), requests(1, 64), requests(2, 3)]
    pods = tuple(Pod(f"p{i}", PodClass(each)) for i, each in enumerate(wanted))
    known = Simulator(Workload("made", NODES, pods)).queued
    size = cluster_size(ClusterState(NODES), ClusterSize())
    assert [size.of(each) for each in wanted] == pytest.approx(known.size.tolist())


def test_size_follows_nodes() -> None:
    """A new node is noticed, and an equal cluster is the same object."""
    state = ClusterState(NODES)
    size = cluster_size(state, ClusterSize())
    assert cluster_size(state, size) is size
    state.add_node(Node("d", 1000, GIB, gpu_count=8))
    assert cluster_size(state, size).gpus == 16


def test_free_share_counts_running_pods() -> None:
    """Two of eight GPUs are in use, or of a cluster without GPUs a quarter of the CPUs."""
    state = ClusterState(NODES)
    state.place("p", state.class_id(PodClass(requests(1, 1, 2))), 0, 3)
    assert free_share(state, cluster_size(state, ClusterSize())) == 0.75
    state = ClusterState(NODES[2:])
    state.place("p", state.class_id(PodClass(requests(8, 1))), 0, 0)
    assert free_share(state, cluster_size(state, ClusterSize())) == 0.75


def test_oldest_first_needs_no_order() -> None:
    """The queue does by itself what age says; every other order is one."""
    assert live_order(AGE, RunTimeHistory()) is None
    assert live_order(find_order("age@history"), RunTimeHistory()) is None
    assert live_order(find_order("fcfs"), RunTimeHistory()) is not None
    # The oldest pod goes first, but once it has waited for so long nobody may overtake it.
    aged = live_order(find_order("age@ageing:1h"), RunTimeHistory())
    assert aged is not None
    assert aged.reserves
    for name in BUILT_IN.keys() - {"age", "easy", "las"}:
        assert live_order(BUILT_IN[name], RunTimeHistory()) is not None


@pytest.mark.parametrize("name", ["delay", "delay*size"])
def test_learned_orders_that_need_the_delay_are_refused(name: str) -> None:
    """No live scheduler knows it; with its weights at 0 it is no input, nor is it where anybody may overtake."""
    weights = np.zeros(learned_size(1))
    check_live(Order("mine", LEARNED, EASY, tuple(weights)))
    weights[LINEAR.index(name)] = 0.1
    check_live(Order("mine", LEARNED, ANYBODY, tuple(weights)))
    with pytest.raises(UsageError, match="order mine: only simulations know its input delay"):
        check_live(Order("mine", LEARNED, EASY, tuple(weights)))


@pytest.mark.parametrize("text", ["area@oracle", "shortest@oracle:3"])
def test_order_that_only_simulations_follow_is_refused(text: str) -> None:
    """One line says what would be right."""
    with raises(UsageError, text):
        check_live(find_order(text))


def test_equal_pods_share_a_group() -> None:
    """What is alike for an order is one group; a stated run time, a size or a priority makes another."""
    order = LiveOrder(BUILT_IN["shortest"], RunTimeHistory(), lambda: 0.0)
    order.resize(ClusterSize(cpus=64, memory=256 * GIB))
    made = [
        Pod("a", PodClass(requests(1, 1)), owner="Job/a"),
        Pod("b", PodClass(requests(1, 1)), owner="Job/b"),
        Pod("c", PodClass(requests(1, 1)), estimated_seconds=9.0),
        Pod("d", PodClass(requests(1, 1)), estimated_seconds=9.0, owner="Job/d"),
        Pod("e", PodClass(requests(2, 1)), estimated_seconds=9.0),
        Pod("f", PodClass(requests(1, 1)), priority=1),
    ]
    groups = [order.join(pod)[0] for pod in made]
    assert groups[0] == groups[1]
    assert groups[2] == groups[3]
    assert len(set(groups)) == 4
    assert [order.join(pod)[1] for pod in made] == [True, True, False, False, False, False]
    assert order.estimate(groups[2]) == 9.0


class ByName(Order):
    """A user's order: fails on pods without a number in their names."""

    __slots__ = ()

    def given(self, time: Floats, size: Floats, pods: Sequence[Pod]) -> Floats:
        return np.array([float(pod.name.rpartition("-")[2]) for pod in pods])


def test_a_pod_on_which_a_users_order_fails_goes_last() -> None:
    order, failures = LiveOrder(ByName("by-name"), RunTimeHistory(), lambda: 0.0), list[str]()
    order.on_failure = lambda error: failures.append(str(error))
    names = ("pod-2", "pod-x", "pod-1", "pod-nan")
    groups = [order.join(Pod(name, PodClass(requests(1, 1))))[0] for name in names]
    heads = np.array([(group, 0.0, number, 0.0) for number, group in enumerate(groups)], dtype=HEAD)
    assert order.first(heads, len(groups), 1.0, 4) == 2
    assert heads["score"].tolist() == [2.0, np.inf, 1.0, np.inf]
    assert failures[0].startswith("order 'by-name' failed: ValueError: could not convert string to float: 'x'")
    assert failures[1] == "order 'by-name': expected a score of each of 1 pods, all of them numbers"


def test_groups_without_pods_are_forgotten() -> None:
    """Their numbers are used again, also after the tables have grown."""
    order = LiveOrder(BUILT_IN["area"], RunTimeHistory(), lambda: 0.0)
    pods = [Pod("p", PodClass(requests(1 + i, 1))) for i in range(100)]
    first = {order.join(pod)[0] for pod in pods}
    assert len(first) == 100
    for group in first:
        order.leave(group)
    assert {order.join(pod)[0] for pod in pods} <= set(range(128))


def test_estimates_follow_groups_that_are_forgotten() -> None:
    """Those of waiting pods are what a new order would say of them once a pod like them has ended."""
    history = RunTimeHistory(max_groups=16)
    order = LiveOrder(BUILT_IN["shortest"], history, lambda: 0.0)
    random = np.random.default_rng(1)
    waiting = [Pod("w", PodClass(requests(1, 1)), owner=f"Job/{k}") for k in range(4)]
    for pod in waiting:
        history.note(pod, 60.0)
    groups = [order.join(pod)[0] for pod in waiting]
    assert len(set(groups)) == 4
    forgotten = 0
    for _ in range(300):
        for _ in range(int(random.integers(1, 4))):
            owner = f"Job/{random.integers(30)}"
            history.note(Pod("e", PodClass(requests(1, 1)), owner=owner), float(random.uniform(1, 1e6)))
        for group, pod in zip(groups, waiting, strict=True):
            forgotten += not history.knows(pod.namespace, pod.owner)
            order.estimate(group)
            if random.uniform() < 0.2:
                history.note(pod, float(random.uniform(1, 1e6)))
                assert order.estimate(group) == history.estimate(pod)
    assert 10 < forgotten < 1100
