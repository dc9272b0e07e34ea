"""The toy environments: their optimum is the optimum, and they behave as vector environments must."""

from functools import cache

import numpy as np
import pytest
from studies.environments.toy_environment import (
    LARGE_BONUS,
    PENALTY,
    RARE_BONUS,
    VARIANTS,
    ToyVectorEnv,
    share_of_optimum,
)

from steersman.core.errors import UsageError


def play(env, actions, seed=1, steps=40):
    """All rewards and the last observation of an environment in which `actions()` plays."""
    env.reset(seed=seed)
    rewards = []
    for _ in range(steps):
        observation, reward, *_ = env.step(actions())
        rewards.append(reward)
    return np.array(rewards), observation


def best_by_enumeration(value, large, free, queue):
    """The most that `reserve` can earn, by trying every choice."""

    @cache
    def best(t, free):
        if t == len(queue):
            return 0.0
        found = best(t + 1, free)
        for n, slots in enumerate(free):
            if slots and (queue[t] == 0 or large[n]):
                earned = value[n] + (LARGE_BONUS * large[n] if queue[t] == 0 else RARE_BONUS)
                found = max(found, earned + best(t + 1, (*free[:n], slots - 1, *free[n + 1 :])))
        return found

    return best(0, tuple(free))


def test_stated_optimum_matches_exhaustive_search():
    env = ToyVectorEnv(12, "reserve", nodes=4)
    env.reset(seed=3)
    start = env.snapshot()
    for copy in range(env.num_envs):
        instance = [start[name][copy].tolist() for name in ("value", "large", "free", "queue")]
        instance[3] = [kind for kind in instance[3] if kind >= 0]
        assert start["optimum"][copy] == pytest.approx(best_by_enumeration(*instance))


@pytest.mark.parametrize("variant", VARIANTS)
def test_rule_is_optimal_and_random_is_not(variant):
    env = ToyVectorEnv(32, variant)
    rng = np.random.default_rng(0)
    assert share_of_optimum(env, lambda _: env.heuristic(), 200, seed=5) == pytest.approx(1.0)
    chance = share_of_optimum(env, lambda o: (rng.random(o["mask"].shape) * o["mask"]).argmax(1), 200, seed=5)
    assert chance < 0.9


def test_greedy_is_worse_where_slots_must_be_reserved():
    env = ToyVectorEnv(32, "reserve")
    assert share_of_optimum(env, lambda _: env.greedy(), 200, seed=5) < 0.9


@pytest.mark.parametrize("variant", VARIANTS)
def test_same_seed_and_snapshot_give_the_same_trajectory(variant):
    first, second = ToyVectorEnv(8, variant, max_nodes=9), ToyVectorEnv(8, variant, max_nodes=9)
    rewards, _ = play(first, first.greedy)
    again, _ = play(second, second.greedy)
    assert np.array_equal(rewards, again)
    kept = first.snapshot()
    ahead = [first.step(first.greedy()) for _ in range(20)]
    second.reset(seed=99)
    second.restore(kept)
    for observation, reward, *_ in ahead:
        other, other_reward, *_ = second.step(second.greedy())
        assert np.array_equal(reward, other_reward)
        assert all(np.array_equal(observation[name], other[name]) for name in observation)


@pytest.mark.parametrize("variant", VARIANTS)
def test_observations_are_in_the_space_and_always_offer_a_node(variant):
    env = ToyVectorEnv(16, variant, max_nodes=8)
    observation, _ = env.reset(seed=0)
    for _ in range(30):
        assert env.observation_space.contains(observation)
        assert (observation["mask"].sum(1) > 0).all()
        assert not observation["nodes"][:, env.nodes :].any()
        observation, *_ = env.step(env.greedy())


def test_illegal_action_costs_the_penalty_and_places_nothing():
    env = ToyVectorEnv(4, "reserve", max_nodes=8)
    env.reset(seed=0)
    free = env.snapshot()["free"]
    _, reward, *_ = env.step(np.full(4, 7))
    assert (reward == PENALTY).all()
    assert np.array_equal(env.snapshot()["free"], free)


def test_limit_truncates_and_keeps_the_last_observation():
    env = ToyVectorEnv(4, "reserve", limit=2)
    env.reset(seed=0)
    _, _, terminated, truncated, infos = env.step(env.heuristic())
    assert not truncated.any()
    assert "final_obs" not in infos
    left = env.snapshot()["next"]
    observation, _, terminated, truncated, infos = env.step(env.heuristic())
    assert truncated.all()
    assert not terminated.any()
    assert (left == 1).all()
    assert (env.snapshot()["next"] == 0).all()
    assert all(final["mask"].any() for final in infos["final_obs"])
    assert any(
        not np.array_equal(f["context"], o) for f, o in zip(infos["final_obs"], observation["context"], strict=True)
    )


@pytest.mark.parametrize("bad", [{"variant": "rock"}, {"nodes": 1}, {"nodes": 4, "max_nodes": 3}])
def test_invalid_arguments_are_reported(bad):
    with pytest.raises(UsageError):
        ToyVectorEnv(2, **bad)
