"""Score table: scores of every (pod class, node) pair, of heuristics or learned weights, updated lazily.

Usually one node changes between two decisions. Changes are logged, and the row of a class is refreshed from the log
when a pod of that class is scheduled. Each row has a tree of maxima with `FANOUT` children per node, so that an argmax
and an update take O(log N).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays, fits
from steersman.core.compiled import called_kernel, inlined_kernel, ir_inlined
from steersman.objectives.fragmentation import FragmentArrays
from steersman.policies.gpu_state.arrays import LearnedArrays
from steersman.policies.gpu_state.kernels import learned_score
from steersman.policies.node_scores.local_scores import BEST_FIT, LEARNED, best_fit, local_score
from steersman.workloads.profile import ProfileArrays

FANOUT = 16
INFEASIBLE = -np.inf
FILL_CHUNK = 1 << 22
"""Scores initialized per call into NumPy, between which signals are handled: a large table takes seconds."""


class ScoreTable(NamedTuple):
    """Score table of C pod classes and N nodes, padded to N', a multiple of `FANOUT`.

    Attributes:
        scores: [C, N'] weighted sums, -inf where the class does not fit.
        tree: [C, L] maxima of `FANOUT` neighbours, level by level, the root last.
        offset: [levels + 1] first column of each level in `tree`.
        log_position: [C] length of the log at the last refresh of each row, -1 before the first refresh.
        log: [E] slots of changed nodes in order.
        logged: [2] length of the log, and how often it was emptied.
        stamp: [N] number of the last refresh that visited the node.
        stamps: [1] number of refreshes.
        kinds: [P] ids of the heuristics.
        weights: [P] their weights.
        best_fit: [C, N'] raw scores of `best-fit` in a sum with other heuristics, where it is normalized over the
            feasible nodes; [0, N'] otherwise.
        best_fit_weight: [1] weight of `best-fit` in such a sum.
    """

    scores: npt.NDArray[np.float64]
    tree: npt.NDArray[np.float64]
    offset: npt.NDArray[np.int64]
    log_position: npt.NDArray[np.int64]
    log: npt.NDArray[np.int64]
    logged: npt.NDArray[np.int64]
    stamp: npt.NDArray[np.int64]
    stamps: npt.NDArray[np.int64]
    kinds: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    best_fit: npt.NDArray[np.float64]
    best_fit_weight: npt.NDArray[np.float64]


def empty_score_table(
    nodes: int, classes: int, changes: int, kinds: Sequence[int], weights: Sequence[float]
) -> ScoreTable:
    """Return an empty table for a weighted sum of heuristics, with a log for `changes` nodes."""
    normalized = [w for kind, w in zip(kinds, weights, strict=True) if kind == BEST_FIT and len(kinds) > 1]
    plain = [(kind, w) for kind, w in zip(kinds, weights, strict=True) if kind != BEST_FIT or not normalized]
    sizes: list[int] = []
    size = nodes
    # At least one level, even for a table of one node.
    while size > 1 or not sizes:
        size = -(-size // FANOUT)
        sizes.append(size)
    # Padding holds INFEASIBLE, which is no maximum while any class fits.
    padded = sizes[0] * FANOUT
    # Each level is padded to a multiple of FANOUT, so that kernels need no bounds checks.
    widths = [-(-size // FANOUT) * FANOUT for size in sizes]
    return ScoreTable(
        scores=_infeasible(classes, padded),
        tree=_infeasible(classes, sum(widths)),
        offset=np.cumsum([0, *widths]).astype(np.int64),
        log_position=np.full(classes, -1, dtype=np.int64),
        log=np.zeros(changes, dtype=np.int64),
        logged=np.zeros(2, dtype=np.int64),
        stamp=np.zeros(nodes, dtype=np.int64),
        stamps=np.zeros(1, dtype=np.int64),
        kinds=np.array([kind for kind, _ in plain], dtype=np.int64),
        weights=np.array([weight for _, weight in plain]),
        best_fit=np.zeros((classes if normalized else 0, padded)),
        best_fit_weight=np.array(normalized or [0.0]),
    )


def _infeasible(rows: int, columns: int) -> npt.NDArray[np.float64]:
    """Return a [rows, columns] array of `INFEASIBLE`, filled in chunks."""
    scores = np.empty((rows, columns))
    flat = scores.reshape(-1)
    for begin in range(0, flat.size, FILL_CHUNK):
        flat[begin : begin + FILL_CHUNK] = INFEASIBLE
    return scores


@inlined_kernel
def log_change(table: ScoreTable, n: int) -> None:
    """Append node `n` to the change log."""
    if table.logged[0] == table.log.shape[0]:
        _begin_log(table)
    table.log[table.logged[0]] = n
    table.logged[0] += 1


@called_kernel
def _begin_log(table: ScoreTable) -> None:
    """Empty a full log: every row is computed again at its next refresh."""
    table.logged[0] = 0
    table.logged[1] += 1
    for c in range(table.log_position.shape[0]):
        table.log_position[c] = -1


@ir_inlined
def refresh_row(
    table: ScoreTable,
    profile: ProfileArrays,
    fragments: FragmentArrays,
    learned: LearnedArrays,
    nodes: NodeArrays,
    classes: ClassArrays,
    c: int,
) -> None:
    """Recompute the scores of class `c` on the nodes that changed since the row's last refresh."""
    if table.kinds[0] == LEARNED:  # never part of a weighted sum
        _refresh_learned_row(table, profile, learned, nodes, classes, c)
        return
    log_position, stamp = _begin_refresh(table, c)
    # A new row visits all nodes, an old one the log since its last refresh.
    for k in range(nodes.gpu_count.shape[0] if log_position < 0 else table.logged[0] - log_position):
        n = _changed_node(table, log_position, stamp, k)
        if n >= 0:
            score = INFEASIBLE
            if fits(nodes, classes, c, n):
                score = _score(table, profile, fragments, nodes, classes, c, n)
            _set_score(table, c, n, log_position, score)
    if log_position < 0:
        _build(table, c)


@called_kernel
def _refresh_learned_row(
    table: ScoreTable, profile: ProfileArrays, learned: LearnedArrays, nodes: NodeArrays, classes: ClassArrays, c: int
) -> None:
    log_position, stamp = _begin_refresh(table, c)
    for k in range(nodes.gpu_count.shape[0] if log_position < 0 else table.logged[0] - log_position):
        n = _changed_node(table, log_position, stamp, k)
        if n >= 0:
            score = INFEASIBLE
            if fits(nodes, classes, c, n):
                score = learned_score(learned, profile, nodes, classes, c, n)
            _set_score(table, c, n, log_position, score)
    if log_position < 0:
        _build(table, c)


@inlined_kernel
def _begin_refresh(table: ScoreTable, c: int) -> tuple[int, int]:
    """Start a refresh of row `c`; return the log length at the last one (-1: never) and this refresh's stamp."""
    log_position = table.log_position[c]
    table.log_position[c] = table.logged[0]
    table.stamps[0] += 1
    return log_position, table.stamps[0]


@inlined_kernel
def _changed_node(table: ScoreTable, log_position: int, stamp: int, k: int) -> int:
    """Return the k-th node to rescore, -1 if this refresh has visited it already."""
    if log_position < 0:
        return k
    n = table.log[log_position + k]
    # The stamp avoids rescoring a node that changed several times; no set has to be cleared.
    if table.stamp[n] == stamp:
        return -1
    table.stamp[n] = stamp
    return int(n)


@inlined_kernel
def _set_score(table: ScoreTable, c: int, n: int, log_position: int, score: float) -> None:
    # An unchanged score needs no update of the tree.
    if score != table.scores[c, n]:
        table.scores[c, n] = score
        if log_position >= 0:
            _update(table, c, n)


@ir_inlined
def _score(
    table: ScoreTable,
    profile: ProfileArrays,
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
        total += table.weights[p] * local_score(table.kinds[p], profile, fragments, nodes, classes, c, n)
    return total


@inlined_kernel
def _block_max(values: npt.NDArray[np.float64], first: int) -> float:
    """Return the maximum of a block of `FANOUT` values."""
    best = values[first]
    for i in range(first + 1, first + FANOUT):
        best = max(best, values[i])
    return float(best)


@inlined_kernel
def _build(table: ScoreTable, c: int) -> None:
    """Compute the tree of row `c`."""
    for i in range(table.scores.shape[1] // FANOUT):
        table.tree[c, i] = _block_max(table.scores[c], i * FANOUT)
    for level in range(1, table.offset.shape[0] - 1):
        below, here = table.offset[level - 1], table.offset[level]
        for i in range((here - below) // FANOUT):
            table.tree[c, here + i] = _block_max(table.tree[c], below + i * FANOUT)


@inlined_kernel
def _update(table: ScoreTable, c: int, n: int) -> None:
    """Update the tree of row `c` after a change of the score of node `n`."""
    i = n // FANOUT
    best = _block_max(table.scores[c], i * FANOUT)
    for level in range(table.offset.shape[0] - 1):
        here = table.offset[level]
        if table.tree[c, here + i] == best:
            return
        table.tree[c, here + i] = best
        i //= FANOUT
        best = _block_max(table.tree[c], here + i * FANOUT)


@inlined_kernel
def best_node(table: ScoreTable, c: int) -> int:
    """Return the best slot of class `c`, the lowest on ties, -1 if it fits nowhere. Call `refresh_row` first."""
    # The last level, whose first entry is the root.
    top = table.offset.shape[0] - 2
    best = table.tree[c, table.offset[top]]
    if best == INFEASIBLE:
        return -1
    i = 0
    # Down from the root: in each block the first child with the maximum, which gives the lowest slot of equals.
    for level in range(top - 1, -1, -1):
        i = _first(table.tree[c], table.offset[level], i * FANOUT, best)
    return _first(table.scores[c], 0, i * FANOUT, best)


@inlined_kernel
def best_masked(table: ScoreTable, c: int, mask: npt.NDArray[np.bool_], masked: bool) -> int:
    """Return the best slot by a scan: among the nodes of `mask` if `masked`, and with normalized `best-fit`, if any.

    `best-fit` is normalized to integers 0..100 between its extremes over the nodes considered.
    """
    low, high = _extremes(table, c, mask, masked)
    best, chosen = INFEASIBLE, -1
    for n in range(mask.shape[0]):
        score = _masked_score(table, c, n, mask, masked, low, high)
        if score > best:
            best, chosen = score, n
    return chosen


@inlined_kernel
def masked_scores(
    table: ScoreTable, c: int, mask: npt.NDArray[np.bool_], masked: bool, scores: npt.NDArray[np.float64]
) -> None:
    """Write into `scores`, [N], the scores that `best_masked` compares; INFEASIBLE where the class may not run."""
    low, high = _extremes(table, c, mask, masked)
    for n in range(mask.shape[0]):
        scores[n] = _masked_score(table, c, n, mask, masked, low, high)


@inlined_kernel
def _extremes(table: ScoreTable, c: int, mask: npt.NDArray[np.bool_], masked: bool) -> tuple[float, float]:
    """Return the extremes of raw `best-fit` scores over the nodes considered; infinities if it is not normalized."""
    low, high = np.inf, -np.inf
    if table.best_fit.shape[0] > 0:
        for n in range(mask.shape[0]):
            if table.scores[c, n] != INFEASIBLE and (mask[n] or not masked):
                low, high = min(low, table.best_fit[c, n]), max(high, table.best_fit[c, n])
    return low, high


@inlined_kernel
def _masked_score(
    table: ScoreTable, c: int, n: int, mask: npt.NDArray[np.bool_], masked: bool, low: float, high: float
) -> float:
    score = table.scores[c, n]
    if masked and not mask[n]:
        return INFEASIBLE
    if score != INFEASIBLE and high > low:
        score += table.best_fit_weight[0] * ((table.best_fit[c, n] - low) * 100.0 // (high - low))
    return float(score)


@inlined_kernel
def _first(values: npt.NDArray[np.float64], base: int, start: int, value: float) -> int:
    """Return the first index from `start` on, relative to `base`, that holds a value."""
    i = start
    while values[base + i] != value:
        i += 1
    return i
