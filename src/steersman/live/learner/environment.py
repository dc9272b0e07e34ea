"""Live clusters as environments; in a passive one the actions are those of another scheduler."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt
import structlog
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from steersman.envs.base import Arrays, observation_space
from steersman.live.learner.bindings import ObservedBinding
from steersman.live.scheduler.agent_link import DecisionOutcome, Question
from steersman.objectives import summary
from steersman.objectives.registry import WeightedObjectives
from steersman.objectives.summary import allocation_of, reward, spread_of
from steersman.policies.features import View
from steersman.training.run import RunEndedError

Observations = dict[str, npt.NDArray[Any]]
PADDING = {"nodes": 0, "mask": 0, "groups": -1}  # padding of the parts of observations that have a row for each node
StepResult = tuple[Observations, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]
"""Observation, reward, terminated, truncated and infos, each with a leading axis of 1."""

log = structlog.get_logger("learning")


class SingleLiveEnv(VectorEnv[Observations, npt.NDArray[np.int64], npt.NDArray[Any]]):
    """Single environment on a live cluster, which keeps its own state; nodes beyond `max_nodes` are not observed."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, view: View, max_nodes: int, objective: WeightedObjectives) -> None:
        self.num_envs, self.max_nodes, self._objective = 1, max_nodes, objective
        self.single_observation_space = observation_space(view, max_nodes)
        self.single_action_space = spaces.Discrete(max_nodes)
        self.observation_space = batch_space(self.single_observation_space, 1)
        self.action_space = batch_space(self.single_action_space, 1)

    @property
    @abstractmethod
    def observed(self) -> Observations:
        """Present observation, each part with a leading axis of 1."""

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Return an empty snapshot."""
        return {}

    def restore(self, snapshot: Mapping[str, npt.NDArray[Any]]) -> Observations:
        """Return the present observation; there is nothing to restore."""
        return self.observed

    def _result(self, done: DecisionOutcome, after: npt.NDArray[np.float64], *, ended: bool) -> StepResult:
        value = reward(self._objective, done.before, after) if done.reward is None else done.reward
        measures = infos_of(after)
        infos: dict[str, Any] = {**measures, "final_info": measures} if ended else dict(measures)
        return self.observed, np.array([value]), np.array([ended]), np.zeros(1, dtype=np.bool_), infos


class PassiveLiveEnv(SingleLiveEnv):
    """Single environment whose actions are those of a running scheduler; the argument of `step` is ignored.

    An episode ends when the last running pod of the scheduler ends. `reset` and `step` block until the next binding
    and raise the errors of the source of bindings. Bindings to nodes beyond `max_nodes` are left out.
    """

    def __init__(
        self, bindings: Iterator[ObservedBinding], view: View, max_nodes: int, objective: WeightedObjectives
    ) -> None:
        super().__init__(view, max_nodes, objective)
        self._bindings = (binding for binding in bindings if binding.outcome.slot < max_nodes)
        self._now: ObservedBinding | None = None

    @property
    def now(self) -> ObservedBinding:
        """Binding that the present observation belongs to; waits for the first one."""
        if self._now is None:
            self._now = next(self._bindings)
        return self._now

    @property
    def observed(self) -> Observations:
        """Observation before the present binding, each part with a leading axis of 1."""
        return padded(self.now.observation, self.max_nodes)

    def action(self, _: Mapping[str, npt.NDArray[Any]] | None = None) -> npt.NDArray[np.int64]:
        """Return the scheduler's choice, [1] int64."""
        return np.array([self.now.outcome.slot], dtype=np.int64)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Return the present observation; a live cluster cannot be reset."""
        return self.observed, {}

    def step(self, actions: npt.NDArray[np.int64]) -> StepResult:
        """Return the outcome of the scheduler's choice and the observation of its next binding."""
        done, self._now = self.now.outcome, next(self._bindings)
        after = done.after.copy()
        # How long pods waited after a decision is known at the next one.
        after[summary.POD_SECONDS_WAITED] = self._now.waited_before
        return self._result(done, after, ended=self._now.ended_before)


def padded(observation: Mapping[str, npt.NDArray[Any]], max_nodes: int) -> Observations:
    """Return an observation with `max_nodes` rows for nodes and a leading axis of 1; further rows are cut off."""
    result = {}
    for name, part in observation.items():
        if name in PADDING:
            rows = np.full((max_nodes, *part.shape[1:]), PADDING[name], dtype=part.dtype)
            rows[: len(part)] = part[:max_nodes]
            result[name] = rows[None]
        else:
            result[name] = part[None]
    return result


def infos_of(row: npt.NDArray[np.float64]) -> Arrays:
    """Return the infos of a state after an action, see `WorkloadCore.infos`."""
    return {"allocation": allocation_of(row[None]), "node_variance": spread_of(row[None])["node_variance"]}


class LiveEnv(SingleLiveEnv):
    """Single environment of which each decision places a pod of the cluster.

    `reset` and `step` block until the scheduler asks. Where the fallback decided (a late answer, or an infeasible one
    by then), its choice is in `infos["taken"]` (-1: none, the pod was deleted before); agents learn from it if the
    observation offers that node. An episode ends when all pods of the scheduler are gone.
    """

    def __init__(self, connection: Connection, view: View, max_nodes: int, objective: WeightedObjectives) -> None:
        super().__init__(view, max_nodes, objective)
        self._connection = connection
        self._question: Question | None = None

    @property
    def observed(self) -> Observations:
        """Observation of the present question, each part with a leading axis of 1."""
        assert self._question is not None
        return padded(self._question.observation, self.max_nodes)

    def fallback_action(self, _: Mapping[str, npt.NDArray[Any]] | None = None) -> npt.NDArray[np.int64]:
        """Return the choice of the scheduler's fallback, [1] int64; where it is cut off, the first feasible slot."""
        assert self._question is not None
        slot = self._question.fallback
        if slot >= self.max_nodes:
            slot = int(np.argmax(self._question.observation["mask"][: self.max_nodes]))
        return np.array([slot], dtype=np.int64)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Tell the scheduler that the agent is ready, and return its first question."""
        if self._question is None:
            self._connection.send(None)
            log.info("the agent is ready")
            self._question = self._receive()
        return self.observed, {}

    def step(self, actions: npt.NDArray[np.int64]) -> StepResult:
        """Answer the present question; return what came of it, and the next one."""
        answer = int(actions[0])
        try:
            self._connection.send(answer)
        except OSError:
            raise RunEndedError from None
        self._question = self._receive()
        done = self._question.previous
        assert done is not None
        result = self._result(done, done.after, ended=done.ended)
        if done.slot != answer:
            result[-1]["taken"] = np.array([done.slot], dtype=np.int64)
        return result

    def _receive(self) -> Question:
        try:
            question = self._connection.recv()
        except (EOFError, OSError):
            question = None
        if question is None:
            raise RunEndedError
        assert isinstance(question, Question)
        return question
