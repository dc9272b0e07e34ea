"""Compiled evaluation of formulas: features of a node, scores of nodes, and a cluster that is filled by a formula."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY, ClassArrays, NodeArrays, best_devices, fits, place, pod_kind
from steersman.cluster.model import GPU_MILLI
from steersman.core.compiled import called_kernel, inlined_kernel, kernel
from steersman.policies.formulas.features import FEATURE_COUNT

CPU_PER_GPU, MEMORY_PER_CPU = range(2)
"""Entries of `FormulaArrays.ratios`."""
NEVER_SCORED, FITS_NOWHERE = -1, -2
"""Values of `FillingRoom.position`."""

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class FormulaArrays(NamedTuple):
    """A formula for the kernels, with K terms at most and M types of GPUs.

    Attributes:
        counts: [4] terms by kind of pod.
        columns: [4, K] columns of the terms' features.
        weights: [4, K] their weights.
        ratios: [2] milli-CPU per GPU, and bytes per milli-CPU (0: memory does not count).
        largest: [1001] the largest of the sizes, in milli, that fits into a free amount; 0: none does.
        claims: [M + 1] by type of GPU, see the feature `claimed`.
    """

    counts: Integers
    columns: Integers
    weights: Floats
    ratios: Floats
    largest: Integers
    claims: Floats


def pod_kinds(classes: ClassArrays) -> Integers:
    """Return the kind of each class, [C], see `cluster.arrays.pod_kind`."""
    of_one = np.where(classes.gpu_milli == GPU_MILLI, 2, 1)
    return np.where(classes.gpu_count > 1, 3, np.where(classes.gpu_count == 1, of_one, 0))


@inlined_kernel
def _ratio(free: int, of: int) -> float:
    return float(free) / float(of) if of > 0 else 0.0


@called_kernel
def _write_state(
    formula: FormulaArrays,
    nodes: NodeArrays,
    n: int,
    cpu_left: int,
    memory_left: int,
    devices: int,
    milli: int,
    first: int,
    values: Floats,
) -> None:
    """Write the features of node `n` into `values` from column `first` on.

    It has `cpu_left` milli-CPU and `memory_left` bytes, and `milli` less on the devices of the bit mask.
    """
    total, whole, shared, dead, waste, squares = 0, 0, 0, 0, 0, 0
    for d in range(nodes.gpu_count[n]):
        left = max(nodes.gpu_free[n, d] - ((devices >> d) & 1) * milli, 0)
        largest = formula.largest[left]
        total += left
        squares += left * left
        waste += left - largest
        dead += left if largest == 0 else 0
        whole += 1 if left == GPU_MILLI else 0
        shared += 1 if 0 < left < GPU_MILLI else 0
    cpu = float(cpu_left)
    if formula.ratios[MEMORY_PER_CPU] > 0.0:
        cpu = min(cpu, float(memory_left) / formula.ratios[MEMORY_PER_CPU])
    cpu = cpu / formula.ratios[CPU_PER_GPU]
    idle = float(total) / 1000.0
    cpu_share = _ratio(cpu_left, nodes.allocatable[n, CPU])
    memory_share = _ratio(memory_left, nodes.allocatable[n, MEMORY])
    short, spare = max(idle - cpu, 0.0), max(cpu - idle, 0.0)
    whole_gpus = float(whole)
    values[first] = idle
    values[first + 1] = whole_gpus
    values[first + 2] = float(total - whole * GPU_MILLI) / 1000.0
    values[first + 3] = float(shared)
    values[first + 4] = 1.0 if whole == nodes.gpu_count[n] else 0.0
    values[first + 5] = float(nodes.gpu_count[n])
    values[first + 6] = cpu
    values[first + 7] = short
    values[first + 8] = spare
    values[first + 9] = cpu_share
    values[first + 10] = memory_share
    values[first + 11] = abs(cpu_share - memory_share)
    values[first + 12] = float(dead) / 1000.0
    values[first + 13] = float(waste) / 1000.0
    values[first + 14] = float(squares) / 1000000.0
    values[first + 15] = idle * idle
    values[first + 16] = whole_gpus * whole_gpus
    values[first + 17] = cpu * cpu
    values[first + 18] = idle * cpu
    values[first + 19] = whole_gpus * cpu
    values[first + 20] = short * short
    values[first + 21] = spare * spare
    values[first + 22] = idle * formula.claims[nodes.gpu_model[n]]


@inlined_kernel
def write_features(
    formula: FormulaArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int, values: Floats
) -> None:
    """Write the features of class `c` on node `n`, where it fits, into `values`, [2 F]: with the pod, then the changes.

    The pod takes the devices of `best_devices`.
    """
    cpu, memory = nodes.free[n, CPU], nodes.free[n, MEMORY]
    _write_state(formula, nodes, n, cpu, memory, 0, 0, FEATURE_COUNT, values)
    devices, milli = best_devices(nodes, classes, c, n), classes.gpu_milli[c]
    cpu, memory = cpu - classes.request[c, CPU], memory - classes.request[c, MEMORY]
    _write_state(formula, nodes, n, cpu, memory, devices, milli, 0, values)
    for i in range(FEATURE_COUNT):
        values[FEATURE_COUNT + i] = values[i] - values[FEATURE_COUNT + i]


@inlined_kernel
def _formula_score(
    formula: FormulaArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int, values: Floats
) -> float:
    write_features(formula, nodes, classes, c, n, values)
    kind, score = pod_kind(classes, c), 0.0
    for k in range(formula.counts[kind]):
        score += formula.weights[kind, k] * values[formula.columns[kind, k]]
    return score


@kernel
def formula_scores(
    formula: FormulaArrays,
    nodes: NodeArrays,
    classes: ClassArrays,
    c: int,
    feasible: npt.NDArray[np.bool_],
    values: Floats,
    scores: Floats,
) -> None:
    """Write the scores of class `c` into `scores`, [N], -inf where it is not feasible; `values`, [2 F], is a buffer."""
    for n in range(scores.shape[0]):
        scores[n] = _formula_score(formula, nodes, classes, c, n, values) if feasible[n] else -np.inf


@kernel
def feature_rows(formula: FormulaArrays, nodes: NodeArrays, classes: ClassArrays, c: int, rows: Floats) -> None:
    """Write the features of class `c` into `rows`, [N, 2 F]; NaN where it does not fit."""
    for n in range(rows.shape[0]):
        if fits(nodes, classes, c, n):
            write_features(formula, nodes, classes, c, n, rows[n])
        else:
            rows[n] = np.nan


class FillingRoom(NamedTuple):
    """Buffers of `fill` for A arrivals of C classes on N nodes.

    Attributes:
        table: [C, N] scores, -inf where a class does not fit.
        log: [A] nodes that changed, in order.
        position: [C] length of the log when a class was last scored, NEVER_SCORED or FITS_NOWHERE.
        values: [2 F] features.
    """

    table: Floats
    log: Integers
    position: Integers
    values: Floats


@inlined_kernel
def _score_again(
    formula: FormulaArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int, room: FillingRoom
) -> None:
    fitting = fits(nodes, classes, c, n)
    room.table[c, n] = _formula_score(formula, nodes, classes, c, n, room.values) if fitting else -np.inf


@kernel
def fill(
    formula: FormulaArrays,
    nodes: NodeArrays,
    classes: ClassArrays,
    arrivals: Integers,
    order: Integers,
    room: FillingRoom,
) -> int:
    """Place pods one after the other where a formula says; return the GPU milli of those that fitted somewhere.

    Nothing leaves, and constraints between pods are not regarded.

    Args:
        formula: the formula.
        nodes: the nodes, which are filled.
        classes: the classes of pods.
        arrivals: [A] the class of each pod.
        order: the nodes that may be used; of equal scores the first one wins.
        room: buffers.
    """
    changed, placed = 0, 0
    for a in range(arrivals.shape[0]):
        c = arrivals[a]
        position = room.position[c]
        if position == FITS_NOWHERE:
            continue
        if position == NEVER_SCORED or changed - position > order.shape[0]:
            for i in range(order.shape[0]):
                _score_again(formula, nodes, classes, c, order[i], room)
        else:
            for k in range(position, changed):
                _score_again(formula, nodes, classes, c, room.log[k], room)
        room.position[c] = changed
        best, chosen = -np.inf, -1
        for i in range(order.shape[0]):
            if room.table[c, order[i]] > best:
                best, chosen = room.table[c, order[i]], order[i]
        if chosen < 0:
            # Nothing leaves, so it never fits again.
            room.position[c] = FITS_NOWHERE
            continue
        place(nodes, classes, c, chosen, best_devices(nodes, classes, c, chosen))
        room.log[changed] = chosen
        changed += 1
        placed += classes.gpu_count[c] * classes.gpu_milli[c]
    return placed
