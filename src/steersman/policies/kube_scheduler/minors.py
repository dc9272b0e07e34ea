"""Minors of Kubernetes whose kube-scheduler is computed, and in what their decisions differ.

Source: Kubernetes 1.34.4, 1.35.4, 1.36.3 and 1.37.2, pkg/scheduler and pkg/features/kube_features.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from steersman.core.errors import UsageError

VERSION = re.compile(r"v?([0-9]+)\.([0-9]+)")
UNCOUNTED, ADDED, COUNTED = range(3)
"""Images of volumes in ImageLocality's score: left out; added, but not in the number of images; like any other."""


@dataclass(frozen=True, slots=True)
class MinorRules:
    """How a minor decides; the defaults are those of the newest."""

    # Whether NodeResourcesBalancedAllocation scores how a pod changes the balance, as from 1.36 on, or the balance
    # with the pod
    balances_change: bool = True
    image_volumes: int = COUNTED  # how ImageLocality counts images of volumes
    # Whether a term that excludes namespaces by labels (`NotIn`, `DoesNotExist`) excludes them for the pod that is
    # placed. Before 1.37 `mergeAffinityTermNamespacesIfNotEmpty` changed a copy of the term.
    merges_namespaces: bool = True
    filters_features: bool = True  # whether NodeDeclaredFeatures is on by default
    # Whether preemption reads the PodDisruptionBudgets of a pod up to the first that it violates, or all of them
    stops_at_violation: bool = True
    scores_storage: bool = True  # whether VolumeBinding scores free storage (StorageCapacityScoring)
    without: frozenset[str] = frozenset()  # plugins of the newest minor that it does not know
    # Plugins, and extension points of theirs that they have in the newest minor alone
    lacks: frozenset[tuple[str, str]] = frozenset()
    without_points: frozenset[str] = frozenset()  # extension points that a configuration cannot name
    # Whether `requestedToCapacityRatio` of another scoring strategy is ignored, or an error
    ignores_ratio: bool = False


_SINCE_1_37 = frozenset({"DeferredPodScheduling"})
_SINCE_1_36 = _SINCE_1_37 | {"TopologyPlacementGenerator", "PodGroupPodsCount"}
_SINCE_1_35 = _SINCE_1_36 | {"NodeDeclaredFeatures", "GangScheduling"}
_PREFILTERS = frozenset((name, "preFilter") for name in ("NodeName", "NodeUnschedulable", "TaintToleration"))
_1_36 = MinorRules(
    image_volumes=ADDED,
    merges_namespaces=False,
    stops_at_violation=False,
    scores_storage=False,
    without=_SINCE_1_37,
    without_points=frozenset({"podGroupPostFilter"}),
    lacks=_PREFILTERS,
)
MINORS = {
    "1.37": MinorRules(),
    "1.36": _1_36,
    **{
        minor: MinorRules(
            balances_change=False,
            image_volumes=UNCOUNTED,
            merges_namespaces=False,
            filters_features=False,
            stops_at_violation=False,
            scores_storage=False,
            without=unknown,
            without_points=frozenset({"podGroupPostFilter", "placementGenerate", "placementScore"}),
            lacks=_PREFILTERS | lacking,
            ignores_ratio=True,
        )
        for minor, unknown, lacking in (
            ("1.35", _SINCE_1_36, frozenset()),
            ("1.34", _SINCE_1_35, frozenset({("DynamicResources", "score")})),
        )
    },
}
"""Rules by minor, the newest first."""
NEWEST = next(iter(MINORS))


def rules_of(minor: str) -> MinorRules:
    """Return the rules of a minor such as `1.36`. Raises UsageError: it is not computed."""
    if minor not in MINORS:
        *newer, oldest = MINORS
        raise UsageError(f"Kubernetes {minor!r} is not computed; there are {oldest}, {', '.join(newer[::-1])}")
    return MINORS[minor]


def parse_version(version: str) -> tuple[int, int]:
    """Return major and minor of a version such as `v1.36.3+k3s1` or `1.36`. Raises ValueError: it is not a version."""
    found = VERSION.match(version)
    if found is None:
        raise ValueError(f"{version!r} is not a version of Kubernetes")
    return int(found[1]), int(found[2])


def nearest_minor(version: str) -> str:
    """Return the computed minor that is nearest to a version such as `v1.36.3+k3s1`.

    Raises:
        ValueError: it is not a version.
    """
    known = [parse_version(each) for each in MINORS]
    nearest = min(max(parse_version(version), known[-1]), known[0])
    return f"{nearest[0]}.{nearest[1]}"
