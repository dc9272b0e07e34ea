"""Arrays of a cluster's state, and compiled operations on them.

Everything is an integer, so that placing and removing a pod cancel exactly. Kernels take the arrays as named tuples;
N node slots, C pod classes, R resources, G devices on the largest node, M GPU types, K distinct constraints.
GPUs that have no bit in a device mask are counted in a column of the resources, under their name.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI
from steersman.core.compiled import inlined_kernel, kernel

CPU, MEMORY, PODS, EPHEMERAL, EXTENDED = range(5)
"""Columns of a resource matrix: milli-CPU, bytes, pods, bytes; extended resources from `EXTENDED` on."""


class NodeArrays(NamedTuple):
    """Capacity of nodes and what is left of it.

    Attributes:
        allocatable: [N, R] int64.
        free: [N, R] int64, allocatable minus the requests of the node's pods; below zero only where a node
            shrank or a pod was placed by force.
        nonzero: [N, 2] int64, CPU and memory taken in kube-scheduler's scoring view (defaults for missing requests).
        gpu_count: [N] int64 devices.
        gpu_free: [N, G] int64 milli left of each device, below zero like `free`; 0 beyond `gpu_count`.
        gpu_model: [N] int64 index of the devices' type (model and names), M where they have neither.
        gpu_kinds: [N, G + 1] int64 pods with devices on the node: column 0 counts shares, column k pods with k whole
            ones (or more, the last column).
    """

    allocatable: npt.NDArray[np.int64]
    free: npt.NDArray[np.int64]
    nonzero: npt.NDArray[np.int64]
    gpu_count: npt.NDArray[np.int64]
    gpu_free: npt.NDArray[np.int64]
    gpu_model: npt.NDArray[np.int64]
    gpu_kinds: npt.NDArray[np.int64]


class ClassArrays(NamedTuple):
    """Requests of pod classes.

    Attributes:
        request: [C, R] int64.
        nonzero: [C, 2] int64 CPU and memory in the scoring view.
        gpu_count: [C] int64 devices.
        gpu_milli: [C] int64 milli of each device.
        gpu_column: [C] int64 column of `request` for GPUs of the requested name where nodes count them; the
            last one, which no node offers, for any name.
        constraint: [C] int64 row of `allowed`.
        allowed: [K, N] bool, nodes that the class's constraints and the name of its GPUs allow whatever else runs
            there.
    """

    request: npt.NDArray[np.int64]
    nonzero: npt.NDArray[np.int64]
    gpu_count: npt.NDArray[np.int64]
    gpu_milli: npt.NDArray[np.int64]
    gpu_column: npt.NDArray[np.int64]
    constraint: npt.NDArray[np.int64]
    allowed: npt.NDArray[np.bool_]


@inlined_kernel
def counts_gpus(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> bool:
    """Return whether node `n` counts the GPUs that class `c` requests, so that a pod gets none of the devices."""
    return bool(classes.gpu_count[c] > 0 and nodes.allocatable[n, classes.gpu_column[c]] > 0)


@inlined_kernel
def devices_taken(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """Return how many devices of node `n` a pod of class `c` takes; 0 where its GPUs are counted."""
    return 0 if counts_gpus(nodes, classes, c, n) else int(classes.gpu_count[c])


@kernel
def fits(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> bool:
    """Return whether class `c` fits on node `n` now: allowed, with enough of every requested resource and device.

    A resource that is not requested is not checked, as in kube-scheduler (it matters on a node over its allocatable).
    """
    if not classes.allowed[classes.constraint[c], n]:
        return False
    for r in range(classes.request.shape[1]):
        if classes.request[c, r] > 0 and classes.request[c, r] > nodes.free[n, r]:
            return False
    requested = classes.gpu_count[c]
    if requested == 0:
        return True
    milli = classes.gpu_milli[c]
    if counts_gpus(nodes, classes, c, n):
        return bool(milli == GPU_MILLI and requested <= nodes.free[n, classes.gpu_column[c]])
    if requested > nodes.gpu_count[n]:
        return False
    suitable = 0
    for d in range(nodes.gpu_count[n]):
        if nodes.gpu_free[n, d] >= milli:
            suitable += 1
    return bool(suitable >= requested)


@inlined_kernel
def idle_gpu(nodes: NodeArrays, n: int) -> int:
    """Return the GPU milli left on node `n`, over all its devices; a device of which too much is in use has none."""
    idle = 0
    for d in range(nodes.gpu_count[n]):
        idle += max(nodes.gpu_free[n, d], 0)
    return idle


@inlined_kernel
def signed_gpu(nodes: NodeArrays, n: int) -> int:
    """Return the GPU milli of node `n` minus those that pods hold, over all its devices."""
    left = 0
    for d in range(nodes.gpu_count[n]):
        left += nodes.gpu_free[n, d]
    return left


@inlined_kernel
def gpu_left(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """Return the GPU milli left on node `n` of what class `c` requests: counted ones, or all of its devices."""
    if counts_gpus(nodes, classes, c, n):
        return int(GPU_MILLI * nodes.free[n, classes.gpu_column[c]])
    return idle_gpu(nodes, n)


@inlined_kernel
def gpu_kind(nodes: NodeArrays, classes: ClassArrays, c: int) -> int:
    """Return the column of `gpu_kinds` for class `c`, which must request GPUs."""
    return 0 if classes.gpu_milli[c] < GPU_MILLI else min(classes.gpu_count[c], nodes.gpu_kinds.shape[1] - 1)


@inlined_kernel
def pod_kind(classes: ClassArrays, c: int) -> int:
    """Return the kind of class `c`: 0 no GPU, 1 a share of one, 2 one whole GPU, 3 several."""
    count = classes.gpu_count[c]
    if count == 0:
        return 0
    if count > 1:
        return 3
    return 2 if classes.gpu_milli[c] == GPU_MILLI else 1


@inlined_kernel
def has_equal_earlier_device(nodes: NodeArrays, n: int, d: int) -> bool:
    """Return whether an earlier device of node `n` has as much left as device `d`, so that `d` need not be tried."""
    for earlier in range(d):  # noqa: SIM110 - a generator does not compile without memory of its own
        if nodes.gpu_free[n, earlier] == nodes.gpu_free[n, d]:
            return True
    return False


@kernel
def best_devices(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """Return the devices of node `n` that a pod of class `c` takes by default, as a bit mask (0: none, or counted).

    Shares take the fullest device that suffices, whole devices the first free ones; the lowest index on ties.
    The class must fit.
    """
    chosen = 0
    for _ in range(devices_taken(nodes, classes, c, n)):
        best, best_left = -1, GPU_MILLI + 1
        for d in range(nodes.gpu_count[n]):
            left = nodes.gpu_free[n, d]
            if classes.gpu_milli[c] <= left < best_left and not (chosen >> d) & 1:
                best, best_left = d, left
        if best < 0:
            break
        chosen |= 1 << best
    return chosen


@kernel
def place(nodes: NodeArrays, classes: ClassArrays, c: int, n: int, devices: int) -> None:
    """Place a pod of class `c` on node `n` with the devices of the bit mask, without checking that it fits."""
    _account(nodes, classes, c, n, devices, 1)


@kernel
def remove(nodes: NodeArrays, classes: ClassArrays, c: int, n: int, devices: int) -> None:
    """Undo `place` with the same arguments, exactly."""
    _account(nodes, classes, c, n, devices, -1)


@inlined_kernel
def _account(nodes: NodeArrays, classes: ClassArrays, c: int, n: int, devices: int, sign: int) -> None:
    for r in range(classes.request.shape[1]):
        nodes.free[n, r] -= sign * classes.request[c, r]
    nodes.nonzero[n, 0] += sign * classes.nonzero[c, 0]
    nodes.nonzero[n, 1] += sign * classes.nonzero[c, 1]
    if classes.gpu_count[c] == 0:
        return
    if counts_gpus(nodes, classes, c, n):
        nodes.free[n, classes.gpu_column[c]] -= sign * classes.gpu_count[c]
        return
    milli = classes.gpu_milli[c]
    for d in range(nodes.gpu_count[n]):
        if (devices >> d) & 1:
            nodes.gpu_free[n, d] -= sign * milli
    nodes.gpu_kinds[n, gpu_kind(nodes, classes, c)] += sign


@kernel
def room_for(nodes: NodeArrays, classes: ClassArrays, c: int, slots: npt.NDArray[np.int64]) -> int:
    """Return how many pods of class `c` fit on the nodes in these slots now, in total; at least 1 where one fits."""
    total = 0
    for i in range(slots.shape[0]):
        n = slots[i]
        if not fits(nodes, classes, c, n):
            continue
        node_count = 1 << 30
        for r in range(classes.request.shape[1]):
            if classes.request[c, r] > 0:
                node_count = min(node_count, int(nodes.free[n, r] // classes.request[c, r]))
        requested, milli = classes.gpu_count[c], classes.gpu_milli[c]
        if requested > 0 and not counts_gpus(nodes, classes, c, n):
            shares = 0
            for d in range(nodes.gpu_count[n]):
                # Below zero, floor division would take shares off those of other devices.
                if nodes.gpu_free[n, d] > 0:
                    shares += int(nodes.gpu_free[n, d] // milli)
            node_count = min(node_count, shares // int(requested))
        # Devices in parts may add up to too few whole pods, and yet one fits.
        total += max(node_count, 1)
    return total


@kernel
def fit_mask(nodes: NodeArrays, classes: ClassArrays, c: int, out: npt.NDArray[np.bool_]) -> None:
    """Write where class `c` fits to `out`, [N] bool."""
    for n in range(out.shape[0]):
        out[n] = fits(nodes, classes, c, n)
