"""Arrays of kube-scheduler's decisions: node order of the snapshot, static scores, selectors of default spreading.

Source: Kubernetes 1.37.2, pkg/scheduler/backend/cache/node_tree.go and pkg/scheduler/framework/plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.constraints.node import restricted_names
from steersman.cluster.model import Constraints, Node
from steersman.cluster.state import ClusterState
from steersman.policies.node_scores.default_spreading import DefaultSelectors
from steersman.policies.node_scores.kube_minors import COUNTED, UNCOUNTED, MinorRules
from steersman.policies.node_scores.kube_profile import (
    DEFAULT_PROFILE,
    IMAGES,
    PREFERRED_NODES,
    STATIC,
    TAINTS,
    KubeProfile,
)
from steersman.policies.node_scores.plugin_scores import (
    SOFT_EFFECT,
    image_locality,
    images_on,
    preferred_weights,
    soft_taints,
)
from steersman.policies.node_scores.scored_resources import ScoredResources, scored_resources
from steersman.workloads.workload import SpreadSelectors

# Columns of `KubeArrays.constraints` after those of the static plugins.
INCLUDED_ROW, FIRST, LAST = range(STATIC, STATIC + 3)

FIND_FIRST = -1

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
HOSTNAME_SKEW, ZONE_SKEW = 3, 5  # max skews of the system's default spread constraints, which are soft (ScheduleAnyway)

# (deprecated label, which takes precedence if present; current label)
_REGION_LABELS = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")
_ZONE_LABELS = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")


class KubeArrays(NamedTuple):
    """Inputs of kube-scheduler's decisions beside the cluster's arrays.

    N node slots, K distinct constraints of classes (`ClassArrays.constraint`), L label sets, S static rows.
    """

    nodes: int  # number of nodes
    # `percentageOfNodesToScore`; 0 adapts to the number of nodes; `FIND_FIRST` ends the search at the first feasible
    # node
    percentage: int
    ignores_existing: bool  # see `KubeProfile`
    weights: npt.NDArray[np.int64]  # [7] int64 weight of each plugin, 0 for one that does not score
    scored: ScoredResources  # the resources of NodeResourcesFit and NodeResourcesBalancedAllocation
    hostname: int  # row of `InterPodArrays.domain` for `kubernetes.io/hostname`, -1 if no pods are spread
    blank: int  # id of the zone domain of nodes without a zone
    # Slots in the order of the scheduler's snapshot, then the slots of classes that are restricted to named nodes
    lists: npt.NDArray[np.int64]
    # [K, 6] int64: for each static plugin a row of `static`, -1 if all scores are 0; `INCLUDED_ROW`, a row of
    # `InterPodArrays.included` for default spreading, -1 if there is none; `FIRST` and `LAST`, the range of `lists`
    # to search
    constraints: npt.NDArray[np.int64]
    static: npt.NDArray[np.int64]  # [S, N] int64 raw scores that do not depend on other pods
    # [L] int64 row of `InterPodArrays.matched` by which pods with these labels are spread by default, -1 if no
    # Service or similar object selects them
    default_selector: npt.NDArray[np.int64]
    # [2, 2] int64, row of `InterPodArrays.domain` and max skew of the default spread constraints
    default_spread: npt.NDArray[np.int64]


def kube_arrays(
    state: ClusterState, services: SpreadSelectors | None = None, profile: KubeProfile = DEFAULT_PROFILE
) -> KubeArrays:
    """Return the arrays for the state's nodes, classes and labels; rebuild them when any of those change.

    Selectors of default spreading are added to the state, so read `state.term_arrays` afterwards.

    Args:
        state: the cluster's state; `slots` has the nodes in the order in which the scheduler received them.
        services: selectors of default spreading.
        profile: what decides; its changes to constraints of pods were made before.
    """
    _, first = np.unique(state.class_arrays.constraint, return_index=True)
    distinct = [state.classes[c].constraints for c in first]
    # Default constraints of the profile's own are constraints of the pods by now.
    known = services if profile.default_spread is None else None
    selectors = _default_selectors(state, known or SpreadSelectors())
    spreading = bool((selectors >= 0).any()) or any(
        not spread.hard for constraints in distinct for spread in constraints.spread
    )
    hostname = state.terms.key_id(HOSTNAME) if spreading else -1
    zone = state.terms.key_id(ZONE) if spreading else -1
    rows = np.full((len(distinct), 6), -1, dtype=np.int64)
    if (selectors >= 0).any():
        # A pod with constraints of its own has no default ones.
        rows[:, INCLUDED_ROW] = [
            -1 if constraints.spread else state.terms.included_id(constraints) for constraints in distinct
        ]
    order = snapshot_order(state.nodes, state.slots.values())
    lists = _node_lists(state, distinct, order, rows)
    static = _static_rows(state, distinct, rows, profile.minor)
    zones = state.table.label(ZONE).numbers if spreading else {}
    return KubeArrays(
        nodes=len(order),
        percentage=profile.percentage if profile.scores else FIND_FIRST,
        ignores_existing=profile.ignores_existing,
        weights=np.array(profile.weights, dtype=np.int64),
        scored=scored_resources(state, profile),
        hostname=hostname,
        blank=zones.get("", len(zones)),
        lists=lists,
        constraints=rows,
        static=static,
        default_selector=selectors,
        default_spread=np.array([(hostname, HOSTNAME_SKEW), (zone, ZONE_SKEW)], dtype=np.int64),
    )


def snapshot_order(nodes: Sequence[Node | None], received: Iterable[int]) -> list[int]:
    """Return slots in the order of the scheduler's node list: round-robin over zones by appearance.

    Args:
        nodes: [N] the node in each slot.
        received: the occupied slots, in the order in which the scheduler received their nodes.
    """
    zones: dict[tuple[str, str], list[int]] = {}
    for slot in received:
        node = nodes[slot]
        assert node is not None
        zones.setdefault(_zone(node.labels), []).append(slot)
    if len(zones) == 1:
        return next(iter(zones.values()))
    order = [(turn, zone, slot) for zone, slots in enumerate(zones.values()) for turn, slot in enumerate(slots)]
    return [slot for _, _, slot in sorted(order)]


def _zone(labels: Mapping[str, str]) -> tuple[str, str]:
    """Return region and zone; a deprecated label takes precedence if present, even if empty."""
    region, zone = (labels.get(old, labels.get(new, "")) for old, new in (_REGION_LABELS, _ZONE_LABELS))
    return region, zone


def _default_selectors(state: ClusterState, services: SpreadSelectors) -> npt.NDArray[np.int64]:
    """Return `KubeArrays.default_selector`, [L]: for each label set the conjunction of all matching selectors."""
    known = DefaultSelectors(services)
    selectors = np.full(len(state.terms.label_sets), -1, dtype=np.int64)
    for row, (namespace, labels, _) in enumerate(state.terms.label_sets):
        selector = known.selector(namespace, labels)
        if selector is not None:
            selectors[row] = state.terms.selector_id(selector, living=True)
    return selectors


def _node_lists(
    state: ClusterState, distinct: Sequence[Constraints], order: Sequence[int], rows: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return `KubeArrays.lists`; write the range of each constraint's nodes into `rows`."""
    lists = list(order)
    position = {slot: i for i, slot in enumerate(order)}
    for row, constraints in zip(rows, distinct, strict=True):
        names = restricted_names(constraints)
        row[FIRST] = 0 if names is None else len(lists)
        if names is not None:
            # In the order of the snapshot, in which the scheduler visits them.
            lists += sorted((state.slots[name] for name in names if name in state.slots), key=position.__getitem__)
        row[LAST] = len(order) if names is None else len(lists)
    return np.array(lists, dtype=np.int64)


