"""A network in the score table: its file is the policy again, and learned scores, the network and torch agree."""

import json
from itertools import pairwise

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from tests.support.decision_states import of_run, pod_features
from tests.support.networks import network_card, sizes
from tests.support.weights import fgd_weights
from tests.unit.policies.gpu_state.test_learned import workloads

from steersman.agents.configs import EvolutionConfig
from steersman.agents.networks.score_networks import build, export
from steersman.cli.main import main
from steersman.core.errors import InputError
from steersman.policies.features import GPU, POD_KINDS
from steersman.policies.learned_weights import WEIGHTS
from steersman.policies.linear import LinearPolicy
from steersman.policies.network_policy import NetworkPolicy
from steersman.policies.policy_file import CARD, open_network, prepare_policy, read_policy, write_policy
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Execution, Simulator
from steersman.training.search.evolve import EvolutionPlan
from steersman.training.tuning.study import to_options
from steersman.workloads.formats.kubernetes.objects import write_nodes, write_pods
from steersman.workloads.formats.openb import embedded
from steersman.workloads.workload import Workload

HIDDEN = (8, 4)
NODE, POD, CONTEXT = len(GPU.node), len(GPU.pod), len(GPU.context)


def part(name, step=30):
    whole = embedded(name)
    return Workload(name, whole.nodes[::step], whole.pods[::step])


def random_policy(seed, hidden=HIDDEN):
    """FGD's weights, a little off, and layers that add a few points."""
    rng = np.random.default_rng(seed)
    widths = pairwise((NODE + POD, *hidden, 1))
    network = tuple((rng.normal(size=(b, a)) / np.sqrt(a), rng.normal(size=b)) for a, b in widths)
    return LinearPolicy("m", fgd_weights() + 0.01 * rng.normal(size=(POD_KINDS, WEIGHTS)), network=network)


def card(hidden=HIDDEN, **more):
    return network_card(GPU, "mlp", hidden, algorithm="evolution", **more)


def placed(workload, policy):
    run = Simulator(workload).run(policy, seed=3, record=True)
    return run.placements.node, run.placements.devices


@pytest.mark.parametrize("hidden", [(5,), HIDDEN])
def test_file_round_trips_the_policy(tmp_path, hidden):
    policy, file = random_policy(1, hidden), tmp_path / "m.safetensors"
    write_policy(file, card(hidden), policy.tensors())
    read = resolve(str(file))
    assert isinstance(read, LinearPolicy)
    for name, array in policy.tensors().items():
        assert (read.tensors()[name] == array).all(), name
    workload = part("gpuspec25")
    assert placed(workload, read) == placed(workload, policy)
    plain = LinearPolicy("m", policy.weights, network=tuple((0 * w, 0 * b) for w, b in policy.network))
    assert placed(workload, read) != placed(workload, plain)


def test_a_prepared_file_decides_the_same_where_it_was_prepared(tmp_path, capsys):
    workload, policy = part("gpuspec25"), random_policy(2)
    write_policy(tmp_path / "m.safetensors", card(), policy.tensors())
    write_policy(tmp_path / "p.safetensors", *prepare_policy(tmp_path / "m.safetensors", workload))
    brought = resolve(str(tmp_path / "p.safetensors"))
    assert isinstance(brought, LinearPolicy)
    assert placed(workload, brought) == placed(workload, policy)
    assert main(["policy", "show", str(tmp_path / "p.safetensors")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "mlp 8-4 on the features 'gpu'" in shown
    assert "Largest weights of the linear part" in shown


def test_missing_linear_part_is_zero(tmp_path):
    arrays = {name: array.astype(np.float32) for name, array in random_policy(3).tensors().items() if name != "weights"}
    write_policy(tmp_path / "m.safetensors", card(), arrays)
    read = resolve(str(tmp_path / "m.safetensors"))
    assert not read.weights.any()
    assert {array.dtype for layer in read.network for array in layer} == {np.dtype(np.float64)}


def test_policy_with_cluster_features_does_not_use_the_score_table(tmp_path):
    network = build("mlp", sizes(GPU), HIDDEN, 0.0, "none", 1)
    write_policy(tmp_path / "m.safetensors", card(), export(network))
    assert isinstance(resolve(str(tmp_path / "m.safetensors")), NetworkPolicy)


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        (lambda a: a.pop("head.bias"), {}, r"head.bias: is missing; expected \[1\]"),
        (lambda a: a.update(weights=np.zeros((4, 3))), {}, r"weights: is of shape \[4, 3\]; expected \[4, 31\]"),
        (lambda a: a.update(more=np.zeros(3)), {}, "more: is not one of this network's"),
        (lambda a: a["layers.1.bias"].fill(np.nan), {}, "layers.1.bias: holds a weight that is not a finite number"),
        (lambda a: a.update({"layers.0.weight": np.zeros((8, 43))}), {}, r"\[8, 43\]; expected \[8, 52\]"),
        (lambda a: a.update({"layers.0.weight": np.zeros(42)}), {}, r"\[42\]; expected \[8, 52\]"),
        (None, {"hidden": (8, 5)}, r"layers.1.weight: is of shape \[4, 8\]; expected \[5, 8\]"),
        (None, {"hidden": ()}, "one layer or more"),
        (None, {"normalisation": "layer"}, "normalisation: is 'layer'; a network without features of the cluster"),
        (None, {"normalisation": "group"}, "known are none, layer, batch"),
        (None, {"view_version": GPU.version + 1}, "train it again"),
    ],
)
def test_mismatched_file_fails_in_one_line(tmp_path, change, more, message):
    arrays, file = random_policy(4).tensors(), tmp_path / "bad.safetensors"
    if change:
        change(arrays)
    save_file(arrays, file, metadata={CARD: msgspec.json.encode(card(**more)).decode()})
    with pytest.raises(InputError, match=message) as error:
        resolve(str(file))
    assert "\n" not in str(error.value)


