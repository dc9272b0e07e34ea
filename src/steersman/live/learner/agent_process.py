"""Process of an agent that decides for a scheduler and learns from its decisions, and from those of others.

Q-learning's target takes the best next action whoever chose the last one, so every scheduler's decisions teach if
observation, action, reward and next observation belong together. The agent's own decisions and those of all other
schedulers are two chains: the next observation of a transition is the one before the next decision of the same chain.
What happens in between (decisions of the other chain, pods that end, bindings that could not be observed) is the
environment's doing in both. That is Markov if it depends on the observed state alone, and not on what was decided
before; and since one network values the decisions of both chains, it also assumes that pods and pace of both are alike.
Rewards are the same whatever is assumed, and with a discount of 0 nothing else is learned.

A further process observes, so that neither the scheduler nor the agent's answers wait for it. It keeps transitions
until the agent asks for them, and drops those that are too many.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import structlog

from steersman.core.errors import SteersmanError
from steersman.kubernetes.config import KubeConfig
from steersman.live.learner.bindings import BindingThread
from steersman.live.learner.environment import LiveEnv, PassiveLiveEnv
from steersman.live.learner.plan import LivePlan, LiveRun, build_agent, card_of_run
from steersman.live.scheduler.agent_policy import AgentSettings
from steersman.objectives import registry as objectives
from steersman.policies.policy_file import write_policy
from steersman.prometheus.configuration import Configuration
from steersman.training.run import TrainingProgress, summary_writer

if TYPE_CHECKING:
    from steersman.agents.base import Agent
    from steersman.agents.buffers import Recording
    from steersman.agents.dqn import DQN

MOST_KEPT = 200  # transitions that wait for the agent; further ones are dropped. 1,000 nodes: 0.3 MB each
Observation = Mapping[str, npt.NDArray[Any]]
SAVE_DECISIONS = 200  # decisions between two policy files
LOG_SECONDS = 30.0  # time between two lines in the log
FROM_OTHERS = "steps_from_others"  # metric: number of decisions of other schedulers that were learned from so far
DROPPED = "dropped_from_others"  # metric: number of those that were dropped in this session: there were too many

log = structlog.get_logger("learning")


@dataclass(frozen=True, slots=True)
class Transition:
    """A decision of another scheduler."""

    before: Observation  # parts of the observation before it by name, without a leading axis
    slot: int  # chosen slot
    reward: float  # its reward
    terminated: bool  # whether all pods that others had placed were gone before the next decision
    after: Observation  # observation before the next decision of any other scheduler


@dataclass(frozen=True, slots=True)
class Observed:
    """What the observing process hands over; `problem` says why no more will come, "" if they will."""

    transitions: list[Transition]
    dropped: int
    problem: str


class TransitionBuffer:
    """Transitions of a passive environment, collected by a thread until they are taken."""

    def __init__(self, env: PassiveLiveEnv, most: int = MOST_KEPT) -> None:
        self._env = env
        self._kept: queue.Queue[Transition] = queue.Queue(most)
        self._dropped, self._problem = 0, ""
        threading.Thread(target=self._collect, daemon=True).start()

    def take(self, most: int) -> Observed:
        """Remove and return the first transitions, at most so many."""
        problem = self._problem
        transitions: list[Transition] = []
        with suppress(queue.Empty):
            while len(transitions) < most:
                transitions.append(self._kept.get_nowait())
        return Observed(transitions, self._dropped, problem)

    def _collect(self) -> None:
        env = self._env
        try:
            before = _single(env.observed)
            while True:
                slot = int(env.action()[0])
                observation, rewards, terminated, _, _ = env.step(env.action())
                after = _single(observation)
                try:
                    self._kept.put_nowait(Transition(before, slot, float(rewards[0]), bool(terminated[0]), after))
                except queue.Full:
                    self._dropped += 1
                before = after
        except SteersmanError as error:
            self._problem = str(error)


def _single(observation: Observation) -> Observation:
    return {name: part[0] for name, part in observation.items()}


def observe_others(
    plan: LivePlan,
    capacity: int,
    kubeconfig: KubeConfig,
    telemetry_config: Configuration | None,
    connection: Connection,
) -> None:
    """Observe the bindings of all schedulers but the plan's, and hand transitions over until the agent ends."""
    view, objective = plan.find_view(), objectives.resolve(plan.objective)
    settings = AgentSettings(plan.algorithm, view, objective, None)
    thread = BindingThread(kubeconfig, plan.scheduler_name, settings, telemetry_config, others=True)
    transitions = TransitionBuffer(PassiveLiveEnv(thread.read(), view, capacity, objective))
    with suppress(EOFError, OSError):
        while True:
            connection.send(transitions.take(connection.recv()))


class OtherSchedulers:
    """The agent's end: transitions of other schedulers, never waited for."""

    def __init__(self, connection: Connection) -> None:
        self.dropped = 0
        self._connection = connection
        self._is_asked = self._is_over = False

    def take(self, most: int) -> list[Transition]:
        """Return the transitions that the last call asked for, and ask for the next ones, at most so many."""
        if self._is_over:
            return []
        transitions: list[Transition] = []
        try:
            if self._is_asked and self._connection.poll():
                observed: Observed = self._connection.recv()
                transitions, self.dropped, self._is_asked = observed.transitions, observed.dropped, False
                # The transitions that came with it are still good.
                if observed.problem:
                    self._end(observed.problem)
                    return transitions
            if not self._is_asked:
                self._connection.send(most)
                self._is_asked = True
        except (EOFError, OSError):
            self._end("the observing process has ended")
        return transitions

    def _end(self, problem: str) -> None:
        self._is_over = True
        self._connection.close()
        log.warning("the agent learns from its own decisions alone; other schedulers are not observed", error=problem)


class DecidingLearner:
    """Adapt an agent that decides on a cluster to `TrainingRun`: a restored state keeps the cluster's observation."""

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
        super().load_state_dict(state)
        self._count = state.get(FROM_OTHERS, 0)


def _recording_of(transitions: list[Transition]) -> Recording:
    from steersman.agents.buffers import Recording
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
    import torch

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
    logged_at = time.monotonic()

    def report(_: TrainingProgress, metrics: dict[str, float]) -> None:
        nonlocal logged_at
        if time.monotonic() - logged_at >= LOG_SECONDS:
            logged_at = time.monotonic()
            losses = "loss", "policy_loss"
            shown = ("steps", FROM_OTHERS, "episodes", "reward", *losses, "epsilon", "node_variance")
            log.info("learned", **{name: round(metrics[name], 5) for name in shown if name in metrics})

    run.train(learner, None, save, report)
