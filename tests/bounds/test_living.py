"""Clusters that live, with every index checked: nodes, GPU models, devices and pods come, change and go."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.bounds.clusters import SHAPES, workload
from tests.bounds.policies import FILES, PROFILES, policy_of
from tests.support.nightly import by_default
from tests.support.servers.fake_prometheus import CONNECTIONS, CPU, LATENCY, NETWORK, Told

from steersman.apps.scheduler.agent_policy import AgentSettings, agent_policy
from steersman.cluster.arrays import fit_mask, room_for
from steersman.cluster.constraints import reasons
from steersman.cluster.node_metrics import NO_LIMITS, LatencyLimits
from steersman.cluster.pod_query import OwnerPods, PodQuery
from steersman.cluster.state import ClusterState
from steersman.objectives.registry import resolve
from steersman.orders.live_reservation import EndingPods, LiveReservation
from steersman.policies.decision.cluster_view import ClusterView
from steersman.policies.decision.decider import Decider
from steersman.policies.features import CLUSTER, GPU, TELEMETRY, View
from steersman.policies.heuristics import heuristic
from steersman.policies.registry import BUILT_IN
from steersman.policies.telemetry import RULE_OF_POLICY
from steersman.workloads.profile import typical_pods


@pytest.mark.parametrize("name", [*BUILT_IN, *FILES, *PROFILES, "fgd=500,gpu-packing=500", *RULE_OF_POLICY])
@pytest.mark.parametrize("first", [0, pytest.param(3, marks=pytest.mark.nightly)])
def test_decider_stays_in_bounds_while_the_cluster_changes(name: str, first: int, tmp_path: Path) -> None:
    """It begins with no or few nodes, of a shape that says nothing of those to come."""
    rng = np.random.default_rng(first)
    shapes = [SHAPES[each] for each in ("without GPUs", "one node", "many models", "everything")]
    every = [node for i, shape in enumerate(shapes) for node in workload(shape, seed=i).nodes]
    nodes = [replace(node, name=f"n{i}") for i, node in enumerate(every)]
    pods = [pod for i, shape in enumerate(shapes[1:]) for pod in workload(shape, seed=i).pods]
    rng.shuffle(pods)  # type: ignore[arg-type]
    told = Told() if name in RULE_OF_POLICY or first else None
    state = ClusterState(nodes[:first])
    services = workload(shapes[-1], seed=1).services
    decider = Decider(
        ClusterView(state, profile=typical_pods(pods), selectors=lambda: services, telemetry=told),
        policy_of(name, tmp_path),
    )
    outside, placed = nodes[first:], dict[str, str]()
    for step, pod in enumerate(pods[:60]):
        if outside and (step % 5 == 0 or rng.random() < 0.2):
            decider.changed(state.add_node(outside.pop()))
        elif state.slots and rng.random() < 0.2:
            old = state.nodes[state.slots[sorted(state.slots)[int(rng.integers(len(state.slots)))]]]
            assert old is not None
            other = every[int(rng.integers(len(every)))]
            decider.changed(state.update_node(replace(other, name=old.name)))
        elif state.slots and rng.random() < 0.1:
            gone = sorted(state.slots)[int(rng.integers(len(state.slots)))]
            slot = state.slots[gone]
            for each in state.remove_node(gone):
                del placed[each]
            decider.changed(slot)
        if told is not None and step % 4 == 0:
            _tell(told, [*state.slots, "unknown"], rng)
        c, labels = state.class_id(pod.pod_class), state.labels_id(pod)
        if not state.slots:
            continue
        owner_pods = OwnerPods(
            Counter(state.slots[node] for node in placed.values() if node in state.slots and rng.random() < 0.3)
        )
        limits = LatencyLimits(20.0, 60.0, "users") if told is not None and step % 3 else NO_LIMITS
        query = PodQuery(c, labels, owner_pods, limits)
        scores = decider.scores(query)
        choice = decider.choose(query)
        reasons.unschedulable_message(state, c, labels)
        if choice is not None:
            others = np.flatnonzero(np.isfinite(scores))
            if len(others) > 1:
                decider.contributions(query, choice.slot, int(others[-1]))
            decider.devices(c, choice.slot)
            state.place(f"{step}", c, choice.slot, choice.devices, labels)
            node = state.nodes[choice.slot]
            assert node is not None
            placed[f"{step}"] = node.name
            decider.changed(choice.slot)
        if placed and rng.random() < 0.4:
            pod_name = next(iter(placed))
            del placed[pod_name]
            decider.changed(state.remove(pod_name).slot)
    assert len(state.classes) > 5


@pytest.mark.parametrize("shape", by_default(["one node", "everything"], SHAPES))
@pytest.mark.parametrize("view", [CLUSTER, GPU, TELEMETRY], ids=lambda view: view.name)
def test_agents_observe_the_outcome_of_a_placement(shape: str, view: View) -> None:
    there = workload(SHAPES[shape], seed=3)
    objective = "balance=1,least-connections=1,latency-aware=1" if view is TELEMETRY else "balance"
    settings = AgentSettings("agent", view, resolve(objective), None)
    told = Told()
    state = ClusterState(there.nodes)
    policy = agent_policy(settings, heuristic("best-fit"), told)
    decider = Decider(ClusterView(state, profile=typical_pods(there.pods), telemetry=told), policy)
    rng = np.random.default_rng(3)
    for i, pod in enumerate(there.pods[:10]):
        _tell(told, list(state.slots), rng)
        c = state.class_id(pod.pod_class)
        owner_pods = OwnerPods({slot: 1 for slot in range(len(there.nodes)) if rng.random() < 0.3})
        limits = LatencyLimits(20.0, 60.0, "users") if i % 2 else NO_LIMITS
        policy.transition.asked()
        choice = decider.choose(PodQuery(c, state.labels_id(pod), owner_pods, limits))
        if choice is not None:
            done = policy.transition.take()
            assert done is not None
            assert done.slot == choice.slot
            assert np.isfinite(done.after).all()
            state.place(f"{i}", c, choice.slot, choice.devices)
            decider.changed(choice.slot)


def _tell(told: Told, nodes: list[str], rng: np.random.Generator) -> None:
    """Something new about some of the nodes."""
    told.now += 20.0
    for feature, most in ((CPU, 100.0), (NETWORK, 1e8), (CONNECTIONS, 500.0)):
        told.tell(feature, {node: float(rng.random() * most) for node in nodes if rng.random() < 0.8}, age=5.0)
    told.tell(LATENCY, {node: float(rng.random() * 100) for node in nodes if rng.random() < 0.8}, user="users")


@pytest.mark.parametrize("shape", SHAPES)
def test_free_capacity_is_counted_on_feasible_nodes(shape: str) -> None:
    there = workload(SHAPES[shape], seed=2)
    state = ClusterState(there.nodes)
    slots = np.arange(len(there.nodes), dtype=np.int64)
    for c in {state.class_id(pod.pod_class) for pod in there.pods}:
        fits = np.zeros(len(slots), dtype=np.bool_)
        fit_mask(state.arrays, state.class_arrays, c, fits)
        room = room_for(state.arrays, state.class_arrays, c, slots)
        assert room >= fits.sum()
        assert (room > 0) == fits.any()
        assert room == sum(room_for(state.arrays, state.class_arrays, c, slots[i : i + 1]) for i in range(len(slots)))


@pytest.mark.parametrize("shape", SHAPES)
def test_live_reservations_stay_in_bounds(shape: str) -> None:
    """Pods run on every node, some end, and others are put beside the reserved one."""
    there = workload(SHAPES[shape], seed=3)
    state = ClusterState(there.nodes)
    rows = []
    for i, pod in enumerate(there.pods):
        c = state.class_id(pod.pod_class)
        slots = np.flatnonzero(state.mask(c))
        if len(slots):
            placed = state.place(f"p{i}", c, int(slots[i % len(slots)]))
            rows.append((c, placed.slot, placed.devices, 0.0, float(10 * i)))
    columns = [np.array(column) for column in zip(*rows, strict=True)] if rows else [np.zeros(0)] * 5
    running = EndingPods(*(column.astype(np.int64) for column in columns[:3]), *columns[3:])
    before = [column.copy() for column in state.arrays]
    for c in range(len(state.classes)):
        made = LiveReservation(state, c, running, 5.0)
        for slot in np.flatnonzero(made.reserved).tolist():
            made.take(c, slot, 1)
    for column, known in zip(state.arrays, before, strict=True):
        np.testing.assert_array_equal(column, known)
