"""Decision kernels: choose the node of a pod and its GPU devices, in simulations and in live clusters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays, best_devices, fit_mask, fits
from steersman.cluster.constraints.inter_pod import InterPodArrays, has_inter_pod_rules, inter_pod_mask
from steersman.cluster.model import GPU_MILLI
from steersman.core.compiled import inlined_kernel, ir_inlined, kernel
from steersman.core.random_numbers import next_bits, scaled
from steersman.objectives.fragmentation import FragmentArrays, refresh
from steersman.policies.decision.score_table import (
    ScoreTable,
    best_masked,
    best_node,
    log_change,
    masked_scores,
    refresh_row,
)
from steersman.policies.gpu_state.arrays import LearnedArrays
from steersman.policies.gpu_state.kernels import learned_device, learned_refresh
from steersman.policies.node_scores.kube_arrays import KubeArrays
from steersman.policies.node_scores.kube_kernels import choose
from steersman.policies.node_scores.local_scores import fgd_share
from steersman.workloads.profile import ProfileArrays

DEVICES_BEST, DEVICES_FGD, DEVICES_RANDOM, DEVICES_LEARNED = range(4)
"""Rules that choose GPU devices on the chosen node: best fit, FGD, random, by learned scores."""

SELECT_BEST, SELECT_RANDOM, SELECT_KUBE_SCHEDULER, SELECT_EXTERNAL = range(4)
"""Rules that choose the node: highest score in the table, random, kube-scheduler's, or a scorer in Python."""

NONE = -1
"""Slot of a pod that fits nowhere."""

NODE, DEVICES = range(2)
"""Columns of `decide`'s output."""


class DecisionState(NamedTuple):
    """Arrays that a decision reads."""

    nodes: NodeArrays
    classes: ClassArrays
    terms: InterPodArrays
    profile: ProfileArrays
    fragments: FragmentArrays
    table: ScoreTable
    kube: KubeArrays
    learned: LearnedArrays


class ScoreTableContext(NamedTuple):
    """Subset of `DecisionState` that table scores depend on; kernels unpack every array passed, so fewer are faster."""

    nodes: NodeArrays
    classes: ClassArrays
    profile: ProfileArrays
    fragments: FragmentArrays
    table: ScoreTable
    learned: LearnedArrays


@inlined_kernel
def random_below(rng: npt.NDArray[np.uint64], bound: int) -> int:
    """Draw a number in [0, bound) from the only stream of `rng`, [1]."""
    return scaled(next_bits(rng, 0), bound)


@inlined_kernel
def find_feasible(cluster: DecisionState, mask: npt.NDArray[np.bool_], c: int, labels: int) -> None:
    """Write into `mask`, [N] bool, the nodes that meet every hard constraint, inter-pod constraints included."""
    fit_mask(cluster.nodes, cluster.classes, c, mask)
    inter_pod_mask(cluster.terms, c, labels, mask)


@inlined_kernel
def _choose_random(
    cluster: DecisionState, mask: npt.NDArray[np.bool_], rng: npt.NDArray[np.uint64], c: int, masked: bool
) -> int:
    # Reservoir sampling: the k-th candidate replaces the chosen one with probability 1/k, so no list is needed.
    chosen, candidates = NONE, 0
    for n in range(cluster.nodes.gpu_count.shape[0]):
        if mask[n] if masked else fits(cluster.nodes, cluster.classes, c, n):
            candidates += 1
            if random_below(rng, candidates) == 0:
                chosen = n
    return chosen


@ir_inlined
def _choose_best(cluster: DecisionState, mask: npt.NDArray[np.bool_], c: int, masked: bool) -> int:
    table = cluster.table
    refresh_row(table, cluster.profile, cluster.fragments, cluster.learned, cluster.nodes, cluster.classes, c)
    # A mask, or best-fit normalised over the feasible nodes, needs a scan; the tree is over all nodes of the table.
    if masked or table.best_fit.shape[0] > 0:
        return best_masked(table, c, mask, masked)
    return best_node(table, c)


@ir_inlined
def choose_node(
    cluster: DecisionState,
    mask: npt.NDArray[np.bool_],
    rng: npt.NDArray[np.uint64],
    chooser: int,
    c: int,
    labels: int,
    masked: bool,
) -> int:
    """Return the node for a pod of class `c`, NONE if it fits nowhere.

    If `masked`, the feasible nodes are those of `mask`, else those that pass `fits`.
    """
    if chooser == SELECT_RANDOM:
        return _choose_random(cluster, mask, rng, c, masked)
    if chooser == SELECT_KUBE_SCHEDULER:
        # Of length 0 it means: wherever the pod fits.
        allowed = mask if masked else mask[:0]
        return choose(cluster.nodes, cluster.classes, cluster.terms, cluster.kube, c, labels, allowed)
    return _choose_best(cluster, mask, c, masked)


