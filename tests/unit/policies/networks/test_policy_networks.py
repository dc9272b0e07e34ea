"""Networks of policy files: they score what torch scored in training, and wrong files are refused."""

import json

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from studies.environments.toy_environment import ToyVectorEnv
from tests.support.errors import raises
from tests.support.networks import network_card, shake, sizes
from tests.support.nightly import examples

from steersman.agents.configs import DQNConfig, EpisodeEvolutionConfig
from steersman.agents.dqn import DQN
from steersman.agents.evolution.episodes import EpisodeEvolution, Population
from steersman.agents.networks.score_networks import build, export
from steersman.agents.networks.spec import NetworkConfig, sizes_of
from steersman.core.errors import InputError
from steersman.policies.features import CLUSTER, GPU, POD_KINDS, TELEMETRY
from steersman.policies.network_policy import NetworkPolicy, first_best
from steersman.policies.networks import NETWORKS
from steersman.policies.policy_file import CARD, open_network
from steersman.policies.registry import resolve

HIDDEN = (8, 12)
ALL = [(name, norm) for name in NETWORKS for norm in ("none", "layer", "batch")]


def trained(name, norm="none", view=CLUSTER, seed=3):
    """A network with weights that matter, and running statistics that are not those of a new one."""
    network = build(name, sizes(view), HIDDEN, 0.0, norm, seed)
    shake(network, 0.2, seed)
    with torch.no_grad():
        for i in range(3):
            network(tensors(observe(view, i, 20)))
    return network.eval()


def observe(view, seed, nodes):
    """A random observation; some nodes are not feasible, and the last row is not a node."""
    rng, size = np.random.default_rng(seed), sizes(view)
    mask = rng.random(nodes) < 0.6
    mask[0] = True
    features = rng.normal(size=(nodes, size.node)).astype(np.float32)
    if nodes > 1:
        features[-1], mask[-1] = 0, False
    pod = rng.random(size.pod).astype(np.float32)
    pod[:POD_KINDS] = np.eye(POD_KINDS)[rng.integers(POD_KINDS)]
    context = rng.random(size.context).astype(np.float32)
    return features, pod, context, mask, rng.integers(-1, 3, (nodes, 2)).astype(np.int32)


def tensors(observation):
    names = ("nodes", "pod", "context", "mask", "groups")
    found = {name: torch.tensor(array)[None] for name, array in zip(names, observation, strict=True)}
    return found | {"groups": found["groups"].to(torch.int64)}


def opened(network, view=CLUSTER):
    spec = network.spec
    said = network_card(view, spec.name, spec.hidden, spec.normalisation)
    return open_network("f", said, export(network, fold=spec.name != "gnn"))


@pytest.fixture(scope="module")
def pairs():
    made = {pair: trained(*pair) for pair in ALL}
    return {pair: (network, opened(network)) for pair, network in made.items()}


