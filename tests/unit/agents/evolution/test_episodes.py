"""Evolution on environments: many networks at once score as one does, the toy task is learned, runs resume."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from studies.environments.toy_environment import ToyVectorEnv, share_of_optimum
from tests.support.errors import raises
from tests.support.nightly import examples

from steersman.agents.configs import EpisodeEvolutionConfig
from steersman.agents.evolution.episodes import INPUTS, EpisodeEvolution, Population, first_weights, shapes_of
from steersman.agents.networks.score_networks import build, load
from steersman.agents.networks.spec import FeatureCounts, NetworkConfig, sizes_of
from steersman.agents.networks.tensors import as_tensors
from steersman.core.errors import SteersmanError, UsageError

SIZES = FeatureCounts(node=5, pod=4, context=4)
HIDDEN = {"linear": (), "mlp": (16,), "deepsets": (8,)}


def spec_of(network, hidden=None):
    return NetworkConfig(network, SIZES, HIDDEN[network] if hidden is None else hidden)


def toy(variant):
    return lambda count: ToyVectorEnv(count, variant)


def learned(network, variant, config, generations, seed=1):
    search = EpisodeEvolution(toy(variant), spec_of(network), config, seed)
    for _ in range(generations):
        search.iterate()
    return search


@given(st.sampled_from(sorted(INPUTS)), st.sampled_from([(3,), (6, 4)]), st.integers(0, 2**31))
@settings(max_examples=examples(25), deadline=None)
def test_batched_networks_score_like_single_ones(network, hidden, seed):
    rng = np.random.default_rng(seed)
    spec = spec_of(network, hidden)
    count, each, rows = 3, 2, 4
    weights = {name: rng.standard_normal((count, *shape)) for name, shape in shapes_of(spec).items()}
    mask = rng.random((count * each, rows)) < 0.7
    mask[:, 0] = True
    observation = {
        "nodes": (rng.random((count * each, rows, 5)) * (rng.random((count * each, rows, 1)) < 0.8)).astype(np.float32),
        "pod": np.eye(4, dtype=np.float32)[rng.integers(0, 4, count * each)],
        "context": rng.random((count * each, 4), dtype=np.float32),
        "mask": mask.astype(np.int8),
        "groups": np.zeros((count * each, rows, 2), np.int32),
    }
    scores = Population(spec, weights).scores(observation)
    for c in range(count):
        single = build(network, SIZES, hidden)
        load(single, {name: array[c].astype(np.float32) for name, array in weights.items()})
        part = {name: array[c * each : (c + 1) * each] for name, array in observation.items()}
        expected = single(as_tensors(part, "cpu")).detach().numpy()
        np.testing.assert_allclose(scores[c * each : (c + 1) * each], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("network", "config", "generations"),
    [
        ("linear", EpisodeEvolutionConfig(population=16, episodes=16), 15),
        ("mlp", EpisodeEvolutionConfig(population=32, episodes=32, step=0.1), 30),
        ("deepsets", EpisodeEvolutionConfig(population=32, episodes=32, step=0.1), 30),
    ],
)
def test_every_network_learns_the_best_node(network, config, generations):
    search = learned(network, "match", config, generations)
    assert share_of_optimum(ToyVectorEnv(64, "match"), search.act, 500, seed=9) > 0.98


def test_long_horizon_beats_greedy():
    search = learned("linear", "reserve", EpisodeEvolutionConfig(population=16, episodes=16), 20)
    assert share_of_optimum(ToyVectorEnv(64, "reserve"), search.act, 500, seed=9) > 0.98


def test_resumes_to_the_same_weights():
    config = EpisodeEvolutionConfig(population=8, episodes=4)
    whole = learned("mlp", "reserve", config, 4)
    half = learned("mlp", "reserve", config, 2)
    other = EpisodeEvolution(toy("reserve"), spec_of("mlp"), config, seed=99)
    other.load_state_dict(half.state_dict())
    metrics = [other.iterate() for _ in range(2)][-1]
    assert metrics["episodes"] == 4 * 8 * 4
    for name, array in whole.best().items():
        np.testing.assert_array_equal(other.best()[name], array, err_msg=name)


def test_starts_at_given_weights_except_irrelevant_ones():
    spec = spec_of("linear")
    start = first_weights(spec, np.random.default_rng(0))
    start["head.weight"][:, 4] = [2.0, -1.0, 2.0, -1.0]  # the node's value
    start["head.weight"][:, 0] = 7.0  # every node is present, so this tells none apart
    begun = EpisodeEvolution(toy("match"), spec, EpisodeEvolutionConfig(), seed=3, start=start).best()
    np.testing.assert_allclose(begun["head.weight"][:, 4], start["head.weight"][:, 4], rtol=1e-5)
    by_name = dict(sorted(start.items()))
    assert list(by_name) != list(start), "else the next line shows nothing"
    again = EpisodeEvolution(toy("match"), spec, EpisodeEvolutionConfig(), seed=3, start=by_name).best()
    assert all(np.array_equal(again[name], array) for name, array in begun.items())
    assert not begun["head.weight"][:, 0].any()


def test_all_candidates_of_a_generation_get_the_same_seeds():
    seeds = []

    class Watched(ToyVectorEnv):
        def reset(self, *, seed=None, options=None):
            seeds.append(list(seed))
            return super().reset(seed=seed, options=options)

    search = EpisodeEvolution(
        lambda n: Watched(n, "match"), spec_of("linear"), EpisodeEvolutionConfig(population=4, episodes=3), 1
    )
    search.iterate()
    search.iterate()
    first, second = seeds[-2:]
    assert first == first[:3] * 4
    assert len(set(first)) == 3
    assert not set(first) & set(second)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"population": 5}, "--population 5"),
        ({"episodes": 0}, "--episodes 0"),
        ({"step": 0.0}, "--step 0.0"),
    ],
)
def test_wrong_options_are_named(change, message):
    with pytest.raises(UsageError, match=message):
        EpisodeEvolutionConfig(**change)


def test_other_networks_and_other_weights_are_rejected():
    with raises(UsageError, "'gnn'"):
        EpisodeEvolution(toy("match"), NetworkConfig("gnn", SIZES, (8,)), EpisodeEvolutionConfig(), 1)
    with raises(UsageError):
        EpisodeEvolution(
            toy("match"), NetworkConfig("mlp", SIZES, (8,), normalisation="layer"), EpisodeEvolutionConfig(), 1
        )
    with raises(SteersmanError):
        EpisodeEvolution(toy("match"), spec_of("mlp"), EpisodeEvolutionConfig(), 1, start={})
    one = EpisodeEvolution(toy("match"), spec_of("linear"), EpisodeEvolutionConfig(population=4, episodes=1), 1)
    with raises(SteersmanError):
        one.load_state_dict({"algorithm": "dqn"})


def test_sizes_are_those_of_the_environment():
    assert sizes_of(ToyVectorEnv(2, "match").single_observation_space) == SIZES
