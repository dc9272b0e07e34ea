"""The part of a policy's decision that the core makes, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from steersman.policies.kube_scheduler.profile import DEFAULT_PROFILE, KubeProfile
from steersman.policies.learned_weights import Layer


class NodeRule(IntEnum):
    """How the core chooses a node: highest score, random, as kube-scheduler, or not at all (a scorer in Python)."""

    BEST, RANDOM, KUBE_SCHEDULER, EXTERNAL = range(4)


class DeviceRule(IntEnum):
    """How the core chooses the GPU device of a share; whole devices are always the best-fit ones."""

    BEST_FIT, FGD, RANDOM, LEARNED = range(4)


TIE_RULES = {
    NodeRule.RANDOM: "a random draw",
    NodeRule.KUBE_SCHEDULER: "a random draw among the nodes of equal score, as in kube-scheduler",
}


@dataclass(frozen=True, eq=False, slots=True)
class LearnedWeights:
    """Weights of learned scores, see `policies.linear.LinearPolicy`."""

    weights: npt.NDArray[np.float64]
    rules: npt.NDArray[np.float64] | None = None
    network: tuple[Layer, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectionRules:
    """Selection of the node and of its GPU devices by the core."""

    node: NodeRule = NodeRule.EXTERNAL
    devices: DeviceRule = DeviceRule.BEST_FIT
    # `functions`, `weights`: ids (`policies.learned_weights`) and weights of the rules that are summed.
    functions: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    learned: LearnedWeights | None = None  # weights of the learned scores, or None
    kube: KubeProfile = DEFAULT_PROFILE  # the profile of kube-scheduler that decides

    @property
    def tie_rule(self) -> str:
        """Description of the choice among nodes of equal score."""
        return TIE_RULES.get(self.node, "the order of the nodes: the first of equal scores wins")


BY_SCORER = SelectionRules()  # a scorer in Python chooses the node, the best-fit rule its devices
