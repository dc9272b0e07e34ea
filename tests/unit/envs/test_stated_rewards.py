"""The rewards that docs/reference/environments.md states are those that the environments give."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import steersman.envs  # noqa: F401 (registers the environments)
from steersman.cluster.arrays import CPU, PODS
from steersman.cluster.model import GPU_MILLI
from steersman.envs.base import AFTER, BEFORE
from steersman.objectives import summary
from steersman.objectives.objective import BUILT_IN
from steersman.policies.features import CLUSTER
from steersman.simulation import event_arrays
from steersman.workloads.generators.deployments import DeploymentSettings

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "environments.md"
ROW = re.compile(r"^\| `([a-z-]+)` \| `([^`]+)` \|", re.M)
REWARDS = dict(ROW.findall(PAGE.read_text()))
FUNCTIONS = {"sqrt": math.sqrt, "mean": np.mean, "max": np.max}
STEPS = 60
BROKEN = -10.0  # of a hard limit that some node could have kept
Names = dict[str, Any]
Measure = Callable[[Any], Names]


def reward(objective: str, names: Names) -> float:
    return float(eval(REWARDS[objective], FUNCTIONS | names))


def of_nodes(allocatable: np.ndarray, free: np.ndarray) -> Names:
    """What formulas read of nodes."""
    used = 1 - free[:, CPU] / allocatable[:, CPU]
    holds_pods = free[:, PODS] < allocatable[:, PODS]
    return {"u": used, "s": float(np.std(used)), "used": int(holds_pods.sum()), "nodes": len(used)}


def play(
    env: Any, seed: int = 3, steps: int = STEPS
) -> Iterator[tuple[Any, int, Callable[[], tuple[float, dict[str, Any]]]]]:
    """Yield the environment before each of some legal actions, the action, and a function that takes it."""
    observation, _ = env.reset(seed=seed)
    random = np.random.default_rng(seed)
    for _ in range(steps):
        action = int(random.choice(np.flatnonzero(observation["mask"])))
        outcome: list[Any] = []

        def act(action: int = action, outcome: list[Any] = outcome) -> tuple[float, dict[str, Any]]:
            outcome.extend(env.step(action))
            return outcome[1], outcome[4]

        yield env.unwrapped, action, act
        observation, _, terminated, truncated, _ = outcome
        if terminated or truncated:
            return


def test_page_states_the_reward_of_every_objective() -> None:
    assert list(REWARDS) == [each.name for each in BUILT_IN]


def inflated_nodes(env: Any) -> tuple[np.ndarray, np.ndarray, float]:
    nodes = env.core.cluster(0).arrays
    gpus = (nodes.gpu_count * GPU_MILLI).sum() - nodes.gpu_free.sum()
    return nodes.allocatable, nodes.free, gpus / GPU_MILLI


@pytest.mark.parametrize("objective", ["allocation", "fragmentation", "balance", "most-allocated", "least-allocated"])
def test_inflation_rewards_what_the_page_states(objective: str) -> None:
    seen = set()
    for env, _, act in play(gymnasium.make("steersman/Inflation-v0", objective=objective)):
        before = inflated_nodes(env)[2]
        given, infos = act()
        allocatable, free, gpus = inflated_nodes(env)
        rows = env.core.states[0, :, summary.FRAGMENTED] / GPU_MILLI
        names = of_nodes(allocatable, free) | {"gpus": gpus, "gpus_before": before}
        names |= {"fragmented": rows[AFTER], "fragmented_before": rows[BEFORE]}
        assert given == pytest.approx(reward(objective, names), abs=1e-9)
        assert infos["nodes_used"] == names["used"]
        seen.add(round(given, 6))
    assert len(seen) > 2


def test_waiting_is_rewarded_as_the_page_states() -> None:
    env = gymnasium.make("steersman/Timed-v0", objective="waiting-time", load=3.0)
    total = 0.0
    for base, _, act in play(env, steps=600):
        before = base.core.run(0).progress.waiting
        given, infos = act()
        total += given
        assert (given < 0) <= (max(before, infos["waiting"]) > 0)
    # Pods that still wait have waited until now: until the pod arrives that is asked about, if it has just come.
    run = base.core.run(0)
    time, numbers, _ = run.events()
    arrives = run.arrivals(run.question + 1).time[-1]
    edges = np.append(time, max(time[-1], arrives))
    hours = float((numbers[:, event_arrays.NOW_WAITING] * np.diff(edges)).sum()) / 3600
    assert total == pytest.approx(reward("waiting-time", {"pod_hours": hours}), rel=1e-9)
    assert hours > 0


@pytest.mark.parametrize("objective", ["balance", "most-allocated", "least-allocated", "balance=2,most-allocated=0.5"])
def test_deployments_reward_what_the_page_states(objective: str) -> None:
    parts = [each.partition("=")[::2] for each in objective.split(",")]
    options: dict[str, Any] = {"objective": objective, "nodes": 4, "settings": DeploymentSettings(resets=2)}
    for env, action, act in play(gymnasium.make("steersman/Deployments-v0", **options)):
        nodes, loads = env.core.observation.nodes[0], env.core.loads(0)
        free_before, free_after = (
            nodes[action, CLUSTER.node_column(f"cpu_free_{when}")] for when in ("before", "after")
        )
        used = loads[:, 0] + (np.arange(4) == action) * (free_before - free_after)
        names = {"u": used, "s": float(np.std(used)), "used": int((used > 0).sum()), "nodes": 4}
        expected = sum(float(weight or 1) * reward(name, names) for name, weight in parts)
        assert act()[0] == pytest.approx(expected, abs=1e-6)  # observations are of single precision


def test_locality_is_rewarded_as_the_page_states() -> None:
    env = gymnasium.make("steersman/Deployments-v0", objective="locality", nodes=6, servers_per_rack=2)
    on_node, given = np.zeros(6), []
    for base, action, act in play(env):
        if base.core.observation.pod[0, CLUSTER.pod_column("owner_running")] == 0:
            on_node[:] = 0
        on_node[action] += 1
        in_rack = on_node[action // 2 * 2 : action // 2 * 2 + 2].sum()
        given.append(act()[0])
        assert given[-1] == pytest.approx(reward("locality", {"in_rack": in_rack, "of_owner": on_node.sum()}))
    assert len(set(given)) > 2


@pytest.mark.parametrize("objective", ["balance", "most-allocated", "least-allocated", "latency-aware"])
def test_latency_rewards_what_the_page_states(objective: str) -> None:
    nodes = 5
    env = gymnasium.make("steersman/Latency-v0", objective=objective, nodes=nodes, max_nodes=6, pods=80)
    kept_seen = set()
    for _, _, act in play(env):
        given, infos = act()
        mean, variance = infos["cpu_used"], infos["node_variance"]
        # Two values with this mean and this standard deviation: no formula reads more of the nodes' shares.
        u = np.array([mean - math.sqrt(variance), mean + math.sqrt(variance)])
        names: Names = {"u": u, "s": math.sqrt(variance), "used": infos["nodes_used"], "nodes": nodes}
        if objective != "latency-aware":
            assert given == pytest.approx(reward(objective, names), abs=1e-9)
            continue
        kept = 1.0 if infos["within_soft"] else 0.5 if infos["within_hard"] else 0.0
        rewards = [reward(objective, names | {"requested": share, "kept": kept}) for share in (0.0, 1.0)]
        if kept == 0.0 and given < 0:
            kept = BROKEN
            rewards = [reward(objective, names | {"requested": share, "kept": kept}) for share in (0.0, 1.0)]
        assert rewards[0] < given <= rewards[1]
        kept_seen.add(kept)
    assert objective != "latency-aware" or len(kept_seen) > 1


def test_connections_are_rewarded_as_the_page_states() -> None:
    env = gymnasium.make("steersman/Latency-v0", objective="least-connections", nodes=5, max_nodes=5, pods=80)
    given = [act()[0] for _, _, act in play(env)]
    # Between all on one node and equal numbers; which of both is a matter of the users.
    lowest = reward("least-connections", {"c": np.array([1, 0, 0, 0, 0])})
    assert lowest <= min(given) < max(given) <= reward("least-connections", {"c": np.ones(5)})


def test_rewards_of_a_queue_sum_up_to_its_objective() -> None:
    for objective in ("bounded-slowdown", "waiting-time"):
        env = gymnasium.make("steersman/Queue-v0", objective=objective, jobs=40, load=2.0, penalty=7.0)
        observation, _ = env.reset(seed=2)
        total, illegal, terminated, infos = 0.0, 0, False, {}
        while not terminated:
            action = int(observation["mask"].argmax())
            if illegal < 3:
                observation, given, *_, infos = env.step(env.action_space.n - 1)
                assert (given, infos["illegal"]) == (-7.0, True)
                illegal += 1
            observation, given, terminated, truncated, infos = env.step(action)
            assert not truncated
            total += given
        assert total == pytest.approx(-infos[objective])
