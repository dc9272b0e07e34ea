"""Feature encoding: the features of `steersman.policies.features` in compiled code, one function per row.

A node's row has two parts. *Local* features depend on the pod's class and this node alone, so rows are cached and only
those of changed nodes are recomputed. *Shared* ones depend on the rest of the cluster or on the pod's owner, and are
overwritten for every decision.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import (
    CPU,
    MEMORY,
    PODS,
    ClassArrays,
    NodeArrays,
    best_devices,
    devices_taken,
    fits,
    place,
    pod_kind,
    remove,
)
from steersman.cluster.model import GPU_MILLI
from steersman.core.compiled import called_kernel, inlined_kernel, kernel
from steersman.core.errors import UsageError
from steersman.core.random_numbers import GOLDEN, mixed
from steersman.objectives.fragmentation import DeviceChange, FragmentArrays, fragment_after, refresh
from steersman.objectives.measures import cpu_deviation, cpu_mean
from steersman.objectives.summary import (
    CPU_TAKEN,
    CPU_TOTAL,
    FRAGMENTED,
    GPU_TAKEN,
    GPU_TOTAL,
    MEMORY_TAKEN,
    MEMORY_TOTAL,
    NODES,
    NODES_USED,
    SLOTS,
    WAITING,
)
from steersman.policies.features import GPU, View, bounds
from steersman.policies.gpu_state.fragmentation_cache import FRAGMENTED as FRAGMENTED_MILLI
from steersman.policies.gpu_state.fragmentation_cache import KEY, MAX_CPU, PROFILE_HASH, FragmentationCache, device_key
from steersman.policies.gpu_state.gpu_features import FEATURES, RemainingCapacity, Scratch, describe, usable_cpu
from steersman.policies.gpu_state.leftover_tables import LeftoverTables
from steersman.policies.node_scores.local_scores import fgd_points
from steersman.policies.observations import columns
from steersman.workloads.profile import ProfileArrays

VIEW_CLUSTER = 0
VIEW_GPU = 1
VIEW_NUMBERS = {"cluster": VIEW_CLUSTER, "gpu": VIEW_GPU}
"""Numbers of the views in compiled code."""

LOW, HIGH = bounds(GPU.node)

_GPU_COLUMNS = (
    *(columns.NODE_GPU_FREE_BEFORE, columns.NODE_GPU_FREE_AFTER, columns.NODE_GPU_LEFT, columns.NODE_GPU_COUNT),
    *(columns.NODE_WHOLE_BEFORE, columns.NODE_WHOLE_AFTER, columns.NODE_PARTIAL_AFTER, columns.NODE_LARGEST_PART_AFTER),
    *(columns.NODE_FRAGMENTED_BEFORE, columns.NODE_FRAGMENTED_AFTER),
    *(columns.NODE_UNTOUCHED_BEFORE, columns.NODE_UNTOUCHED_AFTER),
)

MANY = 8.0  # upper bound of amounts without a natural one, see `features`
GIB = float(1 << 30)
TIB = float(1 << 40)

Row = npt.NDArray[np.float32]


class EncodingContext(NamedTuple):
    """Inputs of local features: `cluster` needs `fragments` and `known`, `gpu` needs the leftover tables and `room`."""

    nodes: NodeArrays
    classes: ClassArrays
    profile: ProfileArrays
    fragments: FragmentArrays
    known: FragmentationCache
    leftovers: LeftoverTables
    room: Scratch


class ObservedCluster(NamedTuple):
    """What shared features are about: the cluster, where its owners' pods run, and its summary, [16]."""

    context: EncodingContext
    owners: OwnerArrays
    summary: npt.NDArray[np.float64]


class TakenDevices(NamedTuple):
    """The devices that a pod would take of a node (bit mask), and the node's idle GPU milli before.

    `old`: free milli before of one of `devices`; `key`: sum of `device_key` over the node's devices afterwards.
    """

    devices: int
    idle: int
    old: int
    key: np.uint64


