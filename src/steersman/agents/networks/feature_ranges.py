"""Ranges of features during training: a feature that was constant must not matter where it has another value.

A policy that learned on clusters of 10 nodes also has weights for the number of nodes, which training never determined.
On 1,000 nodes they would shift every score. So, after learning, weights times constant features are moved into the
bias: no learned score changes, and constant features no longer count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from steersman.agents.networks.score_networks import ScoreNetwork
from steersman.agents.networks.spec import FeatureCounts
from steersman.agents.networks.tensors import Arrays


class FeatureRanges:
    """The lowest and the highest value of each feature, in the order of x_n = [nodes_n, pod, context]."""

    def __init__(self, sizes: FeatureCounts) -> None:
        self.low = np.full(sizes.joint, np.inf, dtype=np.float32)
        self.high = np.full(sizes.joint, -np.inf, dtype=np.float32)

    def add(self, observation: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add an observation [E, ...]; rows of absent nodes do not count."""
        nodes = observation["nodes"]
        rows = nodes[(observation["mask"] > 0) | (nodes != 0).any(-1)]
        if len(rows) == 0:
            return
        others = np.concatenate([observation["pod"], observation["context"]], axis=1)
        self.low = np.minimum(self.low, np.concatenate([rows.min(0), others.min(0)]))
        self.high = np.maximum(self.high, np.concatenate([rows.max(0), others.max(0)]))

    def keep_all(self) -> None:
        """Count every feature as varying: an earlier training, whose ranges are unknown, may have used it."""
        self.low[:], self.high[:] = -np.inf, np.inf

    @torch.no_grad()
    def fold_constant_features(self, network: ScoreNetwork) -> None:
        """Move weights times constant features into the biases of the first layers, in place."""
        # Also false for features that were never observed: inf and -inf differ.
        constant = self.low == self.high
        for layer, features in network.inputs():
            here = np.flatnonzero(constant[features])
            columns = torch.from_numpy(here).to(layer.weight.device)
            values = torch.from_numpy(self.low[features][here]).to(layer.weight)
            # b + W c: the score for the constant value c stays the same when its weight becomes 0.
            layer.bias.add_(layer.weight[:, columns] @ values)
            layer.weight[:, columns] = 0.0

    def arrays(self) -> Arrays:
        return {"low": self.low, "high": self.high}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore what `arrays` returned."""
        self.low, self.high = arrays["low"], arrays["high"]
