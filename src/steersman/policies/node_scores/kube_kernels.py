"""Kernels of kube-scheduler's decisions, by any of its profiles (`kube_profile`).

The scheduler visits nodes from where its last search ended, keeps the first feasible ones (all in clusters of fewer
than 100 nodes), scores these and binds to the best. The kernels reproduce `parallelism: 1`, which is deterministic.
Source: Kubernetes 1.37.2, pkg/scheduler/{schedule_one.go,backend/cache/node_tree.go}, and podtopologyspread and
interpodaffinity of pkg/scheduler/framework/plugins.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays, fits
from steersman.cluster.constraints.inter_pod import (
    COUNTED,
    INCLUDED,
    KEY,
    KIND,
    NO_SPREAD,
    OWNED_KEY,
    OWNED_WEIGHT,
    PREFERRED,
    SELECTOR,
    SOFT_SPREAD,
    SPREAD,
    UNBOUNDED,
    WEIGHT,
    InterPodArrays,
    sum_domains,
)
from steersman.cluster.state import ClusterState
from steersman.core.compiled import inlined_kernel, kernel
from steersman.policies.node_scores.kube_arrays import (
    FIND_FIRST,
    FIRST,
    HAS_CANDIDATE,
    IGNORED,
    INCLUDED_ROW,
    KEPT,
    LAST,
    MIN_NODES,
    MIN_PERCENTAGE,
    START,
    TOTAL,
    KubeArrays,
    kube_arrays,
)
from steersman.policies.node_scores.kube_profile import (
    AFFINITY,
    BALANCED,
    DEFAULT_PROFILE,
    FIT,
    IMAGES,
    PLUGINS,
    RAW,
    SPREADING,
    STATIC,
    STORAGE,
    TAINTS,
    KubeProfile,
)
from steersman.policies.node_scores.plugin_scores import MAX_SCORE
from steersman.policies.node_scores.scored_resources import balanced_score, fit_score
from steersman.workloads.workload import SpreadSelectors

# Decisions ------------------------------------------------------------------------------------------------------------


@inlined_kernel
def choose(
    nodes: NodeArrays,
    classes: ClassArrays,
    terms: InterPodArrays,
    kube: KubeArrays,
    c: int,
    labels: int,
    mask: npt.NDArray[np.bool_],
) -> int:
    """Return the slot for a pod, -1 if it fits nowhere; advance the start of the next search.

    Args:
        nodes: the nodes.
        classes: the pod classes.
        terms: the inter-pod constraints, read from the state after `kube` was built.
        kube: the arrays of `kube_arrays` for the state.
        c: the pod's class.
        labels: the pod's label set.
        mask: [N] feasible nodes; [0]: those that pass `fits`.
    """
    count = _search(nodes, classes, kube, c, mask)
    if count == 0:
        return -1
    if count == 1:
        return int(kube.kept[0])  # kube-scheduler does not score a single node
    _score_nodes(nodes, classes, kube, c)
    _sum_spread(terms, kube, c, labels, kube.constraints[classes.constraint[c], INCLUDED_ROW])
    _sum_affinity(terms, kube, c, labels)
    for plugin in range(RAW):
        if kube.active[plugin]:
            _normalize(kube, plugin)
    best = 0
    for i in range(1, count):
        difference = kube.total[i] - kube.total[best]
        if difference > 0 or (difference == 0 and kube.rank[i] < kube.rank[best]):
            best = i
    return int(kube.kept[best])


@kernel
def decide(
    nodes: NodeArrays,
    classes: ClassArrays,
    terms: InterPodArrays,
    kube: KubeArrays,
    c: int,
    labels: int,
    mask: npt.NDArray[np.bool_],
) -> int:
    """Call `choose` among the nodes of `mask` from Python."""
    return choose(nodes, classes, terms, kube, c, labels, mask)


@inlined_kernel
def _nodes_to_find(nodes: int, percentage: int) -> int:
    """Return the number of feasible nodes after which a search ends (numFeasibleNodesToFind)."""
    if percentage == FIND_FIRST:
        return 1
    if nodes < MIN_NODES:
        return nodes
    if percentage == 0:
        percentage = max(50 - nodes // 125, MIN_PERCENTAGE)
    return max(nodes * percentage // 100, MIN_NODES)


@inlined_kernel
def _search(nodes: NodeArrays, classes: ClassArrays, kube: KubeArrays, c: int, mask: npt.NDArray[np.bool_]) -> int:
    """Fill `kube.kept` with feasible nodes, and return their number.

    The search ends at the first feasible node beyond the limit, which itself does not count as visited.
    """
    row = classes.constraint[c]
    first = kube.constraints[row, FIRST]
    size = kube.constraints[row, LAST] - first
    limit = _nodes_to_find(size, kube.percentage)
    start = kube.cursor[START]
    # The start may be beyond a list of few named nodes.
    position = start % max(size, 1)
    visited, count = 0, 0
    while visited < size:
        n = kube.lists[first + position]
        position = position + 1 if position + 1 < size else 0
        if mask[n] if mask.shape[0] > 0 else fits(nodes, classes, c, n):
            if count == limit:
                break
            kube.kept[count] = n
            count += 1
        visited += 1
    # Advanced by what was visited, in the whole snapshot, even if the list was shorter.
    kube.cursor[START] = (start + visited) % max(kube.nodes, 1)
    kube.cursor[KEPT] = count
    return count


# Scores ---------------------------------------------------------------------------------------------------------------
# Numba optimizes an inlined function again in every caller, so each function is called once, to compile faster.


@inlined_kernel
def _score_nodes(nodes: NodeArrays, classes: ClassArrays, kube: KubeArrays, c: int) -> None:
    """Write the scores of resources into `parts` and `total`, and the raw scores of static plugins into `parts`."""
    row = classes.constraint[c]
    # Without soft taints all nodes have the maximum score.
    base = 0 if kube.constraints[row, TAINTS] >= 0 else kube.weights[TAINTS] * MAX_SCORE
    for i in range(kube.cursor[KEPT]):
        n = kube.kept[i]
        kube.parts[FIT, i] = kube.weights[FIT] * fit_score(kube.scored, nodes, classes, c, n)
        kube.parts[BALANCED, i] = kube.weights[BALANCED] * balanced_score(kube.scored, nodes, classes, c, n)
        kube.total[i] = base + kube.parts[FIT, i] + kube.parts[BALANCED, i] + kube.storage[n]
    for plugin in range(STATIC):
        static = kube.constraints[row, plugin]
        kube.active[plugin] = static >= 0 and kube.weights[plugin] > 0
        if kube.active[plugin]:
            for i in range(kube.cursor[KEPT]):
                kube.parts[plugin, i] = kube.static[static, kube.kept[i]]


@inlined_kernel
def _normalize(kube: KubeArrays, plugin: int) -> None:
    """Normalize a plugin's raw scores to 0..100 over the candidates, and add them to `total` with their weight.

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
        kube.parts[plugin, i] = kube.weights[plugin] * score
        kube.total[i] += kube.weights[plugin] * score


