"""What the state of a GPU node is worth: its features, from its free CPU and what is left of its devices alone.

They describe one node, before or after a placement, in GPUs and in the CPU that goes with one GPU. `steersman.features`
has their names and meanings, in the same order (view `gpu`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY, WHOLE, NodeArrays
from steersman.compiled import inner, outlined
from steersman.objectives.fragmentation import causes
from steersman.policies.outlook import GROUPS, TABLES
from steersman.policies.outlook_tables import (
    CPU_PER_GPU,
    CPU_PER_MEMORY,
    LEAST_CPU,
    SMALLEST,
    STEP_CPU,
    STEP_DEVICES,
    STEP_MILLI,
    UNIT,
    OutlookTables,
)
from steersman.workloads.mix import MixArrays

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
            by `mix.milli`: USABLE_BY, devices with enough, WASTED, milli on the others, FITTING, pods that fit.
    """

    amounts: npt.NDArray[np.int64]


LEFT, REST, USABLE_BY, WASTED, FITTING = range(5)


def scratch(devices: int, mix: MixArrays) -> Scratch:
    """Room for nodes with up to `devices` devices."""
    return Scratch(amounts=np.zeros((5, max(devices, len(mix.milli))), dtype=np.int64))


@inner
def usable_cpu(outlook: OutlookTables, cpu: int, memory: int) -> int:
    """Return the milli-CPU that pods can still use: less than is free where memory runs out first.

    Memory, in bytes, counts as the CPU that the mix asks for with it, so that CPU stands for the scarcer of both.
    """
    per_byte = outlook.ratios[CPU_PER_MEMORY]
    return cpu if per_byte <= 0.0 else min(cpu, int(memory * per_byte))


@inner
def usable_cpu_of(outlook: OutlookTables, nodes: NodeArrays, n: int) -> int:
    """Return the milli-CPU that pods could use of node `n` if nothing ran there."""
    return usable_cpu(outlook, nodes.allocatable[n, CPU], nodes.allocatable[n, MEMORY])


@inner
def _lay_out(nodes: NodeArrays, n: int, devices: int, milli: int, left: npt.NDArray[np.int64]) -> int:
    """What would be left of the devices of node `n` if those of the bit mask had `milli` less, into left, [G].

    The most comes first, so that states that differ in the order of devices alone have the same features. Returns how
    many devices have anything left: the others are not looked at again.
    """
    live = 0
    for d in range(nodes.gpu_count[n]):
        amount = nodes.gpu_free[n, d] - ((devices >> d) & 1) * milli
        if amount > 0:
            i = live
            while i > 0 and left[i - 1] < amount:
                left[i] = left[i - 1]
                i -= 1
            left[i] = amount
            live += 1
    return live


