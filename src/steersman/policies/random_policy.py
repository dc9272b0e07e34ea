"""Baseline that chooses nodes at random."""

from __future__ import annotations

from dataclasses import dataclass

from steersman.orders.order import AGE, Order
from steersman.policies.base import EqualScorer, Policy, Scorer, ScoringContext
from steersman.policies.decision import kernels
from steersman.policies.decision.selection import SelectionRules


@dataclass(frozen=True, slots=True)
class RandomPolicy(Policy):
    """Uniform choice among feasible nodes, and among fitting devices for a pod with a GPU share."""

    name: str = "random"
    order: Order = AGE

    @property
    def selection(self) -> SelectionRules:
        return SelectionRules(kernels.SELECT_RANDOM, kernels.DEVICES_RANDOM, follows_classes=False)

    def scorer(self, context: ScoringContext) -> Scorer:
        return EqualScorer()
