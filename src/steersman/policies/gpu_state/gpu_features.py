"""Features of a GPU node's state, which depend on its free CPU and the free milli of its devices alone.

They describe one node, before or after a placement, in GPUs and in the CPU requested per GPU. Names and meanings are in
`steersman.policies.features`, in the same order (view `gpu`).
"""

from __future__ import annotations

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
    PLANNED,
    SMALLEST,
    SQUARE,
    STEP_CPU,
    STEP_DEVICES,
    STEP_MILLI,
    UNIT,
    UNUSABLE,
    LeftoverTables,
)
from steersman.policies.gpu_state.leftover_tables import LEAST_WASTE as LEAST_WASTE_BY
from steersman.workloads.profile import ProfileArrays

GPUS_PER_MILLI = 1.0 / GPU_MILLI

(
    FRAGMENTED,
    IDLE,
    WHOLE_DEVICES,
    PART_DEVICES,
    PART_IDLE,
    UNTOUCHED,
    CPU_LEFT,
    CPU_SHORT,
    CPU_SPARE,
    LEAST_WASTE,
    DEAD,
    LEFT_SQUARES,
    LOST_PLANNED,
    FILLED,
    GPU_FILLED,
) = range(15)
FEATURES = 15

Array = npt.NDArray[np.float64]


class RemainingCapacity(NamedTuple):
    """What a node has left in a state: `cpu` usable milli-CPU, and `milli` less on the devices of the bit mask."""

    cpu: int
    devices: int
    milli: int


class Scratch(NamedTuple):
    """Buffers of one call.

    Attributes:
        amounts: [4, max(G, V)] int64: LEFT, free milli of the devices, descending; REMAINING, the same during a
            sequence; by `profile.milli`: USABLE_BY, number of devices with enough free milli, WASTED, free milli of the
            other devices.
    """

    amounts: npt.NDArray[np.int64]


LEFT, REMAINING, USABLE_BY, WASTED = range(4)


def scratch(devices: int, profile: ProfileArrays) -> Scratch:
    """Return buffers for nodes with up to `devices` devices."""
    return Scratch(amounts=np.zeros((4, max(devices, len(profile.milli))), dtype=np.int64))


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
    idle = _describe_devices(leftovers, room, nonempty, out)
    is_empty = out[WHOLE_DEVICES] == nodes.gpu_count[n] and cpu == usable_cpu_of(leftovers, nodes, n)
    out[UNTOUCHED] = 1.0 if is_empty else 0.0
    _count_devices(profile, room, nonempty)
    fragmented = 0.0
    for cause in causes(profile, room.amounts[USABLE_BY], room.amounts[WASTED], cpu, idle, model, NO_CHANGE):
        fragmented += cause
    out[FRAGMENTED] = fragmented * GPUS_PER_MILLI
    unit = leftovers.ratios[UNIT]
    spare = (cpu - idle * leftovers.ratios[CPU_PER_GPU]) / unit
    out[CPU_LEFT] = cpu / unit
    out[CPU_SHORT] = max(0.0, -spare)
    out[CPU_SPARE] = max(0.0, spare)
    _simulate_sequences(leftovers, room, nonempty, idle, model, cpu, out)
    return fragmented


@inlined_kernel
def _describe_devices(leftovers: LeftoverTables, buffers: Scratch, nonempty: int, out: npt.NDArray[np.float32]) -> int:
    """Write features that are sums over devices; return the idle GPU milli of the node."""
    whole, partial, part_idle, by_left = 0, 0, 0, leftovers.by_left
    # Independent sums in one loop, so that additions do not wait for each other.
    planned = least_waste = unusable = squares = 0.0
    for d in range(nonempty):
        left = buffers.amounts[LEFT, d]
        if left == GPU_MILLI:
            whole += 1
        else:
            partial += 1
            part_idle += left
        planned += by_left[left, PLANNED]
        least_waste += by_left[left, LEAST_WASTE_BY]
        unusable += by_left[left, UNUSABLE]
        squares += by_left[left, SQUARE]
    out[LOST_PLANNED] = planned
    out[LEAST_WASTE] = least_waste
    out[DEAD] = unusable
    out[LEFT_SQUARES] = squares
    idle = whole * GPU_MILLI + part_idle
    out[IDLE] = idle * GPUS_PER_MILLI
    out[WHOLE_DEVICES] = whole
    out[PART_DEVICES] = partial
    out[PART_IDLE] = part_idle * GPUS_PER_MILLI
    return idle


@inlined_kernel
def _count_devices(profile: ProfileArrays, buffers: Scratch, nonempty: int) -> None:
    """Count usable devices and wasted milli for each distinct milli of typical pods."""
    for v in range(profile.milli.shape[0]):
        usable, wasted = 0, 0
        for d in range(nonempty):
            left = buffers.amounts[LEFT, d]
            is_usable = left >= profile.milli[v]
            usable += 1 if is_usable else 0
            wasted += 0 if is_usable else left
        buffers.amounts[USABLE_BY, v] = usable
        buffers.amounts[WASTED, v] = wasted


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
    """Write the mean idle GPU after fixed pod sequences placed on this node alone."""
    while nonempty > 0 and buffers.amounts[LEFT, nonempty - 1] < leftovers.least[SMALLEST]:
        nonempty -= 1  # too small for any typical pod
    half = leftovers.steps.shape[1] // 2
    for part in range(2):
        idles = 0
        for s in range(part * half, (part + 1) * half):
            idles += _place_sequence(
                leftovers.steps[model, s], leftovers.least, buffers, nonempty, idle, cpu, part == 1
            )
        out[FILLED + part] = idles * GPUS_PER_MILLI / half


@inlined_kernel
def _place_sequence(
    steps: npt.NDArray[np.int64],
    least: npt.NDArray[np.int64],
    buffers: Scratch,
    nonempty: int,
    idle: int,
    cpu: int,
    gpu_pods_only: bool,
) -> int:
    """Place the pods of a sequence, [L, 3]; return the idle GPU milli at its end."""
    remaining = buffers.amounts[REMAINING]
    for d in range(nonempty):
        remaining[d] = buffers.amounts[LEFT, d]
    for j in range(steps.shape[0]):
        if cpu < least[LEAST_CPU] or (gpu_pods_only and (nonempty == 0 or remaining[0] < least[SMALLEST])):
            break  # no typical pod fits
        if steps[j, STEP_CPU] <= cpu:
            count, milli = steps[j, STEP_DEVICES], steps[j, STEP_MILLI]
            if count == 0:
                cpu -= steps[j, STEP_CPU]
            # Sorted descending: `count` devices fit if the last of them does.
            elif count <= nonempty and remaining[count - 1] >= milli:
                _allocate(remaining, nonempty, count, milli)
                cpu -= steps[j, STEP_CPU]
                idle -= count * milli
    return idle


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
