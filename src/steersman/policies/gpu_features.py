"""What the state of a GPU node is worth: its features, from its free CPU and what is left of its devices alone.

They describe one node, before or after a placement, in GPUs and in the CPU that goes with one GPU. `steersman.features`
has their names and meanings, in the same order (view `gpu`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, WHOLE, NodeArrays
from steersman.compiled import inner
from steersman.policies.outlook import GROUPS, TABLES, OutlookArrays
from steersman.workloads.mix import MixArrays

CPU_UNIT = 12_000.0  # milli-CPU
ENOUGH_CPU_PODS = 8.0
MIDWAY = 7  # pods of a sequence after which its leftover is looked at for the first time
GPU = 1.0 / WHOLE

FRAGMENTED = 0
LACK_BOTH, LACK_GPU, LACK_CPU, CPU_POD_LACKS, NO_ACCESS = range(1, 6)
IDLE, WHOLE_DEVICES, PART_DEVICES, PART_IDLE, ALL_WHOLE, UNTOUCHED = range(6, 12)
CPU_LEFT, CPU_SHORT, CPU_SPARE = range(12, 15)
FIT = 15
USABLE = FIT + len(GROUPS)
LEAST_WASTE = USABLE + len(GROUPS)
DEAD, INSISTED, ACCEPTED, LEFT_SQUARES = range(LEAST_WASTE + 1, LEAST_WASTE + 5)
PRODUCTS = LEFT_SQUARES + 1
TABLE = PRODUCTS + 9
FILLED = TABLE + len(TABLES)
FEATURES = FILLED + 6

Array = npt.NDArray[np.float64]


class Scratch(NamedTuple):
    """Room for what one call works out.

    Attributes:
        left: [G] milli left of the node's devices: what is to be described.
        rest: [G] the same during a sequence.
        usable, wasted, fitting: [V] by `mix.milli`: devices with enough, milli on the others, pods that fit.
        causes: [6] fragmented milli by cause, in the order of `objectives.fragmentation.CAUSES`.
        groups: [2, 5] by group of typical pods: share that fits, and GPUs that they can use.
    """

    left: npt.NDArray[np.int64]
    rest: npt.NDArray[np.int64]
    usable: npt.NDArray[np.int64]
    wasted: npt.NDArray[np.int64]
    fitting: npt.NDArray[np.int64]
    causes: Array
    groups: Array


def scratch(devices: int, mix: MixArrays) -> Scratch:
    """Room for nodes with up to `devices` devices."""
    milli = len(mix.milli)
    return Scratch(
        left=np.zeros(devices, dtype=np.int64),
        rest=np.zeros(devices, dtype=np.int64),
        usable=np.zeros(milli, dtype=np.int64),
        wasted=np.zeros(milli, dtype=np.int64),
        fitting=np.zeros(milli, dtype=np.int64),
        causes=np.zeros(6),
        groups=np.zeros((2, len(GROUPS))),
    )


@inner
def describe(
    outlook: OutlookArrays,
    mix: MixArrays,
    nodes: NodeArrays,
    room: Scratch,
    n: int,
    cpu: int,
    out: npt.NDArray[np.float32],
) -> float:
    """The features of node `n` if it had `cpu` milli-CPU and `room.left` of its devices, into out, [F].

    Returns the fragmented GPU milli unrounded: truncated scores hang on its last bits.
    """
    _describe_devices(outlook, mix, nodes, room, n, cpu, out)
    idle = 0
    for d in range(nodes.gpu_count[n]):
        idle += room.left[d]
    model = nodes.gpu_model[n]
    fragmented = _describe_pods(outlook, mix, room, model, idle, cpu, out)
    out[INSISTED] = outlook.model[model, 0] * idle * GPU
    out[ACCEPTED] = outlook.model[model, 1] * idle * GPU
    _describe_cpu(outlook, idle, cpu, out)
    _fill(outlook, mix, room, nodes.gpu_count[n], model, cpu, out)
    return fragmented


@inner
def _describe_devices(
    outlook: OutlookArrays,
    mix: MixArrays,
    nodes: NodeArrays,
    room: Scratch,
    n: int,
    cpu: int,
    out: npt.NDArray[np.float32],
) -> None:
    whole, partial, part_idle, idle = 0, 0, 0, 0
    squares = least = dead = 0.0
    for t in range(len(TABLES)):
        out[TABLE + t] = 0.0
    for d in range(nodes.gpu_count[n]):
        left = room.left[d]
        idle += left
        if left == WHOLE:
            whole += 1
        elif left > 0:
            partial += 1
            part_idle += left
        squares += (left * GPU) ** 2
        if left < outlook.smallest[0]:
            dead += left * GPU
        waste = left
        for v in range(mix.milli.shape[0]):
            if mix.milli[v] <= left:
                waste = left - mix.milli[v]
        least += waste * GPU
        for t in range(len(TABLES)):
            out[TABLE + t] += outlook.tables[t, left]
    out[IDLE] = idle * GPU
    out[WHOLE_DEVICES] = whole
    out[PART_DEVICES] = partial
    out[PART_IDLE] = part_idle * GPU
    out[ALL_WHOLE] = 1.0 if whole == nodes.gpu_count[n] else 0.0
    out[UNTOUCHED] = 1.0 if whole == nodes.gpu_count[n] and cpu == nodes.allocatable[n, CPU] else 0.0
    out[LEAST_WASTE] = least
    out[DEAD] = dead
    out[LEFT_SQUARES] = squares
    for v in range(mix.milli.shape[0]):
        usable, wasted, count = 0, 0, 0
        for d in range(nodes.gpu_count[n]):
            left = room.left[d]
            if left >= mix.milli[v]:
                usable += 1
                count += outlook.counts[v, left]
            else:
                wasted += left
        room.usable[v] = usable
        room.wasted[v] = wasted
        room.fitting[v] = count


@inner
def _describe_pods(
    outlook: OutlookArrays, mix: MixArrays, room: Scratch, model: int, idle: int, cpu: int, out: npt.NDArray[np.float32]
) -> float:
    """Fragmentation by cause, and which groups of typical pods fit, and how much of the GPUs they could use."""
    causes, groups = room.causes, room.groups
    for i in range(6):
        causes[i] = 0.0
    for g in range(len(GROUPS)):
        groups[0, g] = groups[1, g] = 0.0
    for m in range(mix.cpu.shape[0]):
        share = mix.share[m]
        enough_cpu = cpu >= mix.cpu[m]
        g = outlook.group[m]
        if mix.gpu_count[m] == 0:
            causes[3 if enough_cpu else 4] += share * idle
            if enough_cpu:
                groups[0, g] += share
                groups[1, g] += share * min(cpu * outlook.pods_per_cpu[m], ENOUGH_CPU_PODS)
        elif not mix.accepts[m, model]:
            causes[5] += share * idle
        else:
            v = mix.value[m]
            if room.usable[v] < mix.gpu_count[m]:
                causes[1 if enough_cpu else 0] += share * idle
            elif not enough_cpu:
                causes[2] += share * idle
            else:
                causes[1] += share * room.wasted[v]
                groups[0, g] += share
                most = cpu * outlook.pods_per_cpu[m] * mix.gpu_count[m]
                groups[1, g] += share * min(float(room.fitting[v]), most) * mix.milli[v] * GPU
    total = 0.0
    for i in range(6):  # in the order of summation that FGD's exact scores need
        total += causes[i]
    out[FRAGMENTED] = total * GPU
    out[LACK_BOTH] = causes[0] * GPU
    out[LACK_GPU] = causes[1] * GPU
    out[LACK_CPU] = causes[2] * GPU
    out[CPU_POD_LACKS] = causes[4] * GPU
    out[NO_ACCESS] = causes[5] * GPU
    for g in range(len(GROUPS)):
        out[FIT + g] = groups[0, g]
        out[USABLE + g] = groups[1, g]
    return total


@inner
def _describe_cpu(outlook: OutlookArrays, idle: int, cpu: int, out: npt.NDArray[np.float32]) -> None:
    gpus, whole, parts, left = idle * GPU, out[WHOLE_DEVICES], out[PART_IDLE], cpu / CPU_UNIT
    spare = (cpu - idle * outlook.cpu_per_gpu[0]) / CPU_UNIT
    short, spare = max(0.0, -spare), max(0.0, spare)
    out[CPU_LEFT] = left
    out[CPU_SHORT] = short
    out[CPU_SPARE] = spare
    out[PRODUCTS] = gpus * gpus / 5.0
    out[PRODUCTS + 1] = whole * whole / 5.0
    out[PRODUCTS + 2] = left * left / 5.0
    out[PRODUCTS + 3] = gpus * left / 5.0
    out[PRODUCTS + 4] = whole * left / 5.0
    out[PRODUCTS + 5] = short * short
    out[PRODUCTS + 6] = spare * spare
    out[PRODUCTS + 7] = parts * left
    out[PRODUCTS + 8] = math.sqrt(parts)


@inner
def _fill(
    outlook: OutlookArrays,
    mix: MixArrays,
    room: Scratch,
    devices: int,
    model: int,
    cpu: int,
    out: npt.NDArray[np.float32],
) -> None:
    """What fixed sequences of typical pods would leave of the node, had it only itself: midway, at the end, and CPU."""
    sequences = outlook.sequences.shape[0]
    for i in range(6):
        out[FILLED + i] = 0.0
    for s in range(sequences):
        free, idle = cpu, 0
        for d in range(devices):
            room.rest[d] = room.left[d]
            idle += room.left[d]
        midway = idle
        for j in range(outlook.sequences.shape[1]):
            m = outlook.sequences[s, j]
            if mix.cpu[m] <= free and _take(mix, room, devices, model, m):
                free -= mix.cpu[m]
                idle -= mix.gpu_count[m] * mix.milli[mix.value[m]] if mix.gpu_count[m] > 0 else 0
            if j == MIDWAY:
                midway = idle
        first = FILLED if 2 * s < sequences else FILLED + 3
        out[first] += midway * GPU / (sequences / 2)
        out[first + 1] += idle * GPU / (sequences / 2)
        out[first + 2] += free / CPU_UNIT / (sequences / 2)


@inner
def _take(mix: MixArrays, room: Scratch, devices: int, model: int, m: int) -> bool:
    """Let typical pod `m` take its devices of `room.rest`, the fullest that suffice; False if there are too few."""
    wanted = mix.gpu_count[m]
    if wanted == 0:
        return True
    if not mix.accepts[m, model]:
        return False
    milli = mix.milli[mix.value[m]]
    if wanted > 1:
        usable = 0
        for d in range(devices):
            usable += room.rest[d] >= milli
        if usable < wanted:
            return False
    for _ in range(wanted):
        best, chosen = WHOLE + 1, -1
        for d in range(devices):
            if milli <= room.rest[d] < best:
                best, chosen = room.rest[d], d
        if chosen < 0:
            return False
        room.rest[chosen] -= milli
    return True
