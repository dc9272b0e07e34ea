"""Score kernels of the heuristics: functions of a pod class and one node alone, so that a table can hold the scores.

Formulas of `dot-product`, `gpu-clustering`, `gpu-packing`, `best-fit` and `fgd`: Weng et al., "Beware of
Fragmentation", USENIX ATC 2023, as the paper's artifact computes them: resources and scores are integers, and the order
of floating-point sums is part of the result. Higher is better.
"""

from __future__ import annotations

import math

from steersman.cluster.arrays import (
    CPU,
    ClassArrays,
    NodeArrays,
    best_devices,
    devices_taken,
    gpu_kind,
    gpu_left,
    has_equal_earlier_device,
    idle_gpu,
    place,
    remove,
)
from steersman.cluster.model import GPU_MILLI
from steersman.core.compiled import inlined_kernel
from steersman.objectives.fragmentation import DeviceChange, FragmentArrays, fragment_after, refresh
from steersman.policies.node_scores.plugin_scores import balanced_allocation, least_allocated, most_allocated
from steersman.workloads.profile import ProfileArrays

DOT_PRODUCT, GPU_CLUSTERING, GPU_PACKING, BEST_FIT, FGD, LEAST_ALLOCATED, MOST_ALLOCATED, BALANCED_ALLOCATION = range(8)
NAMES = (
    "dot-product",
    "gpu-clustering",
    "gpu-packing",
    "best-fit",
    "fgd",
    "least-allocated",
    "most-allocated",
    "balanced-allocation",
)
"""Names of the heuristics by id."""
LEARNED = len(NAMES)
"""Id of a learned policy in the score table; `policies.gpu_state.kernels` computes its scores."""

CPU_SCALE = 128_000  # milli-CPU of the largest node of the openb cluster, the artifact's divisor
GPU_SCALE = 8_000


