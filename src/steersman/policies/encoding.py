"""What a policy sees, computed: the features of `steersman.features` in compiled code, one function a row.

A node's row has two parts. *Local* features depend on the pod's class and this node alone, so that rows can be kept and
only those of changed nodes be computed anew. *Shared* ones depend on the rest of the cluster or on the pod's owner, and
are written over them for every decision.
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
    WHOLE,
    ClassArrays,
    NodeArrays,
    best_devices,
    devices_taken,
    fits,
    pod_kind,
)
from steersman.compiled import inner, kernel, outlined
from steersman.errors import UsageError
from steersman.features import GPU, View, bounds
from steersman.objectives.fragmentation import FragmentArrays
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
    WAITING,
)
from steersman.policies.afterstates import Afterstates, device_key, fragmented_with
from steersman.policies.gpu_features import FEATURES, Scratch, describe, usable_cpu
from steersman.policies.local import gradient
from steersman.policies.outlook_tables import OutlookTables
from steersman.workloads.mix import MixArrays

VIEW_CLUSTER = 0
VIEW_GPU = 1
VIEW_NUMBERS = {"cluster": VIEW_CLUSTER, "gpu": VIEW_GPU}
"""Numbers of the views in compiled code."""

LOW, HIGH = bounds(GPU.node)

MANY = 8.0  # the bound of amounts that have no natural one, see `features`
GIB = float(1 << 30)
TIB = float(1 << 40)

Row = npt.NDArray[np.float32]


class Scene(NamedTuple):
    """What local features depend on: view `cluster` on `fragments` and `known`, `gpu` on the outlook (and room)."""

    nodes: NodeArrays
    classes: ClassArrays
    mix: MixArrays
    fragments: FragmentArrays
    known: Afterstates
    outlook: OutlookTables
    room: Scratch


class OwnerArrays(NamedTuple):
    """Where the running pods of each owner are; O owners (Deployments, jobs), K racks, N nodes.

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
    """Count that a pod of an owner (-1: none) came to node `n`, or with -1 that it left."""
    if owner < 0:
        return
    owners.running[owner] += sign
    owners.on_node[owner, n] += sign
    if owners.rack[n] >= 0:
        owners.in_rack[owner, owners.rack[n]] += sign


@inner
def share_nearby(owners: OwnerArrays, owner: int, n: int) -> float:
    """Share of an owner's running pods that are in the rack of node `n`, or on it if it has none; 1 without pods."""
    if owner < 0 or owners.running[owner] == 0:
        return 1.0
    if owners.rack[n] < 0:
        return float(owners.on_node[owner, n] / owners.running[owner])
    return float(owners.in_rack[owner, owners.rack[n]] / owners.running[owner])


def number_of(view: View) -> int:
    """The number of a view in compiled code. Raises UsageError: environments do not compute it."""
    if view.name not in VIEW_NUMBERS:
        raise UsageError(f"view {view.name!r} is not one that environments show; there are {', '.join(VIEW_NUMBERS)}")
    return VIEW_NUMBERS[view.name]


@inner
def encode_node(view: int, scene: Scene, c: int, n: int, out: Row) -> bool:
    """The local features of node `n` for class `c` into out, [F]; others stay as they are. `view` says which view.

    Returns whether the class fits.
    """
    fit = fits(scene.nodes, scene.classes, c, n)
    if view == VIEW_CLUSTER:
        _cluster_node(scene, c, n, fit, out)
    elif view == VIEW_GPU:
        _gpu_node(scene, c, n, fit, out)
    return bool(fit)


@inner
def encode_shared(
    view: int,
    scene: Scene,
    owner: int,
    owners: OwnerArrays,
    summary: npt.NDArray[np.float64],
    out: npt.NDArray[np.float32],
) -> None:
    """The shared features of all nodes into out, [N, F].

    Args:
        view: the number of the view.
        scene: the cluster.
        owner: the pod's owner, -1 if it has none.
        owners: where pods of owners run.
        summary: the state, see `objectives.summary`.
        out: the nodes' rows, with their local features.
    """
    if view == VIEW_CLUSTER:
        _cluster_shared(scene, owner, owners, summary, out)


@inner
def encode_pod(classes: ClassArrays, c: int, running: int, out: Row) -> None:
    """The features of a pod of class `c`, of whose owner `running` pods run, into out, [F]; the same in all views."""
    _kind(classes, c, out)
    _cluster_pod(classes, c, running, out)


