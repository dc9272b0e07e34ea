"""A decision in compiled code: the node for a pod of a class, and its GPU devices; in simulation and in a cluster."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import WHOLE, ClassArrays, NodeArrays, best_devices, fit_mask, fits
from steersman.cluster.terms import TermArrays, terms_active, terms_mask
from steersman.compiled import inner, kernel, pasted
from steersman.objectives.fragmentation import FragmentArrays, refresh
from steersman.policies.kube_arrays import KubeArrays
from steersman.policies.kube_default import choose
from steersman.policies.learned import LearnedArrays
from steersman.policies.learned_scores import learned_device, learned_refresh
from steersman.policies.local import fgd_share
from steersman.policies.table import TableArrays, best_masked, best_node, catch_up, masked_scores, node_changed
from steersman.telemetry.randomness import next_bits, scaled
from steersman.workloads.mix import MixArrays

DEVICES_BEST, DEVICES_FGD, DEVICES_RANDOM, DEVICES_LEARNED = range(4)
"""How GPU devices of the chosen node are chosen."""

CHOOSE_TABLE, CHOOSE_RANDOM, CHOOSE_KUBE, CHOOSE_ASK = range(4)
"""How the node is chosen: by the score table, at random, as kube-scheduler does, or by code that is not compiled."""

NONE = -1
"""No node."""

NODE, DEVICES = range(2)
"""Columns of `decide`'s answer."""


class Cluster(NamedTuple):
    """Everything that a decision reads."""

    nodes: NodeArrays
    classes: ClassArrays
    terms: TermArrays
    mix: MixArrays
    fragments: FragmentArrays
    table: TableArrays
    kube: KubeArrays
    learned: LearnedArrays


class Scored(NamedTuple):
    """The part of it that scores in the table depend on: what is not passed to a kernel need not be unpacked for it."""

    nodes: NodeArrays
    classes: ClassArrays
    mix: MixArrays
    fragments: FragmentArrays
    table: TableArrays
    learned: LearnedArrays


@inner
def random_below(rng: npt.NDArray[np.uint64], bound: int) -> int:
    """A number in [0, bound) from the only stream of `rng`, [1]."""
    return scaled(next_bits(rng, 0), bound)


@inner
def find_feasible(cluster: Cluster, mask: npt.NDArray[np.bool_], c: int, labels: int) -> None:
    """Fill the mask, [N]: every hard constraint, other pods included."""
    fit_mask(cluster.nodes, cluster.classes, c, mask)
    terms_mask(cluster.terms, c, labels, mask)


@inner
def _choose_random(
    cluster: Cluster, mask: npt.NDArray[np.bool_], rng: npt.NDArray[np.uint64], c: int, masked: bool
) -> int:
    chosen, found = NONE, 0
    for n in range(cluster.nodes.gpu_count.shape[0]):
        if mask[n] if masked else fits(cluster.nodes, cluster.classes, c, n):
            found += 1
            if random_below(rng, found) == 0:
                chosen = n
    return chosen


@pasted
def _choose_best(cluster: Cluster, mask: npt.NDArray[np.bool_], c: int, masked: bool) -> int:
    table = cluster.table
    catch_up(table, cluster.mix, cluster.fragments, cluster.learned, cluster.nodes, cluster.classes, c)
    if masked or table.best_fit.shape[0] > 0:
        return best_masked(table, c, mask, masked)
    return best_node(table, c)


@pasted
def choose_node(
    cluster: Cluster,
    mask: npt.NDArray[np.bool_],
    rng: npt.NDArray[np.uint64],
    chooser: int,
    c: int,
    labels: int,
    masked: bool,
) -> int:
    """The node for a pod of class `c`, NONE if it fits nowhere. `masked`: `mask` says where it may run, not `fits`."""
    if chooser == CHOOSE_RANDOM:
        return _choose_random(cluster, mask, rng, c, masked)
    if chooser == CHOOSE_KUBE:
        return choose(cluster.nodes, cluster.classes, cluster.terms, cluster.kube, c, labels, masked, mask)
    return _choose_best(cluster, mask, c, masked)