# PodTopologySpread ----------------------------------------------------------------------------------------------------


@inlined_kernel
def _sum_spread(terms: InterPodArrays, kube: KubeArrays, c: int, labels: int, included: int) -> None:
    """Write the raw spread scores of the candidates; inactive if the pod has no soft constraint.

    A pod with spread constraints, even hard ones, has no default constraints. Nodes that lack a topology key of its
    soft constraints are ignored.
    """
    first, last, soft = terms.rule_start[c], terms.rule_start[c + 1], 0
    has_hard = False
    for q in range(first, last):
        has_hard = has_hard or terms.rules[q, KIND] == SPREAD or terms.rules[q, KIND] == NO_SPREAD
        soft += terms.rules[q, KIND] == SOFT_SPREAD
    selector = kube.default_selector[labels]
    kube.active[SPREADING] = kube.weights[SPREADING] > 0 and (soft > 0 or (selector >= 0 and not has_hard))
    if not kube.active[SPREADING]:
        return
    scored = kube.cursor[KEPT]
    for i in range(kube.cursor[KEPT]):
        kube.sums[i] = 0.0
        if not _has_soft_keys(terms, c, kube.kept[i]):
            kube.sums[i] = -1.0
            scored -= 1
    for j in range(last - first if soft > 0 else kube.default_spread.shape[0]):
        if soft > 0:
            q = first + j
            if terms.rules[q, KIND] != SOFT_SPREAD:
                continue
            counted, key, skew = terms.rules[q, COUNTED], terms.rules[q, KEY], terms.rules[q, WEIGHT]
            included = terms.rules[q, INCLUDED]
        else:
            counted, key, skew = selector, kube.default_spread[j, 0], kube.default_spread[j, 1]
        domains = scored if key == kube.hostname else _count_domains(terms, kube, c, counted, key, included)
        _add_constraint(terms, kube, counted, key, domains, skew)
    for i in range(kube.cursor[KEPT]):
        floor = math.floor(kube.sums[i])
        rounded = floor + 1 if kube.sums[i] - floor >= 0.5 else floor  # Go's math.Round of values >= 0: halves go up
        kube.parts[SPREADING, i] = rounded if kube.sums[i] >= 0.0 else IGNORED


@inlined_kernel
def _has_soft_keys(terms: InterPodArrays, c: int, n: int) -> bool:
    """Return whether node `n` has the topology keys of all soft spread constraints of class `c`."""
    for q in range(terms.rule_start[c], terms.rule_start[c + 1]):
        if terms.rules[q, KIND] == SOFT_SPREAD and terms.domain[terms.rules[q, KEY], n] < 0:
            return False
    return True


