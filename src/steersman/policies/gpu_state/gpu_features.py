"""Features of a GPU node's state, which depend on its free CPU and the free milli of its devices alone.

They describe one node, before or after a placement, in GPUs and in the CPU requested per GPU. Names and meanings are in
`steersman.policies.features`, in the same order (view `gpu`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY, NodeArrays
from steersman.cluster.model import GPU_MILLI
from steersman.core.compiled import called_kernel, inlined_kernel
from steersman.objectives.fragmentation import NO_CHANGE, causes
from steersman.policies.gpu_state.leftover_tables import (
    CPU_PER_GPU,
    CPU_PER_MEMORY,
    LEAST_CPU,
    SMALLEST,
    STEP_CPU,
    STEP_DEVICES,
    STEP_MILLI,
    UNIT,
    LeftoverTables,
)
from steersman.policies.gpu_state.leftovers import GROUPS, TABLES
from steersman.workloads.profile import ProfileArrays

MAX_CPU_PODS = 8.0  # upper bound of fitting pods without GPU, per typical pod
HALFWAY_STEP = 7  # index of the pod in a sequence after which midway features are computed
GPUS_PER_MILLI = 1.0 / GPU_MILLI

FRAGMENTED = 0
LACK_BOTH, LACK_GPU, LACK_CPU, CPU_POD_LACKS, NO_ACCESS = range(1, 6)
IDLE, WHOLE_DEVICES, PART_DEVICES, PART_IDLE, ALL_WHOLE, UNTOUCHED = range(6, 12)
CPU_LEFT, CPU_SHORT, CPU_SPARE = range(12, 15)
FIT = 15
USABLE = FIT + len(GROUPS)
LEAST_WASTE = USABLE + len(GROUPS)
UNUSABLE, EXCLUSIVE_DEMAND, ACCEPTED, LEFT_SQUARES = range(LEAST_WASTE + 1, LEAST_WASTE + 5)
PRODUCTS = LEFT_SQUARES + 1
TABLE = PRODUCTS + 9
FILLED = TABLE + len(TABLES)
FEATURES = FILLED + 6

Array = npt.NDArray[np.float64]


class RemainingCapacity(NamedTuple):
    """What a node has left in a state: `cpu` usable milli-CPU, and `milli` less on the devices of the bit mask."""

    cpu: int
    devices: int
    milli: int


class Scratch(NamedTuple):
    """Buffers of one call.

    Attributes:
        amounts: [5, max(G, V)] int64: LEFT, free milli of the devices, descending; REMAINING, the same during a
            sequence; by `profile.milli`: USABLE_BY, number of devices with enough free milli, WASTED, free milli of the
            other devices, FITTING, number of pods that fit.
    """

    amounts: npt.NDArray[np.int64]


LEFT, REMAINING, USABLE_BY, WASTED, FITTING = range(5)


def scratch(devices: int, profile: ProfileArrays) -> Scratch:
    """Return buffers for nodes with up to `devices` devices."""
    return Scratch(amounts=np.zeros((5, max(devices, len(profile.milli))), dtype=np.int64))


@inlined_kernel
def usable_cpu(leftovers: LeftoverTables, cpu: int, memory: int) -> int:
    """Return the milli-CPU that pods can still use: the free CPU, or less if memory is scarcer.

    Memory, in bytes, is converted to CPU by the ratio of the profile's requests.
    """
    per_byte = leftovers.ratios[CPU_PER_MEMORY]
    return cpu if per_byte <= 0.0 else min(cpu, int(memory * per_byte))


@inlined_kernel
def usable_cpu_of(leftovers: LeftoverTables, nodes: NodeArrays, n: int) -> int:
    """Return the milli-CPU that pods could use of an empty node `n`."""
    return usable_cpu(leftovers, nodes.allocatable[n, CPU], nodes.allocatable[n, MEMORY])


@inlined_kernel
def _sort_devices(nodes: NodeArrays, n: int, devices: int, milli: int, left: npt.NDArray[np.int64]) -> int:
    """Write the free milli of node `n`'s devices, descending, into `left`, [G]; return the number of nonempty ones.

    The devices of the bit mask have `milli` less. Sorting makes features independent of the order of devices.
    """
    nonempty = 0
    for d in range(nodes.gpu_count[n]):
        amount = nodes.gpu_free[n, d] - ((devices >> d) & 1) * milli
        if amount > 0:
            i = nonempty
            # Insertion sort: few devices, and no memory is allocated.
            while i > 0 and left[i - 1] < amount:
                left[i] = left[i - 1]
                i -= 1
            left[i] = amount
            nonempty += 1
    return nonempty


@called_kernel
def describe(
    leftovers: LeftoverTables,
    profile: ProfileArrays,
    nodes: NodeArrays,
    room: Scratch,
    n: int,
    left: RemainingCapacity,
    out: npt.NDArray[np.float32],
) -> float:
    """Write the features of node `n` with `left` into `out`, [F]; return its fragmented GPU milli.

    The return value is float64, since FGD's score truncates it.
    """
    cpu, devices, milli = left
    model, nonempty = nodes.gpu_model[n], _sort_devices(nodes, n, devices, milli, room.amounts[LEFT])
    idle = _describe_devices(leftovers, room, nonempty, nodes.gpu_count[n], out)
    out[UNTOUCHED] = out[ALL_WHOLE] if cpu == usable_cpu_of(leftovers, nodes, n) else 0.0
    _count_devices(leftovers, profile, room, nonempty)
    fragmented = _describe_causes(profile, room, model, idle, cpu, out)
    _describe_groups(leftovers, profile, room, model, cpu, out)
    out[EXCLUSIVE_DEMAND] = leftovers.model[model, 0] * idle * GPUS_PER_MILLI
    out[ACCEPTED] = leftovers.model[model, 1] * idle * GPUS_PER_MILLI
    _describe_cpu(leftovers, idle, cpu, out)
    _simulate_sequences(leftovers, room, nonempty, idle, model, cpu, out)
    return fragmented


@inlined_kernel
def _describe_devices(
    leftovers: LeftoverTables, buffers: Scratch, nonempty: int, count: int, out: npt.NDArray[np.float32]
) -> int:
    """Write features that are sums over devices; return the idle GPU milli of the node."""
    whole, partial, part_idle, by_left = 0, 0, 0, leftovers.by_left
    # Eight independent sums in one loop, so that additions do not wait for each other.
    s0 = s1 = s2 = s3 = s4 = least_waste = unusable = squares = 0.0
    for d in range(nonempty):
        left = buffers.amounts[LEFT, d]
        if left == GPU_MILLI:
            whole += 1
        else:
            partial += 1
            part_idle += left
        s0 += by_left[left, 0]
        s1 += by_left[left, 1]
        s2 += by_left[left, 2]
        s3 += by_left[left, 3]
        s4 += by_left[left, 4]
        least_waste += by_left[left, 5]
        unusable += by_left[left, 6]
        squares += by_left[left, 7]
    out[TABLE], out[TABLE + 1], out[TABLE + 2], out[TABLE + 3], out[TABLE + 4] = s0, s1, s2, s3, s4
    out[LEAST_WASTE] = least_waste
    out[UNUSABLE] = unusable
    out[LEFT_SQUARES] = squares
    idle = whole * GPU_MILLI + part_idle
    out[IDLE] = idle * GPUS_PER_MILLI
    out[WHOLE_DEVICES] = whole
    out[PART_DEVICES] = partial
    out[PART_IDLE] = part_idle * GPUS_PER_MILLI
    out[ALL_WHOLE] = 1.0 if whole == count else 0.0
    return idle


@inlined_kernel
def _count_devices(leftovers: LeftoverTables, profile: ProfileArrays, buffers: Scratch, nonempty: int) -> None:
    """Count usable devices, wasted milli and fitting pods for each distinct milli of typical pods."""
    for v in range(profile.milli.shape[0]):
        usable, wasted, fitting = 0, 0, 0
        for d in range(nonempty):
            left = buffers.amounts[LEFT, d]
            count = leftovers.counts[left, v]
            fitting += count
            # count > 0 exactly where the device has enough for this size.
            usable += 1 if count > 0 else 0
            wasted += 0 if count > 0 else left
        buffers.amounts[USABLE_BY, v] = usable
        buffers.amounts[WASTED, v] = wasted
        buffers.amounts[FITTING, v] = fitting


@inlined_kernel
def _describe_causes(
    profile: ProfileArrays, buffers: Scratch, model: int, idle: int, cpu: int, out: npt.NDArray[np.float32]
) -> float:
    """Write fragmentation by cause; return the sum in GPU milli."""
    by_cause = causes(profile, buffers.amounts[USABLE_BY], buffers.amounts[WASTED], cpu, idle, model, NO_CHANGE)
    total = 0.0
    for i in range(len(by_cause)):
        total += by_cause[i]
    out[FRAGMENTED] = total * GPUS_PER_MILLI
    # Cause 3 (CPU pods that fit) is no feature: FRAGMENTED less the other causes gives it.
    out[LACK_BOTH] = by_cause[0] * GPUS_PER_MILLI
    out[LACK_GPU] = by_cause[1] * GPUS_PER_MILLI
    out[LACK_CPU] = by_cause[2] * GPUS_PER_MILLI
    out[CPU_POD_LACKS] = by_cause[4] * GPUS_PER_MILLI
    out[NO_ACCESS] = by_cause[5] * GPUS_PER_MILLI
    return total


@inlined_kernel
def _describe_groups(
    leftovers: LeftoverTables,
    profile: ProfileArrays,
    buffers: Scratch,
    model: int,
    cpu: int,
    out: npt.NDArray[np.float32],
) -> None:
    """Write for each group of typical pods the share that fits and the GPU that it could use."""
    for g in range(len(GROUPS)):
        fit = gpus = 0.0
        for i in range(leftovers.start[g], leftovers.start[g + 1]):
            m = leftovers.order[i]
            if cpu < profile.cpu[m]:
                continue
            share, most = profile.share[m], cpu * leftovers.pods_per_cpu[m]
            # Group 0 has no GPUs: only CPU limits these pods.
            if g == 0:
                fit += share
                gpus += share * min(most, MAX_CPU_PODS)
                continue
            v, count = profile.value[m], profile.gpu_count[m]
            if profile.accepts[m, model] and buffers.amounts[USABLE_BY, v] >= count:
                fit += share
                gpus += (
                    share * min(float(buffers.amounts[FITTING, v]), most * count) * profile.milli[v] * GPUS_PER_MILLI
                )
        out[FIT + g] = fit
        out[USABLE + g] = gpus


@inlined_kernel
def _describe_cpu(leftovers: LeftoverTables, idle: int, cpu: int, out: npt.NDArray[np.float32]) -> None:
    """Write features of free CPU, and products of features."""
    unit = leftovers.ratios[UNIT]
    gpus, whole, parts, left = idle * GPUS_PER_MILLI, out[WHOLE_DEVICES], out[PART_IDLE], cpu / unit
    spare = (cpu - idle * leftovers.ratios[CPU_PER_GPU]) / unit
    short, spare = max(0.0, -spare), max(0.0, spare)
    out[CPU_LEFT] = left
    out[CPU_SHORT] = short
    out[CPU_SPARE] = spare
    # 0.2: these products are in units of five, see `features`.
    out[PRODUCTS] = gpus * gpus * 0.2
    out[PRODUCTS + 1] = whole * whole * 0.2
    out[PRODUCTS + 2] = left * left * 0.2
    out[PRODUCTS + 3] = gpus * left * 0.2
    out[PRODUCTS + 4] = whole * left * 0.2
    out[PRODUCTS + 5] = short * short
    out[PRODUCTS + 6] = spare * spare
    out[PRODUCTS + 7] = parts * left
    out[PRODUCTS + 8] = math.sqrt(parts)


@inlined_kernel
def _simulate_sequences(
    leftovers: LeftoverTables,
    buffers: Scratch,
    nonempty: int,
    idle: int,
    model: int,
    cpu: int,
    out: npt.NDArray[np.float32],
) -> None:
    """Write the idle GPU midway and at the end, and the free CPU, of fixed pod sequences placed on this node alone."""
    while nonempty > 0 and buffers.amounts[LEFT, nonempty - 1] < leftovers.least[SMALLEST]:
        nonempty -= 1  # too small for any typical pod
    half = leftovers.steps.shape[1] // 2
    for part in range(2):
        midways = idles = cpus = 0
        for s in range(part * half, (part + 1) * half):
            midway, end, free = _place_sequence(
                leftovers.steps[model, s], leftovers.least, buffers, nonempty, idle, cpu, part == 1
            )
            midways += midway
            idles += end
            cpus += free
        out[FILLED + 3 * part] = midways * GPUS_PER_MILLI / half
        out[FILLED + 3 * part + 1] = idles * GPUS_PER_MILLI / half
        out[FILLED + 3 * part + 2] = cpus / leftovers.ratios[UNIT] / half


@inlined_kernel
def _place_sequence(
    steps: npt.NDArray[np.int64],
    least: npt.NDArray[np.int64],
    buffers: Scratch,
    nonempty: int,
    idle: int,
    cpu: int,
    gpu_pods_only: bool,
) -> tuple[int, int, int]:
    """Place the pods of a sequence, [L, 3]; return idle GPU milli midway and at the end, and free milli-CPU."""
    remaining, midway, free = buffers.amounts[REMAINING], -1, cpu
    for d in range(nonempty):
        remaining[d] = buffers.amounts[LEFT, d]
    for j in range(steps.shape[0]):
        if free < least[LEAST_CPU] or (gpu_pods_only and (nonempty == 0 or remaining[0] < least[SMALLEST])):
            break  # no typical pod fits
        if steps[j, STEP_CPU] <= free:
            count, milli = steps[j, STEP_DEVICES], steps[j, STEP_MILLI]
            if count == 0:
                free -= steps[j, STEP_CPU]
            # Sorted descending: `count` devices fit if the last of them does.
            elif count <= nonempty and remaining[count - 1] >= milli:
                _allocate(remaining, nonempty, count, milli)
                free -= steps[j, STEP_CPU]
                idle -= count * milli
        if j == HALFWAY_STEP:
            midway = idle
    # Sequences that end before the middle have their final state as the midway one.
    return idle if midway < 0 else midway, idle, free


@inlined_kernel
def _allocate(remaining: npt.NDArray[np.int64], devices: int, count: int, milli: int) -> None:
    """Allocate `milli` on the fullest device that fits, `count` times; `remaining` stays sorted, descending."""
    for _ in range(count):
        # From the least free upwards: best fit.
        i = devices - 1
        while remaining[i] < milli:
            i -= 1
        amount = remaining[i] - milli
        while i + 1 < devices and remaining[i + 1] > amount:
            remaining[i] = remaining[i + 1]
            i += 1
        remaining[i] = amount
