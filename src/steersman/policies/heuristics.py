"""Policies of published heuristics and kube-scheduler's resource scores, alone or in a weighted sum; and of chance."""

from __future__ import annotations

import re
from dataclasses import dataclass

from steersman.core.errors import UsageError
from steersman.orders.order import AGE, Order
from steersman.policies.base import Policy
from steersman.policies.decision.selection import DeviceRule, NodeRule, SelectionRules
from steersman.policies.embedded_profile import EmbeddedProfile
from steersman.policies.learned_weights import NAMES

HEURISTIC_IDS = {name: number for number, name in enumerate(NAMES)}  # ids of the heuristics by name
MAX_WEIGHT = 1 << 31  # exclusive upper bound of a weight in a weighted sum


@dataclass(frozen=True, slots=True)
class HeuristicPolicy(Policy):
    """Weighted sum of heuristics."""

    name: str  # name in results
    kinds: tuple[int, ...]  # ids of the heuristics (`policies.learned_weights`)
    weights: tuple[float, ...]  # weights of the heuristics
    fgd_devices: bool = False  # whether FGD chooses the GPU device of a share; otherwise the fullest device that fits
    prepared: EmbeddedProfile | None = None  # see `Policy`
    order: Order = AGE

    @property
    def selection(self) -> SelectionRules:
        devices = DeviceRule.FGD if self.fgd_devices else DeviceRule.BEST_FIT
        return SelectionRules(NodeRule.BEST, devices, self.kinds, self.weights)

    @property
    def parts(self) -> tuple[str, ...]:
        return NAMES


@dataclass(frozen=True, slots=True)
class RandomPolicy(Policy):
    """Uniform choice among feasible nodes, and among fitting devices for a pod with a GPU share."""

    name: str = "random"
    order: Order = AGE

    @property
    def selection(self) -> SelectionRules:
        return SelectionRules(NodeRule.RANDOM, DeviceRule.RANDOM)


def heuristic(name: str) -> HeuristicPolicy:
    """Return the policy of a heuristic by name, a key of `HEURISTIC_IDS`."""
    return HeuristicPolicy(name, (HEURISTIC_IDS[name],), (1.0,), fgd_devices=name == "fgd")


def weighted_sum(spec: str) -> HeuristicPolicy:
    """Return the policy of a text such as `fgd=500,gpu-packing=500`. Raises UsageError: the text is malformed."""
    kinds, weights = [], []
    for part in spec.split(","):
        name, _, weight = part.partition("=")
        if name not in HEURISTIC_IDS:
            raise UsageError(
                f"policy {spec!r}: {name!r} cannot be part of a weighted sum; known are {', '.join(HEURISTIC_IDS)}"
            )
        if HEURISTIC_IDS[name] in kinds:
            raise UsageError(f"policy {spec!r}: {name!r} is given twice")
        if not re.fullmatch(r"[1-9][0-9]*", weight) or int(weight) >= MAX_WEIGHT:
            raise UsageError(
                f"policy {spec!r}: the weight of {name!r} must be a whole number of 1 or more, not {weight!r}"
            )
        kinds.append(HEURISTIC_IDS[name])
        weights.append(float(weight))
    return HeuristicPolicy(spec, tuple(kinds), tuple(weights), fgd_devices=HEURISTIC_IDS["fgd"] in kinds)