class OwnerArrays(NamedTuple):
    """Locations of the running pods of each owner; O owners (Deployments, jobs), K racks, N nodes.

    Attributes:
        rack: [N] int64 index of the node's rack, -1 if it has none.
        running: [O] int32 pods.
        on_node: [O, N] int32 pods on the node.
        in_rack: [O, K] int32 pods in the rack.
    """

    rack: npt.NDArray[np.int64]
    running: npt.NDArray[np.int32]
    on_node: npt.NDArray[np.int32]
    in_rack: npt.NDArray[np.int32]


@kernel
def count_owner(owners: OwnerArrays, owner: int, n: int, sign: int) -> None:
    """Count a pod of an owner (-1: none) that was bound to node `n`, or with -1 that left it."""
    if owner < 0:
        return
    owners.running[owner] += sign
    owners.on_node[owner, n] += sign
    if owners.rack[n] >= 0:
        owners.in_rack[owner, owners.rack[n]] += sign


@inlined_kernel
def share_nearby(owners: OwnerArrays, owner: int, n: int) -> float:
    """Return the share of an owner's running pods in the rack of node `n`, or on `n` if it has none; 1 without pods."""
    if owner < 0 or owners.running[owner] == 0:
        return 1.0
    if owners.rack[n] < 0:
        return float(owners.on_node[owner, n] / owners.running[owner])
    return float(owners.in_rack[owner, owners.rack[n]] / owners.running[owner])


def number_of(view: View) -> int:
    """Return the number of a view in compiled code. Raises UsageError: environments do not encode it."""
    if view.name not in VIEW_NUMBERS:
        raise UsageError(f"view {view.name!r} is not one that environments show; there are {', '.join(VIEW_NUMBERS)}")
    return VIEW_NUMBERS[view.name]


@inlined_kernel
def encode_node(view: int, context: EncodingContext, c: int, n: int, out: Row) -> bool:
    """Write the local features of node `n` for class `c` into out, [F], and return whether the class fits.

    Other features stay as they are. `view` is the number of the view.
    """
    fit = fits(context.nodes, context.classes, c, n)
    if view == VIEW_CLUSTER:
        _cluster_node(context, c, n, fit, out)
    elif view == VIEW_GPU:
        _gpu_node(context, c, n, fit, out)
    return bool(fit)


@inlined_kernel
def encode_shared(
    view: int,
    context: EncodingContext,
    owner: int,
    owners: OwnerArrays,
    summary: npt.NDArray[np.float64],
    out: npt.NDArray[np.float32],
) -> None:
    """Write the shared features of all nodes into out, [N, F], which has their local ones; `owner` -1: none."""
    if view == VIEW_CLUSTER:
        _cluster_shared(context, owner, owners, summary, out)


@inlined_kernel
def encode_pod(classes: ClassArrays, c: int, running: int, out: Row) -> None:
    """Write the features of a pod of class `c` and of its owner's `running` pods into out, [P]; equal in all views."""
    _kind(classes, c, out)
    _cluster_pod(classes, c, running, out)


@kernel
def encode_pods(classes: ClassArrays, out: npt.NDArray[np.float32]) -> None:
    """Write the features of a pod of every class, of whose owner no pod runs, into out, [C, P]."""
    for c in range(out.shape[0]):
        encode_pod(classes, c, 0, out[c])


@inlined_kernel
def encode_context(summary: npt.NDArray[np.float64], feasible: int, out: Row) -> None:
    """Write the features of the cluster, where the pod fits on `feasible` nodes, into out, [X]; equal in all views."""
    _cluster_context(summary, feasible, out)


@inlined_kernel
def _kind(classes: ClassArrays, c: int, out: Row) -> None:
    kind = pod_kind(classes, c)
    for i in range(4):
        out[i] = 1.0 if i == kind else 0.0


@inlined_kernel
def _part(amount: float, total: float) -> float:
    """Return a share in [0, 1], 0 if the total is 0. Free amounts may be negative on a node that shrank."""
    return min(max(amount / total, 0.0), 1.0) if total > 0 else 0.0


