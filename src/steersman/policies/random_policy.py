"""A random choice, as a baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steersman.policies import deciding
from steersman.policies.base import EqualScorer, Policy, Scorer, ScoringContext


@dataclass(frozen=True, slots=True)
class RandomPolicy(Policy):
    """A uniformly random feasible node, and a random device for a share."""

    name: str = "random"

    node_rule: ClassVar[int] = deciding.CHOOSE_RANDOM
    scores_nothing: ClassVar[bool] = True
    tie_rule: ClassVar[str] = "a random draw"

    @property
    def is_bound_to_classes(self) -> bool:
        """See `Policy`."""
        return False

    @property
    def device_rule(self) -> int:
        """See `Policy`."""
        return deciding.DEVICES_RANDOM

    def scorer(self, context: ScoringContext) -> Scorer:
        """See `Policy`."""
        return EqualScorer()
