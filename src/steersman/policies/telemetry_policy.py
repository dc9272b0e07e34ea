"""`ma`, `la`, `lc` and `p0`: the objectives of Matranga's thesis as policies, by the rules of `telemetry_rules`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from steersman.policies.base import Policy, ScoreQuery, Scorer, ScoringContext
from steersman.policies.contributions import Contribution
from steersman.policies.telemetry_rules import LATENCY_AWARE, LEAST_ALLOCATED, LEAST_CONNECTIONS, MOST_ALLOCATED
from steersman.policies.telemetry_sight import Sight

if TYPE_CHECKING:
    from steersman.policies.decider import Decider

OBJECTIVES = {"ma": MOST_ALLOCATED, "la": LEAST_ALLOCATED, "lc": LEAST_CONNECTIONS, "p0": LATENCY_AWARE}
"""Names of the policies, and their rules."""


@dataclass(frozen=True, slots=True)
class TelemetryPolicy(Policy):
    """Decides by what is measured of the nodes; where nothing is, by what their pods request.

    Attributes:
        name: what results call it.
        rule: its number.
    """

    name: str
    rule: int

    needs_telemetry: ClassVar[bool] = True
    needs_peers: ClassVar[bool] = True

    def scorer(self, context: ScoringContext) -> Scorer:
        """See `Policy`."""
        return TelemetryScorer(self.rule, context.node_metrics)

    def contributions(self, decider: Decider, query: ScoreQuery, slot: int, other: int) -> list[Contribution]:
        """See `Policy`."""
        slots = slot, other
        parts = decider.sight.parts(self.rule, query.class_id, query.feasible, query.peers, query.limits, slots)
        return [Contribution(*each) for each in parts]


class TelemetryScorer(Scorer):
    """Scores by a rule of `telemetry_rules`.

    Args:
        rule: its number.
        node_metrics: what is measured of the nodes.
    """

    def __init__(self, rule: int, node_metrics: Sight) -> None:
        self._rule, self._node_metrics = rule, node_metrics

    def scores(self, query: ScoreQuery) -> npt.NDArray[np.float64]:
        """See `Scorer`."""
        return self._node_metrics.scores(self._rule, query.class_id, query.feasible, query.peers, query.limits)
