"""Scores of kube-scheduler's NodeResourcesFit and NodeResourcesBalancedAllocation over any resources.

The arithmetic equals that of kube-scheduler bit for bit: 64-bit integers, floats in the same order. Devices in a node's
mask count in milli, so that pods may request shares; of whole devices the scores are kube-scheduler's. Source:
Kubernetes 1.37.2, pkg/scheduler/framework/plugins/noderesources.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, EPHEMERAL, EXTENDED, MEMORY, ClassArrays, NodeArrays, signed_gpu
from steersman.cluster.model import GPU_MILLI, GPU_RESOURCES, UNLIMITED, Node
from steersman.cluster.state import ClusterState
from steersman.core.compiled import inlined_kernel
from steersman.policies.node_scores.kube_profile import (
    DEFAULT_PROFILE,
    LEAST_ALLOCATED,
    REQUESTED_TO_CAPACITY,
    KubeProfile,
)
from steersman.policies.node_scores.plugin_scores import MAX_SCORE, balanced_allocation, least_allocated

COLUMN, WEIGHT = range(2)
"""Columns of `ScoredResources.entries`."""
NO_COLUMN = -1
UTILIZATION, SCORE = range(2)
"""Columns of `ScoredResources.shape`."""
_NATIVE = {"cpu": CPU, "memory": MEMORY, "ephemeral-storage": EPHEMERAL}


class ScoredResources(NamedTuple):
    """Resources whose use is scored, with what is offered and requested under their names.

    E entries: the resources of NodeResourcesFit, then those of NodeResourcesBalancedAllocation; none of a plugin that
    scores as by default, for which `plugin_scores` is faster. N node slots, K distinct constraints of classes
    (`ClassArrays.constraint`), P points.

    Attributes:
        fit: number of entries of NodeResourcesFit.
        strategy: its scoring strategy (`kube_profile.STRATEGIES`).
        balances_change: see `MinorRules`.
        entries: [E, 2] int64: `COLUMN` in resource matrices, `NO_COLUMN` if no node counts it; `WEIGHT`.
        offered: [E, N] bool, whether the devices in a node's mask are offered under this name.
        requested: [E, K] bool, whether pods with these constraints request their GPUs by this name.
        shape: [P, 2] int64: `UTILIZATION` in percent, `SCORE` in 0..100.
    """

    fit: int
    strategy: int
    balances_change: bool
    entries: npt.NDArray[np.int64]
    offered: npt.NDArray[np.bool_]
    requested: npt.NDArray[np.bool_]
    shape: npt.NDArray[np.int64]


def scored_resources(state: ClusterState, profile: KubeProfile) -> ScoredResources:
    """Return what a profile scores of the state's nodes and classes.

    Devices and requests without a name, as in openb, count as the first GPU resource of each plugin.
    """
    fit = () if profile.fit == DEFAULT_PROFILE.fit else profile.fit.resources
    is_default = profile.minor.balances_change and profile.balanced == DEFAULT_PROFILE.balanced
    plugins = (fit, () if is_default else tuple((name, 1) for name in profile.balanced))
    columns = {name: column for column, name in enumerate(state.resources, EXTENDED)} | _NATIVE
    classes = state.class_arrays
    _, first = np.unique(classes.constraint, return_index=True)
    names_requested = [state.classes[c].requests.gpu_resource for c in first]
    entries, offered, requested = [], [], []
    for resources in plugins:
        nameless = next((name for name, _ in resources if name in GPU_RESOURCES), None)
        for name, weight in resources:
            entries.append((columns.get(name, NO_COLUMN), weight))
            is_gpu = name in GPU_RESOURCES
            offered.append([is_gpu and _offers(node, name, name == nameless) for node in state.nodes])
            requested.append([each == name or (not each and name == nameless) for each in names_requested])
    return ScoredResources(
        fit=len(fit),
        strategy=profile.fit.kind,
        balances_change=profile.minor.balances_change,
        entries=np.array(entries, dtype=np.int64).reshape(-1, 2),
        offered=np.array(offered, dtype=np.bool_).reshape(len(entries), len(state.nodes)),
        requested=np.array(requested, dtype=np.bool_).reshape(len(entries), len(first)),
        shape=np.array(profile.fit.shape, dtype=np.int64).reshape(-1, 2),
    )


def _offers(node: Node | None, name: str, is_nameless: bool) -> bool:
    if node is None or not node.gpu_count:
        return False
    return name in node.gpu_resources if node.gpu_resources else is_nameless


@inlined_kernel
def fit_score(scored: ScoredResources, nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """Return NodeResourcesFit's score, 0..100: the weighted mean over the resources that the node has.

    With a allocatable and q requested, the pod included, a resource scores (a - q) 100 // a for LeastAllocated, 0 where
    q > a; min(q, a) 100 // a for MostAllocated; the shape at that percentage for RequestedToCapacityRatio. Extended
    resources that the pod does not request are ignored. Requests of CPU and memory are non-zero requests: a container
    without requests counts as 100m and 200MiB.
    """
    if scored.fit == 0:
        return least_allocated(nodes, classes, c, n)
    total, weights = 0, 0
    for e in range(scored.fit):
        capacity, taken, request = _amounts(scored, nodes, classes, c, n, e, True)
        if capacity == 0:
            continue
        taken += request
        if scored.strategy == LEAST_ALLOCATED:
            score = (capacity - taken) * MAX_SCORE // capacity if taken <= capacity else 0
        else:
            score = min(taken, capacity) * MAX_SCORE // capacity
            if scored.strategy == REQUESTED_TO_CAPACITY:
                score = _shaped(scored.shape, score)
                if score <= 0:
                    continue
        total += scored.entries[e, WEIGHT] * score
        weights += scored.entries[e, WEIGHT]
    if weights == 0:
        return 0
    if scored.strategy == REQUESTED_TO_CAPACITY:
        return math.floor(total / weights + 0.5)  # Go's math.Round of values >= 0: halves go up
    return int(total // weights)


@inlined_kernel
def balanced_score(scored: ScoredResources, nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """Return NodeResourcesBalancedAllocation's score: 50 + (50 + B(with the pod) - B(without)) // 2, in 50..100.

    B is the balance of the resources. Before Kubernetes 1.36 the score was B(with the pod). Requests are the actual
    ones. A pod that requests none of the resources scores 0; kube-scheduler skips it.
    """
    if scored.entries.shape[0] == scored.fit:
        return balanced_allocation(nodes, classes, c, n)
    requests = False
    for e in range(scored.fit, scored.entries.shape[0]):
        column = scored.entries[e, COLUMN]
        requests = requests or (column >= 0 and classes.request[c, column] > 0)
        requests = requests or (classes.gpu_count[c] > 0 and scored.requested[e, classes.constraint[c]])
    if not requests:
        return 0
    after = _balance(scored, nodes, classes, c, n, 1)
    if not scored.balances_change:
        return after
    return MAX_SCORE // 2 + (MAX_SCORE // 2 + after - _balance(scored, nodes, classes, c, n, 0)) // 2


@inlined_kernel
def _balance(scored: ScoredResources, nodes: NodeArrays, classes: ClassArrays, c: int, n: int, pods: int) -> int:
    """Return int(100 (1 - s)), s the standard deviation of the requested shares, each at most 1, with 0 or 1 pods.

    A share of two resources is |f - g| / 2, and of one or none 0.
    """
    count, total, first, second = 0, 0.0, 0.0, 0.0
    for e in range(scored.fit, scored.entries.shape[0]):
        capacity, taken, request = _amounts(scored, nodes, classes, c, n, e, False)
        if capacity > 0:
            share = min((taken + pods * request) / capacity, 1.0)
            first, second = second, share
            total += share
            count += 1
    deviation = 0.0
    if count == 2:
        deviation = abs((first - second) / 2.0)
    elif count > 2:
        mean, squares = total / count, 0.0
        for e in range(scored.fit, scored.entries.shape[0]):
            capacity, taken, request = _amounts(scored, nodes, classes, c, n, e, False)
            if capacity > 0:
                share = min((taken + pods * request) / capacity, 1.0)
                squares += (share - mean) * (share - mean)
        deviation = math.sqrt(squares / count)
    return int((1.0 - deviation) * MAX_SCORE)


@inlined_kernel
def _amounts(
    scored: ScoredResources, nodes: NodeArrays, classes: ClassArrays, c: int, n: int, e: int, nonzero: bool
) -> tuple[int, int, int]:
    """Return what is allocatable, taken and requested of an entry's resource; nothing allocatable: it is ignored."""
    column = scored.entries[e, COLUMN]
    if column >= 0 and column <= MEMORY:
        if nonzero:
            return nodes.allocatable[n, column], nodes.nonzero[n, column], classes.nonzero[c, column]
        capacity = nodes.allocatable[n, column]
        return capacity, capacity - nodes.free[n, column], classes.request[c, column]
    capacity, taken, request = 0, 0, 0
    if column >= 0 and nodes.allocatable[n, column] < UNLIMITED:
        capacity = nodes.allocatable[n, column]
        taken, request = capacity - nodes.free[n, column], classes.request[c, column]
        if classes.gpu_column[c] == column:
            request += classes.gpu_count[c]
    if capacity == 0 and scored.offered[e, n] and scored.requested[e, classes.constraint[c]]:
        capacity = GPU_MILLI * nodes.gpu_count[n]
        taken, request = capacity - signed_gpu(nodes, n), classes.gpu_count[c] * classes.gpu_milli[c]
    if request == 0 and column != EPHEMERAL:
        return 0, 0, 0
    return capacity, taken, request


@inlined_kernel
def _shaped(shape: npt.NDArray[np.int64], utilization: int) -> int:
    """Return the value of a piecewise linear function, constant beyond its points."""
    for i in range(shape.shape[0]):
        if utilization <= shape[i, UTILIZATION]:
            if i == 0:
                return int(shape[0, SCORE])
            rise, run = shape[i, SCORE] - shape[i - 1, SCORE], shape[i, UTILIZATION] - shape[i - 1, UTILIZATION]
            # Go's division rounds towards zero.
            change = abs(rise) * (utilization - shape[i - 1, UTILIZATION]) // run
            return int(shape[i - 1, SCORE] + (change if rise >= 0 else -change))
    return int(shape[shape.shape[0] - 1, SCORE])
