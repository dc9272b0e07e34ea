"""Live cluster as an environment: an agent chooses the node of every pod that a scheduler asks it about."""

from __future__ import annotations

from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt
import structlog
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from steersman.apps.learner.environment import Observations, infos_of, padded
from steersman.apps.scheduler.agent_link import Question
from steersman.envs.base import observation_space
from steersman.objectives.judging import reward
from steersman.objectives.registry import WeightedObjectives
from steersman.policies.features import View
from steersman.training.run import RunEndedError

log = structlog.get_logger("learning")


class LiveEnv(VectorEnv[Observations, npt.NDArray[np.int64], npt.NDArray[Any]]):
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

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, connection: Connection, view: View, max_nodes: int, objective: WeightedObjectives) -> None:
        self.num_envs, self.max_nodes = 1, max_nodes
        self.single_observation_space = observation_space(view, max_nodes)
        self.single_action_space = spaces.Discrete(max_nodes)
        self.observation_space = batch_space(self.single_observation_space, 1)
        self.action_space = batch_space(self.single_action_space, 1)
        self._connection, self._objective = connection, objective
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

    def step(
        self, actions: npt.NDArray[np.int64]
    ) -> tuple[Observations, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]:
        """Answer the present question; return what came of it, and the next one."""
        answer = int(actions[0])
        try:
            self._connection.send(answer)
        except OSError:
            raise RunEndedError from None
        self._question = self._receive()
        done = self._question.previous
        assert done is not None
        value = reward(self._objective, done.before, done.after) if done.reward is None else done.reward
        terminated, measures = np.array([done.ended]), infos_of(done.after)
        infos: dict[str, Any] = {**measures, "final_info": measures} if done.ended else dict(measures)
        if done.slot != answer:
            infos["taken"] = np.array([done.slot], dtype=np.int64)
        return self.observed, np.array([value]), terminated, np.zeros(1, dtype=np.bool_), infos

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Return an empty snapshot: the cluster keeps its own state."""
        return {}

    def restore(self, snapshot: Mapping[str, npt.NDArray[Any]]) -> Observations:
        """Return the present observation; there is nothing to restore."""
        return self.observed

    def _receive(self) -> Question:
        try:
            question = self._connection.recv()
        except (EOFError, OSError):
            question = None
        if question is None:
            raise RunEndedError
        assert isinstance(question, Question)
        return question
