"""Policy `kube-default`: scores, sampling and tie-breaks of kube-scheduler's default configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.policies.base import Candidates, Policy, Scorer, ScoringContext
from steersman.policies.decision import kernels
from steersman.policies.decision.contributions import Contribution
from steersman.policies.node_scores.kube_arrays import KubeArrays, kube_arrays
from steersman.policies.node_scores.kube_kernels import KubeDefault
from steersman.workloads.workload import SpreadSelectors

if TYPE_CHECKING:
    from steersman.policies.decision.decider import Decider


@dataclass(frozen=True, slots=True)
class KubeDefaultPolicy(Policy):
    """kube-scheduler's default scores, sampling and tie-breaks (`policies.node_scores.kube_kernels`).

    Attributes:
        name: name in results.
        percentage: `percentageOfNodesToScore`; 0: kube-scheduler's default for the number of nodes.
    """

    name: str = "kube-default"
    percentage: int = 0

    node_rule: ClassVar[int] = kernels.SELECT_KUBE_DEFAULT
    needs_selectors: ClassVar[bool] = True
    tie_rule: ClassVar[str] = "a random draw among the nodes of equal score, as in kube-scheduler"

    @property
    def telemetry_rule(self) -> str:
        """See `Policy`."""
        return "kube-default"

    def kube_arrays(self, state: ClusterState, selectors: SpreadSelectors) -> KubeArrays:
        """See `Policy`."""
        return kube_arrays(state, selectors, self.percentage)

    def scorer(self, context: ScoringContext) -> Scorer:
        """See `Policy`."""
        return KubeDefaultScorer(self, context)

    def contributions(
        self, decider: Decider, query: PodQuery, nodes: Candidates, slot: int, other: int
    ) -> list[Contribution]:
        """Return each plugin's normalized and weighted score; see `Policy`."""
        kube = KubeDefault(decider.state, decider.services, self.percentage, decider.cluster.kube)
        parts = kube.breakdown(query.class_id, query.labels_id)
        return [
            Contribution(name, float(part[slot]), float(part[other]), float(part[slot] - part[other]))
            for name, part in parts.items()
        ]


class KubeDefaultScorer(Scorer):
    """Scorer of kube-scheduler's total scores for the next pod; -inf also for nodes that its search would not visit."""

    def __init__(self, policy: KubeDefaultPolicy, context: ScoringContext) -> None:
        self._kube = KubeDefault(context.state, context.selectors, policy.percentage, context.cluster.kube)

    def scores(self, query: PodQuery, nodes: Candidates) -> npt.NDArray[np.float64]:
        """See `Scorer`."""
        scores = self._kube.scores(query.class_id, query.labels_id, nodes.feasible)
        return np.where(scores >= 0, scores.astype(np.float64), -np.inf)