@inlined_kernel
def _count_domains(terms: InterPodArrays, kube: KubeArrays, c: int, counted: int, key: int, included: int) -> int:
    """Sum counted pods by domain over all included nodes; return the number of domains of the candidates."""
    for d in range(terms.domains[key] + 1):
        kube.domains[TOTAL, d] = 0
        kube.domains[HAS_CANDIDATE, d] = 0
    size = 0
    for i in range(kube.cursor[KEPT]):
        d = terms.domain[key, kube.kept[i]]
        if d < 0:
            d = kube.blank
        if kube.sums[i] >= 0.0 and kube.domains[HAS_CANDIDATE, d] == 0:
            kube.domains[HAS_CANDIDATE, d] = 1
            size += 1
    for n in range(terms.domain.shape[1]):
        # Pods on nodes that are no candidates count as well.
        if terms.matched[counted, n] > 0 and terms.included[included, n] and _has_soft_keys(terms, c, n):
            d = terms.domain[key, n]
            kube.domains[TOTAL, d if d >= 0 else kube.blank] += terms.matched[counted, n]
    return size


@inlined_kernel
def _add_constraint(terms: InterPodArrays, kube: KubeArrays, counted: int, key: int, domains: int, skew: int) -> None:
    """Add (matching pods in the domain) ln(domains + 2) + max skew - 1 to `sums`; the hostname domain is the node."""
    weight, extra = kube.logs[domains], float(skew - 1)
    for i in range(kube.cursor[KEPT]):
        n = kube.kept[i]
        domain = terms.domain[key, n]
        if domain >= 0 and kube.sums[i] >= 0.0:
            pods = terms.matched[counted, n] if key == kube.hostname else kube.domains[TOTAL, domain]
            kube.sums[i] += float(pods) * weight + extra


# InterPodAffinity -----------------------------------------------------------------------------------------------------


@inlined_kernel
def _sum_affinity(terms: InterPodArrays, kube: KubeArrays, c: int, labels: int) -> None:
    """Write the raw affinity scores of the candidates: summed weights of terms between the pod and pods in the domain.

    The terms are the pod's preferred terms that match other pods, and preferred (and required, with weight 1) terms of
    other pods that match the pod. Inactive if there are none.
    """
    kube.active[AFFINITY] = False
    first = terms.rule_start[c]
    rules = terms.rule_start[c + 1] - first
    if kube.weights[AFFINITY] == 0 or (kube.ignores_existing and not _has_preferences(terms, c)):
        return
    # The pod's own terms, then terms of other pods, in one loop: each inlined function is called once.
    for j in range(rules + terms.owned_total.shape[0]):
        if j < rules:
            q = first + j
            is_relevant = terms.rules[q, KIND] == PREFERRED
            counts, counted = terms.matched, terms.rules[q, COUNTED]
            key, weight = terms.rules[q, KEY], terms.rules[q, WEIGHT]
        else:
            o = j - rules
            is_relevant = terms.owned_total[o] > 0 and terms.matches[labels, terms.owned_terms[o, SELECTOR]]
            counts, counted = terms.owned, o
            key, weight = terms.owned_terms[o, OWNED_KEY], terms.owned_terms[o, OWNED_WEIGHT]
        if is_relevant and weight != 0:
            _add_term(terms, kube, counts, counted, key, weight)


@inlined_kernel
def _has_preferences(terms: InterPodArrays, c: int) -> bool:
    """Return whether pods of class `c` prefer to be near or far from other pods."""
    for q in range(terms.rule_start[c], terms.rule_start[c + 1]):  # noqa: SIM110 - no generators in compiled code
        if terms.rules[q, KIND] == PREFERRED:
            return True
    return False


@inlined_kernel
def _add_term(
    terms: InterPodArrays, kube: KubeArrays, counts: npt.NDArray[np.int32], counted: int, key: int, weight: int
) -> None:
    """Add one term's weight for each counted pod in a node's domain, if any pod is counted."""
    if sum_domains(terms, counts, counted, key) == 0:
        return
    for i in range(kube.cursor[KEPT]):
        domain = terms.domain[key, kube.kept[i]]
        # The first term initialises the row; further ones add to it.
        if not kube.active[AFFINITY]:
            kube.parts[AFFINITY, i] = 0
        if domain >= 0:
            kube.parts[AFFINITY, i] += weight * terms.scratch[domain]
    kube.active[AFFINITY] = True


# Python interface -----------------------------------------------------------------------------------------------------


