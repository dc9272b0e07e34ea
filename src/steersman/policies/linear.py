"""Learned policies that are linear in node features, optionally with a network added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from steersman.orders.order import AGE, Order
from steersman.policies.base import Need, Policy
from steersman.policies.decision.selection import DeviceRule, LearnedWeights, NodeRule, SelectionRules
from steersman.policies.embedded_profile import EmbeddedProfile
from steersman.policies.features import GPU
from steersman.policies.learned_weights import LEARNED, NAMES, Layer

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class LinearPolicy(Policy):
    """Learned policy that is linear in node features (`policies.learned_weights`) and also chooses GPU devices."""

    name: str  # name in results
    weights: Floats  # [4, W] weights by pod kind, on the scale of FGD's score
    # [4, R] weights of the heuristics' scores by pod kind and id (`policies.learned_weights`), or None
    rules: Floats | None = None
    # Weights [H, I] and biases [H] of two or more layers with ReLU between them, whose output is added to the score.
    # Inputs are the features of a node and of the pod in view `gpu`, the output is one number. Empty if there is
    # none.
    network: tuple[Layer, ...] = ()
    prepared: EmbeddedProfile | None = None  # see `Policy`
    order: Order = AGE

    is_learned: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({Need.LEFTOVER_TABLES})

    @property
    def selection(self) -> SelectionRules:
        learned = LearnedWeights(self.weights, self.rules, self.network)
        return SelectionRules(NodeRule.BEST, DeviceRule.LEARNED, (LEARNED,), (1.0,), learned)

    def tensors(self) -> dict[str, Floats]:
        """Return `weights`, `rules` if any, and the network: `layers.0.weight`, `layers.0.bias`, ..., `head.bias`."""
        tensors = {"weights": self.weights} | ({} if self.rules is None else {"rules": self.rules})
        for i, (weight, bias) in enumerate(self.network):
            layer = f"layers.{i}" if i + 1 < len(self.network) else "head"
            tensors |= {f"{layer}.weight": weight, f"{layer}.bias": bias}
        return tensors

    @property
    def parts(self) -> tuple[str, ...]:
        return *NAMES, *(feature.name for feature in GPU.node)
