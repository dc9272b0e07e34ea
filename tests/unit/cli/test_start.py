"""Evolution on workloads goes on from a policy: it begins there exactly, and takes none of another kind."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.support.errors import raises

from steersman.agents.configs import EvolutionConfig
from steersman.agents.evolution.simulations import Evolution, SimulationTask
from steersman.cli.main import main
from steersman.core.errors import InputError
from steersman.policies.base import default_member
from steersman.policies.features import GPU
from steersman.policies.policy_file import Card, prepare_policy, read_policy, write_policy
from steersman.policies.registry import resolve
from steersman.training.run import TrainingLimits
from steersman.training.search.evolve import EvolutionPlan, evolve
from steersman.workloads.formats.kubernetes.objects import write_nodes, write_pods
from steersman.workloads.formats.openb import embedded
from steersman.workloads.workload import Workload

ONCE = TrainingLimits(iterations=1, validate_every=1)
STEPS = {"population": 4, "episodes": 1}


@pytest.fixture(scope="module")
def workload():
    """25 nodes and 170 pods."""
    whole = embedded("gpushare40")
    return Workload("mine", whole.nodes[::49], whole.pods[::49])


@pytest.fixture(scope="module")
def policies(tmp_path_factory, workload):
    """A policy of each network after a generation of large steps, by the network's name."""
    folder = tmp_path_factory.mktemp("policies")
    for network in ("linear", "mlp"):
        config = EvolutionConfig(network=network, hidden="6", step=0.5, memory=0.0, **STEPS)
        evolve(EvolutionPlan("first", (workload,), config=config, validation_seeds=(5001,)), folder / network, ONCE)
    return {network: folder / network / "policy.safetensors" for network in ("linear", "mlp")}


def plan(workload, start, **options):
    config = EvolutionConfig(**{"hidden": "6", **STEPS, **options})
    return EvolutionPlan("second", (workload,), config=config, validation_seeds=(5001,), start=start)


@pytest.mark.parametrize("network", ["linear", "mlp"])
def test_training_starts_at_the_policy_and_moves_away(workload, policies, network):
    start = resolve(str(policies[network]))
    search = Evolution(
        (workload,), SimulationTask(), EvolutionConfig(network=network, hidden="6", **STEPS), seed=1, start=start
    )
    begun = search.policy("p").tensors()
    assert begun.keys() == start.tensors().keys()
    assert all(np.array_equal(begun[name], array) for name, array in start.tensors().items())
    search.iterate()
    moved = search.policy("p").tensors()
    assert all(not np.array_equal(moved[name], array) for name, array in start.tensors().items())


def test_small_steps_stay_near_the_recorded_start(tmp_path, workload, policies):
    evolve(plan(workload, policies["linear"], step=1e-12), tmp_path, ONCE)
    (_, first), (card, second) = read_policy(policies["linear"]), read_policy(tmp_path / "policy.safetensors")
    assert np.allclose(first["weights"], second["weights"], atol=1e-5)
    assert card.settings["start"].startswith("policy.safetensors ")
    assert json.loads((tmp_path / "run.json").read_text())["start"] == card.settings["start"]
    with raises(InputError, "policy.safetensors", "', now '", "steersman.safetensors"):
        evolve(plan(workload, Path("steersman"), step=1e-12), tmp_path, ONCE, resume=True)


def test_training_from_a_prepared_policy_drops_its_profile(tmp_path, workload, policies):
    file = tmp_path / "prepared.safetensors"
    write_policy(file, *prepare_policy(policies["linear"], workload))
    evolve(plan(workload, file), tmp_path / "run", ONCE)
    assert read_policy(tmp_path / "run" / "policy.safetensors")[1].keys() == {"weights", "rules"}


def test_policies_of_another_kind_are_rejected(tmp_path, workload, policies):
    for start, network, message in (
        (policies["mlp"], "linear", "network: is 'mlp', but 'linear' is trained here"),
        (policies["linear"], "mlp", "network: is 'linear', but 'mlp' is trained here"),
        (tmp_path / "none", "linear", "none: cannot be read"),
    ):
        with pytest.raises(InputError, match=message):
            evolve(plan(workload, start, network=network), tmp_path / "run", ONCE)
    with raises(InputError, "6"):
        evolve(plan(workload, policies["mlp"], network="mlp", hidden="6,6"), tmp_path / "run", ONCE)
    gradients = {
        "head.weight": np.zeros((4, len(GPU.node) + len(GPU.pod) + len(GPU.context))),
        "head.bias": np.zeros(4),
    }
    card = Card(name="g", view="gpu", view_version=GPU.version, network="linear", objective="o", algorithm="ppo")
    write_policy(tmp_path / "g.safetensors", card, gradients)
    with raises(InputError):
        evolve(plan(workload, tmp_path / "g.safetensors"), tmp_path / "run", ONCE)
    assert not (tmp_path / "run").exists()


def test_train_starts_from_the_shipped_policy(tmp_path, monkeypatch, workload):
    write_nodes(workload.nodes, tmp_path / "nodes.yaml")
    write_pods(workload.pods, tmp_path / "pods.yaml")
    monkeypatch.chdir(tmp_path)
    size = (
        "--population",
        "4",
        "--episodes",
        "1",
        "--iterations",
        "1",
        "--validation-episodes",
        "1",
        "--step",
        "1e-12",
    )
    given = ("--nodes", "nodes.yaml", "--workload", "pods.yaml", "--start", "steersman", "--jobs", "1", *size)
    assert main(["train", *given, "--output", "run"]) == 0
    found = resolve("run/policy.safetensors").weights
    assert np.allclose(found, default_member(resolve("steersman")).weights, atol=1e-5)