@inlined_kernel
def _amount(amount: float, unit: float) -> float:
    """Return an amount in [0, 8] units."""
    return min(max(amount / unit, 0.0), MANY)


@inlined_kernel
def _cluster_node(context: EncodingContext, c: int, n: int, fit: bool, out: Row) -> None:
    nodes, classes = context.nodes, context.classes
    cpu, memory, pods = nodes.allocatable[n, CPU], nodes.allocatable[n, MEMORY], nodes.allocatable[n, PODS]
    # Where the pod does not fit, "after" equals "before".
    cpu_left = nodes.free[n, CPU] - (classes.request[c, CPU] if fit else 0)
    memory_left = nodes.free[n, MEMORY] - (classes.request[c, MEMORY] if fit else 0)
    pods_left = nodes.free[n, PODS] - (1 if fit else 0)
    out[columns.NODE_CPU_FREE_BEFORE] = _part(nodes.free[n, CPU], cpu)
    out[columns.NODE_CPU_FREE_AFTER] = _part(cpu_left, cpu)
    out[columns.NODE_MEMORY_FREE_BEFORE] = _part(nodes.free[n, MEMORY], memory)
    out[columns.NODE_MEMORY_FREE_AFTER] = _part(memory_left, memory)
    out[columns.NODE_PODS_FREE_BEFORE] = _part(nodes.free[n, PODS], pods)
    out[columns.NODE_PODS_FREE_AFTER] = _part(pods_left, pods)
    out[columns.NODE_CPU_LEFT] = _amount(cpu_left, 128_000.0)
    out[columns.NODE_MEMORY_LEFT] = _amount(memory_left, TIB)
    out[columns.NODE_EMPTY_BEFORE] = 1.0 if nodes.free[n, PODS] == pods else 0.0
    if nodes.gpu_count[n] > 0:
        _cluster_gpus(context, c, n, fit, out)
    else:
        _cluster_no_gpus(fit, out)


@inlined_kernel
def _cluster_gpus(context: EncodingContext, c: int, n: int, fit: bool, out: Row) -> None:
    nodes, classes, before = context.nodes, context.classes, context.fragments.total[n]
    count, milli = nodes.gpu_count[n], classes.gpu_milli[c]
    devices = best_devices(nodes, classes, c, n) if fit else 0
    # GPU_MILLI for `old`: pods without GPUs change no device.
    idle, old, whole_before, whole, partial, largest, key = 0, GPU_MILLI, 0, 0, 0, 0, np.uint64(0)
    for d in range(count):
        left = nodes.gpu_free[n, d]
        idle += max(left, 0)
        if left == GPU_MILLI:
            whole_before += 1
        if (devices >> d) & 1:
            old = left
            left -= milli
        key += device_key(left)
        if left == GPU_MILLI:
            whole += 1
        elif left > 0:
            partial += 1
            largest = max(largest, left)
    taken, after = 0, before
    if fit:
        taken = devices_taken(nodes, classes, c, n) * milli
        after = _fragmented_with(context, c, n, TakenDevices(devices, idle, old, key))
    out[columns.NODE_GPU_FREE_BEFORE] = idle / (GPU_MILLI * count)
    out[columns.NODE_GPU_FREE_AFTER] = (idle - taken) / (GPU_MILLI * count)
    out[columns.NODE_GPU_LEFT] = _amount(idle - taken, 8.0 * GPU_MILLI)
    out[columns.NODE_GPU_COUNT] = _amount(count, 8.0)
    out[columns.NODE_WHOLE_BEFORE] = _amount(whole_before, 8.0)
    out[columns.NODE_WHOLE_AFTER] = _amount(whole, 8.0)
    out[columns.NODE_PARTIAL_AFTER] = _amount(partial, 8.0)
    out[columns.NODE_LARGEST_PART_AFTER] = largest / GPU_MILLI
    out[columns.NODE_FRAGMENTED_BEFORE] = _amount(before, 8.0 * GPU_MILLI)
    out[columns.NODE_FRAGMENTED_AFTER] = _amount(after, 8.0 * GPU_MILLI)
    out[columns.NODE_FGD_SCORE] = 1.0 / (1.0 + math.exp(-(before - after) / GPU_MILLI)) if fit else 0.0
    out[columns.NODE_UNTOUCHED_BEFORE] = 1.0 if whole_before == count else 0.0
    out[columns.NODE_UNTOUCHED_AFTER] = 1.0 if whole == count else 0.0