def networks_of(seed, hidden):
    """A network without a linear part, and the same in torch and in a file, which see the cluster with weight 0."""
    layers = random_policy(seed, hidden).network
    network = build("mlp", sizes(GPU), hidden, 0.0, "none", 1).eval()
    dense = [*network.body.layers, network.head]
    with torch.no_grad():
        for layer, (weight, bias) in zip(dense, layers, strict=True):
            layer.weight.zero_()
            layer.weight[:, : weight.shape[1]] = torch.tensor(weight)
            layer.bias[:] = torch.tensor(bias)
    policy = LinearPolicy("m", np.zeros((POD_KINDS, WEIGHTS)), network=layers)
    return policy, network, open_network("f", card(hidden), export(network))


@settings(max_examples=6, deadline=None)
@given(workloads(), st.integers(0, 1000), st.sampled_from(((3,), (8, 4))))
def test_torch_the_network_and_learned_scores_agree(workload, seed, hidden):
    policy, network, mine = networks_of(seed, hidden)
    context = np.random.default_rng(seed).random(CONTEXT).astype(np.float32)
    plan = schedule(workload, "arrivals", seed=seed, ratio=1.0, load=None)
    execution = Execution(Simulator(workload), plan, policy, seed, record=False)
    pods = pod_features(execution.state.class_arrays)
    for step, (c, labels) in enumerate(zip(execution.class_id, execution.labels_id, strict=True)):
        mask, rows = execution.state.mask(int(c), int(labels)), of_run(execution).features(int(c))
        kept = execution.engine.scores(int(c), int(labels), len(mask))
        execution.advance(step + 1)
        if not mask.any():
            continue
        nodes, none = rows.astype(np.float32), np.full((len(mask), 2), -1, dtype=np.int32)
        found = mine.scores(nodes, pods[c], context, mask, none)
        seen = {"nodes": nodes, "pod": pods[c], "context": context, "mask": mask}
        with torch.no_grad():
            wanted = network({name: torch.tensor(array)[None] for name, array in seen.items()})[0].numpy()
        chosen = int(execution.standing.node[step])
        scale = 1e-5 * max(1.0, float(np.abs(nodes).max()))
        np.testing.assert_allclose(found[mask], wanted[mask], rtol=1e-5, atol=scale)
        np.testing.assert_allclose(kept[mask], wanted[mask], rtol=1e-5, atol=scale)
        assert wanted[chosen] >= wanted.max() - scale - 1e-5 * abs(wanted.max())


@pytest.fixture
def files(tmp_path, monkeypatch):
    workload = part("default", 40)
    write_nodes(workload.nodes, tmp_path / "nodes.yaml")
    write_pods(workload.pods, tmp_path / "pods.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(*more):
    return main(["train", "--nodes", "nodes.yaml", "--workload", "pods.yaml", "--output", "run", *more])


def simulate(*more):
    given = ("--nodes", "nodes.yaml", "--pods", "pods.yaml", "--policy", "run/policy.safetensors")
    return main(["simulate", *given, "--output", "out", *more])


@pytest.mark.parametrize("more", [(), ("--protocol", "timed", "--load", "1.0")])
def test_evolution_trains_it_and_simulate_takes_it(files, capsys, more):
    search = ("--population", "4", "--episodes", "1", "--iterations", "1", "--validation-episodes", "1", "--jobs", "1")
    assert train("--network", "mlp", "--hidden", "6,3", *search, *more) == 0, capsys.readouterr().err
    found, arrays = read_policy(files / "run" / "policy.safetensors")
    assert (found.network, found.hidden, found.settings["network"]) == ("mlp", (6, 3), "mlp")
    assert arrays["layers.0.weight"].shape == (6, NODE + POD)
    assert simulate(*more) == 0, capsys.readouterr().err
    assert (files / "out" / "placements.csv").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--hidden", "8"), "--hidden does not apply to evolution on workloads"),
        (("--network", "mlp", "--hidden", "8,x"), "widths from 1 to"),
        (("--network", "mlp", "--start", "old.safetensors"), "old.safetensors, file, policy: cannot be read"),
        (("--network", "deepsets"), "cannot be trained by evolution on workloads; these can: evolution on workloads"),
    ],
)
def test_unused_options_fail_in_one_line(files, capsys, more, message):
    assert train(*more) in (1, 2)
    said = capsys.readouterr().err.splitlines()
    assert message in said[-1]
    assert [line for line in said if line.startswith("error: ")] == said[-1:], said
    assert not (files / "run").exists()


@pytest.mark.parametrize("network", ["linear", "mlp"])
def test_best_trial_of_tune_can_be_trained(files, network):
    config = EvolutionConfig(network=network, hidden="6", population=4, episodes=1)
    plan = EvolutionPlan("p", (part("default", 40),), config=config)
    (files / "best.json").write_text(json.dumps(to_options(plan)))
    assert train("--options", "best.json", "--iterations", "1", "--validation-episodes", "1", "--jobs", "1") == 0
    assert read_policy(files / "run" / "policy.safetensors")[0].hidden == plan.config.widths


@pytest.mark.usefixtures("files")
def test_gradient_training_on_the_gpu_view_yields_a_simulatable_policy(capsys):
    few = ("--hidden", "8", "--environments", "2", "--iterations", "1", "--validation-episodes", "1", "--rollout", "8")
    assert train("--algorithm", "ppo", "--view", "gpu", *few) == 0, capsys.readouterr().err
    assert isinstance(resolve("run/policy.safetensors"), NetworkPolicy)
    assert simulate() == 0, capsys.readouterr().err
