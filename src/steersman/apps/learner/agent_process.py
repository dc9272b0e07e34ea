"""Process of an agent that decides for a scheduler and learns from its decisions."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from steersman.apps.learner.plan import MAX_NODES, LivePlan, build_agent, card_of_run, has_checkpoint
from steersman.objectives import registry as objectives
from steersman.policies.files.policy_file import write_policy
from steersman.training.run import TrainingLimits, TrainingProgress, TrainingRun
from steersman.training.tensorboard import summary_writer

if TYPE_CHECKING:
    from steersman.agents.base import Agent
    from steersman.apps.learner.agent_env import LiveEnv

SAVE_DECISIONS = 200
"""Decisions between two policy files."""
LOG_SECONDS = 30.0
"""Time between two lines in the log."""

log = structlog.get_logger("learning")


class LiveLearner:
    """Agent as a training run needs it.

    Args:
        agent: the agent.
        env: its environment.
    """

    def __init__(self, agent: Agent, env: LiveEnv) -> None:
        self._agent, self._env = agent, env

    def iterate(self) -> dict[str, Any]:
        """Decide and learn once, see `Agent`."""
        return self._agent.iterate()

    def state_dict(self) -> dict[str, Any]:
        """Return everything that later iterations depend on but the cluster."""
        return self._agent.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; the observation is the cluster's present one."""
        self._agent.load_state_dict(state)
        self._agent.observe(self._env.observed)


def run_agent(plan: LivePlan, folder: Path, capacity: int, connection: Connection) -> None:
    """Decide and learn until the scheduler ends.

    Args:
        plan: the plan.
        folder: of the run, prepared by `init_run`.
        capacity: of the observation in nodes, from `init_run`.
        connection: to the scheduler.

    Raises:
        SteersmanError: learning failed; the last policy file and checkpoint stay.
    """
    import torch

    from steersman.agents.networks.score_networks import export
    from steersman.apps.learner.agent_env import LiveEnv

    torch.set_num_threads(1)
    summary_writer()  # before the agent says that it is ready: the first question has two seconds, too
    save_every = max(1, SAVE_DECISIONS // plan.decisions)
    limits = TrainingLimits(sys.maxsize, validate_every=save_every)
    run = TrainingRun(folder, plan.options() | {MAX_NODES: capacity}, limits, resume=has_checkpoint(folder))
    env = LiveEnv(connection, plan.find_view(), capacity, objectives.resolve(plan.objective))
    log.info("learning", algorithm=plan.algorithm, network=plan.network.name, objective=plan.objective)
    agent = build_agent(plan, env, env.rule_action)

    def save(path: Path) -> None:
        write_policy(path, card_of_run(plan, agent.steps), export(agent.network))

    run.train(LiveLearner(agent, env), None, save, _Log())


class _Log:
    """Log lines about the learning, one in a while."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, progress: TrainingProgress, metrics: dict[str, float]) -> None:
        if time.monotonic() - self._last >= LOG_SECONDS:
            self._last = time.monotonic()
            shown = ("steps", "episodes", "reward", "loss", "epsilon", "node_variance")
            log.info("learned", **{name: round(metrics[name], 5) for name in shown if name in metrics})
