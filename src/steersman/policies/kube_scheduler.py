"""Policies of kube-scheduler: scores, sampling and tie-breaks by one of its profiles, `kube-default` by the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER
from steersman.cluster.pod_query import PodQuery
from steersman.core.errors import UsageError
from steersman.orders.order import AGE, Order
from steersman.policies.base import Candidates, Need, Policy, Scorer, ScoringContext
from steersman.policies.decision import kernels
from steersman.policies.decision.contributions import Contribution
from steersman.policies.decision.selection import SelectionRules
from steersman.policies.node_scores.kube_kernels import KubeDecisions
from steersman.policies.node_scores.kube_profile import DEFAULT_PROFILE, KubeProfile

KUBE_DEFAULT = "kube-default"  # name of the policy of a kube-scheduler without a configuration
STOCK_TUNED = "stock-tuned"  # name of the policy of a kube-scheduler with the configuration that simulations find


@dataclass(frozen=True, slots=True)
class KubeSchedulerPolicy(Policy):
    """kube-scheduler's scores, sampling and tie-breaks (`policies.node_scores.kube_kernels`)."""

    name: str = KUBE_DEFAULT  # name in results
    profile: KubeProfile = DEFAULT_PROFILE  # what decides
    scheduler_name: str = DEFAULT_SCHEDULER  # `spec.schedulerName` of the pods that it is for
    # The KubeSchedulerConfiguration that it was read from, parsed; None: kube-scheduler's own
    configuration: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    order: Order = AGE

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({Need.SELECTORS})

    @property
    def selection(self) -> SelectionRules:
        return SelectionRules(kernels.SELECT_KUBE_SCHEDULER, kube=self.profile)

    def scorer(self, context: ScoringContext) -> Scorer:
        return KubeSchedulerScorer(self, context)

    def contributions(
        self, context: ScoringContext, query: PodQuery, nodes: Candidates, slot: int, other: int
    ) -> list[Contribution]:
        """Return each plugin's normalized and weighted score; see `Policy`."""
        kube = KubeDecisions(context.state, context.selectors, self.profile, context.arrays.kube)
        parts = kube.breakdown(query.class_id, query.labels_id, storage=query.storage)
        return [
            Contribution(name, float(part[slot]), float(part[other]), float(part[slot] - part[other]))
            for name, part in parts.items()
        ]


class KubeSchedulerScorer(Scorer):
    """Scorer of kube-scheduler's total scores for the next pod; -inf also for nodes that its search would not visit."""

    def __init__(self, policy: KubeSchedulerPolicy, context: ScoringContext) -> None:
        self._kube = KubeDecisions(context.state, context.selectors, policy.profile, context.arrays.kube)

    def scores(self, query: PodQuery, nodes: Candidates) -> npt.NDArray[np.float64]:
        scores = self._kube.scores(query.class_id, query.labels_id, nodes.feasible, query.storage)
        return np.where(scores >= 0, scores.astype(np.float64), -np.inf)


@dataclass(frozen=True, slots=True)
class StockTunedPolicy(Policy):
    """kube-scheduler with the configuration that a search finds for a cluster and its pods.

    `Simulator.member` searches (`simulation.selection.stock_search`). Elsewhere there is nothing to decide by.
    """

    name: str = STOCK_TUNED  # name in results
    today: KubeSchedulerPolicy = KubeSchedulerPolicy()  # the configuration that the found one is compared with
    order: Order = AGE

    @property
    def selection(self) -> SelectionRules:
        """Raise UsageError: no configuration was found yet."""
        raise UsageError(
            f"policy {STOCK_TUNED!r} is for simulations; 'steersman fit scheduler' writes the configuration "
            "that it finds, which is a policy"
        )

    def scorer(self, _: ScoringContext) -> Scorer:
        """Raise UsageError: no configuration was found yet."""
        raise AssertionError(self.selection)
