"""Baseline that chooses nodes at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steersman.policies.base import EqualScorer, Policy, Scorer, ScoringContext
from steersman.policies.decision import kernels


@dataclass(frozen=True, slots=True)
class RandomPolicy(Policy):
    """Uniform choice among feasible nodes, and among fitting devices for a pod with a GPU share."""

    name: str = "random"

    node_rule: ClassVar[int] = kernels.SELECT_RANDOM
    scores_nothing: ClassVar[bool] = True
    tie_rule: ClassVar[str] = "a random draw"

    @property
    def is_bound_to_classes(self) -> bool:
        """See `Policy`."""
        return False

    @property
    def device_rule(self) -> int:
        """See `Policy`."""
        return kernels.DEVICES_RANDOM

    def scorer(self, context: ScoringContext) -> Scorer:
        """See `Policy`."""
        return EqualScorer()