@inner
def choose_devices(cluster: Cluster, rule: int, c: int, n: int, rng: npt.NDArray[np.uint64]) -> int:
    """The devices on node `n` for a pod of class `c`, as a bit mask."""
    nodes, classes = cluster.nodes, cluster.classes
    share = classes.gpu_count[c] == 1 and classes.gpu_milli[c] < WHOLE
    if share and rule == DEVICES_FGD:
        return 1 << fgd_share(cluster.mix, cluster.fragments, nodes, classes, c, n)[1]
    if share and rule == DEVICES_LEARNED:
        return 1 << learned_device(cluster.learned, cluster.mix, nodes, classes, c, n)
    if share and rule == DEVICES_RANDOM:
        chosen, found = -1, 0
        for d in range(nodes.gpu_count[n]):
            if nodes.gpu_free[n, d] >= classes.gpu_milli[c]:
                found += 1
                if random_below(rng, found) == 0:
                    chosen = d
        return 1 << chosen
    return best_devices(nodes, classes, c, n)


@inner
def node_is_different(cluster: Cluster | Scored, n: int) -> None:
    """Bring what is known of node `n` up to date, which changed."""
    refresh(cluster.mix, cluster.nodes, cluster.fragments, n)
    if cluster.learned.before.shape[0] > 0:
        learned_refresh(cluster.learned, cluster.mix, cluster.nodes, n)
    node_changed(cluster.table, n)


@inner
def _follow(cluster: Cluster | Scored, changed: npt.NDArray[np.int64]) -> None:
    for i in range(changed.shape[0]):
        node_is_different(cluster, changed[i])


@kernel
def decide(
    cluster: Cluster,
    changed: npt.NDArray[np.int64],
    mask: npt.NDArray[np.bool_],
    rng: npt.NDArray[np.uint64],
    chooser: int,
    rule: int,
    c: int,
    labels: int,
    answer: npt.NDArray[np.int64],
) -> None:
    """Choose for a pod of class `c` with these labels.

    Args:
        cluster: as it is.
        changed: nodes that are not as they were at the last decision.
        mask: [N] room.
        rng: [1] state of the random numbers.
        chooser: how the node is chosen, not CHOOSE_ASK.
        rule: how its devices are.
        c: class.
        labels: label set.
        answer: [2] NODE (NONE if it fits nowhere) and DEVICES are written to it.
    """
    _follow(cluster, changed)
    masked = terms_active(cluster.terms, c, labels)
    if masked:
        find_feasible(cluster, mask, c, labels)
    n = choose_node(cluster, mask, rng, chooser, c, labels, masked)
    answer[NODE], answer[DEVICES] = n, 0
    if n != NONE:
        answer[DEVICES] = choose_devices(cluster, rule, c, n, rng)


@kernel
def score_nodes(
    scored: Scored,
    changed: npt.NDArray[np.int64],
    mask: npt.NDArray[np.bool_],
    masked: bool,
    c: int,
    scores: npt.NDArray[np.float64],
) -> None:
    """Into scores, [N], what the score table says of class `c`; -inf where it may not run.

    Args:
        scored: of the cluster as it is, with a table.
        changed: as for `decide`.
        mask: [N] where it may run, other pods included.
        masked: whether other pods matter; if not, the table knows where it may run.
        c: class.
        scores: [N] is written to.
    """
    _follow(scored, changed)
    catch_up(scored.table, scored.mix, scored.fragments, scored.learned, scored.nodes, scored.classes, c)
    masked_scores(scored.table, c, mask, masked, scores)


@kernel
def devices_on(cluster: Cluster, rule: int, c: int, n: int, rng: npt.NDArray[np.uint64]) -> int:
    """`choose_devices` for Python."""
    return choose_devices(cluster, rule, c, n, rng)


@kernel
def follow(cluster: Cluster, changed: npt.NDArray[np.int64]) -> None:
    """Bring what is known of the `changed` nodes up to date."""
    _follow(cluster, changed)
