"""Scores and filters by a profile of kube-scheduler, worked out by hand; `tests/e2e/differential` has its plugins."""

from dataclasses import replace

import pytest
from tests.support.kube_decisions import KubeDecisions

from steersman.cluster.model import (
    Constraints,
    Node,
    NodeSelectorTerm,
    Pod,
    PodClass,
    ProfileRules,
    Requests,
    Requirement,
    Taint,
)
from steersman.cluster.state import ClusterState
from steersman.policies.kube_scheduler.policy import KubeSchedulerPolicy
from steersman.policies.kube_scheduler.profile import (
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    REQUESTED_TO_CAPACITY,
    DefaultSpread,
    KubeProfile,
    ScoringStrategy,
)
from steersman.policies.kube_scheduler.spreading import scheduled_by
from steersman.simulation.run import Simulator
from steersman.workloads.workload import SpreadSelectors, Workload

GI = 1 << 30
GPU = "nvidia.com/gpu"


def gpu_node(name: str, gpus: int = 8, **more: object) -> Node:
    return replace(Node(name, 64_000, 256 * GI, gpu_count=gpus, gpu_resources=(GPU,)), **more)


def gpu_pod(name: str, count: int, milli: int = 1000, **more: object) -> Pod:
    requests = Requests(cpu_milli=6_400, memory_bytes=64 * GI, gpu_count=count, gpu_milli=milli, gpu_resource=GPU)
    return replace(Pod(name, PodClass(requests)), **more)


def fit_scores(strategy: ScoringStrategy, pod: Pod, placed: int, nodes: int = 2) -> list[int]:
    """Return NodeResourcesFit's scores of equal nodes, of which the first one has so many pods."""
    state = ClusterState([gpu_node(f"n{i}") for i in range(nodes)])
    c = state.class_id(gpu_pod("other", 2).pod_class)
    for i in range(placed):
        state.place(f"other-{i}", c, 0)
    decisions = KubeDecisions(state, profile=KubeProfile(fit=strategy))
    return decisions.breakdown(state.class_id(pod.pod_class))["NodeResourcesFit"].tolist()


@pytest.mark.parametrize(
    ("kind", "shape", "expected"),
    [
        # Of 8 GPUs 2 are taken on the first node, and 2 are requested: 50 and 25 percent. CPU: 20 and 10 percent.
        (MOST_ALLOCATED, (), [(3 * 50 + 20) // 4, (3 * 25 + 10) // 4]),
        (LEAST_ALLOCATED, (), [(3 * 50 + 80) // 4, (3 * 75 + 90) // 4]),
        # From 100 at 0 percent down to 20 at 40 percent, then constant; the weighted mean is rounded.
        (REQUESTED_TO_CAPACITY, ((0, 100), (40, 20)), [round((3 * 20 + 60) / 4), round((3 * 50 + 80) / 4)]),
    ],
)
def test_strategies_over_gpus(kind: int, shape: tuple[tuple[int, int], ...], expected: list[int]) -> None:
    strategy = ScoringStrategy(kind, (("cpu", 1), (GPU, 3)), shape)
    assert fit_scores(strategy, gpu_pod("new", 2), placed=1) == expected


def test_shares_of_a_gpu_count_in_milli_and_gpus_that_are_not_requested_do_not() -> None:
    strategy = ScoringStrategy(MOST_ALLOCATED, ((GPU, 1),))
    assert fit_scores(strategy, gpu_pod("new", 1, 400), placed=1) == [2400 * 100 // 8000, 400 * 100 // 8000]
    without = Pod("cpu", PodClass(Requests(cpu_milli=1000, memory_bytes=GI)))
    assert fit_scores(strategy, without, placed=1) == [0, 0]


def test_counted_gpus_and_devices_score_alike() -> None:
    strategy = KubeProfile(fit=ScoringStrategy(MOST_ALLOCATED, ((GPU, 1),)))
    counted = Node("counted", 64_000, 256 * GI, extended=((GPU, 8),))
    state = ClusterState([gpu_node("devices"), counted])
    pod = state.class_id(gpu_pod("new", 3).pod_class)
    state.place("a", pod, 0)
    state.place("b", pod, 1)
    scores = KubeDecisions(state, profile=strategy).breakdown(pod)["NodeResourcesFit"].tolist()
    assert scores == [6 * 100 // 8] * 2


def test_devices_without_a_name_count_once() -> None:
    names = (("nvidia.com/gpu", 1), ("amd.com/gpu", 1))
    state = ClusterState([Node("a", 64_000, 256 * GI, gpu_count=8), Node("b", 64_000, 256 * GI, gpu_count=4)])
    pod = state.class_id(PodClass(Requests(cpu_milli=100, memory_bytes=GI, gpu_count=2, gpu_milli=1000)))
    profile = KubeProfile(fit=ScoringStrategy(MOST_ALLOCATED, names))
    assert KubeDecisions(state, profile=profile).breakdown(pod)["NodeResourcesFit"].tolist() == [25, 50]


def test_a_plugin_without_weight_does_not_score() -> None:
    state = ClusterState([gpu_node("a", 8), gpu_node("b", 4)])
    decisions = KubeDecisions(state, profile=KubeProfile(weights=(0,) * 7))
    assert decisions.scores(state.class_id(gpu_pod("new", 1).pod_class)).tolist() == [0, 0]


def test_a_disabled_filter_lets_pods_pass_in_a_simulation() -> None:
    tainted = gpu_node("tainted", taints=(Taint("team", "red", "NoSchedule"),))
    workload = Workload("w", (tainted,), (gpu_pod("p", 1),))

    def failed(profile: KubeProfile) -> int:
        run = Simulator(workload).run(KubeSchedulerPolicy(profile=profile), protocol="arrivals")
        return int(next(each.value for each in run.metrics if each.name == "pods_failed"))

    assert failed(KubeProfile()) == 1
    assert failed(KubeProfile(rules=ProfileRules(frozenset({"TaintToleration"})))) == 0


def test_pods_are_read_by_the_profile() -> None:
    term = NodeSelectorTerm((Requirement("pool", "In", ("gpu",)),), ())
    nodes = (gpu_node("a", labels={"pool": "gpu"}), gpu_node("b"))
    services = SpreadSelectors((("default", (("app", "web"),)),))
    web, other = gpu_pod("web", 1, labels={"app": "web"}), gpu_pod("other", 1)
    workload = Workload("w", nodes, (web, other), services=services)
    spread = (DefaultSpread(2, "pool", hard=True),)
    profile = KubeProfile(default_spread=spread, rules=ProfileRules(required_nodes=(term,)))
    read = scheduled_by(workload, profile)
    assert [(s.max_skew, s.topology_key, s.hard) for s in read.pods[0].constraints.spread] == [(2, "pool", True)]
    assert read.pods[1].constraints.spread == ()
    state = ClusterState(nodes)
    assert state.mask(state.class_id(read.pods[1].pod_class)).tolist() == [True, False]
    assert scheduled_by(workload, KubeProfile()) is workload
    assert other.constraints == Constraints()
