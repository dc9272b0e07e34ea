"""A profile of kube-scheduler as far as it decides where pods go: weights, strategies and arguments of plugins.

Source: Kubernetes 1.37.2, pkg/scheduler/apis/config/v1 (defaults) and pkg/scheduler/framework/plugins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from steersman.cluster.model import Constraints, PreferredNodeTerm, ProfileRules

TAINTS, PREFERRED_NODES, IMAGES, SPREADING, AFFINITY, FIT, BALANCED = range(7)
"""Score plugins, the rows of `KubeArrays.parts`."""
STATIC, RAW = 3, 5
"""The first `STATIC` plugins do not depend on pods on nodes; scores of the first `RAW` plugins are normalized."""
PLUGINS = (
    "TaintToleration",
    "NodeAffinity",
    "ImageLocality",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
)
WEIGHTS = (3, 2, 1, 2, 2, 1, 1)
"""kube-scheduler's default weights of `PLUGINS`."""

NO_RULES = ProfileRules()
LEAST_ALLOCATED, MOST_ALLOCATED, REQUESTED_TO_CAPACITY = range(3)
"""Scoring strategies of NodeResourcesFit."""
STRATEGIES = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")


@dataclass(frozen=True, slots=True)
class ScoringStrategy:
    """`scoringStrategy` of NodeResourcesFit.

    Attributes:
        kind: index in `STRATEGIES`.
        resources: (name, weight) of each resource.
        shape: (utilization in percent, score in 0..100) of each point of RequestedToCapacityRatio's function.
    """

    kind: int = LEAST_ALLOCATED
    resources: tuple[tuple[str, int], ...] = (("cpu", 1), ("memory", 1))
    shape: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class DefaultSpread:
    """A constraint of `defaultConstraints` of PodTopologySpread; `hard` is DoNotSchedule."""

    max_skew: int
    topology_key: str
    hard: bool


@dataclass(frozen=True, slots=True)
class KubeProfile:
    """What a profile of kube-scheduler computes; the defaults are those of kube-scheduler.

    Attributes:
        weights: weight of each of `PLUGINS`, 0 for one that does not score.
        percentage: `percentageOfNodesToScore`; 0: kube-scheduler's default for the number of nodes.
        fit: how NodeResourcesFit scores.
        balanced: names of the resources of NodeResourcesBalancedAllocation.
        balances_change: whether NodeResourcesBalancedAllocation scores how a pod changes the balance, as from
            Kubernetes 1.36 on, or the balance with the pod, as before.
        default_spread: constraints of pods that have none and that a Service or similar object selects; None: those of
            the system, zone and host name.
        ignores_existing: `ignorePreferredTermsOfExistingPods` of InterPodAffinity.
        added_preferences: node affinity that pods prefer beside their own (`addedAffinity`).
        rules: what changes about the constraints of pods.
    """

    weights: tuple[int, ...] = WEIGHTS
    percentage: int = 0
    fit: ScoringStrategy = ScoringStrategy()
    balanced: tuple[str, ...] = ("cpu", "memory")
    balances_change: bool = True
    default_spread: tuple[DefaultSpread, ...] | None = None
    ignores_existing: bool = False
    added_preferences: tuple[PreferredNodeTerm, ...] = ()
    rules: ProfileRules = NO_RULES

    @property
    def changes_pods(self) -> bool:
        """Whether pods must be read by `default_spreading.scheduled_by` before they are scheduled."""
        return bool(self.added_preferences or self.default_spread) or self.rules != NO_RULES

    @property
    def summary(self) -> str:
        """Return how resources are scored, in words."""
        weighted = ", ".join(f"{name} {weight}" for name, weight in self.fit.resources)
        fit, balanced = self.weights[FIT], self.weights[BALANCED]
        return (
            f"{STRATEGIES[self.fit.kind]} of {weighted} (weight {fit}), NodeResourcesBalancedAllocation of "
            f"{', '.join(self.balanced)} (weight {balanced})"
        )

    def constraints_of(self, constraints: Constraints) -> Constraints:
        """Return a pod's constraints as this profile reads them."""
        preferred = (*constraints.preferred_nodes, *self.added_preferences)
        return replace(constraints, preferred_nodes=preferred, profile=self.rules)


DEFAULT_PROFILE = KubeProfile()
"""The profile of a kube-scheduler without a configuration."""
