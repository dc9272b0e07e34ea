"""kube-default: what kube-scheduler 1.36 decides with its default configuration, as a kernel over the cluster's arrays.

The scheduler looks at nodes from where it stopped last, keeps the first that are feasible (all of a cluster under 100
nodes), scores those, and binds to the best. Simulated is `parallelism: 1`, where it is deterministic. Source:
Kubernetes 1.36.3, pkg/scheduler/{schedule_one.go,backend/cache/node_tree.go} and, of pkg/scheduler/framework/plugins,
podtopologyspread and interpodaffinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays, fits
from steersman.cluster.constraints import restricted_names
from steersman.cluster.model import Constraints, Node, PodSelector, Requirement
from steersman.cluster.state import ClusterState
from steersman.cluster.terms import (
    COUNTED,
    INCLUDED,
    KEY,
    KIND,
    OWNED_KEY,
    OWNED_WEIGHT,
    PREFERRED,
    SELECTOR,
    SOFT_SPREAD,
    SPREAD,
    UNBOUNDED,
    WEIGHT,
    TermArrays,
    sum_domains,
)
from steersman.compiled import inner, kernel
from steersman.policies.kube_scores import (
    MAX_SCORE,
    SOFT_EFFECT,
    balanced_allocation,
    image_locality,
    images_on,
    least_allocated,
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


# Decisions ------------------------------------------------------------------------------------------------------------


@inner
def choose(
    nodes: NodeArrays,
    classes: ClassArrays,
    terms: TermArrays,
    kube: KubeArrays,
    c: int,
    labels: int,
    masked: bool,
    mask: npt.NDArray[np.bool_],
) -> int:
    """The slot for a pod of class `c` with these labels, -1 if it fits nowhere; moves the start of the next search.

    Args:
        nodes: as `fits` wants them, like `classes`.
        classes: the pod classes.
        terms: taken from the state after `kube`.
        kube: what `kube_arrays` made for the state.
        c: class.
        labels: label set.
        masked: whether `mask` says where the pod may run; if not, `fits` decides.
        mask: [N], read if `masked`.
    """
    kept = _search(nodes, classes, kube, c, masked, mask)
    if kept == 0:
        return -1
    if kept == 1:
        return int(kube.kept[0])  # not scored
    _score_nodes(nodes, classes, kube, c)
    _sum_spread(terms, kube, c, labels, kube.constraints[classes.constraint[c], INCLUDED_ROW])
    _sum_affinity(terms, kube, c, labels)
    for plugin in range(RAW):
        if kube.active[plugin]:
            _normalize(kube, plugin)
    best = 0
    for i in range(1, kept):
        ahead = kube.total[i] - kube.total[best]
        if ahead > 0 or (ahead == 0 and kube.rank[i] < kube.rank[best]):
            best = i
    return int(kube.kept[best])


@kernel
def decide(
    nodes: NodeArrays,
    classes: ClassArrays,
    terms: TermArrays,
    kube: KubeArrays,
    c: int,
    labels: int,
    mask: npt.NDArray[np.bool_],
) -> int:
    """`choose` among the nodes of `mask`, for Python."""
    return choose(nodes, classes, terms, kube, c, labels, True, mask)


@inner
def _nodes_to_find(nodes: int, percentage: int) -> int:
    """How many feasible nodes end the search among so many nodes."""
    if nodes < MIN_NODES:
        return nodes
    if percentage == 0:
        percentage = max(50 - nodes // 125, MIN_PERCENTAGE)
    return max(nodes * percentage // 100, MIN_NODES)


@inner
def _search(
    nodes: NodeArrays, classes: ClassArrays, kube: KubeArrays, c: int, masked: bool, mask: npt.NDArray[np.bool_]
) -> int:
    """Fill `kube.kept`, and return how many there are.

    One feasible node more than wanted is looked at: the nodes before it count as visited, it does not.
    """
    row = classes.constraint[c]
    first = kube.constraints[row, FIRST]
    size = kube.constraints[row, LAST] - first
    wanted = _nodes_to_find(size, kube.percentage)
    start = kube.cursor[START]
    here = start % max(size, 1)
    visited, kept = 0, 0
    while visited < size:
        n = kube.lists[first + here]
        here = here + 1 if here + 1 < size else 0
        if mask[n] if masked else fits(nodes, classes, c, n):
            if kept == wanted:
                break
            kube.kept[kept] = n
            kept += 1
        visited += 1
    kube.cursor[START] = (start + visited) % max(kube.nodes, 1)
    kube.cursor[KEPT] = kept
    return kept


# Scores ---------------------------------------------------------------------------------------------------------------
# Numba compiles a function once more for every constant that is passed to it, and optimises it again in every function
# above it: so no constants, and one call of each, keep the time to compile short.


@inner
def _score_nodes(nodes: NodeArrays, classes: ClassArrays, kube: KubeArrays, c: int) -> None:
    """Scores by resources into `parts` and `total`, and the raw scores of static plugins."""
    row = classes.constraint[c]
    # Without soft taints every node gets the same.
    base = 0 if kube.constraints[row, TAINTS] >= 0 else WEIGHTS[TAINTS] * MAX_SCORE
    for i in range(kube.cursor[KEPT]):
        n = kube.kept[i]
        least, balanced = least_allocated(nodes, classes, c, n), balanced_allocation(nodes, classes, c, n)
        kube.parts[FIT, i] = least
        kube.parts[BALANCED, i] = balanced
        kube.total[i] = base + least + balanced
    for plugin in range(STATIC):
        static = kube.constraints[row, plugin]
        kube.active[plugin] = static >= 0
        if static >= 0:
            for i in range(kube.cursor[KEPT]):
                kube.parts[plugin, i] = kube.static[static, kube.kept[i]]


@inner
def _normalize(kube: KubeArrays, plugin: int) -> None:
    """Bring a plugin's raw scores to 0..100 over the nodes kept, and add them to `total` with their weight.

    Node affinity: 100 raw // max, or 0; taints: 100 less that. Spreading: 100 (max + min - raw) // max, 100 where max
    is 0, 0 for ignored nodes. Pod affinity: int(100.0 ((raw - min) / (max - min))), or 0; 29 of 50 gives 57, not 58.
    """
    least, most = UNBOUNDED, -UNBOUNDED
    for i in range(kube.cursor[KEPT]):
        if kube.parts[plugin, i] != IGNORED:
            least = min(least, kube.parts[plugin, i])
            most = max(most, kube.parts[plugin, i])
    for i in range(kube.cursor[KEPT]):
        raw = kube.parts[plugin, i]
        score = raw  # images
        if raw == IGNORED:
            score = 0
        elif plugin == AFFINITY:
            score = int(float(MAX_SCORE) * (float(raw - least) / float(most - least))) if most > least else 0
        elif plugin == SPREADING:
            score = MAX_SCORE * (most + least - raw) // most if most > 0 else MAX_SCORE
        elif plugin != IMAGES:
            score = MAX_SCORE * raw // most if most > 0 else 0
            score = MAX_SCORE - score if plugin == TAINTS else score
        kube.parts[plugin, i] = WEIGHTS[plugin] * score
        kube.total[i] += WEIGHTS[plugin] * score


# PodTopologySpread ----------------------------------------------------------------------------------------------------


@inner
def _sum_spread(terms: TermArrays, kube: KubeArrays, c: int, labels: int, included: int) -> None:
    """The raw spread scores of the nodes kept; not active where the pod has no soft constraint.

    A pod with a constraint of its own, even a hard one, is not spread by default, and nodes that lack one of the keys
    of its soft constraints are ignored.
    """
    first, last, soft = terms.rule_start[c], terms.rule_start[c + 1], 0
    own = False
    for q in range(first, last):
        own = own or terms.rules[q, KIND] == SPREAD
        soft += terms.rules[q, KIND] == SOFT_SPREAD
    selector = kube.default_selector[labels]
    kube.active[SPREADING] = soft > 0 or (selector >= 0 and not own)
    if not kube.active[SPREADING]:
        return
    scored = kube.cursor[KEPT]
    for i in range(kube.cursor[KEPT]):
        kube.sums[i] = 0.0
        if not _has_soft_keys(terms, c, kube.kept[i]):
            kube.sums[i] = -1.0
            scored -= 1
    for j in range(last - first if soft > 0 else kube.default_spread.shape[0]):
        counted, key, skew = selector, kube.default_spread[j, 0], kube.default_spread[j, 1]
        if soft > 0:
            q = first + j
            if terms.rules[q, KIND] != SOFT_SPREAD:
                continue
            counted, key, skew = terms.rules[q, COUNTED], terms.rules[q, KEY], terms.rules[q, WEIGHT]
            included = terms.rules[q, INCLUDED]
        domains = scored if key == kube.hostname else _count_domains(terms, kube, c, counted, key, included)
        _add_constraint(terms, kube, counted, key, domains, skew)
    for i in range(kube.cursor[KEPT]):
        below = math.floor(kube.sums[i])
        rounded = below + 1 if kube.sums[i] - below >= 0.5 else below  # Go's math.Round: halves go up
        kube.parts[SPREADING, i] = rounded if kube.sums[i] >= 0.0 else IGNORED


@inner
def _has_soft_keys(terms: TermArrays, c: int, n: int) -> bool:
    for q in range(terms.rule_start[c], terms.rule_start[c + 1]):
        if terms.rules[q, KIND] == SOFT_SPREAD and terms.domain[terms.rules[q, KEY], n] < 0:
            return False
    return True


@inner
def _count_domains(terms: TermArrays, kube: KubeArrays, c: int, counted: int, key: int, included: int) -> int:
    """Sum counted pods by domain, over all included nodes, and return how many domains the nodes kept have."""
    for d in range(terms.domains[key] + 1):
        kube.domains[TOTAL, d] = 0
        kube.domains[SEEN, d] = 0
    size = 0
    for i in range(kube.cursor[KEPT]):
        d = terms.domain[key, kube.kept[i]]
        if d < 0:
            d = kube.blank
        if kube.sums[i] >= 0.0 and kube.domains[SEEN, d] == 0:
            kube.domains[SEEN, d] = 1
            size += 1
    for n in range(terms.domain.shape[1]):
        if terms.matched[counted, n] > 0 and terms.included[included, n] and _has_soft_keys(terms, c, n):
            d = terms.domain[key, n]
            kube.domains[TOTAL, d if d >= 0 else kube.blank] += terms.matched[counted, n]
    return size


@inner
def _add_constraint(terms: TermArrays, kube: KubeArrays, counted: int, key: int, domains: int, skew: int) -> None:
    """Add (matching pods in the domain) ln(domains + 2) + max skew - 1 to `sums`; of hostnames, those on the node."""
    weight, extra = kube.logs[domains], float(skew - 1)
    for i in range(kube.cursor[KEPT]):
        n = kube.kept[i]
        domain = terms.domain[key, n]
        if domain >= 0 and kube.sums[i] >= 0.0:
            pods = terms.matched[counted, n] if key == kube.hostname else kube.domains[TOTAL, domain]
            kube.sums[i] += float(pods) * weight + extra


# InterPodAffinity -----------------------------------------------------------------------------------------------------


@inner
def _sum_affinity(terms: TermArrays, kube: KubeArrays, c: int, labels: int) -> None:
    """The raw affinity scores of the nodes kept: the weights of terms between the pod and those in a node's domains.

    Either way: preferred terms of the pod that match others, and preferred (and required, with weight 1) terms of
    others that match the pod. Not active where no pod is concerned.
    """
    kube.active[AFFINITY] = False
    first = terms.rule_start[c]
    rules = terms.rule_start[c + 1] - first
    for j in range(rules + terms.owned_total.shape[0]):
        if j < rules:
            q = first + j
            concerned = terms.rules[q, KIND] == PREFERRED
            counts, counted = terms.matched, terms.rules[q, COUNTED]
            key, weight = terms.rules[q, KEY], terms.rules[q, WEIGHT]
        else:
            o = j - rules
            concerned = terms.owned_total[o] > 0 and terms.matches[labels, terms.owned_terms[o, SELECTOR]]
            counts, counted = terms.owned, o
            key, weight = terms.owned_terms[o, OWNED_KEY], terms.owned_terms[o, OWNED_WEIGHT]
        if concerned and weight != 0:
            _add_term(terms, kube, counts, counted, key, weight)


@inner
def _add_term(
    terms: TermArrays, kube: KubeArrays, counts: npt.NDArray[np.int32], counted: int, key: int, weight: int
) -> None:
    """Add one term's weight for each pod counted in a node's domain, if there is any at all."""
    if sum_domains(terms, counts, counted, key) == 0:
        return
    for i in range(kube.cursor[KEPT]):
        domain = terms.domain[key, kube.kept[i]]
        if not kube.active[AFFINITY]:
            kube.parts[AFFINITY, i] = 0
        if domain >= 0:
            kube.parts[AFFINITY, i] += weight * terms.scratch[domain]
    kube.active[AFFINITY] = True


# Arrays ---------------------------------------------------------------------------------------------------------------


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
    of_namespace: dict[str, list[tuple[tuple[str, str], ...]]] = {}
    for namespace, pairs in services.selectors:
        of_namespace.setdefault(namespace, []).append(pairs)
    found = np.full(len(state.terms.label_sets), -1, dtype=np.int64)
    for row, (namespace, labels) in enumerate(state.terms.label_sets):
        matching = [s for s in of_namespace.get(namespace, ()) if all(labels.get(key) == value for key, value in s)]
        wanted = tuple(Requirement(key, "In", (value,)) for key, value in sorted(set().union(*matching)))
        if wanted:
            found[row] = state.terms.selector_id(PodSelector(wanted, frozenset((namespace,))))
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
    return np.array(static, dtype=np.int64).reshape(-1, len(state.nodes))


# Outside of compiled code ---------------------------------------------------------------------------------------------


class KubeDefault:
    """kube-scheduler's default decisions and scores for a state, one at a time: for explanations and comparisons.

    Args:
        state: the cluster; call `refresh` when nodes came, changed or left.
        services: what selects pods that are to be spread by default.
        percentage: `percentageOfNodesToScore`; 0: the scheduler's own choice.

    Attributes:
        arrays: what the compiled decision works with.
    """

    def __init__(self, state: ClusterState, services: Services | None = None, percentage: int = 0) -> None:
        self.state, self.services, self.percentage = state, services, percentage
        self.arrays = kube_arrays(state, services, percentage)

    def refresh(self) -> None:
        """Look at nodes, classes and labels again; the next search starts where it would have."""
        start = int(self.arrays.cursor[START])
        self.arrays = kube_arrays(self.state, self.services, self.percentage)
        self.arrays.cursor[START] = start % max(self.arrays.nodes, 1)

    def choose(self, class_id: int, labels_id: int = 0, mask: npt.NDArray[np.bool_] | None = None) -> int:
        """The slot for a pod, -1 if it fits nowhere. The next search starts behind the nodes that this one visited.

        `mask`, [N], says where the pod may run; if None, the state does.
        """
        state = self.state
        if mask is None:
            mask = state.mask(class_id, labels_id)
        kube = self.arrays
        new_class = state.class_arrays.constraint[class_id] >= len(kube.constraints)
        if new_class or labels_id >= len(kube.default_selector) or len(kube.kept) != len(state.nodes):
            self.refresh()
            kube = self.arrays
        return int(decide(state.arrays, state.class_arrays, state.term_arrays, kube, class_id, labels_id, mask))

    def scores(
        self, class_id: int, labels_id: int = 0, mask: npt.NDArray[np.bool_] | None = None
    ) -> npt.NDArray[np.int64]:
        """[N] total scores for the next pod; -1 where it may not run, or where the search would not get to.

        A single node gets 0: the scheduler does not score it. The search is not moved on.
        """
        kept = self._look(class_id, labels_id, mask)
        total = np.full(len(self.state.nodes), -1, dtype=np.int64)
        total[kept] = self.arrays.total[: len(kept)] if len(kept) > 1 else 0
        return total

    def breakdown(
        self, class_id: int, labels_id: int = 0, mask: npt.NDArray[np.bool_] | None = None
    ) -> dict[str, npt.NDArray[np.int64]]:
        """Plugin -> [N] its normalised score times its weight, of which `scores` is the sum; -1 likewise."""
        kept, kube = self._look(class_id, labels_id, mask), self.arrays
        found = {}
        for plugin, name in enumerate(PLUGINS):
            part = np.full(len(self.state.nodes), -1, dtype=np.int64)
            part[kept] = WEIGHTS[TAINTS] * MAX_SCORE if plugin == TAINTS and len(kept) > 1 else 0
            if len(kept) > 1 and (plugin >= RAW or kube.active[plugin]):
                part[kept] = kube.parts[plugin, : len(kept)]
            found[name] = part
        return found

    def top_scorers(
        self, class_id: int, labels_id: int = 0, mask: npt.NDArray[np.bool_] | None = None
    ) -> frozenset[int]:
        """The slots with the highest total score, any of which a scheduler with parallel workers may choose."""
        total = self.scores(class_id, labels_id, mask)
        return frozenset(np.flatnonzero((total == total.max(initial=0)) & (total >= 0)).tolist())

    def _look(self, class_id: int, labels_id: int, mask: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.int64]:
        """The slots that the next search would keep, in its order, scored; the search stays where it is."""
        start = int(self.arrays.cursor[START])
        self.choose(class_id, labels_id, mask)
        self.arrays.cursor[START] = start
        return self.arrays.kept[: self.arrays.cursor[KEPT]].copy()
