"""`ma`, `la`, `lc` and `p0`: the objectives of Matranga's thesis as policies, by rules of `policies.node_metrics`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.cluster.pod_query import PodQuery
from steersman.orders.order import AGE, Order
from steersman.policies.base import Candidates, Contribution, Need, Policy, Scorer, ScoringContext
from steersman.policies.node_metrics import (
    LATENCY_AWARE,
    LEAST_ALLOCATED,
    LEAST_CONNECTIONS,
    MOST_ALLOCATED,
    NodeMetricsView,
)

RULE_OF_POLICY = {"ma": MOST_ALLOCATED, "la": LEAST_ALLOCATED, "lc": LEAST_CONNECTIONS, "p0": LATENCY_AWARE}
"""Numbers of the rules (`policies.node_metrics.METRIC_RULES`) by the names of the policies."""


@dataclass(frozen=True, slots=True)
class TelemetryPolicy(Policy):
    """Decide by node metrics, or by requests where nothing is measured."""

    name: str  # its name in results
    rule: int  # number of the rule
    order: Order = AGE

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({Need.TELEMETRY, Need.PEERS})

    def scorer(self, context: ScoringContext) -> Scorer:
        return TelemetryScorer(self.rule, context.node_metrics)

    def contributions(
        self, context: ScoringContext, query: PodQuery, nodes: Candidates, slot: int, other: int
    ) -> list[Contribution]:
        """Return contributions by swapping measured values, see `Policy`."""
        slots = slot, other
        contributions = context.node_metrics.contributions(self.rule, query, nodes.feasible, slots)
        return [Contribution(*each) for each in contributions]


class TelemetryScorer(Scorer):
    """Score by a rule of `policies.node_metrics`. `node_metrics`: metrics of the nodes."""

    def __init__(self, rule: int, node_metrics: NodeMetricsView) -> None:
        self._rule, self._node_metrics = rule, node_metrics

    def scores(self, query: PodQuery, nodes: Candidates) -> npt.NDArray[np.float64]:
        return self._node_metrics.scores(self._rule, query, nodes.feasible)
