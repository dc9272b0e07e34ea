"""Live cluster as an environment: an agent chooses the node of every pod that a scheduler asks it about."""

from __future__ import annotations

from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt
import structlog

from steersman.apps.learner.environment import Observations, SingleLiveEnv, StepResult, padded
from steersman.apps.scheduler.agent_link import Question
from steersman.objectives.registry import WeightedObjectives
from steersman.policies.features import View
from steersman.training.run import RunEndedError

log = structlog.get_logger("learning")


class LiveEnv(SingleLiveEnv):
    """Single environment of which each decision places a pod of the cluster.

    `reset` and `step` block until the scheduler asks. Where the fallback decided (a late answer, or an infeasible one
    by then), its choice is in `infos["taken"]` (-1: none, the pod was deleted before); agents learn from it if the
    observation offers that node. An episode ends when all pods of the scheduler are gone.

    Args:
        connection: to the scheduler (`agent_link`).
        view: observed features.
        max_nodes: N, the capacity of the observation; nodes in slots beyond it are not chosen.
        objective: objective of the reward.
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
