"""The published heuristics and kube-scheduler's resource scores, alone or as a weighted sum."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from steersman.errors import UsageError
from steersman.policies import deciding, local
from steersman.policies.base import RULE, Policy, ScoreQuery
from steersman.policies.contributions import Contribution
from steersman.policies.explanation_kernels import rule_scores
from steersman.policies.gpu_features import FEATURES
from steersman.policies.learned import KINDS, RULES, WEIGHTS
from steersman.policies.linear_policy import LinearPolicy
from steersman.policies.prepared import Prepared

if TYPE_CHECKING:
    from steersman.policies.decider import Decider

LOCAL = {name: number for number, name in enumerate(local.NAMES)}
"""Numbers of the local policies in compiled code."""
MAX_WEIGHT = 1 << 31


@dataclass(frozen=True, slots=True)
class LocalPolicy(Policy):
    """A weighted sum of built-in local policies, which runs compiled over the score table.

    Attributes:
        name: what results call it.
        kinds: numbers of the local policies (`policies.local`).
        weights: their weights.
        fgd_devices: whether FGD chooses the GPU device of a share, else the fullest that suffices.
        prepared: see `Policy`.
    """

    name: str
    kinds: tuple[int, ...]
    weights: tuple[float, ...]
    fgd_devices: bool = False
    prepared: Prepared | None = None

    node_rule: ClassVar[int] = deciding.CHOOSE_TABLE

    @property
    def is_bound_to_classes(self) -> bool:
        """See `Policy`."""
        return False

    @property
    def device_rule(self) -> int:
        """See `Policy`."""
        return deciding.DEVICES_FGD if self.fgd_devices else deciding.DEVICES_BEST

    @property
    def score_functions(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """See `Policy`."""
        return self.kinds, self.weights

    @property
    def saved_as(self) -> str:
        """See `Policy`."""
        return RULE

    def as_linear(self) -> LinearPolicy:
        """See `Policy`; as a linear policy FGD also sees memory."""
        weights, points = np.zeros((KINDS, WEIGHTS)), np.zeros((KINDS, RULES))
        for kind, weight in zip(self.kinds, self.weights, strict=True):
            if kind == local.FGD:
                weights[:, 2 * FEATURES] = weight
            else:
                points[:, kind] = weight
        return LinearPolicy(self.name, weights, points)

    def contributions(self, decider: Decider, query: ScoreQuery, slot: int, other: int) -> list[Contribution]:
        """Return the scores of its rules, times their weights; see `Policy`."""
        points = [rule_scores(decider.cluster, self.kinds, query.class_id, n) for n in (slot, other)]
        return [
            Contribution(local.NAMES[kind], float(a), float(b), weight * float(a - b))
            for kind, weight, a, b in zip(self.kinds, self.weights, *points, strict=True)
        ]


def heuristic(name: str) -> LocalPolicy:
    """Return the heuristic of that name, which `LOCAL` must have."""
    return LocalPolicy(name, (LOCAL[name],), (1.0,), fgd_devices=name == "fgd")


def weighted_sum(spec: str) -> LocalPolicy:
    """Return the policy of a text such as `fgd=500,gpu-packing=500`. Raises UsageError: it makes no sense."""
    kinds, weights = [], []
    for part in spec.split(","):
        name, _, weight = part.partition("=")
        if name not in LOCAL:
            raise UsageError(f"policy {spec!r}: {name!r} cannot be part of a mix; these can: {', '.join(LOCAL)}")
        if LOCAL[name] in kinds:
            raise UsageError(f"policy {spec!r}: {name!r} is there twice")
        if not re.fullmatch(r"[1-9][0-9]*", weight) or int(weight) >= MAX_WEIGHT:
            raise UsageError(
                f"policy {spec!r}: the weight of {name!r} must be a whole number of 1 or more, not {weight!r}"
            )
        kinds.append(LOCAL[name])
        weights.append(float(weight))
    return LocalPolicy(spec, tuple(kinds), tuple(weights), fgd_devices=LOCAL["fgd"] in kinds)
