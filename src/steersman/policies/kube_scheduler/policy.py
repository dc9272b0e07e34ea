"""Policies of kube-scheduler: scores, sampling and tie-breaks by one of its profiles, `kube-default` by the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER
from steersman.cluster.pod_query import PodQuery
from steersman.core.errors import UsageError
from steersman.orders.order import AGE, Order
from steersman.policies.base import Candidates, Contribution, Need, Policy, Scorer, ScoringContext
from steersman.policies.decision.selection import NodeRule, SelectionRules
from steersman.policies.kube_scheduler.profile import DEFAULT_PROFILE, PLUGINS, STORAGE, KubeProfile

KUBE_DEFAULT = "kube-default"  # name of the policy of a kube-scheduler without a configuration
STOCK_TUNED = "stock-tuned"  # name of the policy of a kube-scheduler with the configuration that simulations find


@dataclass(frozen=True, slots=True)
class KubeSchedulerPolicy(Policy):
    """kube-scheduler's scores, sampling and tie-breaks (`core/src/kube.rs`)."""

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
        return SelectionRules(NodeRule.KUBE_SCHEDULER, kube=self.profile)

    def contributions(
        self, context: ScoringContext, query: PodQuery, nodes: Candidates, slot: int, other: int
    ) -> list[Contribution]:
        """Return each plugin's normalized and weighted score; see `Policy`."""
        assert context.decider is not None
        scores = context.decider.plugin_scores(query.class_id, query.labels_id)[:, [slot, other]]
        parts = np.nan_to_num(scores, nan=-1.0).tolist()
        names = PLUGINS if query.storage is None else (*PLUGINS, STORAGE)
        return [Contribution(name, a, b, a - b) for name, (a, b) in zip(names, parts, strict=False)]


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
