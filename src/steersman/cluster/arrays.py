"""Arrays of a cluster's state, and operations on them.

Everything is an integer, so that placing and removing a pod cancel exactly. N node slots, C pod classes, R resources,
G devices on the largest node, M GPU types, K distinct constraints.
GPUs that have no bit in a device mask are counted in a column of the resources, under their name.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI

CPU, MEMORY, PODS, EPHEMERAL, EXTENDED = range(5)
"""Columns of a resource matrix: milli-CPU, bytes, pods, bytes; extended resources from `EXTENDED` on."""

EVERY = slice(None)


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


def counts_gpus(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> bool:
    """Return whether node `n` counts the GPUs that class `c` requests, so that a pod gets none of the devices."""
    return bool(classes.gpu_count[c] > 0 and nodes.allocatable[n, classes.gpu_column[c]] > 0)


def fits(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> bool:
    """Return whether class `c` fits on node `n` now: allowed, with enough of every requested resource and device.

    A resource that is not requested is not checked, as in kube-scheduler (it matters on a node over its allocatable).
    """
    if not classes.allowed[classes.constraint[c], n]:
        return False
    # Lists: a loop over so few numbers takes less time than operations on arrays.
    for requested, free in zip(classes.request[c].tolist(), nodes.free[n].tolist(), strict=True):
        if 0 < requested > free:
            return False
    count = int(classes.gpu_count[c])
    if count == 0:
        return True
    milli = int(classes.gpu_milli[c])
    if counts_gpus(nodes, classes, c, n):
        return milli == GPU_MILLI and count <= int(nodes.free[n, classes.gpu_column[c]])
    return sum(left >= milli for left in _device_milli(nodes, n)) >= count


def fit_mask(
    nodes: NodeArrays, classes: ClassArrays, c: int, slots: npt.NDArray[np.int64] | slice = EVERY
) -> npt.NDArray[np.bool_]:
    """Return whether class `c` fits on the nodes in these slots, [S], see `fits`."""
    nodes = NodeArrays(*(each[slots] for each in nodes))
    mask: npt.NDArray[np.bool_] = classes.allowed[classes.constraint[c], slots].copy()
    request = classes.request[c]
    for r in np.flatnonzero(request > 0):
        mask &= nodes.free[:, r] >= request[r]
    count, milli, column = classes.gpu_count[c], classes.gpu_milli[c], classes.gpu_column[c]
    if count == 0 or not mask.any():
        return mask
    suitable = np.zeros(len(mask), dtype=np.int64)
    for d in range(nodes.gpu_free.shape[1]):
        suitable += (nodes.gpu_free[:, d] >= milli) & (nodes.gpu_count > d)
    enough = suitable >= count
    counted = nodes.allocatable[:, column] > 0
    if counted.any():
        enough = np.where(counted, (nodes.free[:, column] >= count) & (milli == GPU_MILLI), enough)
    mask &= enough
    return mask


def room_for(nodes: NodeArrays, classes: ClassArrays, c: int, slots: npt.NDArray[np.int64]) -> int:
    """Return how many pods of class `c` fit on the nodes in these slots now, in total; at least 1 where one fits."""
    slots = slots[fit_mask(nodes, classes, c, slots)]
    if not len(slots):
        return 0
    pods = np.full(len(slots), 1 << 30)
    for r in np.flatnonzero(classes.request[c] > 0):
        pods = np.minimum(pods, nodes.free[slots, r] // classes.request[c, r])
    if classes.gpu_count[c] > 0:
        devices = np.arange(nodes.gpu_free.shape[1]) < nodes.gpu_count[slots, None]
        # Below zero, floor division would take shares off those of other devices.
        shares = np.where(devices, np.maximum(nodes.gpu_free[slots], 0) // classes.gpu_milli[c], 0).sum(axis=1)
        counted = nodes.allocatable[slots, classes.gpu_column[c]] > 0
        pods = np.where(counted, pods, np.minimum(pods, shares // classes.gpu_count[c]))
    # Devices in parts may add up to too few whole pods, and yet one fits.
    return int(np.maximum(pods, 1).sum())


def best_devices(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """Return the devices of node `n` that a pod of class `c` takes by default, as a bit mask (0: none, or counted).

    Shares take the fullest device that suffices, whole devices the first free ones; the lowest index on ties.
    The class must fit.
    """
    count, milli = int(classes.gpu_count[c]), int(classes.gpu_milli[c])
    if count == 0 or counts_gpus(nodes, classes, c, n):
        return 0
    suitable = sorted((left, d) for d, left in enumerate(_device_milli(nodes, n)) if left >= milli)
    return sum(1 << d for _, d in suitable[:count])


def place(nodes: NodeArrays, classes: ClassArrays, c: int, n: int, devices: int) -> None:
    """Place a pod of class `c` on node `n` with the devices of the bit mask, without checking that it fits."""
    _account(nodes, classes, c, n, devices, 1)


def remove(nodes: NodeArrays, classes: ClassArrays, c: int, n: int, devices: int) -> None:
    """Undo `place` with the same arguments, exactly."""
    _account(nodes, classes, c, n, devices, -1)


def _account(nodes: NodeArrays, classes: ClassArrays, c: int, n: int, devices: int, sign: int) -> None:
    nodes.free[n] -= sign * classes.request[c]
    nodes.nonzero[n] += sign * classes.nonzero[c]
    count = int(classes.gpu_count[c])
    if count == 0:
        return
    if counts_gpus(nodes, classes, c, n):
        nodes.free[n, classes.gpu_column[c]] -= sign * count
        return
    milli = int(classes.gpu_milli[c])
    for d in range(int(nodes.gpu_count[n])):
        if devices >> d & 1:
            nodes.gpu_free[n, d] -= sign * milli
    kind = 0 if milli < GPU_MILLI else min(count, nodes.gpu_kinds.shape[1] - 1)
    nodes.gpu_kinds[n, kind] += sign


def _device_milli(nodes: NodeArrays, n: int) -> list[int]:
    """Return what is left of each device of node `n`."""
    left: list[int] = nodes.gpu_free[n, : nodes.gpu_count[n]].tolist()
    return left
