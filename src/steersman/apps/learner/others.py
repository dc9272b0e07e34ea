"""Transitions of other schedulers, from which an off-policy agent learns beside its own.

Q-learning's target takes the best next action whoever chose the last one, so every scheduler's decisions teach if
observation, action, reward and next observation belong together. The agent's own decisions and those of all other
schedulers are two chains: the next observation of a transition is the one before the next decision of the same chain.
What happens in between (decisions of the other chain, pods that end, bindings that could not be observed) is the
environment's doing in both. That is Markov if it depends on the observed state alone, and not on what was decided
before; and since one network values the decisions of both chains, it also assumes that pods and pace of both are alike.
Rewards are the same whatever is assumed, and with a discount of 0 nothing else is learned.

A process of its own observes, so that neither the scheduler nor the agent's answers wait for it. It keeps transitions
until the agent asks for them, and drops those that are too many.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy.typing as npt
import structlog

from steersman.apps.learner.bindings import BindingThread
from steersman.apps.learner.environment import PassiveLiveEnv
from steersman.apps.learner.plan import LivePlan
from steersman.apps.scheduler.agent_policy import AgentSettings
from steersman.core.errors import SteersmanError
from steersman.kubernetes.config import KubeConfig
from steersman.objectives import registry as objectives
from steersman.prometheus.configuration import Configuration

MOST_KEPT = 200
"""Transitions that wait for the agent; further ones are dropped. On 1,000 nodes one takes a third of a megabyte."""

Observation = Mapping[str, npt.NDArray[Any]]

log = structlog.get_logger("learning")


@dataclass(frozen=True, slots=True)
class Transition:
    """A decision of another scheduler.

    Attributes:
        before: parts of the observation before it by name, without a leading axis.
        slot: chosen slot.
        reward: its reward.
        terminated: whether all pods that others had placed were gone before the next decision.
        after: observation before the next decision of any other scheduler.
    """

    before: Observation
    slot: int
    reward: float
    terminated: bool
    after: Observation


@dataclass(frozen=True, slots=True)
class Observed:
    """What the observing process hands over.

    Attributes:
        transitions: in order.
        dropped: number of transitions that were dropped so far.
        problem: why no more will come, "" if they will.
    """

    transitions: list[Transition]
    dropped: int
    problem: str


class TransitionBuffer:
    """Transitions of a passive environment, collected by a thread until they are taken.

    Args:
        env: the environment.
        most: number of transitions that are kept.
    """

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
    """Observe the bindings of all schedulers but the plan's, and hand transitions over until the agent ends.

    Args:
        plan: the plan.
        capacity: of the observation in nodes.
        kubeconfig: configuration of the cluster.
        telemetry_config: Prometheus queries; None: no telemetry.
        connection: to the agent.
    """
    view, objective = plan.find_view(), objectives.resolve(plan.objective)
    settings = AgentSettings(plan.algorithm, view, objective, None)
    thread = BindingThread(kubeconfig, plan.scheduler_name, settings, telemetry_config, others=True)
    transitions = TransitionBuffer(PassiveLiveEnv(thread.read(), view, capacity, objective))
    with suppress(EOFError, OSError):
        while True:
            connection.send(transitions.take(connection.recv()))


class OtherSchedulers:
    """The agent's end: transitions of other schedulers, never waited for.

    Args:
        connection: to `observe_others`.

    Attributes:
        dropped: number of transitions that were dropped so far.
    """

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
