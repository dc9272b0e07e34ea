import numpy as np
import pytest

from steersman.cluster.state import ClusterState, device_indices
from steersman.policies.decider import Decider
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Simulator
from steersman.workloads.openb import embedded
from steersman.workloads.workload import Workload

POLICIES = ("fgd", "steersman", "kube-default", "best-fit", "fgd=500,best-fit=500", "random")


@pytest.fixture(scope="module")
def workload() -> Workload:
    whole = embedded("default")
    return Workload(name="few", nodes=whole.nodes[::40], pods=whole.pods[:600:2])


@pytest.mark.parametrize("name", POLICIES)
def test_decisions_are_those_of_a_simulation(workload: Workload, name: str) -> None:
    seed = 5
    simulator = Simulator(workload)
    policy = resolve(name)
    expected = simulator.run(policy, protocol="arrivals", seed=seed, record=True).placements
    assert expected is not None
    plan = schedule(workload, "arrivals", seed=seed, ratio=1.3, load=None)
    nodes = [workload.nodes[i] for i in plan.nodes]
    state = ClusterState(nodes)
    decider = Decider(state, policy, mix=simulator.mix, seed=seed)
    found = []
    for i in plan.pods:
        pod = workload.pods[i]
        c = state.class_id(pod.pod_class)
        choice = decider.choose(c, state.labels_id(pod))
        found.append("" if choice is None else nodes[choice.slot].name)
        if choice is not None:
            state.place(pod.name, c, choice.slot, choice.devices, state.labels_id(pod))
            decider.changed(choice.slot)
            assert "-".join(map(str, device_indices(choice.devices))) == expected.devices[len(found) - 1]
    assert found == expected.node
    assert "" in found
    assert len(set(found)) > 10


@pytest.mark.parametrize("name", ["fgd", "steersman", "kube-default"])
def test_a_decider_that_lived_through_changes_decides_like_a_new_one(workload: Workload, name: str) -> None:
    rng = np.random.default_rng(3)
    mix = Simulator(workload).mix
    policy = resolve(name)
    state = ClusterState(workload.nodes[:8])
    decider = Decider(state, policy, mix=mix)
    waiting = list(workload.nodes[8:])
    placed: list[str] = []
    for step, pod in enumerate(workload.pods[:200]):
        if rng.random() < 0.1 and waiting:
            decider.changed(state.add_node(waiting.pop()))
        if rng.random() < 0.05 and len(state.slots) > 4:
            gone = state.remove_node(sorted(state.slots)[int(rng.integers(len(state.slots)))])
            decider.changed(next(iter(gone.values())).slot if gone else 0)
            placed = [each for each in placed if each not in gone]
        if rng.random() < 0.3 and placed:
            decider.changed(state.remove(placed.pop(int(rng.integers(len(placed))))).slot)
        c = state.class_id(pod.pod_class)
        fresh = Decider(state, policy, mix=mix) if step % 10 == 0 else None
        if fresh is not None and name == "kube-default":  # where its search stands is its own
            fresh.cluster.kube.cursor[:] = decider.cluster.kube.cursor
        choice = decider.choose(c)
        if fresh is not None:
            assert choice == fresh.choose(c)
        if choice is not None:
            state.place(pod.name, c, choice.slot, choice.devices)
            decider.changed(choice.slot)
            placed.append(pod.name)
    assert len(placed) > 50
