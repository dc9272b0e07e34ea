"""The score table: what a local policy thinks of every (pod class, node) pair, kept up to date lazily.

Between two decisions one node changes. A change log tells which; a class catches up with it when a pod of that class is
next to be placed. Above each row lies a tree of maxima with `FANOUT` children a node, so that finding the best node and
changing a score cost O(log N), not a scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays, fits
from steersman.compiled import inner, outlined, pasted
from steersman.objectives.fragmentation import FragmentArrays
from steersman.policies.learned import LearnedArrays
from steersman.policies.learned_scores import learned_score
from steersman.policies.local import BEST_FIT, LEARNED, best_fit, local_score
from steersman.workloads.mix import MixArrays

FANOUT = 16
INFEASIBLE = -np.inf
FILLED_AT_ONCE = 1 << 22
"""Scores that are written without a pause. A table of all pods and nodes takes seconds, and a signal must be heard."""


class TableArrays(NamedTuple):
    """Scores of C classes on N nodes (padded to a multiple of `FANOUT`).

    Attributes:
        scores: [C, N'] the weighted sum of the components, -inf where the class does not fit.
        tree: [C, L] maxima of `FANOUT` neighbours, level upon level, the root last.
        offset: [levels + 1] where in `tree` each level begins.
        seen: [C] how much of the log the class has caught up with, -1: nothing yet.
        log: [E] slots of changed nodes, in order.
        logged: [1] how much of `log` is written.
        stamp: [N] the last catch-up that looked at the node.
        stamps: [1] catch-ups so far.
        kinds: [P] local policies of the mix.
        weights: [P] their weights.
        best_fit: [C, N'] raw scores of `best-fit` as a part of a mix, where it is normalised over the nodes that fit;
            [0, N'] if it is not part of one.
        best_fit_weight: [1] its weight in the mix.
    """

    scores: npt.NDArray[np.float64]
    tree: npt.NDArray[np.float64]
    offset: npt.NDArray[np.int64]
    seen: npt.NDArray[np.int64]
    log: npt.NDArray[np.int64]
    logged: npt.NDArray[np.int64]
    stamp: npt.NDArray[np.int64]
    stamps: npt.NDArray[np.int64]
    kinds: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    best_fit: npt.NDArray[np.float64]
    best_fit_weight: npt.NDArray[np.float64]


def table_arrays(nodes: int, classes: int, changes: int, kinds: Sequence[int], weights: Sequence[float]) -> TableArrays:
    """An empty table for a weighted sum of local policies, with room for a log of `changes`."""
    normalised = [w for kind, w in zip(kinds, weights, strict=True) if kind == BEST_FIT and len(kinds) > 1]
    plain = [(kind, w) for kind, w in zip(kinds, weights, strict=True) if kind != BEST_FIT or not normalised]
    sizes: list[int] = []
    size = nodes
    while size > 1 or not sizes:
        size = -(-size // FANOUT)
        sizes.append(size)
    padded = sizes[0] * FANOUT
    # Each level is padded to whole families, so that kernels need no bounds.
    widths = [-(-size // FANOUT) * FANOUT for size in sizes]
    return TableArrays(
        scores=_infeasible(classes, padded),
        tree=_infeasible(classes, sum(widths)),
        offset=np.cumsum([0, *widths]).astype(np.int64),
        seen=np.full(classes, -1, dtype=np.int64),
        log=np.zeros(changes, dtype=np.int64),
        logged=np.zeros(1, dtype=np.int64),
        stamp=np.zeros(nodes, dtype=np.int64),
        stamps=np.zeros(1, dtype=np.int64),
        kinds=np.array([kind for kind, _ in plain], dtype=np.int64),
        weights=np.array([weight for _, weight in plain]),
        best_fit=np.zeros((classes if normalised else 0, padded)),
        best_fit_weight=np.array(normalised or [0.0]),
    )


def _infeasible(rows: int, columns: int) -> npt.NDArray[np.float64]:
    """[rows, columns] filled with `INFEASIBLE`, piece by piece."""
    found = np.empty((rows, columns))
    flat = found.reshape(-1)
    for begin in range(0, flat.size, FILLED_AT_ONCE):
        flat[begin : begin + FILLED_AT_ONCE] = INFEASIBLE
    return found


@inner
def node_changed(table: TableArrays, n: int) -> None:
    """Tell the table that node `n` changed."""
    table.log[table.logged[0]] = n
    table.logged[0] += 1


@pasted
def catch_up(
    table: TableArrays,
    mix: MixArrays,
    fragments: FragmentArrays,
    learned: LearnedArrays,
    nodes: NodeArrays,
    classes: ClassArrays,
    c: int,
) -> None:
    """Bring the row of class `c` up to date."""
    if table.kinds[0] == LEARNED:  # never part of a mix
        _catch_up_learned(table, mix, learned, nodes, classes, c)
        return
    seen, stamp = _caught_up(table, c)
    for k in range(nodes.gpu_count.shape[0] if seen < 0 else table.logged[0] - seen):
        n = _changed(table, seen, stamp, k)
        if n >= 0:
            score = INFEASIBLE
            if fits(nodes, classes, c, n):
                score = _score(table, mix, fragments, nodes, classes, c, n)
            _enter(table, c, n, seen, score)
    if seen < 0:
        _build(table, c)


@outlined
def _catch_up_learned(
    table: TableArrays, mix: MixArrays, learned: LearnedArrays, nodes: NodeArrays, classes: ClassArrays, c: int
) -> None:
    seen, stamp = _caught_up(table, c)
    for k in range(nodes.gpu_count.shape[0] if seen < 0 else table.logged[0] - seen):
        n = _changed(table, seen, stamp, k)
        if n >= 0:
            score = INFEASIBLE
            if fits(nodes, classes, c, n):
                score = learned_score(learned, mix, nodes, classes, c, n)
            _enter(table, c, n, seen, score)
    if seen < 0:
        _build(table, c)


@inner
def _caught_up(table: TableArrays, c: int) -> tuple[int, int]:
    """How much of the log class `c` knew (-1: nothing at all), and a stamp for the nodes that it looks at now."""
    seen = table.seen[c]
    table.seen[c] = table.logged[0]
    table.stamps[0] += 1
    return seen, table.stamps[0]


@inner
def _changed(table: TableArrays, seen: int, stamp: int, k: int) -> int:
    """The k-th node to look at, -1 if it was looked at already."""
    if seen < 0:
        return k
    n = table.log[seen + k]
    if table.stamp[n] == stamp:
        return -1
    table.stamp[n] = stamp
    return int(n)


@inner
def _enter(table: TableArrays, c: int, n: int, seen: int, score: float) -> None:
    if score != table.scores[c, n]:
        table.scores[c, n] = score
        if seen >= 0:
            _update(table, c, n)


@pasted
def _score(
    table: TableArrays,
    mix: MixArrays,
    fragments: FragmentArrays,
    nodes: NodeArrays,
    classes: ClassArrays,
    c: int,
    n: int,
) -> float:
    if table.best_fit.shape[0] > 0:
        table.best_fit[c, n] = best_fit(nodes, classes, c, n)
    total = 0.0
    for p in range(table.kinds.shape[0]):
        total += table.weights[p] * local_score(table.kinds[p], mix, fragments, nodes, classes, c, n)
    return total


@inner
def _family_maximum(values: npt.NDArray[np.float64], first: int) -> float:
    best = values[first]
    for i in range(first + 1, first + FANOUT):
        best = max(best, values[i])
    return float(best)


@inner
def _build(table: TableArrays, c: int) -> None:
    for i in range(table.scores.shape[1] // FANOUT):
        table.tree[c, i] = _family_maximum(table.scores[c], i * FANOUT)
    for level in range(1, table.offset.shape[0] - 1):
        below, here = table.offset[level - 1], table.offset[level]
        for i in range((here - below) // FANOUT):
            table.tree[c, here + i] = _family_maximum(table.tree[c], below + i * FANOUT)


@inner
def _update(table: TableArrays, c: int, n: int) -> None:
    i = n // FANOUT
    best = _family_maximum(table.scores[c], i * FANOUT)
    for level in range(table.offset.shape[0] - 1):
        here = table.offset[level]
        if table.tree[c, here + i] == best:
            return
        table.tree[c, here + i] = best
        i //= FANOUT
        best = _family_maximum(table.tree[c], here + i * FANOUT)


@inner
def best_node(table: TableArrays, c: int) -> int:
    """The slot with the highest score of class `c`, the lowest on ties; -1 if it fits nowhere. Needs `catch_up`."""
    top = table.offset.shape[0] - 2
    best = table.tree[c, table.offset[top]]
    if best == INFEASIBLE:
        return -1
    i = 0
    for level in range(top - 1, -1, -1):
        i = _first(table.tree[c], table.offset[level], i * FANOUT, best)
    return _first(table.scores[c], 0, i * FANOUT, best)


@inner
def best_masked(table: TableArrays, c: int, mask: npt.NDArray[np.bool_], masked: bool) -> int:
    """Like `best_node` by a scan: only where `mask` is set (if `masked`), and with a normalised part if there is one.

    `best-fit` is normalised to whole numbers 0..100 between its extremes over the nodes in question.
    """
    low, high = _extremes(table, c, mask, masked)
    best, chosen = INFEASIBLE, -1
    for n in range(mask.shape[0]):
        score = _masked_score(table, c, n, mask, masked, low, high)
        if score > best:
            best, chosen = score, n
    return chosen


@inner
def masked_scores(
    table: TableArrays, c: int, mask: npt.NDArray[np.bool_], masked: bool, scores: npt.NDArray[np.float64]
) -> None:
    """Into scores, [N], what `best_masked` compares; INFEASIBLE where the class may not run."""
    low, high = _extremes(table, c, mask, masked)
    for n in range(mask.shape[0]):
        scores[n] = _masked_score(table, c, n, mask, masked, low, high)


@inner
def _extremes(table: TableArrays, c: int, mask: npt.NDArray[np.bool_], masked: bool) -> tuple[float, float]:
    """The lowest and the highest raw score of a normalised part over the nodes in question; infinities without one."""
    low, high = np.inf, -np.inf
    if table.best_fit.shape[0] > 0:
        for n in range(mask.shape[0]):
            if table.scores[c, n] != INFEASIBLE and (mask[n] or not masked):
                low, high = min(low, table.best_fit[c, n]), max(high, table.best_fit[c, n])
    return low, high


@inner
def _masked_score(
    table: TableArrays, c: int, n: int, mask: npt.NDArray[np.bool_], masked: bool, low: float, high: float
) -> float:
    score = table.scores[c, n]
    if masked and not mask[n]:
        return INFEASIBLE
    if score != INFEASIBLE and high > low:
        score += table.best_fit_weight[0] * ((table.best_fit[c, n] - low) * 100.0 // (high - low))
    return float(score)


@inner
def _first(values: npt.NDArray[np.float64], base: int, start: int, wanted: float) -> int:
    i = start
    while values[base + i] != wanted:
        i += 1
    return i