@inlined_kernel
def dot_product(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """Return int(100 (1 - (c/128000 rc/128000 + g/8000 rg/8000) / 2)) of free c, g and requested rc, rg."""
    requested = classes.gpu_count[c] * classes.gpu_milli[c]
    # Parentheses as in the artifact: (free / scale) * (request / scale).
    cpu = nodes.free[n, CPU] / CPU_SCALE * (classes.request[c, CPU] / CPU_SCALE)
    gpu = gpu_left(nodes, classes, c, n) / GPU_SCALE * (requested / GPU_SCALE)
    return int(100.0 * (1.0 - (cpu + gpu) / 2.0))


@inlined_kernel
def best_fit(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """Return int(100 (1 - (c-rc)/128000/2 - (g-rg)/8000/2)); a weighted sum normalizes it by minimum and maximum."""
    requested = classes.gpu_count[c] * classes.gpu_milli[c]
    cpu = (nodes.free[n, CPU] - classes.request[c, CPU]) / CPU_SCALE
    gpu = (gpu_left(nodes, classes, c, n) - requested) / GPU_SCALE
    return int(100.0 * (1.0 - (0.5 * cpu + 0.5 * gpu)))


@inlined_kernel
def gpu_clustering(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """Return the score of grouping pods of one kind (shares, or k whole devices): 75, 50, 25 or 0, plus fullness.

    Fullness adds up to 25 points. Pods without devices score 0.
    """
    if devices_taken(nodes, classes, c, n) == 0:
        return 0
    kind = gpu_kind(nodes, classes, c)
    kinds = 0
    for k in range(nodes.gpu_kinds.shape[1]):
        if nodes.gpu_kinds[n, k] > 0:
            kinds += 1
    fullness = int(25.0 * (GPU_SCALE - idle_gpu(nodes, n)) / GPU_SCALE)
    # No pod of any kind: 25, between a node of other kinds and a mixed one that has this kind.
    if kinds == 0:
        return fullness + 25
    if nodes.gpu_kinds[n, kind] == 0:
        return fullness
    return fullness + (75 if kinds == 1 else 50)


@inlined_kernel
def gpu_packing(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """Return a score that prefers used devices, then free devices of used nodes, then unused nodes with few devices.

    Pods without devices score 0.
    """
    if devices_taken(nodes, classes, c, n) == 0:
        return 0
    free = 0
    for d in range(nodes.gpu_count[n]):
        if nodes.gpu_free[n, d] == GPU_MILLI:
            free += 1
    if free == nodes.gpu_count[n]:
        return max(33 - free, free)
    devices = best_devices(nodes, classes, c, n)
    left_sum, whole_taken = 0, 0
    for d in range(nodes.gpu_count[n]):
        if (devices >> d) & 1:
            # Integer arithmetic as in the artifact: percent of a device.
            left_sum += nodes.gpu_free[n, d] * 100 // GPU_MILLI
            whole_taken += nodes.gpu_free[n, d] == GPU_MILLI
    if whole_taken > 0:
        return max(50 - whole_taken, 33)
    return max(100 - left_sum // 10, 50)


@inlined_kernel
def fgd_points(before: float, after: float) -> int:
    """Return int(100 sigmoid((before - after) / 1000)), FGD's score of a change of fragmented GPU milli."""
    return int(100.0 * (1.0 / (1.0 + math.exp(-(before - after) / 1000.0))))


@inlined_kernel
def fgd_share(
    profile: ProfileArrays, fragments: FragmentArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int
) -> tuple[int, int]:
    """Return FGD's best score over the devices that fit a share of one device, and that device's index."""
    milli = classes.gpu_milli[c]
    cpu = nodes.free[n, CPU] - classes.request[c, CPU]
    idle = idle_gpu(nodes, n) - milli
    best, best_device = -1, -1
    for d in range(nodes.gpu_count[n]):
        left = nodes.gpu_free[n, d]
        if left < milli or has_equal_earlier_device(nodes, n, d):
            continue
        change = DeviceChange(1, left, left - milli)
        after = fragment_after(profile, fragments, n, cpu, idle, nodes.gpu_model[n], change)
        score = fgd_points(fragments.total[n], after)
        if score > best:
            best, best_device = score, d
    return best, best_device


@inlined_kernel
def fgd(
    profile: ProfileArrays, fragments: FragmentArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int
) -> int:
    """Return the score of fragmentation gradient descent, int(100 sigmoid((F_before - F_after) / 1000))."""
    count, milli = devices_taken(nodes, classes, c, n), classes.gpu_milli[c]
    if count == 1 and milli < GPU_MILLI:
        return fgd_share(profile, fragments, nodes, classes, c, n)[0]
    cpu = nodes.free[n, CPU] - classes.request[c, CPU]
    idle = idle_gpu(nodes, n) - count * milli
    model = nodes.gpu_model[n]
    # Whole devices are all free before: one change describes them all.
    if count == 0 or milli == GPU_MILLI:
        change = DeviceChange(count, GPU_MILLI, GPU_MILLI - milli)
        after = fragment_after(profile, fragments, n, cpu, idle, model, change)
        return fgd_points(fragments.total[n], after)
    # Several shares take devices that differ: the formula has no closed form, so they are placed and removed.
    before = fragments.total[n]
    devices = best_devices(nodes, classes, c, n)
    place(nodes, classes, c, n, devices)
    refresh(profile, nodes, fragments, n)
    after = fragments.total[n]
    remove(nodes, classes, c, n, devices)
    refresh(profile, nodes, fragments, n)
    return fgd_points(before, after)


@inlined_kernel
def local_score(
    kind: int,
    profile: ProfileArrays,
    fragments: FragmentArrays,
    nodes: NodeArrays,
    classes: ClassArrays,
    c: int,
    n: int,
) -> int:
    """Return the score of the heuristic with id `kind` for class `c` on node `n`, where it must fit."""
    if kind == FGD:
        return fgd(profile, fragments, nodes, classes, c, n)
    if kind == DOT_PRODUCT:
        return dot_product(nodes, classes, c, n)
    if kind == GPU_CLUSTERING:
        return gpu_clustering(nodes, classes, c, n)
    if kind == GPU_PACKING:
        return gpu_packing(nodes, classes, c, n)
    if kind == BEST_FIT:
        return best_fit(nodes, classes, c, n)
    if kind == LEAST_ALLOCATED:
        return least_allocated(nodes, classes, c, n)
    if kind == MOST_ALLOCATED:
        return most_allocated(nodes, classes, c, n)
    return balanced_allocation(nodes, classes, c, n)
