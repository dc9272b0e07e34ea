"""What rules would have decided: for each pod that is bound, whether a rule would have taken that node, too."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

import numpy as np
import structlog

from steersman.core.errors import SteersmanError
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.kubernetes.cache.cluster_cache import ClusterCache
from steersman.live.runtime.policy_manager import LiveSpreadSelectors, PodWindow
from steersman.live.service.scoring.unknown_pods import TimeBudget
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.registry import resolve
from steersman.workloads.profile import TypicalPod

COMPARED_RULES = ("kube-default", "fgd", "best-fit", "most-even")  # rules that bindings are compared with
DECISIONS = 30  # decisions over which agreement is measured
SHARE, SAVED_SECONDS = 0.02, 0.5  # share of the event loop's time for comparisons; seconds saved up at most

log = structlog.get_logger("agreement")


class RuleAgreement:
    """Bindings compared with rules, as far as a share of the event loop's time allows.

    A rule agrees where the taken node has the highest score in the state before the binding, alone or with others. It
    has no opinion on a node that it may not use, or that kube-scheduler's search would not have visited.
    """

    def __init__(self) -> None:
        # By rule, whether it agreed in the last decisions on which it had an opinion
        self.recent: Mapping[str, deque[bool]] = {rule: deque(maxlen=DECISIONS) for rule in COMPARED_RULES}
        # Bindings that were not compared, since time was spent, or the node or something that rules read was not
        # known
        self.skipped = 0
        self.profile: tuple[TypicalPod, ...] = ()  # typical pods of the cluster, for rules that need them
        self._window = PodWindow()
        self._deciders: dict[str, Decider] = {}
        self._policies = {rule: resolve(rule) for rule in COMPARED_RULES}
        self._budget = TimeBudget(SHARE, SAVED_SECONDS)

    def see(self, pod: CachedPod) -> None:
        """Add a pod to those that the profile is of."""
        self._window.see(pod.pod.pod_class)

    def renew(self, cache: ClusterCache) -> None:
        services = LiveSpreadSelectors(cache.selectors)
        self._deciders = {
            rule: Decider(ClusterView(cache.state, profile=self.profile, selectors=services), policy)
            for rule, policy in self._policies.items()
        }

    def renew_profile(self, cache: ClusterCache) -> bool:
        """Rebuild the profile if many pods are new, and return True if it changed."""
        if self._deciders and not self._window.is_due:
            return False
        profile, self.profile = self.profile, self._window.typical_pods()
        self.renew(cache)
        return profile != self.profile

    def changed(self, slot: int) -> None:
        """Record a change of a node or of the pods on it."""
        for decider in self._deciders.values():
            decider.changed(slot)

    def compare(self, cache: ClusterCache, pod: CachedPod) -> dict[str, bool]:
        """Return whether rules agree with the binding of a pod; those without an opinion are left out."""
        placed = cache.state.placements.get(pod.key)
        if placed is None or not self._deciders or self._budget.is_spent:
            self.skipped += 1
            return {}
        result = {}
        with self._budget.charged(), cache.unplaced(pod) as query:
            refused = cache.gpu_pods.refusal(cache.state, pod.pod.requests)
            for rule, decider in self._deciders.items():
                try:
                    scores = decider.scores(query)
                except SteersmanError as error:
                    log.error("no comparison", rule=rule, pod=pod.key, error=str(error))
                    continue
                here = float(scores[placed.slot])
                if refused is not None:
                    scores = np.where(refused[1], -math.inf, scores)
                if math.isfinite(here):
                    result[rule] = here >= float(scores.max())
                    self.recent[rule].append(result[rule])
        return result

    def rates(self) -> dict[str, float]:
        """Return the share of agreement in the last decisions by rule, percent; rules without decisions left out."""
        return {rule: 100.0 * sum(agreed) / len(agreed) for rule, agreed in self.recent.items() if agreed}
