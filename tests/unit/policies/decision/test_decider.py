from dataclasses import replace

import numpy as np
import pytest

from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState, device_indices
from steersman.policies.base import Policy, default_member
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.leftovers import leftover_arrays
from steersman.policies.policy_file import prepare_policy, write_policy
from steersman.policies.registry import policy_path, resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Simulator
from steersman.workloads.formats.openb import embedded
from steersman.workloads.workload import Workload


def concrete(name: str) -> Policy:
    """A policy by name; of a portfolio its first member, as a decider takes it."""
    return default_member(resolve(name))


POLICIES = ("fgd", "steersman", "kube-default", "best-fit", "fgd=500,best-fit=500", "random")


@pytest.fixture(scope="module")
def workload() -> Workload:
    whole = embedded("default")
    return Workload(name="few", nodes=whole.nodes[::40], pods=whole.pods[:600:2])


@pytest.mark.parametrize("name", POLICIES)
def test_decisions_are_those_of_a_simulation(workload: Workload, name: str) -> None:
    seed = 5
    simulator = Simulator(workload)
    policy = concrete(name)
    expected = simulator.run(policy, protocol="arrivals", seed=seed, record=True).placements
    assert expected is not None
    plan = schedule(workload, "arrivals", seed=seed, ratio=1.3, load=None)
    nodes = [workload.nodes[i] for i in plan.nodes]
    state = ClusterState(nodes)
    decider = Decider(ClusterView(state, profile=simulator.profile, seed=seed), policy)
    found = []
    for i in plan.pods:
        pod = workload.pods[i]
        c = state.class_id(pod.pod_class)
        choice = decider.choose(PodQuery(c, state.labels_id(pod)))
        found.append("" if choice is None else nodes[choice.slot].name)
        if choice is not None:
            state.place(pod.name, c, choice.slot, choice.devices, state.labels_id(pod))
            decider.changed(choice.slot)
            assert "-".join(map(str, device_indices(choice.devices))) == expected.devices[len(found) - 1]
    assert found == expected.node
    assert "" in found
    assert len(set(found)) > 10


@pytest.fixture(scope="module")
def choosy() -> Workload:
    """Pods that name GPU models."""
    whole = embedded("gpuspec25")
    return Workload(name="choosy", nodes=whole.nodes[::40], pods=whole.pods[:600:2])


@pytest.fixture(scope="module")
def policies(choosy: Workload, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Policy]:
    file = tmp_path_factory.mktemp("policy") / "prepared.safetensors"
    with policy_path("steersman") as shipped:
        write_policy(file, *prepare_policy(shipped, choosy, Simulator(choosy).member(resolve("steersman")).policy))
    return {"fgd": resolve("fgd"), "steersman": concrete("steersman"), "prepared": resolve(str(file))}


@pytest.mark.parametrize("name", ["fgd", "steersman", "prepared"])
@pytest.mark.parametrize("seed", range(3))
def test_decider_follows_changing_gpu_models(
    choosy: Workload, policies: dict[str, Policy], name: str, seed: int
) -> None:
    """Slots are free throughout, so nothing but the models tells the decider that nodes are numbered anew."""
    rng = np.random.default_rng(seed)
    profile, policy = Simulator(choosy).profile, policies[name]
    models = sorted({node.gpu_model for node in choosy.nodes} | {model for pod in profile for model in pod.gpu_models})
    models += ["", "ZX80", "ZX81"]
    plain = [replace(node, gpu_model="") for node in choosy.nodes[:16] if node.gpu_count]
    state = ClusterState(plain)
    for node in plain[4:]:
        state.remove_node(node.name)
    decider, outside, placed, changes = Decider(ClusterView(state, profile=profile), policy), plain[4:], list[str](), 0
    for step, pod in enumerate(choosy.pods[:150]):
        there = sorted(state.slots)
        if rng.random() < 0.2 and outside:
            new = replace(outside.pop(), gpu_model=models[int(rng.integers(len(models)))])
            decider.changed(state.add_node(new))
        elif rng.random() < 0.2:
            slot = state.slots[there[int(rng.integers(len(there)))]]
            old = state.nodes[slot]
            assert old is not None
            decider.changed(state.update_node(replace(old, gpu_model=models[int(rng.integers(len(models)))])))
            changes += 1
        elif rng.random() < 0.1 and len(there) > 3:
            slot = state.slots[there[int(rng.integers(len(there)))]]
            gone = state.nodes[slot]
            assert gone is not None
            left = state.remove_node(gone.name)
            placed = [each for each in placed if each not in left]
            decider.changed(slot)
            outside.append(gone)
        c = state.class_id(pod.pod_class)
        choice = decider.choose(PodQuery(c))
        if step % 3 == 0:
            fresh = Decider(ClusterView(state, profile=profile), policy)
            assert choice == fresh.choose(PodQuery(c))
            np.testing.assert_array_equal(decider.scores(PodQuery(c)), fresh.scores(PodQuery(c)))
        if choice is not None:
            state.place(f"{step}", c, choice.slot, choice.devices)
            decider.changed(choice.slot)
            placed.append(f"{step}")
        if rng.random() < 0.4 and placed:
            decider.changed(state.remove(placed.pop(0)).slot)
    assert changes > 10
    assert "ZX80" in {each.model for each in state.gpu_types}


def test_leftover_tables_of_a_profile_serve_any_nodes(choosy: Workload) -> None:
    """They are computed in another process; meanwhile nodes may come and go."""
    profile, policy = Simulator(choosy).profile, concrete("steersman")
    state = ClusterState(choosy.nodes)
    decider = Decider(ClusterView(state, profile=profile, leftovers=leftover_arrays(profile)), policy)
    plain = Decider(ClusterView(state, profile=profile), policy)
    for pod in choosy.pods[:40]:
        c = state.class_id(pod.pod_class)
        np.testing.assert_array_equal(decider.scores(PodQuery(c)), plain.scores(PodQuery(c)))
