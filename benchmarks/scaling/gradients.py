"""How much of a gradient method's time is rollouts, which more machines could share."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import steersman
from steersman.agents.dqn import DQN
from steersman.agents.ppo import PPO
from steersman.envs.deployments import DeploymentsOptions
from steersman.envs.workload import WorkloadOptions
from steersman.workloads.formats.openb import embedded

Result = dict[str, float | str]

ITERATIONS = {"ppo": 6, "dqn": 600}
SCENES: dict[str, WorkloadOptions | DeploymentsOptions] = {
    "inflation": WorkloadOptions((embedded("default-small"),), "allocation"),
    "deployments": DeploymentsOptions(nodes=10),
}
LEARNING: dict[str, type[PPO] | type[DQN]] = {"ppo": PPO, "dqn": DQN}


def rollout_share() -> Result:
    """Measure the share of rollouts in the time of training with its default options, and Amdahl's bound from it.

    `speedup_limit` is what any number of machines could gain if they shared the rollouts at no cost at all: the
    gradient steps stay.
    """
    result: Result = {}
    for algorithm, kind in LEARNING.items():
        for scene, options in SCENES.items():
            spent = {"iteration": 0.0, "update": 0.0}
            with _timed(kind, spent), tempfile.TemporaryDirectory() as at:
                steersman.train(
                    options,
                    Path(at, "run"),
                    algorithm=algorithm,
                    iterations=ITERATIONS[algorithm],
                    validate_every=ITERATIONS[algorithm],
                    validation_episodes=1,
                )
            share = 1 - spent["update"] / spent["iteration"]
            result[f"{algorithm}_{scene}_rollout_share"] = round(share, 2)
            result[f"{algorithm}_{scene}_speedup_limit"] = round(1 / (1 - share), 1)
    return result


@contextmanager
def _timed(kind: type[Any], spent: dict[str, float]) -> Iterator[None]:
    """Time the iterations of an algorithm that learn, and their updates, while the block runs."""
    iterate, update = kind._iterate, kind._update

    def timed_update(learner: Any, *arguments: Any) -> Any:
        begin = time.perf_counter()
        try:
            return update(learner, *arguments)
        finally:
            spent["update"] += time.perf_counter() - begin

    def timed_iterate(learner: Any) -> Any:
        begin, before = time.perf_counter(), spent["update"]
        try:
            return iterate(learner)
        finally:
            # The first iterations of DQN only fill the replay buffer.
            if spent["update"] > before:
                spent["iteration"] += time.perf_counter() - begin

    kind._iterate, kind._update = timed_iterate, timed_update
    try:
        yield
    finally:
        kind._iterate, kind._update = iterate, update