@kernel
def encode_pods(classes: ClassArrays, out: npt.NDArray[np.float32]) -> None:
    """The features of a pod of every class, of whose owner no pod runs, into out, [C, F]."""
    for c in range(out.shape[0]):
        encode_pod(classes, c, 0, out[c])


@inner
def encode_context(summary: npt.NDArray[np.float64], feasible: int, out: Row) -> None:
    """The features of the cluster, on `feasible` of whose nodes the pod fits, into out, [F]; the same in all views."""
    _cluster_context(summary, feasible, out)


@inner
def _kind(classes: ClassArrays, c: int, out: Row) -> None:
    kind = pod_kind(classes, c)
    for i in range(4):
        out[i] = 1.0 if i == kind else 0.0


@inner
def _part(amount: float, total: float) -> float:
    """A share in [0, 1]; 0 of nothing. What is free may be below zero on a node that shrank."""
    return min(max(amount / total, 0.0), 1.0) if total > 0 else 0.0


@inner
def _amount(amount: float, unit: float) -> float:
    """An amount in [0, 8] units."""
    return min(max(amount / unit, 0.0), MANY)


@inner
def _cluster_node(scene: Scene, c: int, n: int, fit: bool, out: Row) -> None:
    nodes, classes = scene.nodes, scene.classes
    cpu, memory, pods = nodes.allocatable[n, CPU], nodes.allocatable[n, MEMORY], nodes.allocatable[n, PODS]
    cpu_left = nodes.free[n, CPU] - (classes.request[c, CPU] if fit else 0)
    memory_left = nodes.free[n, MEMORY] - (classes.request[c, MEMORY] if fit else 0)
    pods_left = nodes.free[n, PODS] - (1 if fit else 0)
    out[0] = _part(nodes.free[n, CPU], cpu)
    out[1] = _part(cpu_left, cpu)
    out[2] = _part(nodes.free[n, MEMORY], memory)
    out[3] = _part(memory_left, memory)
    out[4] = _part(nodes.free[n, PODS], pods)
    out[5] = _part(pods_left, pods)
    out[8] = _amount(cpu_left, 128_000.0)
    out[9] = _amount(memory_left, TIB)
    out[19] = 1.0 if nodes.free[n, PODS] == pods else 0.0
    if nodes.gpu_count[n] > 0:
        _cluster_gpus(scene, c, n, fit, out)
    else:
        _cluster_no_gpus(fit, out)


@inner
def _cluster_gpus(scene: Scene, c: int, n: int, fit: bool, out: Row) -> None:
    nodes, classes, before = scene.nodes, scene.classes, scene.fragments.total[n]
    count, milli = nodes.gpu_count[n], classes.gpu_milli[c]
    devices = best_devices(nodes, classes, c, n) if fit else 0
    idle, old, whole_before, whole, partial, largest, key = 0, WHOLE, 0, 0, 0, 0, np.uint64(0)
    for d in range(count):
        left = nodes.gpu_free[n, d]
        idle += left
        if left == WHOLE:
            whole_before += 1
        if (devices >> d) & 1:
            old = left
            left -= milli
        key += device_key(left)
        if left == WHOLE:
            whole += 1
        elif left > 0:
            partial += 1
            largest = max(largest, left)
    taken, after = 0, before
    if fit:
        taken = devices_taken(nodes, classes, c, n) * milli
        after = fragmented_with(scene.known, nodes, classes, scene.mix, scene.fragments, c, n, devices, idle, old, key)
    out[6] = idle / (WHOLE * count)
    out[7] = (idle - taken) / (WHOLE * count)
    out[10] = _amount(idle - taken, 8.0 * WHOLE)
    out[11] = _amount(count, 8.0)
    out[12] = _amount(whole_before, 8.0)
    out[13] = _amount(whole, 8.0)
    out[14] = _amount(partial, 8.0)
    out[15] = largest / WHOLE
    out[16] = _amount(before, 8.0 * WHOLE)
    out[17] = _amount(after, 8.0 * WHOLE)
    out[18] = 1.0 / (1.0 + math.exp(-(before - after) / WHOLE)) if fit else 0.0
    out[20] = 1.0 if whole_before == count else 0.0
    out[21] = 1.0 if whole == count else 0.0


