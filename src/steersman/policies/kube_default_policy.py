"""`kube-default`: kube-scheduler's default configuration as a policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from steersman.cluster.state import ClusterState
from steersman.policies import deciding
from steersman.policies.base import Policy, ScoreQuery, Scorer, ScoringContext
from steersman.policies.contributions import Contribution
from steersman.policies.kube_arrays import KubeArrays, kube_arrays
from steersman.policies.kube_default import KubeDefault
from steersman.workloads.workload import Services

if TYPE_CHECKING:
    from steersman.policies.decider import Decider


@dataclass(frozen=True, slots=True)
class KubeDefaultPolicy(Policy):
    """kube-scheduler's default scores, sampling and ties (`policies.kube_default`).

    `percentage` is `percentageOfNodesToScore`, 0 for the scheduler's own choice by the number of nodes.
    """

    name: str = "kube-default"
    percentage: int = 0

    node_rule: ClassVar[int] = deciding.CHOOSE_KUBE
    needs_selectors: ClassVar[bool] = True
    tie_rule: ClassVar[str] = "a random draw among the nodes of equal score, as in kube-scheduler"

    def kube_arrays(self, state: ClusterState, selectors: Services) -> KubeArrays:
        """See `Policy`."""
        return kube_arrays(state, selectors, self.percentage)

    def scorer(self, context: ScoringContext) -> Scorer:
        """See `Policy`."""
        return KubeDefaultScorer(self, context)

    def contributions(self, decider: Decider, query: ScoreQuery, slot: int, other: int) -> list[Contribution]:
        """Return each plugin's normalised score, times its weight; see `Policy`."""
        kube = KubeDefault(decider.state, decider.services, self.percentage, decider.cluster.kube)
        parts = kube.breakdown(query.class_id, query.labels_id)
        return [
            Contribution(name, float(part[slot]), float(part[other]), float(part[slot] - part[other]))
            for name, part in parts.items()
        ]


class KubeDefaultScorer(Scorer):
    """Scores as kube-scheduler would for the next pod; -inf also for nodes that its search would not get to."""

    def __init__(self, policy: KubeDefaultPolicy, context: ScoringContext) -> None:
        self._kube = KubeDefault(context.state, context.selectors, policy.percentage, context.cluster.kube)

    def scores(self, query: ScoreQuery) -> npt.NDArray[np.float64]:
        """See `Scorer`."""
        scores = self._kube.scores(query.class_id, query.labels_id, query.feasible)
        return np.where(scores >= 0, scores.astype(np.float64), -np.inf)
