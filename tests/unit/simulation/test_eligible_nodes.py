"""Nodes that no pod of the workload may enter change nothing: no metric, no objective, no observation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from steersman.cluster.model import Constraints, Node, Pod, PodClass, Requests, Taint, Toleration
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.envs.workload import WorkloadCore, WorkloadOptions
from steersman.live.recorder.transitions import LoggedEvent, NodeEvent, PodEvent, transitions
from steersman.objectives import registry as objectives
from steersman.objectives import summary
from steersman.objectives.summary import reward
from steersman.policies.base import Candidates
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.features import CLUSTER
from steersman.policies.live_observations import LiveObservations
from steersman.policies.registry import resolve
from steersman.simulation.run import Simulator
from steersman.workloads.generators.clusters import random_cluster
from steersman.workloads.workload import Recorded, Workload

GIB = 1 << 30
CONTROL_PLANE = (Taint("node-role.kubernetes.io/control-plane", "", "NoSchedule"),)
NODE = Node("", 64_000, 256 * GIB, pods=110)
OUTSIDERS = st.lists(
    st.sampled_from(
        (
            replace(NODE, taints=CONTROL_PLANE),
            replace(NODE, unschedulable=True),
            replace(NODE, taints=CONTROL_PLANE, gpu_count=8, gpu_model="H100"),
            replace(NODE, cpu_milli=1, memory_bytes=1, taints=(Taint("broken", "", "NoExecute"),)),
        )
    ),
    min_size=1,
    max_size=4,
)
WITH_GPUS = "allocation=1,fragmentation=1,balance=1,most-allocated=1,least-allocated=1"


def with_outsiders(workload: Workload, nodes: list[Node], place: int) -> Workload:
    named = [replace(node, name=f"outsider-{i}") for i, node in enumerate(nodes)]
    place %= len(workload.nodes) + 1
    return replace(workload, nodes=(*workload.nodes[:place], *named, *workload.nodes[place:]))


def metrics_of(workload: Workload, policy: str, protocol: Any, load: float | None) -> dict[str, float]:
    run = Simulator(workload).run(policy, protocol=protocol, seed=7, load=load)
    assert len(run.final_nodes.names) == len(workload.eligible_nodes)
    return {metric.name: metric.value for metric in run.metrics}


@settings(max_examples=examples(20), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    outsiders=OUTSIDERS,
    place=st.integers(0, 100),
    policy=st.sampled_from(("best-fit", "fgd", "least-allocated", "greedy-forecast", "random")),
    protocol=st.sampled_from((("inflation", None), ("arrivals", None), ("timed", 0.9))),
)
def test_ineligible_nodes_change_no_metric(
    seed: int, outsiders: list[Node], place: int, policy: str, protocol: tuple[str, float | None]
) -> None:
    workload = random_cluster(seed, nodes=(1, 12))
    larger = with_outsiders(workload, outsiders, place)
    expected = metrics_of(workload, policy, *protocol)
    assert metrics_of(larger, policy, *protocol) == pytest.approx(expected, nan_ok=True, abs=1e-9)


@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 10_000), outsiders=OUTSIDERS, place=st.integers(0, 100))
def test_ineligible_nodes_change_no_reward_or_observation(seed: int, outsiders: list[Node], place: int) -> None:
    workload = random_cluster(seed, nodes=(1, 12))
    assume(any(each.requests.gpu_count for each in workload.pods))  # WITH_GPUS is undefined without
    larger = with_outsiders(workload, outsiders, place)
    cores = [WorkloadCore(1, "inflation", WorkloadOptions(each, WITH_GPUS)) for each in (workload, larger)]
    for core in cores:
        core.start(0, np.random.default_rng(1), {"seed": 3})
    plain, other = cores
    kept = len(workload.eligible_nodes)  # they come first
    while not plain.terminated[0]:
        for name in ("pod", "context"):
            np.testing.assert_array_equal(getattr(other.observation, name), getattr(plain.observation, name))
        np.testing.assert_array_equal(other.observation.nodes[:, :kept], plain.observation.nodes[:, :kept])
        assert not other.observation.mask[:, kept:].any()
        for core in cores:
            core.step(core.rule_actions("fgd"))
        assert other.rewards == pytest.approx(plain.rewards, abs=1e-9)
        assert other.terminated[0] == plain.terminated[0]
        for name, values in plain.infos().items():
            np.testing.assert_allclose(other.infos()[name], values, atol=1e-12)


def pod(name: str, *tolerations: Toleration, cpu: int = 4000, scheduler: str = "learning", node: str = "") -> Pod:
    constraints = Constraints(tolerations=tolerations, node_name=node)
    return Pod(name, PodClass(Requests(cpu, GIB), constraints), scheduler_name=scheduler)


def workers(count: int) -> list[Node]:
    return [Node(f"worker-{i}", 16_000, 64 * GIB, pods=110) for i in range(count)]


def test_pods_that_are_part_of_an_excluded_node_do_not_count() -> None:
    nodes = (replace(NODE, name="control-plane", taints=CONTROL_PLANE), *workers(2))
    agents = [pod(f"agent-{i}", Toleration("", "Exists"), node=node.name) for i, node in enumerate(nodes)]
    recorded = (*(Recorded(node.name, stays=True) for node in nodes), None)
    workload = Workload("w", nodes, (*agents, pod("p")), recorded=recorded)
    assert workload.eligible.tolist() == [False, True, True]
    run = Simulator(workload).run("least-allocated", protocol="arrivals")
    metrics = {metric.name: metric.value for metric in run.metrics}
    assert metrics["cpu_balance_percent"] == pytest.approx(100 * np.std([0.5, 0.25]))
    assert metrics["nodes_used"] == 2
    assert metrics["pods_bound"] == 4


def test_metrics_without_eligible_nodes_are_undefined() -> None:
    workload = Workload("w", (replace(NODE, name="a", unschedulable=True),), (pod("p"),))
    assert not workload.eligible.any()
    metrics = metrics_of(workload, "best-fit", "arrivals", None)
    assert math.isnan(metrics["cpu_balance_percent"])
    assert math.isnan(metrics["cpu_allocation_percent"])
    assert metrics["pods_failed"] == 1


def log_of(nodes: list[Node]) -> list[LoggedEvent]:
    """Return a log in which a scheduler fills worker 0, then worker 1; an agent of another one runs everywhere."""
    events: list[NodeEvent | PodEvent] = [NodeEvent(node.name, node) for node in nodes]
    for i, node in enumerate(nodes):
        agent = pod(f"agent-{i}", Toleration("", "Exists"), cpu=1000, scheduler="default-scheduler")
        events.append(PodEvent(f"agent-{i}", agent, node.name if node.name.startswith("worker") else ""))
    for i in range(6):
        events += [PodEvent(f"p{i}", pod(f"p{i}"), ""), PodEvent(f"p{i}", pod(f"p{i}"), f"worker-{i // 3}")]
    return [LoggedEvent(float(i), event) for i, event in enumerate(events)]


def test_live_rewards_do_not_change() -> None:
    objective = objectives.resolve("balance=1,most-allocated=1,least-allocated=1")
    rewards = []
    for outsiders in ([], [replace(NODE, name="control-plane", taints=CONTROL_PLANE)]):
        log = log_of([*outsiders, *workers(3)])
        seen = transitions(log, "learning", CLUSTER).seen
        assert len(seen) >= 5
        rewards.append([reward(objective, each.row, each.next_row) for each in seen])
        assert {each.row[summary.NODES] for each in seen} == {3.0}
    assert rewards[0][:5] == rewards[1][:5]


def test_live_policy_does_not_observe_ineligible_nodes() -> None:
    contexts = []
    for outsiders in ([], [replace(NODE, name="control-plane", taints=CONTROL_PLANE)]):
        state = ClusterState([*outsiders, *workers(3)])
        agent = state.class_id(pod("agent", Toleration("", "Exists")).pod_class)
        for slot in range(len(state.nodes)):
            state.place(f"agent-{slot}", agent, slot)
        c = state.class_id(pod("p").pod_class)
        decider = Decider(ClusterView(state), resolve("best-fit"))
        decider.choose(PodQuery(c))
        observations = LiveObservations(CLUSTER, decider.live)
        observation, _ = observations.observe(PodQuery(c), Candidates(state.mask(c), decider.eligible))
        contexts.append(observation.context)
        assert observation.mask.sum() == 3
    np.testing.assert_array_equal(*contexts)


def test_a_live_cluster_follows_cordons_and_tolerant_pods() -> None:
    state = ClusterState([replace(NODE, name="control-plane", taints=CONTROL_PLANE), *workers(2)])
    decider = Decider(ClusterView(state), resolve("best-fit"))
    decider.choose(PodQuery(state.class_id(pod("p").pod_class)))
    assert decider.eligible.tolist() == [False, True, True]
    state.update_node(replace(workers(2)[0], unschedulable=True))
    assert decider.eligible.tolist() == [False, False, True]
    tolerant = state.class_id(pod("t", Toleration("", "Exists")).pod_class)
    decider.choose(PodQuery(tolerant))
    assert decider.eligible.all()
    state.add_node(replace(NODE, name="new", taints=(Taint("gpu", "", "NoExecute"),)))
    slots = [state.slot(name) for name in ("control-plane", "worker-0", "worker-1", "new")]
    assert decider.eligible[slots].all()
    assert decider.eligible.sum() == 4
    assert Decider(ClusterView(state, demand=[tolerant]), resolve("best-fit")).eligible.sum() == 4
