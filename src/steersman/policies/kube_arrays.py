"""What kube-default knows beyond the cluster's arrays: order of nodes, static scores, selectors of default spreading.

Source: Kubernetes 1.36.3, pkg/scheduler/backend/cache/node_tree.go and pkg/scheduler/framework/plugins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.constraints import holds, restricted_names
from steersman.cluster.model import Constraints, Node, PodSelector, Requirement
from steersman.cluster.state import ClusterState
from steersman.cluster.terms import (
    UNBOUNDED,
)
from steersman.policies.kube_scores import (
    SOFT_EFFECT,
    image_locality,
    images_on,
    preferred_weights,
    soft_taints,
)
from steersman.workloads.workload import Services

TAINTS, PREFERRED_NODES, IMAGES, SPREADING, AFFINITY, FIT, BALANCED = range(7)
"""The score plugins: rows of `KubeArrays.parts`. `STATIC` look at nothing that changes, `RAW` are to be normalised."""
STATIC, RAW = 3, 5
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
IGNORED = -UNBOUNDED
"""The raw score of a node that lacks a key of the pod's spread constraints."""

# Columns of `KubeArrays.constraints` behind those of the static plugins.
INCLUDED_ROW, FIRST, LAST = range(STATIC, STATIC + 3)
# Columns of `KubeArrays.cursor`.
START, KEPT = range(2)
# Rows of `KubeArrays.domains`.
TOTAL, SEEN = range(2)

MIN_NODES = 100
"""Clusters of fewer nodes are searched to the end, and at least so many feasible nodes are kept elsewhere."""
MIN_PERCENTAGE = 5

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
HOSTNAME_SKEW, ZONE_SKEW = 3, 5
"""Topology keys and skews of the system's default spread constraints, which only score."""

# (older label, which wins where it is there; today's label)
_REGION_LABELS = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")
_ZONE_LABELS = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")


class KubeArrays(NamedTuple):
    """What kube-default knows beyond the cluster's arrays, where its search stands, and its room to work.

    N node slots, K distinct constraints of classes (`ClassArrays.constraint`), L label sets, S static rows, D the most
    domains of a topology key.

    Attributes:
        nodes: how many nodes there are.
        percentage: of nodes to score; 0 adapts to the number of nodes.
        hostname: row of `TermArrays.domain` for `kubernetes.io/hostname`, -1 if nobody spreads pods.
        blank: number of the zone domain that nodes without a zone count for.
        lists: slots in the order of the scheduler's snapshot, then the nodes of classes that are restricted to some.
        constraints: [K, 6] int64: for each static plugin a row of `static`, -1 if it would be all zeros;
            `INCLUDED_ROW`, a row of `TermArrays.included` for default spreading, -1 if there is none; `FIRST` and
            `LAST`, the range of `lists` that is searched.
        static: [S, N] int64 raw scores that do not depend on other pods.
        default_selector: [L] int64 row of `TermArrays.matched` by which pods with these labels are spread by default,
            -1 if no Service or the like selects them.
        default_spread: [2, 2] int64, row of `TermArrays.domain` and max skew of the default spread constraints.
        logs: [N + 1] float64, ln(size + 2) by Go's algorithm.
        rank: [N] int64, which of several best nodes wins: the one whose position has the lowest rank.
        cursor: [2] int64, where the next search starts in the snapshot, and how many nodes the last one kept.
        kept: [N] int64 slots that the last search kept, in order.
        parts: [7, N] int64 weighted scores of the nodes kept, by plugin.
        active: [5] bool whether a plugin's row of `parts` was written; if not, it says the same of every node.
        total: [N] int64 sums of the weighted scores of the nodes kept.
        sums: [N] float64 room for the spread scores of the nodes kept.
        domains: [2, D + 1] int64 room: pods in a domain, and whether a node kept is in it.
    """

    nodes: int
    percentage: int
    hostname: int
    blank: int
    lists: npt.NDArray[np.int64]
    constraints: npt.NDArray[np.int64]
    static: npt.NDArray[np.int64]
    default_selector: npt.NDArray[np.int64]
    default_spread: npt.NDArray[np.int64]
    logs: npt.NDArray[np.float64]
    rank: npt.NDArray[np.int64]
    cursor: npt.NDArray[np.int64]
    kept: npt.NDArray[np.int64]
    parts: npt.NDArray[np.int64]
    active: npt.NDArray[np.bool_]
    total: npt.NDArray[np.int64]
    sums: npt.NDArray[np.float64]
    domains: npt.NDArray[np.int64]