@inner
def _cluster_no_gpus(fit: bool, out: Row) -> None:
    for i in (6, 7, 10, 11, 12, 13, 14, 15, 16, 17, 20, 21):
        out[i] = 0.0
    out[18] = 0.5 if fit else 0.0  # FGD's score where nothing changes: sigmoid(0)


@outlined
def _gpu_node(scene: Scene, c: int, n: int, fit: bool, out: Row) -> None:
    """As `learned_views.see_nodes` gives them, on the devices of the best-fit rule; 0 where the pod does not fit."""
    nodes, classes = scene.nodes, scene.classes
    if not fit:
        for i in range(2 * FEATURES + 1):
            out[i] = 0.0
        return
    devices, change, milli = best_devices(nodes, classes, c, n), out[FEATURES : 2 * FEATURES], classes.gpu_milli[c]
    cpu = usable_cpu(scene.outlook, nodes.free[n, CPU], nodes.free[n, MEMORY])
    cpu_left = usable_cpu(
        scene.outlook,
        nodes.free[n, CPU] - classes.request[c, CPU],
        nodes.free[n, MEMORY] - classes.request[c, MEMORY],
    )
    before = describe(scene.outlook, scene.mix, nodes, scene.room, n, cpu, 0, 0, change)
    after = describe(scene.outlook, scene.mix, nodes, scene.room, n, cpu_left, devices, milli, out)
    for i in range(FEATURES):
        change[i] = out[i] - change[i]
    out[2 * FEATURES] = gradient(before, after)
    for i in range(2 * FEATURES + 1):
        out[i] = min(max(out[i], LOW[i]), HIGH[i])


@inner
def _cluster_shared(
    scene: Scene,
    owner: int,
    owners: OwnerArrays,
    summary: npt.NDArray[np.float64],
    out: npt.NDArray[np.float32],
) -> None:
    mean = np.float32(cpu_mean(summary))
    for n in range(int(summary[NODES])):
        before = after = np.float32(0.0)
        if scene.nodes.allocatable[n, CPU] > 0:
            # The local features hold the shares that are free; the square is that of the number beside it.
            before, after = np.float32(1.0) - out[n, 0] - mean, np.float32(1.0) - out[n, 1] - mean
        out[n, 22] = before
        out[n, 23] = after
        out[n, 24] = before * before
        out[n, 25] = after * after
        out[n, 26] = out[n, 27] = 0.0
    if owner < 0 or owners.running[owner] == 0:
        return
    running = owners.running[owner]
    for n in range(int(summary[NODES])):
        out[n, 26] = owners.on_node[owner, n] / running
        if owners.rack[n] >= 0:
            out[n, 27] = owners.in_rack[owner, owners.rack[n]] / running


@inner
def _cluster_pod(classes: ClassArrays, c: int, running: int, out: Row) -> None:
    cores, gib = classes.request[c, CPU] / 1000.0, classes.request[c, MEMORY] / GIB
    out[4] = _amount(cores, 32.0)
    out[5] = min(math.log2(1.0 + cores) / 7.0, 2.0)
    out[6] = _amount(gib, 256.0)
    out[7] = min(math.log2(1.0 + gib) / 10.0, 2.0)
    out[8] = _amount(classes.gpu_count[c], 8.0)
    out[9] = classes.gpu_milli[c] / WHOLE
    out[10] = running / (running + 8.0)


@inner
def _cluster_context(summary: npt.NDArray[np.float64], feasible: int, out: Row) -> None:
    nodes = max(summary[NODES], 1.0)
    out[0] = _part(summary[CPU_TAKEN], summary[CPU_TOTAL])
    out[1] = _part(summary[MEMORY_TAKEN], summary[MEMORY_TOTAL])
    out[2] = _part(summary[GPU_TAKEN], summary[GPU_TOTAL])
    out[3] = _part(summary[FRAGMENTED], summary[GPU_TOTAL] - summary[GPU_TAKEN])
    out[4] = min(max(cpu_mean(summary), 0.0), 1.0)
    out[5] = min(cpu_deviation(summary), 1.0)
    out[6] = summary[NODES_USED] / nodes
    out[7] = feasible / nodes
    out[8] = summary[WAITING] / (summary[WAITING] + 16.0)
    out[9] = math.log2(1.0 + nodes) / 20.0
