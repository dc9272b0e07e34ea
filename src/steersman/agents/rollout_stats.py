"""Metrics of an iteration: rewards, episodes, actions and what the environments report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Metrics = dict[str, float | npt.NDArray[Any]]  # scalars, and arrays that are shown as histograms


class RolloutStats:
    """Sums over the decisions of an iteration; returns of running episodes and the cumulative reward carry over."""

    def __init__(self, num_envs: int) -> None:
        self.returns = np.zeros(num_envs)
        self.lengths = np.zeros(num_envs, np.int64)
        self.cumulative = np.zeros(1)  # reward of all decisions so far, of the mean environment
        self._clear()

    def _clear(self) -> None:
        self._rewards: list[float] = []
        self._actions: list[npt.NDArray[np.int64]] = []
        self._ended: list[tuple[float, int]] = []
        self._infos: defaultdict[str, list[float]] = defaultdict(list)

    def add(
        self,
        actions: npt.NDArray[np.int64],
        reward: npt.NDArray[Any],
        ended: npt.NDArray[np.bool_],
        infos: Mapping[str, Any],
    ) -> None:
        """Add one step of all environments: actions, rewards and ended [E], infos as gymnasium gives them."""
        self._rewards.append(float(np.mean(reward)))
        self.cumulative += self._rewards[-1]
        self._actions.append(np.array(actions))
        self.returns += reward
        self.lengths += 1
        self._ended += zip(self.returns[ended].tolist(), self.lengths[ended].tolist(), strict=True)
        self.returns[ended], self.lengths[ended] = 0.0, 0
        self._add_infos(infos, "")

    def _add_infos(self, infos: Mapping[str, Any], prefix: str) -> None:
        for name, value in infos.items():
            if name == "final_info" and isinstance(value, Mapping):
                self._add_infos(value, "final_")
            elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and not name.startswith("_"):
                # Gymnasium's convention: `_name` tells which environments have a value of `name`.
                has_value = infos.get(f"_{name}", np.ones(len(value), np.bool_))
                self._infos[prefix + name] += [float(np.mean(one)) for one in value[has_value]]

    def take(self) -> Metrics:
        """Return the iteration's metrics, and reset them."""
        metrics: Metrics = {name: float(np.mean(values)) for name, values in self._infos.items() if values}
        if self._rewards:
            metrics |= {"reward": float(np.mean(self._rewards)), "cumulative_reward": float(self.cumulative[0])}
            metrics |= {"actions": np.concatenate(self._actions)}
        if self._ended:
            returns, lengths = zip(*self._ended, strict=True)
            metrics |= {"return": float(np.mean(returns)), "length": float(np.mean(lengths))}
        self._clear()
        return metrics

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {"returns": self.returns, "lengths": self.lengths, "cumulative": self.cumulative}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore what `arrays` returned."""
        self.returns[...], self.lengths[...] = arrays["returns"], arrays["lengths"]
        self.cumulative[...] = arrays["cumulative"]
        self._clear()
