"""The view `telemetry`: exact requests and measured use, with the age of each metric and whether it is missing.

A flag tells a missing metric apart from a value of 0; features derived from it are 0 then.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY
from steersman.cluster.node_metrics import (
    CONNECTIONS,
    CPU_USED,
    FILESYSTEM_USED,
    LATENCY,
    MEMORY_AVAILABLE,
    NETWORK_RECEIVED,
)
from steersman.core.compiled import inlined_kernel
from steersman.policies.node_metrics.arrays import (
    HARD,
    INDEX,
    NODES,
    POD,
    PODS_SINCE,
    REPLICAS,
    REQUESTED_SINCE,
    SOFT,
    SchedulerView,
)
from steersman.policies.node_metrics.estimates import (
    Rates,
    connections_after,
    connections_now,
    cpu_after,
    cpu_now,
    latency_to_users,
    rates,
)
from steersman.policies.node_metrics.latency_filter import QUEUEING_KNEE
from steersman.policies.node_metrics.requests import (
    class_of,
    cpu_allocatable,
    cpu_requested,
    memory_requested,
    row_of,
    running,
)
from steersman.policies.node_metrics.rules import Spread, kube_default, spread_range
from steersman.policies.node_scores.plugin_scores import MAX_SCORE
from steersman.policies.observations import telemetry_columns as columns

GIB = float(1 << 30)
GIGABIT = 125e6
MINUTE = 60.0
SCORES = 4.0 * MAX_SCORE  # the weights of kube-default's three plugins are 1, 1 and 2

Row = npt.NDArray[np.float32]


@inlined_kernel
def encode(
    view: SchedulerView,
    e: int,
    users_zone: int,
    mask: npt.NDArray[np.int8],
    nodes: npt.NDArray[np.float32],
    pod: npt.NDArray[np.float32],
    context: npt.NDArray[np.float32],
) -> None:
    """Write the observation of the current pod of environment `e` to its rows of nodes [E, N, F], pod [E, P], context.

    `users_zone` -1: the pod has no users, or their zone is unknown. `mask`: [E, N] where the pod fits.
    """
    averages, spread = rates(view, e), spread_range(view, mask, e)
    for n in range(view.counts[e, NODES]):
        _encode_requests(view, e, n, users_zone, mask[e, n] != 0, spread, nodes)
        _encode_cpu(view, e, n, averages, nodes)
        _encode_gauges(view, e, n, averages, nodes)
        _encode_latency(view, e, n, nodes)
    for n in range(view.counts[e, NODES], nodes.shape[1]):
        for i in range(nodes.shape[2]):
            nodes[e, n, i] = 0.0
    _encode_pod(view, e, pod)
    _encode_context(view, e, averages, mask, nodes, context)


@inlined_kernel
def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


@inlined_kernel
def _saturating(value: float, half: float) -> float:
    return max(value, 0.0) / (max(value, 0.0) + half)


@inlined_kernel
def _encode_requests(
    view: SchedulerView, e: int, n: int, users_zone: int, fits: bool, spread: Spread, out: npt.NDArray[np.float32]
) -> None:
    c, row = class_of(view, e, view.counts[e, POD]), row_of(view, e, n)
    cpu, memory = float(cpu_allocatable(view, e, n)), float(view.nodes.allocatable[row, MEMORY])
    out[e, n, columns.NODE_CORES] = math.log2(1.0 + cpu / 1000.0) / 7.0
    out[e, n, columns.NODE_CPU_REQUESTED_BEFORE] = cpu_requested(view, e, n) / cpu
    cpu_after_pod = cpu_requested(view, e, n) + view.pods.request[c, CPU]
    out[e, n, columns.NODE_CPU_REQUESTED_AFTER] = _clip(cpu_after_pod / cpu, 0.0, 2.0)
    out[e, n, columns.NODE_MEMORY_REQUESTED_BEFORE] = memory_requested(view, e, n) / memory
    memory_after_pod = memory_requested(view, e, n) + view.pods.request[c, MEMORY]
    out[e, n, columns.NODE_MEMORY_REQUESTED_AFTER] = _clip(memory_after_pod / memory, 0.0, 2.0)
    out[e, n, columns.NODE_PODS] = _saturating(running(view, e, n), 8.0)
    out[e, n, columns.NODE_EMPTY] = 1.0 if running(view, e, n) == 0 else 0.0
    out[e, n, columns.NODE_SIBLINGS] = _saturating(view.siblings[e, n], 4.0)
    out[e, n, columns.NODE_KUBE_DEFAULT] = _clip(kube_default(view, e, n, spread) / SCORES, 0.0, 1.0) if fits else 0.0
    out[e, n, columns.NODE_NEAR_USERS] = 1.0 if users_zone >= 0 and view.zone[e, n] == users_zone else 0.0


@inlined_kernel
def _encode_cpu(view: SchedulerView, e: int, n: int, averages: Rates, out: npt.NDArray[np.float32]) -> None:
    used = view.measured[e, n, CPU_USED]
    missing = math.isnan(used)
    out[e, n, columns.NODE_CPU_MISSING] = 1.0 if missing else 0.0
    out[e, n, columns.NODE_CPU_AGE] = _clip(view.age[e, n, CPU_USED] / MINUTE, 0.0, 5.0)
    if missing:
        for i in range(columns.NODE_CPU_USED, columns.NODE_BUSY_AFTER + 1):  # all that is derived from it
            out[e, n, i] = 0.0
        return
    before, after = cpu_now(view, e, n, averages), cpu_after(view, e, n, averages)
    from_mean = _clip(before - averages.cpu_mean, -2.0, 2.0)
    from_mean_after = _clip(after - averages.cpu_mean, -2.0, 2.0)
    out[e, n, columns.NODE_CPU_USED] = _clip(used / 100.0, 0.0, 1.0)
    since = view.since[e, n, REQUESTED_SINCE] / cpu_allocatable(view, e, n)
    out[e, n, columns.NODE_CPU_SINCE] = _clip(since, -1.0, 1.0)
    out[e, n, columns.NODE_CPU_BEFORE] = _clip(before, 0.0, 2.0)
    out[e, n, columns.NODE_CPU_AFTER] = _clip(after, 0.0, 2.0)
    out[e, n, columns.NODE_CPU_DEVIATION_BEFORE] = from_mean
    out[e, n, columns.NODE_CPU_DEVIATION_AFTER] = from_mean_after
    out[e, n, columns.NODE_CPU_SQUARE_BEFORE] = from_mean * from_mean
    out[e, n, columns.NODE_CPU_SQUARE_AFTER] = from_mean_after * from_mean_after
    out[e, n, columns.NODE_BUSY_AFTER] = 1.0 if after > QUEUEING_KNEE else 0.0


@inlined_kernel
def _encode_gauges(view: SchedulerView, e: int, n: int, averages: Rates, out: npt.NDArray[np.float32]) -> None:
    network = view.measured[e, n, NETWORK_RECEIVED]
    out[e, n, columns.NODE_NETWORK] = 0.0 if math.isnan(network) else _clip(network / GIGABIT, 0.0, 4.0)
    out[e, n, columns.NODE_PODS_SINCE] = _clip(view.since[e, n, PODS_SINCE] / 8.0, -4.0, 4.0)
    missing = math.isnan(view.measured[e, n, CONNECTIONS])
    out[e, n, columns.NODE_GAUGES_MISSING] = 1.0 if missing else 0.0
    if missing:
        out[e, n, columns.NODE_MEMORY_USED] = out[e, n, columns.NODE_FILESYSTEM_USED] = 0.0
        out[e, n, columns.NODE_CONNECTIONS_BEFORE] = out[e, n, columns.NODE_CONNECTIONS_AFTER] = 0.0
        out[e, n, columns.NODE_CONNECTIONS_EXCESS] = 0.0
        return
    memory = float(view.nodes.allocatable[row_of(view, e, n), MEMORY])
    available, filesystem = view.measured[e, n, MEMORY_AVAILABLE], view.measured[e, n, FILESYSTEM_USED]
    after = connections_after(view, e, n, averages)
    out[e, n, columns.NODE_MEMORY_USED] = 0.0 if math.isnan(available) else _clip(1.0 - available / memory, 0.0, 1.0)
    out[e, n, columns.NODE_FILESYSTEM_USED] = 0.0 if math.isnan(filesystem) else _clip(filesystem / 100.0, 0.0, 1.0)
    out[e, n, columns.NODE_CONNECTIONS_BEFORE] = _saturating(connections_now(view, e, n, averages), 1000.0)
    out[e, n, columns.NODE_CONNECTIONS_AFTER] = _saturating(after, 1000.0)
    out[e, n, columns.NODE_CONNECTIONS_EXCESS] = _clip(after / max(averages.connections_mean, 1.0) - 1.0, -1.0, 8.0)


@inlined_kernel
def _encode_latency(view: SchedulerView, e: int, n: int, out: npt.NDArray[np.float32]) -> None:
    pod = view.counts[e, POD]
    limited = view.user[e, pod] >= 0
    latency = latency_to_users(view, e, n)
    out[e, n, columns.NODE_LATENCY_MISSING] = 1.0 if limited and math.isnan(latency) else 0.0
    out[e, n, columns.NODE_LATENCY_AGE] = _clip(view.age[e, n, LATENCY] / MINUTE, 0.0, 5.0)
    # Also pods without users, whose latency is always NaN.
    if math.isnan(latency):
        for i in range(columns.NODE_LATENCY, columns.NODE_WITHIN_HARD + 1):  # all that is derived from it
            out[e, n, i] = 0.0
        return
    soft, hard = view.limit[e, pod, SOFT], view.limit[e, pod, HARD]
    out[e, n, columns.NODE_LATENCY] = _clip(latency / 100.0, 0.0, 10.0)
    out[e, n, columns.NODE_SOFT_MARGIN] = _clip((soft - latency) / 100.0, -10.0, 10.0)
    out[e, n, columns.NODE_HARD_MARGIN] = _clip((hard - latency) / 100.0, -10.0, 10.0)
    out[e, n, columns.NODE_WITHIN_SOFT] = 1.0 if latency <= soft else 0.0
    out[e, n, columns.NODE_WITHIN_HARD] = 1.0 if latency <= hard else 0.0


@inlined_kernel
def _encode_pod(view: SchedulerView, e: int, out: npt.NDArray[np.float32]) -> None:
    pod = view.counts[e, POD]
    c = class_of(view, e, pod)
    limited = view.user[e, pod] >= 0
    cores, gib = view.pods.request[c, CPU] / 1000.0, view.pods.request[c, MEMORY] / GIB
    replicas, index = view.replica[e, pod, REPLICAS], view.replica[e, pod, INDEX]
    out[e, columns.POD_NO_GPU] = 1.0
    out[e, columns.POD_GPU_PART] = out[e, columns.POD_ONE_GPU] = out[e, columns.POD_SEVERAL_GPUS] = 0.0
    out[e, columns.POD_CPU] = _clip(cores / 8.0, 0.0, 8.0)
    out[e, columns.POD_CPU_LOG] = _clip(math.log2(1.0 + cores) / 7.0, 0.0, 2.0)
    out[e, columns.POD_MEMORY_LOG] = _clip(math.log2(1.0 + gib) / 10.0, 0.0, 2.0)
    out[e, columns.POD_LIMITED] = 1.0 if limited else 0.0
    out[e, columns.POD_SOFT] = _clip(view.limit[e, pod, SOFT] / 100.0, 0.0, 10.0) if limited else 0.0
    out[e, columns.POD_HARD] = _clip(view.limit[e, pod, HARD] / 100.0, 0.0, 10.0) if limited else 0.0
    out[e, columns.POD_REPLICAS] = _saturating(replicas, 8.0)
    out[e, columns.POD_TO_COME] = _saturating(replicas - index - 1, 8.0)


@inlined_kernel
def _encode_context(
    view: SchedulerView,
    e: int,
    averages: Rates,
    mask: npt.NDArray[np.int8],
    nodes: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
) -> None:
    count = view.counts[e, NODES]
    feasible = used = no_cpu = no_gauges = soft = hard = 0.0
    cpu = cpu_all = memory = memory_all = 0.0
    for n in range(count):
        feasible += 1.0 if mask[e, n] else 0.0
        used += 1.0 - nodes[e, n, columns.NODE_EMPTY]
        no_cpu += nodes[e, n, columns.NODE_CPU_MISSING]
        no_gauges += nodes[e, n, columns.NODE_GAUGES_MISSING]
        soft += nodes[e, n, columns.NODE_WITHIN_SOFT] if mask[e, n] else 0.0
        hard += nodes[e, n, columns.NODE_WITHIN_HARD] if mask[e, n] else 0.0
        cpu += cpu_requested(view, e, n)
        cpu_all += cpu_allocatable(view, e, n)
        memory += memory_requested(view, e, n)
        memory_all += view.nodes.allocatable[row_of(view, e, n), MEMORY]
    out[e, columns.CONTEXT_NODES] = math.log2(1.0 + count) / 20.0
    out[e, columns.CONTEXT_FEASIBLE] = feasible / count
    out[e, columns.CONTEXT_NODES_USED] = used / count
    out[e, columns.CONTEXT_CPU_LOAD] = cpu / cpu_all
    out[e, columns.CONTEXT_MEMORY_LOAD] = memory / memory_all
    out[e, columns.CONTEXT_USE] = averages.use
    some_cpu, some_connections = not math.isnan(averages.cpu_mean), not math.isnan(averages.connections_mean)
    variance = averages.cpu_square - averages.cpu_mean * averages.cpu_mean
    out[e, columns.CONTEXT_CPU_MEAN] = _clip(averages.cpu_mean, 0.0, 2.0) if some_cpu else 0.0
    out[e, columns.CONTEXT_CPU_DEVIATION] = _clip(math.sqrt(max(variance, 0.0)), 0.0, 2.0) if some_cpu else 0.0
    out[e, columns.CONTEXT_CONNECTIONS_EACH] = _saturating(averages.connections, 100.0)
    connections_mean = averages.connections_mean if some_connections else 0.0
    out[e, columns.CONTEXT_CONNECTIONS_MEAN] = _saturating(connections_mean, 1000.0)
    out[e, columns.CONTEXT_CONNECTIONS_MOST] = _saturating(averages.connections_most, 1000.0)
    out[e, columns.CONTEXT_CPU_MISSING] = no_cpu / count
    out[e, columns.CONTEXT_GAUGES_MISSING] = no_gauges / count
    out[e, columns.CONTEXT_WITHIN_SOFT] = soft / count
    out[e, columns.CONTEXT_WITHIN_HARD] = hard / count
