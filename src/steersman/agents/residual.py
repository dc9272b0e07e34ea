"""The network that evolution adds to a linear policy: its parameters as one vector, and as layers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from steersman.features import view
from steersman.policies.learned import VIEW, WEIGHTS, Layer

Array = npt.NDArray[np.float64]

FGD_UNIT = 0.1  # so that ten points of FGD's score count as much as a usual difference of a feature


class Residual:
    """Layers of rectifiers on the features of a node (101) and of the pod (11), and a head with one output, in points.

    A vector of parameters has layer after layer, the head last: the weights [H, I] row by row, then the biases [H].
    The first layer's weights are in the units of the features.

    Args:
        hidden: widths of the layers.
        units: [2, F] what a feature's change, and a feature after the placement, is multiplied with.
        with_fgd: whether the network sees FGD's score.
        base: layers that the parameters are added to, the head last; none: zeros.
    """

    def __init__(
        self, hidden: tuple[int, ...], units: Array, *, with_fgd: bool = True, base: tuple[Layer, ...] = ()
    ) -> None:
        self.base = base
        pod = len(view(VIEW).pod)
        self.shapes = list(pairwise((WEIGHTS + pod, *hidden, 1)))
        self.units = np.concatenate([units[1], units[0], [FGD_UNIT if with_fgd else 0.0], np.ones(pod)])

    @property
    def size(self) -> int:
        """How many parameters there are."""
        return sum((inputs + 1) * outputs for inputs, outputs in self.shapes)

    def start(self, seed: int) -> Array:
        """Parameters to start from: random layers (He et al. 2015), and a head of zeros: nothing is added yet.

        Where there are layers already, all zeros.
        """
        if self.base:
            return np.zeros(self.size)
        rng, parts = np.random.default_rng(seed), []
        for inputs, outputs in self.shapes[:-1]:
            parts += [rng.normal(0.0, np.sqrt(2.0 / inputs), inputs * outputs), np.zeros(outputs)]
        inputs, outputs = self.shapes[-1]
        return np.concatenate([*parts, np.zeros((inputs + 1) * outputs)])

    def layers(self, parameters: Array) -> tuple[Layer, ...]:
        """The layers, the head last."""
        found: list[Layer] = []
        at = 0
        for inputs, outputs in self.shapes:
            weight = parameters[at : at + inputs * outputs].reshape(outputs, inputs)
            at += inputs * outputs
            found.append((weight * self.units if not found else weight.copy(), parameters[at : at + outputs].copy()))
            at += outputs
        if self.base:
            found = [(w + base_w, b + base_b) for (w, b), (base_w, base_b) in zip(found, self.base, strict=True)]
        return tuple(found)


def mean_units(spread: Array, least: float) -> Array:
    """[2, F] of the spread [4, 2, F] by kind of pod: one over its mean of the kinds that have any; 0 where none has."""
    there = spread > least
    mean = spread.sum(axis=0, where=there) / np.maximum(there.sum(axis=0), 1)
    units: Array = np.divide(1.0, mean, out=np.zeros_like(mean), where=mean > least)
    return units
