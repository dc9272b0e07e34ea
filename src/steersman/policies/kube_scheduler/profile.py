"""A profile of kube-scheduler as far as it decides where pods go: weights, strategies and arguments of plugins.

Source: Kubernetes 1.37.2, pkg/scheduler/apis/config/v1 (defaults) and pkg/scheduler/framework/plugins.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from steersman.cluster.constraints.node import FEATURES_FILTER
from steersman.cluster.model import Constraints, PreferredNodeTerm, ProfileRules, Requests
from steersman.policies.kube_scheduler.minors import MINORS, NEWEST, MinorRules

TAINTS, PREFERRED_NODES, IMAGES, SPREADING, AFFINITY, FIT, BALANCED = range(7)
"""Score plugins, in the order of `KubeArrays.weights`."""
STATIC = 3  # the first plugins: those that do not read pods on nodes
PLUGINS = (
    "TaintToleration",
    "NodeAffinity",
    "ImageLocality",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
)
WEIGHTS = (3, 2, 1, 2, 2, 1, 1)  # kube-scheduler's default weights of `PLUGINS`

NO_RULES = ProfileRules()
STORAGE = "VolumeBinding"  # a further plugin, on live clusters alone (`kubernetes.volumes`)
MOST_FREE = ((0, 100), (100, 0))  # default shape of VolumeBinding: the more storage is free, the better
DEFAULT_CANDIDATES = (10, 100)  # of preemption, see `KubeProfile.candidates`
LEAST_ALLOCATED, MOST_ALLOCATED, REQUESTED_TO_CAPACITY = range(3)  # scoring strategies of NodeResourcesFit
STRATEGIES = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")


@dataclass(frozen=True, slots=True)
class ScoringStrategy:
    """`scoringStrategy` of NodeResourcesFit."""

    kind: int = LEAST_ALLOCATED  # index in `STRATEGIES`
    resources: tuple[tuple[str, int], ...] = (("cpu", 1), ("memory", 1))  # (name, weight) of each resource
    # (utilization in percent, score in 0..100) of each point of RequestedToCapacityRatio's function
    shape: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class DefaultSpread:
    """A constraint of `defaultConstraints` of PodTopologySpread, see `TopologySpread`; `hard` is DoNotSchedule."""

    max_skew: int
    topology_key: str
    hard: bool
    min_domains: int = 1
    honor_node_affinity: bool = True
    honor_node_taints: bool = False


@dataclass(frozen=True, slots=True)
class KubeProfile:
    """What a profile of kube-scheduler computes; the defaults are those of kube-scheduler."""

    weights: tuple[int, ...] = WEIGHTS  # weight of each of `PLUGINS`, 0 for one that does not score
    # Whether any plugin scores, also one that is none of `PLUGINS`; if not, the first feasible node is taken
    scores: bool = True
    percentage: int = 0  # `percentageOfNodesToScore`; 0: kube-scheduler's default for the number of nodes
    fit: ScoringStrategy = ScoringStrategy()  # how NodeResourcesFit scores
    balanced: tuple[str, ...] = ("cpu", "memory")  # names of the resources of NodeResourcesBalancedAllocation
    # Constraints of pods that have none and that a Service or similar object selects; None: those of the system, zone
    # and host name
    default_spread: tuple[DefaultSpread, ...] | None = None
    ignores_existing: bool = False  # `ignorePreferredTermsOfExistingPods` of InterPodAffinity
    # Node affinity that pods prefer beside their own (`addedAffinity`)
    added_preferences: tuple[PreferredNodeTerm, ...] = ()
    storage_weight: int = 1  # weight of VolumeBinding, 0 where it does not score
    # (utilization in percent, score in 0..100) of each point of its function
    storage_shape: tuple[tuple[int, int], ...] = MOST_FREE
    # Resources that NodeResourcesFit does not check (`ignoredResources`), and with a slash at the end their groups
    # (`ignoredResourceGroups`)
    ignored: frozenset[str] = frozenset()
    # How many candidates preemption wants, in percent of the nodes that pods could be removed from and at least; None:
    # the profile does not preempt
    candidates: tuple[int, int] | None = DEFAULT_CANDIDATES
    rules: ProfileRules = NO_RULES  # what changes about the constraints of pods
    minor: MinorRules = MINORS[NEWEST]  # how the minor of Kubernetes decides; set by `of_minor`

    @property
    def changes_pods(self) -> bool:
        """Whether pods must be read by `default_spreading.scheduled_by` before they are scheduled."""
        return bool(self.added_preferences or self.default_spread or self.ignored) or self.rules != NO_RULES

    @property
    def reading(self) -> KubeProfile:
        """Return the profile with the fields alone by which pods are read."""
        return KubeProfile(
            default_spread=self.default_spread,
            added_preferences=self.added_preferences,
            ignored=self.ignored,
            rules=self.rules,
        )

    @property
    def summary(self) -> str:
        """Return how resources are scored, in words."""
        weighted = ", ".join(f"{name} {weight}" for name, weight in self.fit.resources)
        fit, balanced = self.weights[FIT], self.weights[BALANCED]
        return (
            f"{STRATEGIES[self.fit.kind]} of {weighted} (weight {fit}), NodeResourcesBalancedAllocation of "
            f"{', '.join(self.balanced)} (weight {balanced})"
        )

    def requests_of(self, requests: Requests) -> Requests:
        """Return a pod's requests without the resources that this profile ignores."""
        kept = tuple(each for each in requests.extended if not is_ignored(each[0], self.ignored))
        return requests if kept == requests.extended else replace(requests, extended=kept)

    def constraints_of(self, constraints: Constraints) -> Constraints:
        """Return a pod's constraints as this profile reads them."""
        preferred = (*constraints.preferred_nodes, *self.added_preferences)
        return replace(constraints, preferred_nodes=preferred, profile=self.rules)

    def of_minor(self, minor: MinorRules) -> KubeProfile:
        """Return this profile of the newest minor as another one has it."""
        disabled = self.rules.disabled_filters
        if not minor.filters_features:
            disabled |= {FEATURES_FILTER}
        rules = replace(self.rules, disabled_filters=disabled, merges_namespaces=minor.merges_namespaces)
        weight = self.storage_weight if minor.scores_storage else 0
        return replace(self, storage_weight=weight, rules=rules, minor=minor)


def is_ignored(resource: str, ignored: Collection[str]) -> bool:
    """Return whether a resource is one of `KubeProfile.ignored`: only extended resources can be."""
    group, slash, _ = resource.partition("/")
    is_extended = slash and not f"{group}/".endswith("kubernetes.io/") and not resource.startswith("requests.")
    return bool(is_extended and (resource in ignored or f"{group}/" in ignored))


DEFAULT_PROFILE = KubeProfile()  # the profile of a kube-scheduler without a configuration