@inlined_kernel
def _fragmented_with(context: EncodingContext, c: int, n: int, taken: TakenDevices) -> float:
    """Return the fragmented GPU milli of node `n` after placing a pod of class `c`, which must fit; cached."""
    known, nodes = context.known, context.nodes
    # More free CPU than the largest request makes no difference to fragmentation.
    cpu = min(nodes.free[n, CPU] - context.classes.request[c, CPU], known.mark[MAX_CPU])
    fixed = np.uint64(known.mark[PROFILE_HASH]) + np.uint64(nodes.gpu_model[n])
    key = mixed(mixed(taken.key + np.uint64(cpu) * GOLDEN) + fixed * GOLDEN) | np.uint64(1)
    row = int(key >> np.uint64(20)) & (known.keys.shape[0] - 1)
    if known.keys[row, KEY] != key:
        known.states[row, FRAGMENTED_MILLI] = _compute_fragmentation(context, c, n, taken)
        known.keys[row, KEY] = key
    return float(known.states[row, FRAGMENTED_MILLI])


@called_kernel
def _compute_fragmentation(context: EncodingContext, c: int, n: int, taken: TakenDevices) -> float:
    nodes, classes, profile, fragments = context.nodes, context.classes, context.profile, context.fragments
    count, milli = devices_taken(nodes, classes, c, n), classes.gpu_milli[c]
    if count > 1 and milli < GPU_MILLI:
        # Devices with different free milli have no closed form: place the pod, measure, and remove it.
        place(nodes, classes, c, n, taken.devices)
        refresh(profile, nodes, fragments, n)
        after = fragments.total[n]
        remove(nodes, classes, c, n, taken.devices)
        refresh(profile, nodes, fragments, n)
        return float(after)
    cpu, change = nodes.free[n, CPU] - classes.request[c, CPU], DeviceChange(count, taken.old, taken.old - milli)
    return fragment_after(profile, fragments, n, cpu, taken.idle - count * milli, nodes.gpu_model[n], change)


@inlined_kernel
def _cluster_no_gpus(fit: bool, out: Row) -> None:
    for i in _GPU_COLUMNS:
        out[i] = 0.0
    out[columns.NODE_FGD_SCORE] = 0.5 if fit else 0.0  # FGD's score where nothing changes: sigmoid(0)


@called_kernel
def _gpu_node(context: EncodingContext, c: int, n: int, fit: bool, out: Row) -> None:
    """Write the features of `gpu_state.views.write_node_features` on the best-fit devices; 0 if infeasible."""
    nodes, classes = context.nodes, context.classes
    if not fit:
        for i in range(2 * FEATURES + 1):
            out[i] = 0.0
        return
    # `change` is a view of `out`: it holds the features before until they are subtracted.
    devices, change, milli = best_devices(nodes, classes, c, n), out[FEATURES : 2 * FEATURES], classes.gpu_milli[c]
    cpu = usable_cpu(context.leftovers, nodes.free[n, CPU], nodes.free[n, MEMORY])
    cpu_left = usable_cpu(
        context.leftovers,
        nodes.free[n, CPU] - classes.request[c, CPU],
        nodes.free[n, MEMORY] - classes.request[c, MEMORY],
    )
    before = describe(context.leftovers, context.profile, nodes, context.room, n, RemainingCapacity(cpu, 0, 0), change)
    after = describe(
        context.leftovers, context.profile, nodes, context.room, n, RemainingCapacity(cpu_left, devices, milli), out
    )
    for i in range(FEATURES):
        change[i] = out[i] - change[i]
    out[2 * FEATURES] = fgd_points(before, after)
    for i in range(2 * FEATURES + 1):
        out[i] = min(max(out[i], LOW[i]), HIGH[i])