@inlined_kernel
def choose_devices(cluster: DecisionState, rule: int, c: int, n: int, rng: npt.NDArray[np.uint64]) -> int:
    """Return the devices on node `n` for a pod of class `c`, as a bit mask."""
    nodes, classes = cluster.nodes, cluster.classes
    # These rules place one share of a device; everything else follows from best fit.
    share = classes.gpu_count[c] == 1 and classes.gpu_milli[c] < GPU_MILLI
    if share and rule == DEVICES_FGD:
        return 1 << fgd_share(cluster.profile, cluster.fragments, nodes, classes, c, n)[1]
    if share and rule == DEVICES_LEARNED:
        return 1 << learned_device(cluster.learned, cluster.profile, nodes, classes, c, n)
    if share and rule == DEVICES_RANDOM:
        chosen, candidates = -1, 0
        for d in range(nodes.gpu_count[n]):
            if nodes.gpu_free[n, d] >= classes.gpu_milli[c]:
                candidates += 1
                if random_below(rng, candidates) == 0:
                    chosen = d
        return 1 << chosen
    return best_devices(nodes, classes, c, n)


@inlined_kernel
def refresh_node(cluster: DecisionState | ScoreTableContext, n: int) -> None:
    """Update fragmentation and learned values of node `n`, which changed, and log the change for the score table."""
    refresh(cluster.profile, cluster.nodes, cluster.fragments, n)
    if cluster.learned.before.shape[0] > 0:
        learned_refresh(cluster.learned, cluster.profile, cluster.nodes, n)
    log_change(cluster.table, n)


@inlined_kernel
def _follow(cluster: DecisionState | ScoreTableContext, changed: npt.NDArray[np.int64]) -> None:
    for i in range(changed.shape[0]):
        refresh_node(cluster, changed[i])


@kernel
def decide(
    cluster: DecisionState,
    changed: npt.NDArray[np.int64],
    mask: npt.NDArray[np.bool_],
    rng: npt.NDArray[np.uint64],
    chooser: int,
    rule: int,
    c: int,
    labels: int,
    answer: npt.NDArray[np.int64],
) -> None:
    """Choose the node and the devices of a pod.

    Args:
        cluster: the decision arrays.
        changed: slots of the nodes that changed since the last decision.
        mask: [N] buffer.
        rng: [1] state of the random number generator.
        chooser: selection rule of the node, not SELECT_EXTERNAL.
        rule: selection rule of the devices.
        c: the pod's class.
        labels: the pod's label set.
        answer: [2] output: NODE (NONE if the pod fits nowhere) and DEVICES.
    """
    _follow(cluster, changed)
    masked = has_inter_pod_rules(cluster.terms, c, labels)
    if masked:
        find_feasible(cluster, mask, c, labels)
    n = choose_node(cluster, mask, rng, chooser, c, labels, masked)
    answer[NODE], answer[DEVICES] = n, 0
    if n != NONE:
        answer[DEVICES] = choose_devices(cluster, rule, c, n, rng)


@kernel
def score_nodes(
    scored: ScoreTableContext,
    changed: npt.NDArray[np.int64],
    mask: npt.NDArray[np.bool_],
    masked: bool,
    c: int,
    scores: npt.NDArray[np.float64],
) -> None:
    """Write the table scores of class `c` into `scores`, -inf where infeasible.

    Args:
        scored: the score table and its inputs.
        changed: slots of the nodes that changed since the last decision.
        mask: [N] the feasible nodes, inter-pod constraints included; read if `masked`.
        masked: whether inter-pod constraints apply; if not, the table holds the feasible nodes.
        c: the pod's class.
        scores: [N] output.
    """
    _follow(scored, changed)
    refresh_row(scored.table, scored.profile, scored.fragments, scored.learned, scored.nodes, scored.classes, c)
    masked_scores(scored.table, c, mask, masked, scores)


@kernel
def devices_on(cluster: DecisionState, rule: int, c: int, n: int, rng: npt.NDArray[np.uint64]) -> int:
    """Call `choose_devices` from Python."""
    return choose_devices(cluster, rule, c, n, rng)


@kernel
def follow(cluster: DecisionState, changed: npt.NDArray[np.int64]) -> None:
    """Update the arrays of the `changed` nodes."""
    _follow(cluster, changed)