@pytest.mark.parametrize("pair", ALL)
@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 1 << 31), nodes=st.integers(1, 40))
def test_scores_match_torch(pairs, pair, seed, nodes):
    network, mine = pairs[pair]
    observation = observe(CLUSTER, seed, nodes)
    with torch.no_grad():
        wanted = network(tensors(observation))[0].numpy()
    found = mine.scores(*observation)
    mask = observation[3]
    assert (found[~mask] == -np.inf).all()
    np.testing.assert_allclose(found[mask], wanted[mask], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_no_feasible_node_is_no_error(pairs, name):
    nodes, pod, context, mask, groups = observe(CLUSTER, 1, 5)
    mine = pairs[name, "none"][1]
    assert (mine.scores(nodes, pod, context, np.zeros_like(mask), groups) == -np.inf).all()
    assert (mine.scores(np.zeros_like(nodes), pod, context, np.zeros_like(mask), groups) == -np.inf).all()


def test_equal_nodes_score_equally_despite_rounding():
    nodes = np.array([[0.0, 1.0], [1.0, 2.0], [1.0, 2.0], [3.0, 3.0]], dtype=np.float32)
    scores = np.array([0.5, 2.0, np.nextafter(np.float32(2.0), np.float32(3.0)), 1.0], dtype=np.float32)
    assert first_best(scores, nodes) == 1
    nodes[1] = 7.0  # looks different, so its lower score counts
    assert first_best(scores, nodes) == 2
    nodes[1], scores[2] = nodes[2], 2.1  # the same features, but a place that counts (a graph network's)
    assert first_best(scores, nodes) == 2


@pytest.mark.parametrize("learner", ["gradient", "evolution"])
def test_learners_and_files_break_ties_alike(monkeypatch, learner):
    """Rounding makes one of two equal rows score more, which must not decide where validation decides."""
    env = ToyVectorEnv(3, "match")
    spec = NetworkConfig("mlp", sizes_of(env.single_observation_space), (4,))
    if learner == "gradient":
        agent, kind = DQN(env, build("mlp", spec.sizes, spec.hidden), DQNConfig(), 1), DQN
    else:
        kind = Population
        agent = EpisodeEvolution(lambda count: ToyVectorEnv(count, "match"), spec, EpisodeEvolutionConfig(), 1)
    scores = np.ones((3, 4), dtype=np.float32)
    scores[:, 2] = np.nextafter(np.float32(1.0), np.float32(2.0))
    scores[1, 3] = 2.0
    monkeypatch.setattr(kind, "scores", lambda *_: scores)
    seen = {"nodes": np.ones((3, 4, 5), dtype=np.float32), "mask": np.ones((3, 4), dtype=np.int8)}
    seen["nodes"][2, :2] = 0.0  # not what scores best, and so no equals of it
    assert agent.act(seen).tolist() == [0, 3, 2]


def write(folder, name, norm="none", change=None, seen=CLUSTER, **more):
    file = folder / "one.safetensors"
    arrays = export(trained(name, norm, seen), fold=name != "gnn")
    if change:
        change(arrays)
    card = network_card(seen, name, HIDDEN, norm)
    metadata = {CARD: msgspec.json.encode(msgspec.structs.replace(card, **more)).decode()}
    save_file({key: np.ascontiguousarray(array) for key, array in arrays.items()}, file, metadata=metadata)
    return str(file)


@pytest.mark.parametrize(("name", "norm"), ALL)
def test_a_file_of_every_network_opens(tmp_path, name, norm):
    policy = resolve(write(tmp_path, name, norm))
    assert isinstance(policy, NetworkPolicy)
    assert (policy.name, policy.view) == ("one", CLUSTER)


@pytest.mark.parametrize(
    ("name", "change", "more", "message"),
    [
        ("mlp", lambda a: a.pop("head.bias"), {}, r"tensor, head.bias: is missing; expected \[1\]"),
        ("mlp", lambda a: a.update({"layers.1.bias": np.zeros(3)}), {}, r"is of shape \[3\]; expected \[12\]"),
        ("mlp", lambda a: a.update(more=np.zeros(3)), {}, "more: is not one of this network's"),
        ("mlp", None, {"hidden": (8, 13)}, r"layers.1.weight: is of shape \[12, 8\]; expected \[13, 8\]"),
        ("mlp", None, {"hidden": ()}, "one layer or more"),
        ("mlp", None, {"normalisation": "layer"}, "norm.weight: is missing"),
        ("mlp", None, {"normalisation": "group"}, "known are none, layer, batch"),
        ("mlp", None, {"network": "rnn"}, "known are linear, mlp, deepsets, gnn"),
        ("linear", None, {"network": "mlp", "hidden": (8,)}, "layers.0.weight: is missing"),
        ("linear", None, {"view": "gpu", "view_version": GPU.version}, r"is of shape \[4, 49\]; expected \[4, 52\]"),
        ("linear", None, {"view": "telemetry", "view_version": TELEMETRY.version}, r"\[4, 49\]; expected \[4, 63\]"),
        ("deepsets", lambda a: a["rho.0.bias"].fill(np.nan), {}, "not a finite number"),
        ("gnn", lambda a: a.pop("attention.0.att"), {}, r"attention.0.att: is missing; expected \[1, 4, 2\]"),
        ("gnn", None, {"normalisation": "batch"}, "norm.0.weight: is missing"),
    ],
)
def test_mismatched_file_fails_in_one_line(tmp_path, name, change, more, message):
    file = write(tmp_path, name, "none", change, **more)
    with pytest.raises(InputError, match=message) as error:
        resolve(file)
    assert "\n" not in str(error.value)
    assert "one.safetensors" in str(error.value)


def test_model_card_is_checked_before_its_arrays(tmp_path):
    file = write(tmp_path, "mlp")
    content = json.loads(msgspec.json.encode(network_card(CLUSTER))) | {"view_version": 99}
    save_file({"a": np.zeros(1)}, file, metadata={CARD: json.dumps(content)})
    with raises(InputError, "view_version", "99"):
        resolve(file)