@inlined_kernel
def _cluster_shared(
    context: EncodingContext,
    owner: int,
    owners: OwnerArrays,
    summary: npt.NDArray[np.float64],
    out: npt.NDArray[np.float32],
) -> None:
    mean = np.float32(cpu_mean(summary))
    # SLOTS rows are shown, NODES count.
    for n in range(int(summary[SLOTS])):
        before = after = np.float32(0.0)
        if context.nodes.allocatable[n, CPU] > 0:
            # The local features hold the shares that are free; the square is that of the number beside it.
            before = np.float32(1.0) - out[n, columns.NODE_CPU_FREE_BEFORE] - mean
            after = np.float32(1.0) - out[n, columns.NODE_CPU_FREE_AFTER] - mean
        out[n, columns.NODE_CPU_DEVIATION_BEFORE] = before
        out[n, columns.NODE_CPU_DEVIATION_AFTER] = after
        out[n, columns.NODE_CPU_SQUARE_BEFORE] = before * before
        out[n, columns.NODE_CPU_SQUARE_AFTER] = after * after
        out[n, columns.NODE_OWNER_ON_NODE] = out[n, columns.NODE_OWNER_IN_RACK] = 0.0
    if owner < 0 or owners.running[owner] == 0:
        return
    running = owners.running[owner]
    for n in range(int(summary[SLOTS])):
        out[n, columns.NODE_OWNER_ON_NODE] = owners.on_node[owner, n] / running
        if owners.rack[n] >= 0:
            out[n, columns.NODE_OWNER_IN_RACK] = owners.in_rack[owner, owners.rack[n]] / running


@inlined_kernel
def _cluster_pod(classes: ClassArrays, c: int, running: int, out: Row) -> None:
    cores, gib = classes.request[c, CPU] / 1000.0, classes.request[c, MEMORY] / GIB
    out[columns.POD_CPU] = _amount(cores, 32.0)
    out[columns.POD_CPU_LOG] = min(math.log2(1.0 + cores) / 7.0, 2.0)
    out[columns.POD_MEMORY] = _amount(gib, 256.0)
    out[columns.POD_MEMORY_LOG] = min(math.log2(1.0 + gib) / 10.0, 2.0)
    out[columns.POD_GPU_DEVICES] = _amount(classes.gpu_count[c], 8.0)
    out[columns.POD_GPU_SHARE] = classes.gpu_milli[c] / GPU_MILLI
    out[columns.POD_OWNER_RUNNING] = running / (running + 8.0)


@inlined_kernel
def _cluster_context(summary: npt.NDArray[np.float64], feasible: int, out: Row) -> None:
    nodes = max(summary[NODES], 1.0)
    out[columns.CONTEXT_CPU_LOAD] = _part(summary[CPU_TAKEN], summary[CPU_TOTAL])
    out[columns.CONTEXT_MEMORY_LOAD] = _part(summary[MEMORY_TAKEN], summary[MEMORY_TOTAL])
    out[columns.CONTEXT_GPU_LOAD] = _part(summary[GPU_TAKEN], summary[GPU_TOTAL])
    out[columns.CONTEXT_FRAGMENTED] = _part(summary[FRAGMENTED], summary[GPU_TOTAL] - summary[GPU_TAKEN])
    out[columns.CONTEXT_CPU_MEAN] = min(max(cpu_mean(summary), 0.0), 1.0)
    out[columns.CONTEXT_CPU_DEVIATION] = min(cpu_deviation(summary), 1.0)
    out[columns.CONTEXT_NODES_USED] = summary[NODES_USED] / nodes
    out[columns.CONTEXT_FEASIBLE] = feasible / nodes
    out[columns.CONTEXT_WAITING] = summary[WAITING] / (summary[WAITING] + 16.0)
    out[columns.CONTEXT_NODES] = math.log2(1.0 + nodes) / 20.0
