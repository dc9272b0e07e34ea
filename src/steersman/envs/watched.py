"""A live cluster as an environment that somebody else plays: agents see what a scheduler saw, did and got for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from steersman.envs.core import Arrays, observation_space
from steersman.envs.kernels import batch, stepping
from steersman.features import View
from steersman.live.transitions import NOTHING, Seen
from steersman.objectives.judging import reward
from steersman.objectives.registry import Mix

Observations = dict[str, npt.NDArray[Any]]


class WatchedVectorEnv(VectorEnv[Observations, npt.NDArray[np.int64], npt.NDArray[Any]]):
    """One environment whose actions are those of a scheduler at work; what `step` is given is not looked at.

    An episode ends when no pod of the scheduler runs any more. `reset` and `step` wait for the next decision, and raise
    whatever the source of decisions raises.

    Args:
        decisions: the scheduler's, each one yielded when it is known what followed it.
        view: what agents see.
        max_nodes: N; decisions for nodes beyond are left out.
        objective: what is rewarded.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, decisions: Iterator[Seen], view: View, max_nodes: int, objective: Mix) -> None:
        self.num_envs, self.max_nodes = 1, max_nodes
        self.single_observation_space = observation_space(view, max_nodes)
        self.single_action_space = spaces.Discrete(max_nodes)
        self.observation_space = batch_space(self.single_observation_space, 1)
        self.action_space = batch_space(self.single_action_space, 1)
        self._decisions = (each for each in decisions if each.action < max_nodes)
        self._objective = objective
        self._now: Seen | None = None

    @property
    def now(self) -> Seen:
        """The decision that is observed."""
        if self._now is None:
            self._now = next(self._decisions)
        return self._now

    @property
    def observed(self) -> Observations:
        """What was seen before it."""
        return {name: self._padded(name, part)[None] for name, part in self.now.before.items()}

    def action(self, _: Mapping[str, npt.NDArray[Any]] | None = None) -> npt.NDArray[np.int64]:
        """[1] the scheduler's choice."""
        return np.array([self.now.action], dtype=np.int64)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """The present observation: what goes on elsewhere does not begin anew."""
        return self.observed, {}

    def step(
        self, actions: npt.NDArray[np.int64]
    ) -> tuple[Observations, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]:
        """What came of the scheduler's choice."""
        done = self.now
        self._now = next(self._decisions)
        got = reward(self._objective, done.row, done.next_row)
        ended, judged = np.array([done.terminated]), _judged(done.next_row)
        infos: dict[str, Any] = {**judged, "final_info": judged} if done.terminated else dict(judged)
        return self.observed, np.array([got]), ended, np.zeros(1, dtype=np.bool_), infos

    def snapshot(self) -> Arrays:
        """Nothing: the cluster keeps its own state."""
        return {}

    def restore(self, snapshot: Mapping[str, npt.NDArray[Any]]) -> Observations:
        """Nothing is restored but what is observed now."""
        return self.observed

    def _padded(self, name: str, part: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A part of an observation of all nodes that may ever be."""
        if name not in NOTHING:
            return part
        columns = np.array(self.now.columns)
        padded = np.full((self.max_nodes, *part.shape[1:]), NOTHING[name], dtype=part.dtype)
        kept = columns < self.max_nodes
        padded[columns[kept]] = part[kept]
        return padded


def _judged(row: npt.NDArray[np.float64]) -> Arrays:
    """What environments tell of a state after an action, see `WorkloadCore.infos`."""
    allocation, variance = np.empty(1), np.empty(1)
    stepping.judge(np.tile(row, (1, batch.AFTER + 1, 1)), allocation, variance)
    return {"allocation": allocation, "node_variance": variance}
