"""Whole runs of every kind of policy on clusters of many shapes, with every index checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.bounds.clusters import SHAPES, workload
from tests.bounds.policies import FILES, policy_of
from tests.support.nightly import by_default

from steersman.cluster.model import (
    Constraints,
    Node,
    Pod,
    PodAffinityTerm,
    PodClass,
    PodSelector,
    ProfileRules,
    Requests,
    Requirement,
)
from steersman.objectives.registry import resolve
from steersman.orders.live_history import LiveHistory
from steersman.orders.order import ANYBODY, EASY, NO_ONE, Order
from steersman.orders.registry import find_order
from steersman.orders.scores import LEARNED, learned_size
from steersman.policies.base import with_order
from steersman.policies.gpu_state.arrays import WEIGHTS
from steersman.policies.gpu_state.views import feature_spread, write_node_features
from steersman.policies.kube_scheduler import KubeSchedulerPolicy
from steersman.policies.node_scores.kube_arrays import HOSTNAME
from steersman.policies.node_scores.kube_minors import MINORS
from steersman.policies.node_scores.kube_profile import (
    MOST_ALLOCATED,
    REQUESTED_TO_CAPACITY,
    DefaultSpread,
    KubeProfile,
    ScoringStrategy,
)
from steersman.policies.registry import BUILT_IN
from steersman.policies.registry import resolve as resolve_policy
from steersman.simulation import run as run_module
from steersman.simulation.arrivals import schedule
from steersman.simulation.prediction.moment import ClusterMoment
from steersman.simulation.prediction.prediction import predict_wait
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.workload import Recorded, Workload


@pytest.mark.parametrize("shape", by_default(["one node", "everything"], SHAPES))
@pytest.mark.parametrize("name", [*BUILT_IN, *FILES, "fgd=500,best-fit=500"])
def test_runs(shape: str, name: str, tmp_path: Path) -> None:
    simulator, policy = Simulator(workload(SHAPES[shape], seed=1)), policy_of(name, tmp_path)
    for protocol in ("arrivals", "timed"):
        simulator.run(policy, protocol=protocol, load=None, seed=3, record=True)  # type: ignore[arg-type]


PROFILES = {
    "ratio": KubeProfile(
        fit=ScoringStrategy(REQUESTED_TO_CAPACITY, (("cpu", 1), ("nvidia.com/gpu", 5)), ((0, 100), (40, 20), (70, 90))),
        balanced=("cpu", "memory", "nvidia.com/gpu"),
        ignores_existing=True,
    ),
    "most": KubeProfile(
        fit=ScoringStrategy(MOST_ALLOCATED, (("nvidia.com/gpu", 5), ("ephemeral-storage", 1), ("absent", 1))),
        default_spread=(DefaultSpread(1, HOSTNAME, hard=False),),
        minor=MINORS["1.35"],
        rules=ProfileRules(frozenset({"InterPodAffinity", "PodTopologySpread"}), hard_affinity_weight=0),
    ),
}


@pytest.mark.parametrize("shape", by_default(["one node", "everything"], SHAPES))
@pytest.mark.parametrize("name", PROFILES)
def test_profiles_of_kube_scheduler_stay_in_bounds(shape: str, name: str) -> None:
    policy = KubeSchedulerPolicy(profile=PROFILES[name])
    Simulator(workload(SHAPES[shape], seed=1)).run(policy, protocol="timed", load=None, seed=3, record=True)


@pytest.mark.parametrize("shape", SHAPES)
def test_run_rewards_stay_in_bounds(shape: str) -> None:
    simulator = Simulator(workload(SHAPES[shape], seed=1))
    every = resolve(
        "allocation=1,fragmentation=1,balance=1,most-allocated=1,least-allocated=1,waiting-time=1,locality=1"
    )
    simulator.run("best-fit", protocol="timed", load=None, seed=3, objectives=[every])


@pytest.mark.parametrize("shape", ["one node", "models that no node has", "everything"])
def test_evolution_features_stay_in_bounds(shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "ARRIVALS_BETWEEN_LOOKS", 2)
    there = workload(SHAPES[shape], seed=1)
    simulator = Simulator(there)
    assert np.isfinite(feature_spread([simulator.feature_variances()])).all()
    plan = schedule(there, "arrivals", seed=1, ratio=1.3, load=None)
    execution = Execution(simulator, plan, policy_of("steersman", tmp_path), 1, record=False)
    cluster, wanted = execution.cluster, np.zeros((len(there.nodes), WEIGHTS))
    for c in range(len(cluster.classes.gpu_count)):
        write_node_features(cluster.learned, cluster.profile, cluster.nodes, cluster.classes, c, wanted)


@pytest.mark.parametrize("order", ["age", "age:easy"])
def test_pods_that_depend_on_others_stay_in_bounds(order: str) -> None:
    """Gangs that start in part, pods that come when others end, a pod that needs a later one, and kept room."""
    beside = Constraints(affinity=(PodAffinityTerm(PodSelector((Requirement("app", "In", ("a",)),), None), "host"),))
    nodes = tuple(Node(name, 4000, 1 << 34, gpu_count=2, labels={"host": name}) for name in "nm")
    requests = Requests(1000, 1 << 20, gpu_count=1, gpu_milli=500)
    times = {"creation_time": 0.0, "deletion_time": 10.0}
    one = Pod("p", PodClass(requests), **times)  # type: ignore[arg-type]
    needs = replace(one, pod_class=PodClass(requests, beside))
    pods = (
        *(replace(one, name=f"g{i}", gang="g", gang_minimum=3) for i in range(9)),
        *(replace(needs, name=f"h{i}", gang="h", gang_minimum=2) for i in range(3)),
        *(replace(one, name=f"j{i}", owner="Job/j", at_once=2) for i in range(5)),
        replace(one, name="target", labels={"app": "a"}),
        replace(one, name="kept", nominated="n", priority=1),
    )
    workload = Workload("dependent", nodes, pods)
    for policy in ("best-fit", "kube-default"):
        ordered = with_order(resolve_policy(policy), find_order(order))
        assert Simulator(workload).run(ordered, protocol="timed", seed=3, record=True).final_nodes.names
    now = replace(workload, recorded=(Recorded("n", 1), *(None,) * (len(pods) - 1)), from_now=True)
    assert Simulator(now).run("best-fit", protocol="arrivals", seed=3, record=True).final_nodes.names


def test_recorded_pods_stay_in_bounds() -> None:
    there = workload(next(iter(SHAPES.values())), seed=3)
    recorded = (Recorded(there.nodes[0].name), *(None for _ in there.pods[1:]))
    run = Simulator(replace(there, recorded=recorded, from_now=True)).run("fgd", protocol="arrivals", seed=1)
    assert run.final_nodes.names


AGEING = Order("learned", LEARNED, ANYBODY, (0.5,) * learned_size(2), ageing=60.0)
ORDERS = (
    *("age", "smallest", "largest", "fcfs", "easy@history", "easy@oracle:3", "shortest@history", "fair"),
    *("unicef:easy", "area@none", "f1:none", "wfp3:easy@history", "shortest@ageing:60s"),
    *(AGEING, replace(AGEING, overtaking=EASY), replace(AGEING, overtaking=NO_ONE)),
)


@pytest.mark.parametrize("shape", by_default(["one node", "everything"], SHAPES))
@pytest.mark.parametrize(
    "order", ORDERS, ids=lambda order: order if isinstance(order, str) else f"learned-{order.overtaking}"
)
def test_orders_stay_in_bounds(shape: str, order: str | Order) -> None:
    there = workload(replace(SHAPES[shape], pods=150), seed=2)
    # Every fifth pod belongs to a gang of three, the others are alone.
    pods = [replace(pod, gang=f"gang-{i // 15}") if i % 5 == 0 else pod for i, pod in enumerate(there.pods)]
    policy = with_order(resolve_policy("fgd"), find_order(order) if isinstance(order, str) else order)
    run = Simulator(replace(there, pods=tuple(pods))).run(policy, protocol="timed", load=None, seed=3, record=True)
    assert run.final_nodes.names


@pytest.mark.parametrize("order", ["age", "fcfs", "easy@history", "shortest"])
def test_predictions_stay_in_bounds(order: str) -> None:
    there = workload(replace(SHAPES["everything"], pods=60), seed=2)
    recorded = tuple(Recorded(there.nodes[0].name) if i < 3 else None for i in range(len(there.pods)))
    moment = ClusterMoment(replace(there, recorded=recorded, from_now=True), np.full(60, -5.0), LiveHistory())
    policy = with_order(resolve_policy("fgd"), find_order(order))
    predict_wait(moment, there.pods[-1:], policy, rollouts=2)