def kube_arrays(state: ClusterState, services: Services | None = None, percentage: int = 0) -> KubeArrays:
    """What `choose` needs for the state's nodes, classes and labels. Make it anew when one of those came or changed.

    Selectors of services get a number in the state: take `state.term_arrays` afterwards.

    Args:
        state: slots in the order in which the scheduler heard of the nodes.
        services: what selects pods that are to be spread by default.
        percentage: `percentageOfNodesToScore`; 0: the scheduler's own choice by the number of nodes.
    """
    every = _distinct_constraints(state)
    selectors = _default_selectors(state, services or Services())
    spreading = bool((selectors >= 0).any()) or any(not spread.hard for each in every for spread in each.spread)
    hostname = state.terms.key_id(HOSTNAME) if spreading else -1
    zone = state.terms.key_id(ZONE) if spreading else -1
    rows = np.full((len(every), 6), -1, dtype=np.int64)
    if (selectors >= 0).any():
        rows[:, INCLUDED_ROW] = [-1 if each.spread else state.terms.included_id(each) for each in every]
    order = snapshot_order(state.nodes)
    lists = _node_lists(state, every, order, rows)
    static = _static_rows(state, every, len(order), rows)
    size = len(state.nodes)
    terms = state.term_arrays
    zones = state.table.label(ZONE).numbers if spreading else {}
    return KubeArrays(
        nodes=len(order),
        percentage=percentage,
        hostname=hostname,
        blank=zones.get("", len(zones)),
        lists=lists,
        constraints=rows,
        static=static,
        default_selector=selectors,
        default_spread=np.array([(hostname, HOSTNAME_SKEW), (zone, ZONE_SKEW)], dtype=np.int64),
        logs=go_log(np.arange(2, size + 3, dtype=np.float64)) if spreading else np.zeros(1),
        rank=heap_preorder(size),
        cursor=np.zeros(2, dtype=np.int64),
        kept=np.zeros(size, dtype=np.int64),
        parts=np.zeros((len(PLUGINS), size), dtype=np.int64),
        active=np.zeros(RAW, dtype=np.bool_),
        total=np.zeros(size, dtype=np.int64),
        sums=np.zeros(size),
        domains=np.zeros((2, int(max(terms.domains, default=0)) + 1), dtype=np.int64),
    )


def snapshot_order(nodes: Sequence[Node | None]) -> list[int]:
    """Occupied slots in the order of the scheduler's list of nodes: zones take turns, by first appearance."""
    zones: dict[tuple[str, str], list[int]] = {}
    for slot, node in enumerate(nodes):
        if node is not None:
            zones.setdefault(_zone(node.labels), []).append(slot)
    if len(zones) == 1:
        return next(iter(zones.values()))
    turns = [(turn, place, slot) for place, slots in enumerate(zones.values()) for turn, slot in enumerate(slots)]
    return [slot for _, _, slot in sorted(turns)]


def _zone(labels: Mapping[str, str]) -> tuple[str, str]:
    """Region and zone: an old label counts where it is there, even if empty."""
    region, zone = (labels.get(old, labels.get(new, "")) for old, new in (_REGION_LABELS, _ZONE_LABELS))
    return region, zone


def heap_preorder(size: int) -> npt.NDArray[np.int64]:
    """[size] keys that order the positions 0.. of a binary heap in preorder (a node, its left, its right subtree).

    The scheduler takes the best node off a heap (container/heap) whose ties are all equal: the first maximum in
    preorder comes out, whatever the size. A position's path from the root is what follows the first 1 in the binary
    digits of position + 1; preorder is the lexicographic order of paths.
    """
    position = np.arange(1, size + 1, dtype=np.int64)
    length = np.frexp(position.astype(np.float64))[1].astype(np.int64)
    return (position << (40 - length)) * 64 + length


