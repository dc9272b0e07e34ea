"""Even CPU use on the clusters of AAML's scheduler: the greedy rule, drawn node sizes, and learning."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from studies.environments.balance import most_even
from tests.support.errors import raises
from tests.support.nightly import examples

from steersman.agents.actor_critic import ActorCritic
from steersman.agents.configs import ActorCriticConfig, DQNConfig, PPOConfig
from steersman.agents.dqn import DQN
from steersman.agents.networks.score_networks import FeatureRanges, build
from steersman.agents.networks.spec import sizes_of
from steersman.agents.networks.tensors import as_tensors
from steersman.agents.ppo import PPO
from steersman.core.errors import UsageError
from steersman.envs.deployments import MIXED_SHAPES, DeploymentsEnv, DeploymentsVectorEnv
from steersman.policies.features import CLUSTER
from steersman.policies.networks import NETWORKS


@pytest.fixture(scope="module")
def mixed():
    """Four clusters of eleven nodes of drawn sizes."""
    return DeploymentsVectorEnv(4, nodes=11, shapes=MIXED_SHAPES)


def deviations_after(env, e):
    """The standard deviation that each node would leave, from the amounts themselves; infinite where it may not go."""
    cores, pod = env.core.capacities(e)[:, 0] / 1000, env.core.observation.pod[e]
    request = 32 * float(pod[CLUSTER.pod_column("cpu")])
    used = env.core.loads(e)[:, 0] * cores
    found = []
    for n in range(len(used)):
        after = used.copy()
        after[n] += request
        allowed = env.core.observation.mask[e, n]
        found.append((after / cores).std() if allowed else np.inf)
    return np.array(found)


@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 1 << 30), steps=st.integers(0, 120))
def test_the_greedy_rule_leaves_the_smallest_deviation_there_can_be(mixed, seed, steps):
    rng = np.random.default_rng(seed)
    seen, _ = mixed.reset(seed=seed)
    for _ in range(steps):
        seen, *_ = mixed.step(np.where(seen["mask"] > 0, rng.random(seen["mask"].shape), -1.0).argmax(1))
    for e, choice in enumerate(most_even(seen)):
        after = deviations_after(mixed, e)
        assert after[choice] == pytest.approx(after.min(), abs=1e-6)


def test_cluster_sizes_are_drawn_from_the_given_ones(mixed):
    mixed.reset(seed=3)
    cores = {1000 * int(cpu) for cpu, _, _ in MIXED_SHAPES}
    first = mixed.core.capacities(0)
    every = np.concatenate([mixed.core.capacities(e) for e in range(4)])
    assert set(every[:, 0]) == cores
    assert np.array_equal(every[:, 1], every[:, 0] // 1000 << 32)  # 4 GiB a core
    mixed.reset(seed=4)
    assert not np.array_equal(first, mixed.core.capacities(0))
    mixed.reset(seed=3)
    assert np.array_equal(first, mixed.core.capacities(0))


def test_a_share_of_the_clusters_has_nodes_of_one_size():
    env = DeploymentsVectorEnv(200, nodes=4, shapes=MIXED_SHAPES, equal_share=0.5)
    env.reset(seed=1)
    cores = np.array([env.core.capacities(e)[:, 0] for e in range(200)])
    equal = (cores == cores[:, :1]).all(1)
    assert 70 < equal.sum() < 130
    assert len(set(cores[equal, 0])) == len(MIXED_SHAPES)
    with raises(UsageError, "equal_share", "2", "0", "1"):
        DeploymentsEnv(equal_share=2)


def test_a_size_that_a_pod_does_not_fit_on_is_rejected():
    with raises(UsageError):
        DeploymentsEnv(shapes=(("64", "256Gi", 110), ("2", "256Gi", 110)))


def test_short_training_balances_clusters_of_other_sizes(mixed):
    agent = DQN(
        mixed,
        build("mlp", sizes_of(mixed.single_observation_space), (32, 32)),
        DQNConfig(gamma=0.0, learning_rate=2e-3, batch_size=128, update_every=16, epsilon_decay=0.98),
        seed=0,
    )
    other = DeploymentsVectorEnv(3, nodes=30)
    before = mean_deviation(other, agent.act)
    for _ in range(300):
        agent.iterate()
    constant = agent.ranges.low == agent.ranges.high
    assert 10 < constant.sum() < 30
    assert not agent.network.inputs()[0][0].weight[:, np.flatnonzero(constant)].any()
    assert mean_deviation(other, agent.act) < before / 4


@pytest.mark.parametrize(("kind", "config_class"), [(ActorCritic, ActorCriticConfig), (PPO, PPOConfig)])
def test_policy_gradients_ignore_constant_features(mixed, kind, config_class):
    config = config_class(rollout=8)
    agent, other = (kind(mixed, build("mlp", sizes_of(mixed.single_observation_space), (8,)), config, 0) for _ in "ab")
    agent.iterate()
    constant = agent.ranges.low == agent.ranges.high
    assert 10 < constant.sum() < 40
    first = agent.network.inputs()[0][0].weight
    assert not first[:, np.flatnonzero(constant)].any()
    assert first[:, np.flatnonzero(~constant)].any(0).all()
    other.load_state_dict(agent.state_dict())
    assert np.array_equal(other.ranges.low, agent.ranges.low)


@pytest.mark.parametrize("network", NETWORKS)
def test_constant_features_move_into_biases_without_changing_scores(mixed, network):
    seen, _ = mixed.reset(seed=5)
    net = build(network, sizes_of(mixed.single_observation_space), (8,), seed=1).eval()
    ranges = FeatureRanges(net.spec.sizes)
    shown = []
    for _ in range(30):
        ranges.add(seen)
        shown.append({name: array.copy() for name, array in seen.items()})
        seen, *_ = mixed.step(most_even(seen))
    before = [scores(net, one) for one in shown]
    ranges.fold_constant_features(net)
    for one, was in zip(shown, before, strict=True):
        assert np.allclose(scores(net, one)[one["mask"] > 0], was[one["mask"] > 0], atol=1e-5)
    elsewhere = {name: array.copy() for name, array in shown[-1].items()}
    elsewhere["context"][:, CLUSTER.context_column("nodes")] = 0.5  # it was always that of 11 nodes
    assert np.array_equal(scores(net, elsewhere), scores(net, shown[-1]))
    elsewhere["context"][:, CLUSTER.context_column("cpu_load")] += 0.5
    assert not np.array_equal(scores(net, elsewhere), scores(net, shown[-1]))


def scores(network, observation):
    """[E, N] as an array."""
    with torch.no_grad():
        return network(as_tensors(observation, torch.device("cpu"))).numpy()


def mean_deviation(env, act, steps=250):
    """Mean over environments and steps of the standard deviation of shares of CPU."""
    seen, _ = env.reset(seed=77)
    found = []
    for _ in range(steps):
        seen, *_, infos = env.step(act(seen))
        found.append(np.sqrt(infos["node_variance"]).mean())
    return np.mean(found)
