"""Environments with every index checked: random actions, illegal ones, and those of rules, episode after episode."""

from __future__ import annotations

import numpy as np
import pytest

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.cluster.node_metrics import NO_LIMITS, LatencyLimits
from steersman.envs.environment import SteersmanVectorEnv
from steersman.envs.latency.environment import LatencyCore, LatencyOptions, LatencyVectorEnv
from steersman.envs.latency.live import LiveModel
from steersman.objectives import registry as objectives
from steersman.objectives import summary
from steersman.objectives.judging import reward
from steersman.policies.node_metrics.rules import METRIC_RULES
from steersman.workloads.generators.latency_settings import LatencySettings


def play(env: SteersmanVectorEnv, rules: tuple[str, ...], steps: int) -> None:
    """Step through at least one end of an episode."""
    rng, ended = np.random.default_rng(1), False
    env.reset(seed=1)
    for step in range(steps):
        masks = np.asarray(env.action_masks())
        actions = (masks * (rng.random(masks.shape) + 0.5)).argmax(axis=1)
        if step % 5 == 4:
            actions = env.core.rule_actions(rules[step // 5 % len(rules)])
        elif step % 7 == 6:
            actions = rng.integers(masks.shape[1], size=len(masks))
        _, rewards, terminated, truncated, _ = env.step(actions.astype(np.int64))
        assert np.isfinite(rewards).all()
        ended = ended or bool((terminated | truncated).any())
    env.core.restore(env.core.state())
    assert ended


@pytest.mark.parametrize("objective", ["latency-aware", "balance=1,least-connections=1,most-allocated=1"])
@pytest.mark.parametrize("missed", [0.0, 0.5])
def test_telemetry(objective: str, missed: float) -> None:
    env = LatencyVectorEnv(
        2, objective=objective, nodes=2, max_nodes=3, pods=80, load=2.0, missed=missed, lifetime=60.0, warmup=10.0
    )
    play(env, tuple(METRIC_RULES), 250)
    env.core.figures()
    core = LatencyCore(1, LatencyOptions(settings=LatencySettings(nodes=2, max_nodes=3, pods=20, missed=missed)))
    core.start(0, np.random.default_rng(0), {"seed": 1})
    while not core.terminated[0]:
        assert all(core.latency_of_placement(0, n) != 0.0 for n in range(2))
        core.step(core.rule_actions("kube-default"))


def test_live_model_stays_in_bounds() -> None:
    model = LiveModel(LatencySettings(missed=0.3, zones=2))
    pods = [Pod("p", PodClass(Requests(500, 1 << 30)), latency=limits) for limits in (NO_LIMITS, LatencyLimits(9, 50))]
    for step in range(400):
        time = float(step)
        model.put_node(Node(f"n{step % 7}", 8000, 32 << 30, 110), time)
        model.bind(f"p{step}", pods[step % 2], f"d{step // 9}", f"n{step % 5}", time)
        model.scrape(f"n{step % 3}", time)
        if step % 50 == 49:
            model.remove_node(f"n{step // 50}", time)
        if step % 3:
            model.unbind(f"p{step // 3}", time)
    assert model.truth(400.0).placed > 100


def test_single_decision_rewards_stay_in_bounds() -> None:
    row = np.linspace(1.0, 2.0, summary.COLUMNS)
    for name in objectives.OBJECTIVES:
        if objectives.OBJECTIVES[name].needs != "telemetry":
            weighted = objectives.resolve(name)
            assert np.isfinite(reward(weighted, row, row + 0.1))