def _static_rows(
    state: ClusterState, distinct: Sequence[Constraints], rows: npt.NDArray[np.int64], minor: MinorRules
) -> npt.NDArray[np.int64]:
    """Return `KubeArrays.static`; write the row of each constraint, -1 if all scores are 0, into `rows`."""
    nodes = len(state.slots)
    images = images_on(state.nodes) if any(each.images or each.image_volumes for each in distinct) else {}
    has_soft_taints = any(
        taint.effect == SOFT_EFFECT for node in state.nodes if node is not None for taint in node.taints
    )
    row_ids: dict[object, int] = {}
    static: list[npt.NDArray[np.int64]] = []

    def row_id(plugin: int, value: object, score: Callable[[], npt.NDArray[np.int64]]) -> int:
        if (plugin, value) not in row_ids:
            scores = score()
            row_ids[plugin, value] = len(static) if scores.any() else -1
            if scores.any():
                static.append(scores)
        return row_ids[plugin, value]

    for row, constraints in zip(rows, distinct, strict=True):
        if has_soft_taints:
            tolerations = constraints.tolerations
            row[TAINTS] = row_id(TAINTS, tolerations, partial(soft_taints, state.nodes, tolerations))
        if constraints.preferred_nodes:
            terms = constraints.preferred_nodes
            row[PREFERRED_NODES] = row_id(PREFERRED_NODES, terms, partial(preferred_weights, state.table, terms))
        names = constraints.images + (() if minor.image_volumes == UNCOUNTED else constraints.image_volumes)
        if images and names:
            counted = len(names) if minor.image_volumes == COUNTED else len(constraints.images)
            score = partial(image_locality, images, names, counted, nodes, len(state.nodes))
            row[IMAGES] = row_id(IMAGES, (names, counted), score)
    return np.array(static, dtype=np.int64).reshape(len(static), len(state.nodes))
