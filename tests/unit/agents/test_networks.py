"""Networks: any number of nodes, no care for their order, a mask, and weights that can leave torch."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from studies.environments.toy_environment import ToyVectorEnv
from tests.support.errors import raises

from steersman.agents.networks import graph_network
from steersman.agents.networks.score_networks import MASKED, build, build_critic, export, load
from steersman.agents.networks.spec import NORMALISATIONS, FeatureCounts, sizes_of
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.extras import MissingExtraError
from steersman.policies.features import POD_KINDS
from steersman.policies.networks import NETWORKS

SIZES = FeatureCounts(node=5, pod=6, context=2)
ALL = [(name, norm) for name in NETWORKS for norm in NORMALISATIONS if (name, norm) != ("linear", "layer")]


def observe(seed, batch=3, nodes=7, absent=0):
    """A random observation; each has a feasible node, and the last `absent` rows are empty."""
    g = torch.Generator().manual_seed(seed)
    mask = torch.rand(batch, nodes, generator=g) < 0.6
    mask[:, 0] = True
    pod = torch.rand(batch, SIZES.pod, generator=g)
    pod[:, :POD_KINDS] = torch.eye(POD_KINDS)[torch.randint(POD_KINDS, (batch,), generator=g)]
    groups = torch.stack([torch.randint(-1, 3, (batch, nodes), generator=g) for _ in range(2)], -1)
    features = torch.randn(batch, nodes, SIZES.node, generator=g)
    observation = {
        "nodes": torch.cat([features, torch.zeros(batch, absent, SIZES.node)], 1),
        "mask": torch.cat([mask, torch.zeros(batch, absent, dtype=torch.bool)], 1),
        "groups": torch.cat([groups, torch.full((batch, absent, 2), -1)], 1),
    }
    return observation | {"pod": pod, "context": torch.randn(batch, SIZES.context, generator=g)}


def nodes_at(observation, index):
    return {name: t[:, index] if name in ("nodes", "mask", "groups") else t for name, t in observation.items()}


def trained(name, norm="none", hidden=(8, 12), dropout=0.0, seed=3):
    """A network with weights that matter, and running statistics that are not those of a new one."""
    network = build(name, SIZES, hidden, dropout, norm, seed)
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=g)
        for _ in range(3):
            network(observe(seed + 1, batch=20))
    return network.eval()


@pytest.mark.parametrize(("name", "norm"), ALL)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**31), nodes=st.integers(1, 9))
def test_order_of_nodes_does_not_matter(name, norm, seed, nodes):
    network, critic = trained(name, norm), build_critic(trained(name, norm).spec).eval()
    observation = observe(seed, nodes=nodes)
    order = torch.randperm(nodes, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        shuffled = nodes_at(observation, order)
        torch.testing.assert_close(network(shuffled), network(observation)[:, order], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(critic(shuffled), critic(observation), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "norm"), ALL)
def test_empty_rows_and_batching_do_not_change_scores(name, norm):
    network, critic = trained(name, norm), build_critic(trained(name, norm).spec).eval()
    padded = observe(5, absent=4)
    with torch.no_grad():
        scores, values = network(padded), critic(padded)
        assert (scores[~padded["mask"]] == MASKED).all()
        assert (scores[padded["mask"]] > MASKED).all()
        bare = nodes_at(padded, slice(0, 7))
        torch.testing.assert_close(network(bare), scores[:, :7])
        torch.testing.assert_close(critic(bare), values)
        for one in range(3):
            alone = {part: tensor[one : one + 1] for part, tensor in padded.items()}
            torch.testing.assert_close(network(alone), scores[one : one + 1])
            torch.testing.assert_close(critic(alone), values[one : one + 1])


@pytest.mark.parametrize("name", NETWORKS)
def test_no_feasible_node_is_no_error(name):
    observation = observe(1)
    observation["mask"][:] = False
    network = trained(name, "batch")
    for mode in (True, False):
        network.train(mode)
        assert (network(observation) == MASKED).all()
    assert torch.isfinite(build_critic(network.spec)(observation)).all()


def by_hand(arrays, name, norm, observation):
    """Scores from exported arrays alone, one node at a time."""

    def layers(group, x):
        for i in range(2):
            x = arrays[f"{group}.{i}.weight"] @ x + arrays[f"{group}.{i}.bias"]
            if norm == "layer":
                x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
            if norm == "batch":
                spread = np.sqrt(arrays[f"{group}.{i}.norm.running_var"] + 1e-5)
                x = (x - arrays[f"{group}.{i}.norm.running_mean"]) / spread
            if norm != "none":
                x = x * arrays[f"{group}.{i}.norm.weight"] + arrays[f"{group}.{i}.norm.bias"]
            x = np.maximum(x, 0.0)
        return x

    nodes, pod, context, mask = (observation[part].numpy() for part in ("nodes", "pod", "context", "mask"))
    scores = np.full(mask.shape, MASKED)
    for b in range(len(mask)):
        x = [np.concatenate([node, pod[b], context[b]]) for node in nodes[b]]
        if name == "deepsets":
            phi = [layers("phi", one) for one in x]
            mean = np.mean([one for one, node in zip(phi, nodes[b], strict=True) if node.any()], axis=0)
        for n in np.flatnonzero(mask[b]):
            if name == "linear":
                kind = int(pod[b, :POD_KINDS].argmax())
                scores[b, n] = arrays["head.weight"][kind] @ x[n] + arrays["head.bias"][kind]
            else:
                last = layers("layers", x[n]) if name == "mlp" else layers("rho", np.concatenate([phi[n], mean]))
                scores[b, n] = (arrays["head.weight"] @ last + arrays["head.bias"])[0]
    return scores


@pytest.mark.parametrize(("name", "norm"), [pair for pair in ALL if pair[0] != "gnn"])
def test_pointwise_scores_follow_from_the_exported_weights(name, norm):
    network, observation = trained(name, norm), observe(8, absent=2)
    scores = network(observation).detach().numpy()
    np.testing.assert_allclose(by_hand(export(network), name, norm, observation), scores, rtol=1e-4, atol=1e-5)
    if norm == "batch":
        folded = export(network, fold=True)
        assert not [part for part in folded if "norm" in part]
        np.testing.assert_allclose(by_hand(folded, name, "none", observation), scores, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "norm"), ALL)
def test_weights_survive_export_and_load(name, norm):
    network, other = trained(name, norm), build(name, SIZES, (8, 12), 0.0, norm, seed=77).eval()
    observation = observe(4)
    assert not torch.equal(network(observation), other(observation))
    load(other, export(network))
    assert torch.equal(network(observation), other(observation))


def test_exported_names_are_the_documented_ones():
    dense = ["0.weight", "0.bias", "1.weight", "1.bias"]
    head = {"head.weight", "head.bias"}
    assert export(trained("linear")).keys() == head
    assert export(trained("mlp")).keys() == head | {f"layers.{part}" for part in dense}
    assert export(trained("deepsets")).keys() == head | {f"{g}.{part}" for g in ("phi", "rho") for part in dense}


def test_loading_mismatched_weights_fails_in_one_line():
    arrays = export(trained("mlp"))
    with raises(SteersmanError, "'layers.0.weight'", "9", "13", "8"):
        load(trained("mlp"), arrays | {"layers.0.weight": np.zeros((9, 13), np.float32)})
    with raises(SteersmanError, "'head.bias'"):
        load(trained("mlp"), {name: array for name, array in arrays.items() if name != "head.bias"})
    with raises(SteersmanError, "'x'"):
        load(trained("mlp"), arrays | {"x": np.zeros(1)})
    with raises(UsageError):
        export(trained("gnn", "batch"), fold=True)


def test_seed_decides_the_weights_and_leaves_the_global_state_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, same, other = (export(build("deepsets", SIZES, seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert not np.array_equal(one["phi.0.weight"], other["phi.0.weight"])


@pytest.mark.parametrize("name", ["mlp", "deepsets", "gnn"])
def test_dropout_acts_in_training_alone(name):
    network, observation = trained(name, dropout=0.5), observe(2)
    assert torch.equal(network(observation), network(observation))
    network.train()
    assert not torch.equal(network(observation), network(observation))


def test_row_weight_counts_as_that_many_nodes():
    network, observation = trained("deepsets"), observe(6, nodes=4)
    twice = nodes_at(observation, [0, 0, 1, 2, 3])
    weighted = observation | {"weight": torch.tensor([[2.0, 1.0, 1.0, 1.0]] * 3)}
    torch.testing.assert_close(network(weighted), network(twice)[:, 1:])


def test_graph_network_looks_along_racks_and_servers():
    network = trained("gnn", hidden=(8,))
    observation = observe(3, batch=1, nodes=3)
    observation["mask"][:] = True
    scores = {}
    for name, groups in {
        "apart": [[-1, -1], [-1, -1], [-1, -1]],
        "rack": [[0, -1], [0, -1], [-1, -1]],
        "server": [[-1, 0], [-1, 0], [-1, -1]],
        "servers of two racks": [[0, 0], [1, 0], [1, 1]],
        "servers of two racks, renumbered": [[2, 5], [0, 3], [0, 1]],
    }.items():
        scores[name] = network(observation | {"groups": torch.tensor([groups])}).detach()
    assert not torch.allclose(scores["apart"][0, 0], scores["rack"][0, 0])
    assert not torch.allclose(scores["apart"][0, 0], scores["server"][0, 0])
    torch.testing.assert_close(scores["servers of two racks"], scores["servers of two racks, renumbered"])


def test_graph_network_without_its_extra_fails_in_one_line(monkeypatch):
    graph_network._geometric.cache_clear()
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    with raises(MissingExtraError):
        build("gnn", SIZES)
    graph_network._geometric.cache_clear()


def test_critic_rescaling_keeps_its_values():
    critic, observation = build_critic(trained("mlp").spec), observe(4, batch=20)
    before = critic(observation).detach()
    for targets in (torch.tensor([900.0, 1100.0]), torch.tensor([-5.0, -3.0, 4.0])):
        critic.update_return_statistics(targets)
        torch.testing.assert_close(critic(observation), before, rtol=1e-3, atol=1e-3)
    only = build_critic(trained("mlp").spec)
    only.update_return_statistics(torch.tensor([900.0, 1100.0]))
    assert (only.centre.item(), only.spread.item()) == pytest.approx((1000.0, 100.0))


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"name": "cnn"}, "linear, mlp, deepsets, gnn"),
        ({"name": "mlp", "hidden": ()}, "needs hidden layers"),
        ({"name": "mlp", "dropout": 1.0}, "less than 1"),
        ({"name": "mlp", "normalisation": "group"}, "none, layer, batch"),
        ({"name": "mlp", "sizes": FeatureCounts(3, 2, 1)}, "kinds come first"),
    ],
)
def test_invalid_specs_are_reported(bad, told):
    with pytest.raises(UsageError, match=told):
        build(**{"sizes": SIZES} | bad)


def test_sizes_come_from_the_observation_space():
    assert sizes_of(ToyVectorEnv(2).single_observation_space) == FeatureCounts(node=5, pod=4, context=4)
    with raises(UsageError):
        sizes_of(ToyVectorEnv(2).single_action_space)
