"""Process of an agent that decides for a scheduler and learns from its decisions, and from those of others."""

from __future__ import annotations

import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import structlog

from steersman.apps.learner.others import OtherSchedulers, Transition
from steersman.apps.learner.plan import LivePlan, LiveRun, build_agent, card_of_run
from steersman.objectives import registry as objectives
from steersman.policies.files.policy_file import write_policy
from steersman.training.run import TrainingProgress
from steersman.training.tensorboard import summary_writer

if TYPE_CHECKING:
    from steersman.agents.base import Agent
    from steersman.agents.buffers.recording import Recording
    from steersman.agents.dqn import DQN
    from steersman.apps.learner.agent_env import LiveEnv

SAVE_DECISIONS = 200
"""Decisions between two policy files."""
LOG_SECONDS = 30.0
"""Time between two lines in the log."""
FROM_OTHERS = "steps_from_others"
"""Metric: number of decisions of other schedulers that were learned from so far."""
DROPPED = "dropped_from_others"
"""Metric: number of those that were observed and dropped in this session, since there were too many."""

log = structlog.get_logger("learning")


class DecidingLearner:
    """Adapt an agent that decides on a cluster to `TrainingRun`: a restored state keeps the cluster's observation.

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


class OffPolicyLearner(DecidingLearner):
    """DQN that also learns from transitions of other schedulers.

    In an iteration these are at most as many as its own, so that half of the replay buffer is its own at least: only
    its own decisions show what actions bring that others never take. They are taken over between two answers, which
    stays short. Steps, exploration and gradient steps go by its own decisions alone.

    Args:
        agent: the agent.
        env: its environment.
        others: the other schedulers.
        most: number of its own decisions in an iteration.
    """

    def __init__(self, agent: DQN, env: LiveEnv, others: OtherSchedulers, most: int) -> None:
        super().__init__(agent, env)
        self._dqn, self._others, self._most, self._count = agent, others, most, 0

    def iterate(self) -> dict[str, Any]:
        """Decide and learn once, and put transitions of others into the replay buffer."""
        metrics = super().iterate()
        if transitions := self._others.take(self._most):
            self._dqn.add_transitions(_recording_of(transitions))
            self._count += len(transitions)
        return metrics | {FROM_OTHERS: float(self._count), DROPPED: float(self._others.dropped)}

    def state_dict(self) -> dict[str, Any]:
        """Return everything that later iterations depend on but the cluster."""
        return super().state_dict() | {FROM_OTHERS: self._count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state, see `DecidingLearner`."""
        super().load_state_dict(state)
        self._count = state.get(FROM_OTHERS, 0)


def _recording_of(transitions: list[Transition]) -> Recording:
    from steersman.agents.buffers.recording import Recording
    from steersman.agents.networks.tensors import stack

    return Recording(
        before=stack([each.before for each in transitions]),
        actions=np.array([each.slot for each in transitions], dtype=np.int64),
        rewards=np.array([each.reward for each in transitions], dtype=np.float32),
        terminated=np.array([each.terminated for each in transitions]),
        truncated=np.zeros(len(transitions), dtype=np.bool_),
        after=stack([each.after for each in transitions]),
    )


def run_agent(plan: LivePlan, live_run: LiveRun, connection: Connection, others: OtherSchedulers | None = None) -> None:
    """Decide and learn until the scheduler ends.

    Args:
        plan: the plan.
        live_run: the run, from `init_run`.
        connection: to the scheduler.
        others: other schedulers that an off-policy agent learns from, too; None: none.

    Raises:
        SteersmanError: learning failed; the last policy file and checkpoint stay.
    """
    import torch

    from steersman.apps.learner.agent_env import LiveEnv
    from steersman.training.learning import weights_of

    # Where others use the cores, several threads are slower, see `training.learning`.
    torch.set_num_threads(1)
    summary_writer()  # before the agent says that it is ready: the first question has two seconds, too
    save_every = max(1, SAVE_DECISIONS // plan.decisions)
    run = live_run.start(plan, save_every)
    env = LiveEnv(connection, plan.find_view(), live_run.capacity, objectives.resolve(plan.objective))
    log.info("learning", algorithm=plan.algorithm, network=plan.network.name, objective=plan.objective)
    agent = build_agent(plan, env, env.fallback_action)

    def save(path: Path) -> None:
        write_policy(path, card_of_run(plan, agent.steps), weights_of(agent))

    learner = DecidingLearner(agent, env)
    if plan.learns_from_others and others is not None:
        learner = OffPolicyLearner(cast("DQN", agent), env, others, plan.decisions)
    run.train(learner, None, save, _Log())


class _Log:
    """Log lines about the learning, one in a while."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, progress: TrainingProgress, metrics: dict[str, float]) -> None:
        if time.monotonic() - self._last >= LOG_SECONDS:
            self._last = time.monotonic()
            losses = "loss", "policy_loss"
            shown = ("steps", FROM_OTHERS, "episodes", "reward", *losses, "epsilon", "node_variance")
            log.info("learned", **{name: round(metrics[name], 5) for name in shown if name in metrics})
