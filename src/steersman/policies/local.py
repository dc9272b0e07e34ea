"""Local policies: scores that depend on the pod's class and one node alone, so that a table can hold them.

Formulas of `dot-product`, `gpu-clustering`, `gpu-packing`, `best-fit` and `fgd`: Weng et al., "Beware of
Fragmentation", USENIX ATC 2023, in the artifact's integer arithmetic. All scores are whole numbers; the higher the
better.
"""

from __future__ import annotations

import math

from steersman.cluster.arrays import (
    CPU,
    WHOLE,
    ClassArrays,
    NodeArrays,
    alike_before,
    best_devices,
    devices_taken,
    gpu_kind,
    gpu_left,
    idle_gpu,
    place,
    remove,
)
from steersman.compiled import inner
from steersman.objectives.fragmentation import FragmentArrays, fragment_after, refresh
from steersman.policies.kube_scores import balanced_allocation, least_allocated, most_allocated
from steersman.workloads.mix import MixArrays

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
"""By number."""
LEARNED = 8
"""Numbers of the local policies in compiled code; that of a learned one is scored by `policies.learned`."""

CPU_SCALE = 128_000  # the largest node of the openb cluster, by which the artifact divides
GPU_SCALE = 8_000


@inner
def dot_product(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """int(100 (1 - (c/128000 rc/128000 + g/8000 rg/8000) / 2)): pods go where little is left of what they ask for."""
    requested = classes.gpu_count[c] * classes.gpu_milli[c]
    cpu = nodes.free[n, CPU] / CPU_SCALE * (classes.request[c, CPU] / CPU_SCALE)
    gpu = gpu_left(nodes, classes, c, n) / GPU_SCALE * (requested / GPU_SCALE)
    return int(100.0 * (1.0 - (cpu + gpu) / 2.0))


@inner
def best_fit(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """int(100 (1 - (c-rc)/128000/2 - (g-rg)/8000/2)): the least left afterwards. Normalised by min and max in a mix."""
    requested = classes.gpu_count[c] * classes.gpu_milli[c]
    cpu = (nodes.free[n, CPU] - classes.request[c, CPU]) / CPU_SCALE
    gpu = (gpu_left(nodes, classes, c, n) - requested) / GPU_SCALE
    return int(100.0 * (1.0 - (0.5 * cpu + 0.5 * gpu)))


@inner
def gpu_clustering(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """Pods of one kind (shares, or k whole devices) together: 75, 50, 25 or 0, and up to 25 for a fuller node.

    0 for pods that get none of the devices.
    """
    if devices_taken(nodes, classes, c, n) == 0:
        return 0
    kind = gpu_kind(nodes, classes, c)
    kinds = 0
    for k in range(nodes.gpu_kinds.shape[1]):
        if nodes.gpu_kinds[n, k] > 0:
            kinds += 1
    fullness = int(25.0 * (GPU_SCALE - idle_gpu(nodes, n)) / GPU_SCALE)
    if kinds == 0:
        return fullness + 25
    if nodes.gpu_kinds[n, kind] == 0:
        return fullness
    return fullness + (75 if kinds == 1 else 50)


@inner
def gpu_packing(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """Devices in use first, then free devices of nodes in use, then untouched nodes with few devices.

    0 for pods that get none of the devices.
    """
    if devices_taken(nodes, classes, c, n) == 0:
        return 0
    free = 0
    for d in range(nodes.gpu_count[n]):
        if nodes.gpu_free[n, d] == WHOLE:
            free += 1
    if free == nodes.gpu_count[n]:
        return max(33 - free, free)
    devices = best_devices(nodes, classes, c, n)
    left_sum, whole_taken = 0, 0
    for d in range(nodes.gpu_count[n]):
        if (devices >> d) & 1:
            left_sum += nodes.gpu_free[n, d] * 100 // WHOLE
            whole_taken += nodes.gpu_free[n, d] == WHOLE
    if whole_taken > 0:
        return max(50 - whole_taken, 33)
    return max(100 - left_sum // 10, 50)


@inner
def gradient(before: float, after: float) -> int:
    """FGD's points for a change of fragmentation, both in GPU milli."""
    return int(100.0 * (1.0 / (1.0 + math.exp(-(before - after) / 1000.0))))


@inner
def fgd_share(
    mix: MixArrays, fragments: FragmentArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int
) -> tuple[int, int]:
    """FGD for a pod with a share of one device: the best score over the devices that fit, and that device's index."""
    milli = classes.gpu_milli[c]
    cpu = nodes.free[n, CPU] - classes.request[c, CPU]
    idle = idle_gpu(nodes, n) - milli
    best, best_device = -1, -1
    for d in range(nodes.gpu_count[n]):
        left = nodes.gpu_free[n, d]
        if left < milli or alike_before(nodes, n, d):
            continue
        after = fragment_after(mix, fragments, n, cpu, idle, nodes.gpu_model[n], 1, left, left - milli)
        score = gradient(fragments.total[n], after)
        if score > best:
            best, best_device = score, d
    return best, best_device


@inner
def fgd(mix: MixArrays, fragments: FragmentArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """int(100 sigmoid((F_before - F_after) / 1000)): the least fragmentation added (fragmentation gradient descent)."""
    count, milli = devices_taken(nodes, classes, c, n), classes.gpu_milli[c]
    if count == 1 and milli < WHOLE:
        return fgd_share(mix, fragments, nodes, classes, c, n)[0]
    cpu = nodes.free[n, CPU] - classes.request[c, CPU]
    idle = idle_gpu(nodes, n) - count * milli
    model = nodes.gpu_model[n]
    if count == 0 or milli == WHOLE:
        after = fragment_after(mix, fragments, n, cpu, idle, model, count, WHOLE, WHOLE - milli)
        return gradient(fragments.total[n], after)
    before = fragments.total[n]
    devices = best_devices(nodes, classes, c, n)
    place(nodes, classes, c, n, devices)
    refresh(mix, nodes, fragments, n)
    after = fragments.total[n]
    remove(nodes, classes, c, n, devices)
    refresh(mix, nodes, fragments, n)
    return gradient(before, after)


@inner
def local_score(
    kind: int, mix: MixArrays, fragments: FragmentArrays, nodes: NodeArrays, classes: ClassArrays, c: int, n: int
) -> int:
    """The score of local policy `kind` for class `c` on node `n`, where it must fit."""
    if kind == FGD:
        return fgd(mix, fragments, nodes, classes, c, n)
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