def go_log(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Natural logarithm of x > 0, rounded as by Go's math.Log (FreeBSD's e_log.c), which libm's often is not."""
    f, exponent = np.frexp(x)
    small = f < math.sqrt(0.5)
    f, k = np.where(small, 2 * f, f) - 1, exponent - small
    s = f / (2 + f)
    s2 = s * s
    s4 = s2 * s2
    odd = s2 * (_L[0] + s4 * (_L[2] + s4 * (_L[4] + s4 * _L[6])))
    even = s4 * (_L[1] + s4 * (_L[3] + s4 * _L[5]))
    half = 0.5 * f * f
    result: npt.NDArray[np.float64] = k * _LN2_HIGH - ((half - (s * (half + (odd + even)) + k * _LN2_LOW)) - f)
    return result


_L = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


def _distinct_constraints(state: ClusterState) -> list[Constraints]:
    """[K] the constraints that `ClassArrays.constraint` numbers."""
    _, first = np.unique(state.class_arrays.constraint, return_index=True)
    return [state.classes[c].constraints for c in first]


def _default_selectors(state: ClusterState, services: Services) -> npt.NDArray[np.int64]:
    """[L] see `KubeArrays.default_selector`: pods that all services match which match these labels."""
    by_label: dict[tuple[str, str, str], list[tuple[tuple[str, str], ...]]] = {}
    for namespace, selected in services.selectors:
        by_label.setdefault((namespace, *selected[0]), []).append(selected)
    by_expressions: dict[str, list[tuple[Requirement, ...]]] = {}
    for namespace, requirements in services.expressions:
        by_expressions.setdefault(namespace, []).append(requirements)
    found = np.full(len(state.terms.label_sets), -1, dtype=np.int64)
    for row, (namespace, labels) in enumerate(state.terms.label_sets):
        pairs = labels.items()
        candidates = (s for key, value in pairs for s in by_label.get((namespace, key, value), ()))
        matching = {pair for s in candidates if pairs >= set(s) for pair in s}
        wanted = {Requirement(key, "In", (value,)) for key, value in matching}
        wanted.update(*(s for s in by_expressions.get(namespace, ()) if all(holds(each, labels) for each in s)))
        if wanted:
            requirements = tuple(sorted(wanted, key=lambda each: (each.key, each.operator, each.values)))
            found[row] = state.terms.selector_id(PodSelector(requirements, frozenset((namespace,))))
    return found


def _node_lists(
    state: ClusterState, every: Sequence[Constraints], order: Sequence[int], rows: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """`KubeArrays.lists`, and where each of the constraints' nodes are in it."""
    lists = list(order)
    place = {slot: i for i, slot in enumerate(order)}
    for row, constraints in zip(rows, every, strict=True):
        names = restricted_names(constraints)
        row[FIRST] = 0 if names is None else len(lists)
        if names is not None:
            lists += sorted((state.slots[name] for name in names if name in state.slots), key=place.__getitem__)
        row[LAST] = len(order) if names is None else len(lists)
    return np.array(lists, dtype=np.int64)


def _static_rows(
    state: ClusterState, every: Sequence[Constraints], nodes: int, rows: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """`KubeArrays.static`, and which rows of it the constraints use: none where it would be all zeros."""
    images = images_on(state.nodes) if any(each.images for each in every) else {}
    tainted = any(taint.effect == SOFT_EFFECT for node in state.nodes if node is not None for taint in node.taints)
    known: dict[object, int] = {}
    static: list[npt.NDArray[np.int64]] = []

    def number(kind: int, value: object, make: Callable[[], npt.NDArray[np.int64]]) -> int:
        if (kind, value) not in known:
            scores = make()
            known[kind, value] = len(static) if scores.any() else -1
            if scores.any():
                static.append(scores)
        return known[kind, value]

    for row, each in zip(rows, every, strict=True):
        if tainted:
            row[TAINTS] = number(TAINTS, each.tolerations, partial(soft_taints, state.nodes, each.tolerations))
        if each.preferred_nodes:
            wanted = each.preferred_nodes
            row[PREFERRED_NODES] = number(PREFERRED_NODES, wanted, partial(preferred_weights, state.table, wanted))
        if images and each.images:
            score = partial(image_locality, images, each.images, nodes, len(state.nodes))
            row[IMAGES] = number(IMAGES, each.images, score)
    return np.array(static, dtype=np.int64).reshape(len(static), len(state.nodes))