@outlined
def describe(
    outlook: OutlookTables,
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
    model, live = nodes.gpu_model[n], _lay_out(nodes, n, devices, milli, room.amounts[LEFT])
    idle = _describe_devices(outlook, room, live, nodes.gpu_count[n], out)
    out[UNTOUCHED] = out[ALL_WHOLE] if cpu == usable_cpu_of(outlook, nodes, n) else 0.0
    _count_devices(outlook, mix, room, live)
    fragmented = _describe_causes(mix, room, model, idle, cpu, out)
    _describe_groups(outlook, mix, room, model, cpu, out)
    out[INSISTED] = outlook.model[model, 0] * idle * GPU
    out[ACCEPTED] = outlook.model[model, 1] * idle * GPU
    _describe_cpu(outlook, idle, cpu, out)
    _fill(outlook, room, live, idle, model, cpu, out)
    return fragmented


@inner
def _describe_devices(
    outlook: OutlookTables, room: Scratch, live: int, count: int, out: npt.NDArray[np.float32]
) -> int:
    """What sums over the devices say; returns the GPU milli left on all of them."""
    whole, partial, part_idle, by_left = 0, 0, 0, outlook.by_left
    # Eight sums side by side, not one after the other: they do not wait for each other.
    s0 = s1 = s2 = s3 = s4 = least = dead = squares = 0.0
    for d in range(live):
        left = room.amounts[LEFT, d]
        if left == WHOLE:
            whole += 1
        else:
            partial += 1
            part_idle += left
        s0 += by_left[left, 0]
        s1 += by_left[left, 1]
        s2 += by_left[left, 2]
        s3 += by_left[left, 3]
        s4 += by_left[left, 4]
        least += by_left[left, 5]
        dead += by_left[left, 6]
        squares += by_left[left, 7]
    out[TABLE], out[TABLE + 1], out[TABLE + 2], out[TABLE + 3], out[TABLE + 4] = s0, s1, s2, s3, s4
    out[LEAST_WASTE] = least
    out[DEAD] = dead
    out[LEFT_SQUARES] = squares
    idle = whole * WHOLE + part_idle
    out[IDLE] = idle * GPU
    out[WHOLE_DEVICES] = whole
    out[PART_DEVICES] = partial
    out[PART_IDLE] = part_idle * GPU
    out[ALL_WHOLE] = 1.0 if whole == count else 0.0
    return idle


@inner
def _count_devices(outlook: OutlookTables, mix: MixArrays, room: Scratch, live: int) -> None:
    """Which devices are enough for each milli that typical pods ask for."""
    for v in range(mix.milli.shape[0]):
        usable, wasted, fitting = 0, 0, 0
        for d in range(live):
            left = room.amounts[LEFT, d]
            count = outlook.counts[left, v]
            fitting += count
            usable += 1 if count > 0 else 0
            wasted += 0 if count > 0 else left
        room.amounts[USABLE_BY, v] = usable
        room.amounts[WASTED, v] = wasted
        room.amounts[FITTING, v] = fitting


@inner
def _describe_causes(
    mix: MixArrays, room: Scratch, model: int, idle: int, cpu: int, out: npt.NDArray[np.float32]
) -> float:
    """Fragmentation by cause; returns the sum, in milli."""
    by_cause = causes(mix, room.amounts[USABLE_BY], room.amounts[WASTED], cpu, idle, model, 0, 0, 0)
    total = 0.0
    for i in range(len(by_cause)):
        total += by_cause[i]
    out[FRAGMENTED] = total * GPU
    out[LACK_BOTH] = by_cause[0] * GPU
    out[LACK_GPU] = by_cause[1] * GPU
    out[LACK_CPU] = by_cause[2] * GPU
    out[CPU_POD_LACKS] = by_cause[4] * GPU
    out[NO_ACCESS] = by_cause[5] * GPU
    return total


@inner
def _describe_groups(
    outlook: OutlookTables, mix: MixArrays, room: Scratch, model: int, cpu: int, out: npt.NDArray[np.float32]
) -> None:
    """Which groups of typical pods fit, and how much of the GPUs they could use."""
    for g in range(len(GROUPS)):
        fit = gpus = 0.0
        for i in range(outlook.start[g], outlook.start[g + 1]):
            m = outlook.order[i]
            if cpu < mix.cpu[m]:
                continue
            share, most = mix.share[m], cpu * outlook.pods_per_cpu[m]
            if g == 0:
                fit += share
                gpus += share * min(most, ENOUGH_CPU_PODS)
                continue
            v, count = mix.value[m], mix.gpu_count[m]
            if mix.accepts[m, model] and room.amounts[USABLE_BY, v] >= count:
                fit += share
                gpus += share * min(float(room.amounts[FITTING, v]), most * count) * mix.milli[v] * GPU
        out[FIT + g] = fit
        out[USABLE + g] = gpus


@inner
def _describe_cpu(outlook: OutlookTables, idle: int, cpu: int, out: npt.NDArray[np.float32]) -> None:
    unit = outlook.ratios[UNIT]
    gpus, whole, parts, left = idle * GPU, out[WHOLE_DEVICES], out[PART_IDLE], cpu / unit
    spare = (cpu - idle * outlook.ratios[CPU_PER_GPU]) / unit
    short, spare = max(0.0, -spare), max(0.0, spare)
    out[CPU_LEFT] = left
    out[CPU_SHORT] = short
    out[CPU_SPARE] = spare
    out[PRODUCTS] = gpus * gpus * 0.2
    out[PRODUCTS + 1] = whole * whole * 0.2
    out[PRODUCTS + 2] = left * left * 0.2
    out[PRODUCTS + 3] = gpus * left * 0.2
    out[PRODUCTS + 4] = whole * left * 0.2
    out[PRODUCTS + 5] = short * short
    out[PRODUCTS + 6] = spare * spare
    out[PRODUCTS + 7] = parts * left
    out[PRODUCTS + 8] = math.sqrt(parts)


@inner
def _fill(
    outlook: OutlookTables, room: Scratch, live: int, idle: int, model: int, cpu: int, out: npt.NDArray[np.float32]
) -> None:
    """What fixed sequences of typical pods would leave of the node, had it only itself: midway, at the end, and CPU."""
    while live > 0 and room.amounts[LEFT, live - 1] < outlook.least[SMALLEST]:
        live -= 1  # of no use to any pod
    half = outlook.steps.shape[1] // 2
    for part in range(2):
        midways = idles = cpus = 0
        for s in range(part * half, (part + 1) * half):
            midway, end, free = _play(outlook.steps[model, s], outlook.least, room, live, idle, cpu, part == 1)
            midways += midway
            idles += end
            cpus += free
        out[FILLED + 3 * part] = midways * GPU / half
        out[FILLED + 3 * part + 1] = idles * GPU / half
        out[FILLED + 3 * part + 2] = cpus / outlook.ratios[UNIT] / half


@inner
def _play(
    steps: npt.NDArray[np.int64],
    least: npt.NDArray[np.int64],
    room: Scratch,
    live: int,
    idle: int,
    cpu: int,
    gpus_alone: bool,
) -> tuple[int, int, int]:
    """Place the pods of a sequence, [L, 3]: GPU milli left midway and at the end, and milli-CPU left."""
    rest, midway, free = room.amounts[REST], -1, cpu
    for d in range(live):
        rest[d] = room.amounts[LEFT, d]
    for j in range(steps.shape[0]):
        if free < least[LEAST_CPU] or (gpus_alone and (live == 0 or rest[0] < least[SMALLEST])):
            break  # nothing fits any more
        if steps[j, STEP_CPU] <= free:
            wanted, milli = steps[j, STEP_DEVICES], steps[j, STEP_MILLI]
            if wanted == 0:
                free -= steps[j, STEP_CPU]
            elif wanted <= live and rest[wanted - 1] >= milli:
                _take(rest, live, wanted, milli)
                free -= steps[j, STEP_CPU]
                idle -= wanted * milli
        if j == MIDWAY:
            midway = idle
    return idle if midway < 0 else midway, idle, free


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
