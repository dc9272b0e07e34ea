"""The part of a policy's decision that the decision kernels make, as data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.policies.decision import kernels
from steersman.policies.gpu_state.arrays import Layer
from steersman.policies.node_scores.kube_profile import DEFAULT_PROFILE, KubeProfile

TIE_RULES = {
    kernels.SELECT_RANDOM: "a random draw",
    kernels.SELECT_KUBE_SCHEDULER: "a random draw among the nodes of equal score, as in kube-scheduler",
}


@dataclass(frozen=True, eq=False, slots=True)
class LearnedWeights:
    """Weights of the learned scores in the score table, see `policies.linear.LinearPolicy`."""

    weights: npt.NDArray[np.float64]
    rules: npt.NDArray[np.float64] | None = None
    network: tuple[Layer, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectionRules:
    """Selection of the node and of its GPU devices by the decision kernels."""

    node: int = kernels.SELECT_EXTERNAL  # selection rule of the node (`kernels.SELECT_...`)
    devices: int = kernels.DEVICES_BEST  # selection rule of the devices (`kernels.DEVICES_...`)
    # `functions`, `weights`: ids (`policies.node_scores.local_scores`) and weights of the score table's functions.
    functions: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    learned: LearnedWeights | None = None  # weights of the learned scores, or None
    kube: KubeProfile = DEFAULT_PROFILE  # the profile of kube-scheduler that decides
    follows_classes: bool = True  # whether the arrays must be rebuilt for every new pod class

    @property
    def tie_rule(self) -> str:
        """Description of the choice among nodes of equal score."""
        return TIE_RULES.get(self.node, "the order of the nodes: the first of equal scores wins")


BY_SCORER = SelectionRules()  # a scorer in Python chooses the node, the best-fit rule its devices
