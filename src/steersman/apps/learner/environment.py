"""Live cluster as a passive environment: the actions are those of a running scheduler, and agents observe them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from steersman.apps.recorder.transitions import NOTHING, ObservedDecision
from steersman.envs.base import Arrays, observation_space
from steersman.envs.inflation import batch, kernels
from steersman.objectives.judging import reward
from steersman.objectives.registry import WeightedObjectives
from steersman.policies.features import View

Observations = dict[str, npt.NDArray[Any]]


class PassiveLiveEnv(VectorEnv[Observations, npt.NDArray[np.int64], npt.NDArray[Any]]):
    """Single environment whose actions are those of a running scheduler; the argument of `step` is ignored.

    An episode ends when the last running pod of the scheduler ends. `reset` and `step` block until the next decision
    and raise the errors of the source of decisions.

    Args:
        decisions: the scheduler's decisions, each with the state that followed it.
        view: observed features.
        max_nodes: N, the capacity of the observation; decisions for nodes beyond it are left out.
        objective: objective of the reward.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self, decisions: Iterator[ObservedDecision], view: View, max_nodes: int, objective: WeightedObjectives
    ) -> None:
        self.num_envs, self.max_nodes = 1, max_nodes
        self.single_observation_space = observation_space(view, max_nodes)
        self.single_action_space = spaces.Discrete(max_nodes)
        self.observation_space = batch_space(self.single_observation_space, 1)
        self.action_space = batch_space(self.single_action_space, 1)
        self._decisions = (decision for decision in decisions if decision.action < max_nodes)
        self._objective = objective
        self._now: ObservedDecision | None = None

    @property
    def now(self) -> ObservedDecision:
        """Decision that the present observation belongs to; waits for the first one."""
        if self._now is None:
            self._now = next(self._decisions)
        return self._now

    @property
    def observed(self) -> Observations:
        """Observation before the present decision, each part with a leading axis of 1."""
        return {name: self._padded(name, part)[None] for name, part in self.now.before.items()}

    def action(self, _: Mapping[str, npt.NDArray[Any]] | None = None) -> npt.NDArray[np.int64]:
        """Return the scheduler's choice, [1] int64."""
        return np.array([self.now.action], dtype=np.int64)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Return the present observation; a live cluster cannot be reset."""
        return self.observed, {}

    def step(
        self, actions: npt.NDArray[np.int64]
    ) -> tuple[Observations, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]:
        """Return the outcome of the scheduler's choice and the observation of its next decision."""
        decision = self.now
        self._now = next(self._decisions)
        rewards = np.array([reward(self._objective, decision.row, decision.next_row)])
        terminated, measures = np.array([decision.terminated]), _measures(decision.next_row)
        infos: dict[str, Any] = {**measures, "final_info": measures} if decision.terminated else dict(measures)
        return self.observed, rewards, terminated, np.zeros(1, dtype=np.bool_), infos

    def snapshot(self) -> Arrays:
        """Return an empty snapshot: the cluster keeps its own state."""
        return {}

    def restore(self, snapshot: Mapping[str, npt.NDArray[Any]]) -> Observations:
        """Return the present observation; there is nothing to restore."""
        return self.observed

    def _padded(self, name: str, part: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a part of an observation with its node axis padded to `max_nodes`."""
        if name not in NOTHING:
            return part
        columns = np.array(self.now.columns)
        padded = np.full((self.max_nodes, *part.shape[1:]), NOTHING[name], dtype=part.dtype)
        fits = columns < self.max_nodes
        padded[columns[fits]] = part[fits]
        return padded


def _measures(row: npt.NDArray[np.float64]) -> Arrays:
    """Return the infos of a state after an action, see `WorkloadCore.infos`."""
    allocation, variance = np.empty(1), np.empty(1)
    kernels.compute_infos(np.tile(row, (1, batch.AFTER + 1, 1)), allocation, variance)
    return {"allocation": allocation, "node_variance": variance}
