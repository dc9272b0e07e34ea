"""kube-default: what kube-scheduler 1.36 decides with its default configuration, as a kernel over the cluster's arrays.

The scheduler looks at nodes from where it stopped last, keeps the first that are feasible (all of a cluster under 100
nodes), scores those, and binds to the best. Simulated is `parallelism: 1`, where it is deterministic. Source:
Kubernetes 1.36.3, pkg/scheduler/{schedule_one.go,backend/cache/node_tree.go} and, of pkg/scheduler/framework/plugins,
podtopologyspread and interpodaffinity.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays, fits
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
from steersman.policies.kube_arrays import (
    AFFINITY,
    BALANCED,
    FIRST,
    FIT,
    IGNORED,
    IMAGES,
    INCLUDED_ROW,
    KEPT,
    LAST,
    MIN_NODES,
    MIN_PERCENTAGE,
    PLUGINS,
    RAW,
    SEEN,
    SPREADING,
    START,
    STATIC,
    TAINTS,
    TOTAL,
    WEIGHTS,
    KubeArrays,
    kube_arrays,
)
from steersman.policies.kube_scores import (
    MAX_SCORE,
    balanced_allocation,
    least_allocated,
)
from steersman.workloads.workload import Services

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


# Outside of compiled code ---------------------------------------------------------------------------------------------


class KubeDefault:
    """kube-scheduler's default decisions and scores for a state, one at a time: for explanations and comparisons.

    Args:
        state: the cluster; call `refresh` when nodes came, changed or left.
        services: what selects pods that are to be spread by default.
        percentage: `percentageOfNodesToScore`; 0: the scheduler's own choice.
        arrays: what `kube_arrays` made of all that, if somebody has it.

    Attributes:
        arrays: what the compiled decision works with.
    """

    def __init__(
        self,
        state: ClusterState,
        services: Services | None = None,
        percentage: int = 0,
        arrays: KubeArrays | None = None,
    ) -> None:
        self.state, self.services, self.percentage = state, services, percentage
        self.arrays = kube_arrays(state, services, percentage) if arrays is None else arrays

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
