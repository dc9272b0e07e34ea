"""Every algorithm and network together reach a known optimum that greedy play misses, within 2 %."""

import pytest
from studies.environments.toy import TOY_OPTIONS
from studies.environments.toy_environment import ToyVectorEnv, share_of_optimum

from steersman.agents.base import teacher_of
from steersman.agents.networks.score_networks import build
from steersman.agents.networks.spec import sizes_of
from steersman.agents.registry import GRADIENT_ALGORITHMS, find_algorithm
from steersman.policies.networks import NETWORKS

ITERATIONS = {"dqn": 200, "actor-critic": 12, "ppo": 5, "imitation": 20}
LINEAR_ITERATIONS = {"dqn": 300, "actor-critic": 20, "ppo": 8, "imitation": 30}


def learned(algorithm, network, seed, variant="reserve", **more):
    """The share of the optimum after a short training, in instances that were not trained on."""
    env = ToyVectorEnv(32, variant, nodes=4, max_nodes=5)
    registered = find_algorithm(algorithm)
    kind, config = registered.load(), registered.config
    net = build(network, sizes_of(env.single_observation_space), (16,), seed=seed, **more)
    agent = kind(
        env, net, config(**TOY_OPTIONS[algorithm]), seed, teacher=teacher_of(env) if algorithm == "imitation" else None
    )
    for _ in range((LINEAR_ITERATIONS if network == "linear" else ITERATIONS)[algorithm]):
        agent.iterate()
    return share_of_optimum(ToyVectorEnv(64, variant, nodes=4, max_nodes=7), agent.act, 500, seed=99)


def test_greedy_and_random_policies_miss_the_threshold():
    env = ToyVectorEnv(64, "reserve", nodes=4, max_nodes=5)
    assert share_of_optimum(env, lambda _: env.greedy(), 500, seed=99) < 0.9
    network = build("mlp", sizes_of(env.single_observation_space), (16,))
    registered = find_algorithm("ppo")
    kind, config = registered.load(), registered.config
    agent = kind(env, network, config(), 0)
    untrained = ToyVectorEnv(64, "reserve", nodes=4, max_nodes=5)
    assert share_of_optimum(untrained, lambda o: agent.act(o, greedy=False), 500, seed=99) < 0.9


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("algorithm", GRADIENT_ALGORITHMS)
def test_pair_reaches_the_optimum(algorithm, network):
    assert learned(algorithm, network, seed=0) > 0.98


@pytest.mark.parametrize(("algorithm", "normalisation"), [("dqn", "layer"), ("ppo", "batch")])
def test_normalised_networks_with_dropout_learn_too(algorithm, normalisation):
    assert learned(algorithm, "mlp", seed=0, normalisation=normalisation, dropout=0.05) > 0.95


def test_only_the_graph_network_learns_from_racks():
    assert learned("imitation", "gnn", seed=0, variant="rack") > 0.98
    assert learned("imitation", "deepsets", seed=0, variant="rack") < 0.98
