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
from steersman.compiled import inner, outlined
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
        amounts: [5, max(G, V)] int64: LEFT, milli left of the devices, the most first; REST, the same in a sequence;
            by `mix.milli`: USABLE, devices with enough, WASTED, milli on the others, FITTING, pods that fit.
        sums: [3, 6]: fragmented milli by cause, in the order of `objectives.fragmentation.CAUSES`; by group of typical
            pods FITS, the share that fits, and GPUS, how many they can use.
    """

    amounts: npt.NDArray[np.int64]
    sums: Array


LEFT, REST, USABLE_BY, WASTED, FITTING = range(5)
BY_CAUSE, FITS, GPUS = range(3)


def scratch(devices: int, mix: MixArrays) -> Scratch:
    """Room for nodes with up to `devices` devices."""
    return Scratch(
        amounts=np.zeros((5, max(devices, len(mix.milli))), dtype=np.int64), sums=np.zeros((3, max(6, len(GROUPS))))
    )


@inner
def lay_out(nodes: NodeArrays, n: int, devices: int, milli: int, left: npt.NDArray[np.int64]) -> None:
    """What would be left of the devices of node `n` if those of the bit mask had `milli` less, into left, [G].

    The most comes first, so that states that differ in the order of devices alone have the same features.
    """
    for d in range(nodes.gpu_count[n]):
        amount, i = nodes.gpu_free[n, d] - ((devices >> d) & 1) * milli, d
        while i > 0 and left[i - 1] < amount:
            left[i] = left[i - 1]
            i -= 1
        left[i] = amount


@outlined
def describe(
    outlook: OutlookArrays,
    mix: MixArrays,
    nodes: NodeArrays,
    room: Scratch,
    n: int,
    cpu: int,
    devices: int,
    milli: int,
    out: npt.NDArray[np.float32],
) -> float:
    """The features of node `n` if it had `cpu` milli-CPU, and the devices of the bit mask `milli` less, into out, [F].

    Returns the fragmented GPU milli unrounded: truncated scores hang on its last bits.
    """
    left, idle = room.amounts[LEFT], 0
    lay_out(nodes, n, devices, milli, left)
    for d in range(nodes.gpu_count[n]):
        idle += left[d]
    _describe_devices(outlook, mix, nodes, room, n, cpu, out)
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
        left = room.amounts[LEFT, d]
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
            left = room.amounts[LEFT, d]
            if left >= mix.milli[v]:
                usable += 1
                count += outlook.counts[v, left]
            else:
                wasted += left
        room.amounts[USABLE_BY, v] = usable
        room.amounts[WASTED, v] = wasted
        room.amounts[FITTING, v] = count


@inner
def _describe_pods(
    outlook: OutlookArrays, mix: MixArrays, room: Scratch, model: int, idle: int, cpu: int, out: npt.NDArray[np.float32]
) -> float:
    """Fragmentation by cause, and which groups of typical pods fit, and how much of the GPUs they could use."""
    causes, groups = room.sums[BY_CAUSE], room.sums
    for i in range(6):
        causes[i] = 0.0
    for g in range(len(GROUPS)):
        groups[FITS, g] = groups[GPUS, g] = 0.0
    for m in range(mix.cpu.shape[0]):
        share = mix.share[m]
        enough_cpu = cpu >= mix.cpu[m]
        g = outlook.group[m]
        if mix.gpu_count[m] == 0:
            causes[3 if enough_cpu else 4] += share * idle
            if enough_cpu:
                groups[FITS, g] += share
                groups[GPUS, g] += share * min(cpu * outlook.pods_per_cpu[m], ENOUGH_CPU_PODS)
        elif not mix.accepts[m, model]:
            causes[5] += share * idle
        else:
            v = mix.value[m]
            if room.amounts[USABLE_BY, v] < mix.gpu_count[m]:
                causes[1 if enough_cpu else 0] += share * idle
            elif not enough_cpu:
                causes[2] += share * idle
            else:
                causes[1] += share * room.amounts[WASTED, v]
                groups[FITS, g] += share
                most = cpu * outlook.pods_per_cpu[m] * mix.gpu_count[m]
                groups[GPUS, g] += share * min(float(room.amounts[FITTING, v]), most) * mix.milli[v] * GPU
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
        out[FIT + g] = groups[FITS, g]
        out[USABLE + g] = groups[GPUS, g]
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
    sequences, rest, least = outlook.sequences.shape[0], room.amounts[REST], cpu + 1
    for i in range(6):
        out[FILLED + i] = 0.0
    for m in range(mix.cpu.shape[0]):
        least = min(least, mix.cpu[m])
    for s in range(sequences):
        free, idle = cpu, 0
        for d in range(devices):
            rest[d] = room.amounts[LEFT, d]
            idle += rest[d]
        midway, gpu_alone = -1, 2 * s >= sequences
        for j in range(outlook.sequences.shape[1]):
            if free < least or (gpu_alone and (devices == 0 or rest[0] < outlook.smallest[0])):
                break  # nothing fits any more
            m = outlook.sequences[s, j]
            if mix.cpu[m] <= free:
                wanted = mix.gpu_count[m]
                if wanted == 0:
                    free -= mix.cpu[m]
                elif wanted <= devices and mix.accepts[m, model]:
                    milli = mix.milli[mix.value[m]]
                    if rest[wanted - 1] >= milli:
                        _take(rest, devices, wanted, milli)
                        free -= mix.cpu[m]
                        idle -= wanted * milli
            if j == MIDWAY:
                midway = idle
        if midway < 0:
            midway = idle
        first = FILLED if 2 * s < sequences else FILLED + 3
        out[first] += midway * GPU / (sequences / 2)
        out[first + 1] += idle * GPU / (sequences / 2)
        out[first + 2] += free / CPU_UNIT / (sequences / 2)


@inner
def _take(rest: npt.NDArray[np.int64], devices: int, wanted: int, milli: int) -> None:
    """Take `milli` of the fullest device that suffices, as often as wanted; there are enough. `rest` stays sorted."""
    for _ in range(wanted):
        i = devices - 1
        while rest[i] < milli:
            i -= 1
        amount = rest[i] - milli
        while i + 1 < devices and rest[i + 1] > amount:
            rest[i] = rest[i + 1]
            i += 1
        rest[i] = amount
