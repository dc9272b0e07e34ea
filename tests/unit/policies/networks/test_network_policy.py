"""A network in a simulation sees what its environment showed, and so decides the same; it is told apart by one line."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.support.errors import raises
from tests.support.networks import network_card, shake, sizes

from steersman.agents.networks.score_networks import build, export
from steersman.agents.networks.spec import sizes_of
from steersman.agents.networks.tensors import as_tensors
from steersman.core.errors import SteersmanError
from steersman.envs.environment import SchedulingEnv
from steersman.envs.workload import WorkloadCore, WorkloadOptions
from steersman.policies.features import CLUSTER, GPU
from steersman.policies.network_policy import first_best
from steersman.policies.policy_file import write_policy
from steersman.simulation.description import RunObservations
from steersman.simulation.run import Simulator
from steersman.workloads.formats.openb import embedded
from steersman.workloads.topology import places
from steersman.workloads.workload import Workload

SEED = 5


def small():
    """21 nodes and 136 pods of five jobs that stand in racks of four."""
    whole = embedded("default")
    pods = tuple(replace(pod, owner=f"Job/{i % 5}" if i % 3 else "") for i, pod in enumerate(whole.pods[::60]))
    return Workload("small", whole.nodes[::60], pods)


def play(env, network):
    """Greedy actions of a whole episode: observations, and names of the nodes."""
    observation, _ = env.reset(seed=0, options={"seed": SEED})
    names, seen, nodes, over = env.core.names(0), [], [], False
    while not over:
        with torch.no_grad():
            scores = network(as_tensors({k: a[None] for k, a in observation.items()}, torch.device("cpu")))[0]
        action = first_best(scores.numpy(), observation["nodes"])
        seen.append(observation)
        nodes.append(names[action])
        observation, _, terminated, truncated, _ = env.step(np.int64(action))
        over = terminated or truncated
    return seen, nodes


@pytest.mark.parametrize("protocol", ["inflation", "timed"])
@pytest.mark.parametrize(
    ("name", "norm", "view"),
    [
        ("linear", "none", CLUSTER),
        ("mlp", "batch", CLUSTER),
        ("deepsets", "layer", CLUSTER),
        ("gnn", "none", CLUSTER),
        ("linear", "none", GPU),
        ("mlp", "layer", GPU),
        ("gnn", "none", GPU),
    ],
)
def test_simulation_repeats_the_environment_episode(tmp_path, monkeypatch, protocol, name, norm, view):
    options = WorkloadOptions(workload=small(), servers_per_rack=4, load=1.2, ratio=1.2, view=view.name)
    core = WorkloadCore(1, protocol, options)
    env = SchedulingEnv(core)
    network = build(name, sizes_of(env.observation_space), (8, 8), 0.0, norm, seed=1)
    shake(network)
    observations, nodes = play(env, network.eval())
    file = tmp_path / "policy.safetensors"
    write_policy(file, network_card(view, name, (8, 8), norm), export(network, fold=name != "gnn"))

    shown = []
    observe = RunObservations.observe

    def record(self, query, nodes):
        seen, groups = observe(self, query, nodes)
        shown.append({k: getattr(seen, k).copy() for k in ("nodes", "pod", "context", "mask")})
        return seen, groups

    monkeypatch.setattr(RunObservations, "observe", record)
    simulator = core.simulators[0]
    run = simulator.run(str(file), protocol=protocol, seed=SEED, ratio=1.2, load=1.2, record=True)
    for wanted, found in zip(observations, shown, strict=True):
        for part, array in found.items():
            assert (array == wanted[part]).all(), part
    if view is CLUSTER:
        assert any(seen["nodes"][:, CLUSTER.node_column("owner_in_rack")].any() for seen in shown)
    placed = run.placements
    assert [n for n, o in zip(placed.node, placed.outcome, strict=True) if o == "bound"] == nodes
    if protocol == "timed":
        assert any(seen["context"][view.context_column("waiting")] > 0 for seen in shown)


def test_pods_of_an_owner_and_nodes_of_a_rack_share_an_index():
    core = WorkloadCore(1, "inflation", WorkloadOptions(workload=small(), servers_per_rack=4))
    workload = core.simulators[0].workload
    found = places(workload)
    owners = {(pod.owner, number) for pod, number in zip(workload.pods, found.owner.tolist(), strict=True)}
    assert (found.owners, len(owners)) == (5, 6)
    assert ("", -1) in owners
    assert found.rack.tolist() == [i // 4 for i in range(21)]
    assert (found.racks, found.server.tolist()) == (6, list(range(21)))


def test_weights_that_are_too_large_fail_in_one_line(tmp_path):
    hidden, file = (4,) * 40, tmp_path / "large.safetensors"
    exported = export(build("mlp", sizes(CLUSTER), hidden))
    arrays = {name: np.full_like(array, 1e11) for name, array in exported.items()}
    write_policy(file, network_card(CLUSTER, "mlp", hidden), arrays)
    with raises(SteersmanError, "'large'") as error:
        Simulator(small()).run(str(file), protocol="arrivals")
    assert "\n" not in str(error.value)
