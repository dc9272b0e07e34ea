"""The network that evolution adds to a linear policy: its parameters as one vector, and as layers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from steersman.policies.features import view
from steersman.policies.gpu_state.arrays import GPU_VIEW, WEIGHTS, Layer

Array = npt.NDArray[np.float64]

FGD_UNIT = 0.1  # so that ten points of FGD's score count as much as a usual difference of a feature


class Residual:
    """ReLU layers on the features of a node (31) and of the pod (11), and a head with one output, in points.

    A vector of parameters has layer after layer, the head last: the weights [H, I] row by row, then the biases [H].
    The first layer's weights are in the units of the features.

    Args:
        hidden: widths of the layers.
        units: [2, F] factors of a feature's change, and of a feature after the placement.
        base: layers that the parameters are added to, the head last; none: zeros.
    """

    def __init__(self, hidden: tuple[int, ...], units: Array, *, base: tuple[Layer, ...] = ()) -> None:
        self.base = base
        pod = len(view(GPU_VIEW).pod)
        self.shapes = list(pairwise((WEIGHTS + pod, *hidden, 1)))
        # As in `WEIGHTS`: features after, their change, FGD's score; then the pod's. `units` has the change first.
        self.units = np.concatenate([units[1], units[0], [FGD_UNIT], np.ones(pod)])

    @property
    def size(self) -> int:
        return sum((inputs + 1) * outputs for inputs, outputs in self.shapes)

    def start(self, seed: int) -> Array:
        """Return initial parameters: random layers (He et al. 2015), and a zero head, so that nothing is added yet.

        If there are layers already, all are zero.
        """
        if self.base:
            return np.zeros(self.size)
        rng, parts = np.random.default_rng(seed), []
        for inputs, outputs in self.shapes[:-1]:
            parts += [rng.normal(0.0, np.sqrt(2.0 / inputs), inputs * outputs), np.zeros(outputs)]
        inputs, outputs = self.shapes[-1]
        return np.concatenate([*parts, np.zeros((inputs + 1) * outputs)])

    def layers(self, parameters: Array) -> tuple[Layer, ...]:
        """Return the layers, the head last."""
        result: list[Layer] = []
        at = 0
        for inputs, outputs in self.shapes:
            weight = parameters[at : at + inputs * outputs].reshape(outputs, inputs)
            at += inputs * outputs
            # The first layer is in units of the features. Copies: `parameters` may be a view of the search's mean.
            result.append((weight * self.units if not result else weight.copy(), parameters[at : at + outputs].copy()))
            at += outputs
        if self.base:
            result = [(w + base_w, b + base_b) for (w, b), (base_w, base_b) in zip(result, self.base, strict=True)]
        return tuple(result)


def mean_units(spread: Array, least: float) -> Array:
    """Return [2, F] one over the mean of the spread [4, 2, F] over kinds of pods that have any; 0 where none has."""
    varies = spread > least
    mean = spread.sum(axis=0, where=varies) / np.maximum(varies.sum(axis=0), 1)
    units: Array = np.divide(1.0, mean, out=np.zeros_like(mean), where=mean > least)
    return units
