"""A network on a cluster that lives sees what it would see in a simulation, and so decides the same."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.networks import network_file

from steersman.cluster.pod_query import OwnerPods, PodQuery
from steersman.cluster.state import ClusterState
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.features import CLUSTER, GPU, View
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Simulator
from steersman.workloads.formats.openb import embedded
from steersman.workloads.workload import Workload

SEED = 5


@pytest.fixture(scope="module")
def workload() -> Workload:
    """Nodes in racks of four, and pods of five jobs."""
    whole = embedded("default")
    nodes = []
    for i, node in enumerate(whole.nodes[::60]):
        nodes.append(replace(node, labels={**node.labels, "rack": f"r{i // 4}", "server": f"s{i // 2}"}))
    pods = [replace(pod, owner=f"Job/{i % 5}" if i % 3 else "") for i, pod in enumerate(whole.pods[::40])]
    return Workload("small", tuple(nodes), tuple(pods))


PAIRS = pytest.mark.parametrize(("name", "view"), [("mlp", CLUSTER), ("gnn", CLUSTER), ("mlp", GPU)])


@PAIRS
def test_spare_slots_do_not_change_decisions(tmp_path: Path, workload: Workload, name: str, view: View) -> None:
    policy = resolve(network_file(tmp_path, view, name))
    profile = Simulator(workload).profile
    tight, roomy = ClusterState(workload.nodes), ClusterState(workload.nodes[:5])
    for node in workload.nodes[5:]:
        roomy.add_node(node)
    assert len(roomy.nodes) > len(tight.nodes)
    deciders = [Decider(ClusterView(state, profile=profile), policy) for state in (tight, roomy)]
    chosen = set()
    for pod in workload.pods[:60]:
        slots = []
        for state, decider in zip((tight, roomy), deciders, strict=True):
            c = state.class_id(pod.pod_class)
            choice = decider.choose(PodQuery(c))
            slots.append(None if choice is None else choice.slot)
            if choice is not None:
                state.place(pod.name, c, choice.slot, choice.devices)
                decider.changed(choice.slot)
        assert slots[0] == slots[1]
        chosen.add(slots[0])
    assert len(chosen) > 2


@PAIRS
def test_decisions_are_those_of_a_simulation(tmp_path: Path, workload: Workload, name: str, view: View) -> None:
    policy = resolve(network_file(tmp_path, view, name))
    simulator = Simulator(workload)
    expected = simulator.run(policy, protocol="arrivals", seed=SEED, record=True).placements
    assert expected is not None
    plan = schedule(workload, "arrivals", seed=SEED, ratio=1.3, load=None)
    nodes = [workload.nodes[i] for i in plan.nodes]
    state = ClusterState(nodes)
    for pod in workload.pods:  # as in a simulation, which numbers all classes before it starts
        state.class_id(pod.pod_class)
    decider = Decider(ClusterView(state, profile=simulator.profile), policy)
    owner_pods: dict[str, Counter[int]] = {}
    found, failed = [], 0
    for i in plan.pods:
        pod = workload.pods[i]
        c = state.class_id(pod.pod_class)
        near = owner_pods.setdefault(pod.owner, Counter()) if pod.owner else Counter()
        decider.waiting = failed
        choice = decider.choose(PodQuery(c, state.labels_id(pod), OwnerPods(near)))
        found.append("" if choice is None else nodes[choice.slot].name)
        if choice is None:
            failed += 1
            continue
        state.place(pod.name, c, choice.slot, choice.devices, state.labels_id(pod))
        decider.changed(choice.slot)
        near[choice.slot] += 1
    agreed = np.mean([one == other for one, other in zip(found, expected.node, strict=True)])
    assert agreed == 1.0
    assert len(set(found)) > 3
