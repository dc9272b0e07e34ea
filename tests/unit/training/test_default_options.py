"""Agents with the default options of `train` are better on their task than kube-scheduler's default."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from tests.support.nightly import by_default, is_nightly

from steersman.agents.registry import find_algorithm
from steersman.envs.deployments import DeploymentsOptions
from steersman.evaluation.experiment import Experiment, run_experiment
from steersman.evaluation.generated import nominal_workload
from steersman.training.plans import PlanOptions, make_plan, train
from steersman.training.run import POLICY, TrainingLimits

pytest.importorskip("torch")

TASK = DeploymentsOptions(nodes=10)
SEEDS = tuple(range(9001, 9021))
AGENTS = by_default(
    ("dqn mlp 1", "actor-critic mlp 1"),
    (" ".join(each) for each in itertools.product(("dqn", "actor-critic"), ("mlp", "gnn"), "123")),
)


def final_deviations(policy: str) -> np.ndarray:
    """Return the deviation of the nodes' CPU at the end of fillings that no training or validation saw, in points."""
    experiment = Experiment((nominal_workload(TASK),), (policy,), SEEDS, "deployments", environment=TASK)
    return np.array([run.curve.cpu_balance_percent[-1] for run in run_experiment(experiment)])


@pytest.mark.parametrize("agent", AGENTS)
def test_agents_learn_their_task_by_their_defaults(agent: str, tmp_path: Path) -> None:
    algorithm, network, seed = agent.split()
    plan = make_plan(TASK, "agent", algorithm, PlanOptions(network=network, seed=int(seed)))
    spec = find_algorithm(algorithm)
    iterations = spec.iterations if is_nightly() else 1000
    limits = TrainingLimits(iterations, validate_every=spec.validate_every)
    train(plan, tmp_path, limits)
    learned, default = final_deviations(str(tmp_path / POLICY)), final_deviations("kube-default")
    gain = default - learned
    # Paired by seed; three standard errors of twenty.
    assert gain.mean() > 3 * gain.std(ddof=1) / np.sqrt(len(gain)), (learned.mean(), default.mean())
