"""`steersman/Latency-v0` as a Gymnasium environment."""

import json
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from tests.support.errors import raises

import steersman.envs  # noqa: F401 (registers the environments)
from steersman.core.errors import UsageError
from steersman.envs.latency import LatencyEnv, LatencyVectorEnv

SMALL = {"nodes": 4, "max_nodes": 5, "pods": 60}


def legal(mask, rng):
    return int(rng.choice(np.flatnonzero(mask)))


def test_the_registered_environment_passes_gymnasiums_checks():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make("steersman/Latency-v0")
        check_env(env.unwrapped)
    assert env.unwrapped.action_masks().any()


@pytest.mark.parametrize("objective", ["most-allocated", "least-connections", "balance=1,latency-aware=0.5"])
def test_observations_stay_within_their_space(objective):
    env = LatencyEnv(objective=objective, missed=0.2, load=1.5, **SMALL)
    rng = np.random.default_rng(0)
    for seed in range(3):
        observation, _ = env.reset(seed=seed)
        assert env.action_masks().any()
        ended = False
        while not ended:
            assert env.observation_space.contains(observation)
            observation, reward, terminated, truncated, info = env.step(np.int64(legal(env.action_masks(), rng)))
            assert np.isfinite(reward)
            ended = terminated or truncated
        assert terminated
        assert not truncated
        assert env.observation_space.contains(observation)
        assert info["placed_pods"] + info["refused_pods"] <= SMALL["pods"]


def test_single_and_vector_form_agree():
    count, rng = 3, np.random.default_rng(1)
    vector = LatencyVectorEnv(count, **SMALL)
    singles = [LatencyEnv(**SMALL) for _ in range(count)]
    seen, _ = vector.reset(seed=10)
    alone = [env.reset(seed=10 + i)[0] for i, env in enumerate(singles)]
    for _ in range(150):
        for i in range(count):
            for name in alone[i]:
                assert (seen[name][i] == alone[i][name]).all(), name
        actions = np.array([legal(mask, rng) for mask in vector.action_masks()])
        seen, rewards, terminated, truncated, infos = vector.step(actions)
        for i, env in enumerate(singles):
            alone[i], reward, ends, cut, _ = env.step(actions[i])
            assert (reward, ends, cut) == (rewards[i], terminated[i], truncated[i])
            if ends:
                last = infos["final_obs"][i]
                assert all((last[name] == alone[i][name]).all() for name in last)
                alone[i], _ = env.reset()


def test_restored_snapshot_continues_exactly():
    env = LatencyVectorEnv(2, **SMALL)
    env.reset(seed=3)
    for _ in range(30):
        env.step(env.heuristic("least-connections"))
    kept, seen = env.snapshot(), env._observe()
    first = [env.step(env.heuristic("latency-aware")) for _ in range(80)]
    other = LatencyVectorEnv(2, **SMALL)
    other.reset(seed=99)
    restored = other.restore(kept)
    assert (restored["nodes"] == seen["nodes"]).all()
    for seen, rewards, terminated, _, _ in first:
        again = other.step(other.heuristic("latency-aware"))
        assert all((again[0][name] == seen[name]).all() for name in seen)
        assert (again[1] == rewards).all()
        assert (again[2] == terminated).all()


@pytest.mark.parametrize("action", [4])
def test_an_illegal_action_costs_the_penalty_and_changes_nothing(action):
    env = LatencyEnv(penalty=2.5, **SMALL)
    before, _ = env.reset(seed=0)
    truth = env.core.truth(0)
    after, reward, terminated, truncated, info = env.step(action)
    assert (reward, terminated, truncated, info["illegal"]) == (-2.5, False, False, True)
    assert all((after[name] == before[name]).all() for name in before)
    for one, other in zip(truth, env.core.truth(0), strict=True):
        np.testing.assert_equal(one, other)


def test_the_limit_of_steps_truncates_and_the_end_of_the_workload_terminates():
    env = LatencyEnv(step_limit=5, **SMALL)
    env.reset(seed=0)
    flags = [env.step(4)[2:4] for _ in range(5)]  # a slot without a node
    assert flags == [(False, False)] * 4 + [(False, True)]
    env.reset(seed=0)
    seen = [env.step(int(env.action_masks().argmax())) for _ in range(5)][-1]
    assert seen[2:4] == (False, True)
    assert seen[0]["mask"].any()  # a truncated episode could go on


def test_reset_options():
    env = LatencyEnv(**SMALL)
    three, _ = env.reset(seed=1, options={"nodes": 3})
    assert (three["groups"][:3, 0] >= 0).all()
    assert (three["groups"][3:] == -1).all()
    assert not three["nodes"][3:].any()
    again, _ = env.reset(seed=2, options={"seed": 77})
    same, _ = env.reset(seed=3, options={"seed": 77})
    assert (again["nodes"] == same["nodes"]).all()
    with raises(UsageError, "'nodes'", "6", "2", "5"):
        env.reset(options={"nodes": 6})
    with raises(UsageError, "'seed'", "0", "-1"):
        env.reset(options={"seed": -1})
    with raises(UsageError, "'node'"):
        env.reset(options={"node": 6})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"objective": "waiting-time"},
            "objective 'waiting-time' means nothing in steersman/Latency-v0; these do: bal",
        ),
        ({"objective": "none"}, "unknown objective 'none'"),
        ({"penalty": -1}, "penalty must be at least 0, not -1"),
        ({"step_limit": 0}, "step_limit must be at least 1, not 0"),
        ({"nods": 3}, "unknown option of the environment 'nods'; did you mean 'nodes'?"),
        ({"nodes": 3.5}, "setting 'nodes': 3.5 is out of range"),
    ],
)
def test_a_wrong_option_fails_in_one_line(options, message):
    with pytest.raises(UsageError) as error:
        LatencyEnv(**options)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_rendering_shows_every_node():
    env = LatencyEnv(render_mode="ansi", **SMALL)
    env.reset(seed=0)
    env.step(int(env.action_masks().argmax()))
    assert [line.split()[0] for line in env.render().replace(">", " ").splitlines()[1:]] == [
        "node-0-zone-0",
        "node-1-zone-1",
        "node-2-zone-2",
        "node-3-zone-0",
    ]


def test_snapshots_are_plain_arrays():
    env = LatencyVectorEnv(1, **SMALL)
    env.reset(seed=0)
    for name, array in env.snapshot().items():
        assert isinstance(array, np.ndarray), name
        assert array.dtype != object, name
    assert json.loads(env.snapshot()["random"].tobytes())