class KubeDecisions:
    """Decisions and scores of kube-scheduler for single pods, for explanations and comparisons.

    Args:
        state: the cluster's state; call `refresh` after nodes were added, changed or removed.
        services: selectors of default spreading.
        profile: what decides.
        arrays: the arrays of `kube_arrays` for these arguments; None: they are built.

    Attributes:
        arrays: the arrays that decisions read.
    """

    def __init__(
        self,
        state: ClusterState,
        services: SpreadSelectors | None = None,
        profile: KubeProfile = DEFAULT_PROFILE,
        arrays: KubeArrays | None = None,
    ) -> None:
        self.state, self.services, self.profile = state, services, profile
        self.arrays = kube_arrays(state, services, profile) if arrays is None else arrays

    def refresh(self) -> None:
        """Rebuild the arrays for changed nodes, classes and labels; keep the start of the next search."""
        start = int(self.arrays.cursor[START])
        self.arrays = kube_arrays(self.state, self.services, self.profile)
        self.arrays.cursor[START] = start % max(self.arrays.nodes, 1)

    def choose(
        self,
        class_id: int,
        labels_id: int = 0,
        mask: npt.NDArray[np.bool_] | None = None,
        storage: npt.NDArray[np.int64] | None = None,
    ) -> int:
        """Return the slot for a pod, -1 if it fits nowhere. The next search starts after the visited nodes.

        Args:
            class_id: its class.
            labels_id: its label set.
            mask: [N] feasible nodes; None: those of the state.
            storage: see `PodQuery`.
        """
        state = self.state
        if mask is None:
            mask = state.mask(class_id, labels_id)
        kube = self.arrays
        new_class = state.class_arrays.constraint[class_id] >= len(kube.constraints)
        if new_class or labels_id >= len(kube.default_selector) or len(kube.kept) != len(state.nodes):
            self.refresh()
            kube = self.arrays
        kube.storage[:] = 0 if storage is None else storage
        return int(decide(state.arrays, state.class_arrays, state.term_arrays, kube, class_id, labels_id, mask))

    def scores(
        self,
        class_id: int,
        labels_id: int = 0,
        mask: npt.NDArray[np.bool_] | None = None,
        storage: npt.NDArray[np.int64] | None = None,
    ) -> npt.NDArray[np.int64]:
        """Return total scores for the next pod, [N]; -1 for nodes that are infeasible or beyond the search.

        A single feasible node gets 0, since kube-scheduler does not score it. The start of the next search does not
        change.
        """
        candidates = self._score_next(class_id, labels_id, mask, storage)
        total = np.full(len(self.state.nodes), -1, dtype=np.int64)
        total[candidates] = self.arrays.total[: len(candidates)] if len(candidates) > 1 else 0
        return total

    def breakdown(
        self,
        class_id: int,
        labels_id: int = 0,
        mask: npt.NDArray[np.bool_] | None = None,
        storage: npt.NDArray[np.int64] | None = None,
    ) -> dict[str, npt.NDArray[np.int64]]:
        """Return normalized and weighted scores, [N], by plugin; their sum is `scores`, and -1 has the same meaning."""
        candidates, kube = self._score_next(class_id, labels_id, mask, storage), self.arrays
        parts = {}
        for plugin, name in enumerate(PLUGINS):
            part = np.full(len(self.state.nodes), -1, dtype=np.int64)
            # Without soft taints the plugin has no row, but its score is the maximum.
            even = self.profile.weights[TAINTS] * MAX_SCORE if plugin == TAINTS else 0
            part[candidates] = even if len(candidates) > 1 else 0
            if len(candidates) > 1 and (plugin >= RAW or kube.active[plugin]):
                part[candidates] = kube.parts[plugin, : len(candidates)]
            parts[name] = part
        if storage is not None:
            part = np.full(len(self.state.nodes), -1, dtype=np.int64)
            part[candidates] = storage[candidates] if len(candidates) > 1 else 0
            parts[STORAGE] = part
        return parts

    def top_scorers(
        self,
        class_id: int,
        labels_id: int = 0,
        mask: npt.NDArray[np.bool_] | None = None,
        storage: npt.NDArray[np.int64] | None = None,
    ) -> frozenset[int]:
        """Return the slots with the highest total score, any of which a scheduler with parallel workers may choose."""
        total = self.scores(class_id, labels_id, mask, storage)
        return frozenset(np.flatnonzero((total == total.max(initial=0)) & (total >= 0)).tolist())

    def _score_next(
        self,
        class_id: int,
        labels_id: int,
        mask: npt.NDArray[np.bool_] | None,
        storage: npt.NDArray[np.int64] | None,
    ) -> npt.NDArray[np.int64]:
        """Score the nodes that the next search would keep; return their slots in order. The search does not advance."""
        start = int(self.arrays.cursor[START])
        self.choose(class_id, labels_id, mask, storage)
        self.arrays.cursor[START] = start
        # A copy: the next decision overwrites `kept`.
        return self.arrays.kept[: self.arrays.cursor[KEPT]].copy()
