"""The view `telemetry`: requests exactly, use as measured, with the age of a metric and whether it is missing at all.

A missing metric is told apart from a value of 0 by a flag of its own; features that follow from it are 0 then.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY
from steersman.compiled import inner
from steersman.features import POD_KINDS, Feature, View
from steersman.policies.kube_scores import MAX_SCORE
from steersman.policies.telemetry_estimates import (
    Rates,
    connections_after,
    connections_now,
    cpu_after,
    cpu_now,
    latency_to_users,
    rates,
)
from steersman.policies.telemetry_rules import BUSY, Spread, kube_default, spread_range
from steersman.telemetry.model import (
    CONNECTIONS,
    CPU_USED,
    FILESYSTEM_USED,
    HARD,
    INDEX,
    LATENCY,
    MEMORY_AVAILABLE,
    NETWORK_RECEIVED,
    NODES,
    POD,
    PODS_SINCE,
    REPLICAS,
    REQUESTED_SINCE,
    SOFT,
    Seen,
)
from steersman.telemetry.requests import (
    capacity,
    class_of,
    memory_requested,
    requested,
    row_of,
    running,
)

GIB = float(1 << 30)
GIGABIT = 125e6
MINUTE = 60.0
SCORES = 4.0 * MAX_SCORE  # the weights of kube-default's three plugins are 1, 1 and 2

TELEMETRY = View(
    name="telemetry",
    version=1,
    node=(
        Feature("cores", "7 doublings", 0, 2, "log2(1 + allocatable cores)."),
        Feature("cpu_requested_before", "allocatable", 0, 1, "Share of the node's CPU that is requested."),
        Feature("cpu_requested_after", "allocatable", 0, 2, "The same with the pod on it."),
        Feature("memory_requested_before", "allocatable", 0, 1, "Share of the node's memory that is requested."),
        Feature("memory_requested_after", "allocatable", 0, 2, "The same with the pod on it."),
        Feature("pods", "saturating at 8", 0, 1, "Pods p on the node, p / (p + 8)."),
        Feature("empty", "flag", 0, 1, "No pod runs on the node."),
        Feature("siblings", "saturating at 4", 0, 1, "Pods s of the same Deployment on the node, s / (s + 4)."),
        Feature("kube_default", "400 points", 0, 1, "kube-scheduler's score: free, balanced and spread."),
        Feature("near_users", "flag", 0, 1, "The node is in the zone of the pod's users."),
        Feature("cpu_missing", "flag", 0, 1, "There is no metric of CPU used."),
        Feature("cpu_age", "minutes", 0, 5, "Age of the last sample of the node."),
        Feature("cpu_used", "allocatable", 0, 1, "Share of CPU used, as measured."),
        Feature("cpu_since", "allocatable", -1, 1, "Share of CPU requested now and not while it was measured."),
        Feature("cpu_before", "allocatable", 0, 2, "Share of CPU that should be used by now."),
        Feature("cpu_after", "allocatable", 0, 2, "The same with the pod on it."),
        Feature("cpu_deviation_before", "allocatable", -2, 2, "cpu_before minus its mean over nodes."),
        Feature("cpu_deviation_after", "allocatable", -2, 2, "cpu_after minus the same mean."),
        Feature("cpu_square_before", "allocatable²", 0, 4, "The square of cpu_deviation_before."),
        Feature("cpu_square_after", "allocatable²", 0, 4, "The square of cpu_deviation_after."),
        Feature("busy_after", "flag", 0, 1, "cpu_after is above 0.8, where queues grow fast."),
        Feature("gauges_missing", "flag", 0, 1, "Memory, filesystem, connections and pods are not measured now."),
        Feature("memory_used", "allocatable", 0, 1, "Share of memory used."),
        Feature("filesystem_used", "capacity", 0, 1, "Share of the filesystem used."),
        Feature("network", "1 Gbit/s", 0, 4, "Bytes received a second, over 5 minutes; 0 also where it is missing."),
        Feature(
            "connections_before", "saturating at 1000", 0, 1, "Connections c there should be by now, c / (c + 1000)."
        ),
        Feature("connections_after", "saturating at 1000", 0, 1, "The same with the pod on it."),
        Feature("connections_excess", "their mean", -1, 8, "Connections with the pod over their mean, minus 1."),
        Feature(
            "pods_since", "8 pods", -4, 4, "Pods that came since the connections were counted, minus those that left."
        ),
        Feature("latency_missing", "flag", 0, 1, "The latency to the pod's users is not measured now."),
        Feature("latency_age", "minutes", 0, 5, "Age of the last probe of latencies."),
        Feature("latency", "100 ms", 0, 10, "Latency to the pod's users; 0 also where it has none."),
        Feature("soft_margin", "100 ms", -10, 10, "The pod's soft limit minus the latency."),
        Feature("hard_margin", "100 ms", -10, 10, "Its hard limit minus the latency."),
        Feature("within_soft", "flag", 0, 1, "The latency is within the soft limit."),
        Feature("within_hard", "flag", 0, 1, "It is within the hard limit."),
    ),
    pod=(
        *POD_KINDS,
        Feature("cpu", "8 cores", 0, 8, "CPU request."),
        Feature("cpu_log", "7 doublings", 0, 2, "log2(1 + cores)."),
        Feature("memory_log", "10 doublings", 0, 2, "log2(1 + GiB)."),
        Feature("limited", "flag", 0, 1, "It has users, and limits of the latency to them."),
        Feature("soft", "100 ms", 0, 10, "The soft limit."),
        Feature("hard", "100 ms", 0, 10, "The hard limit."),
        Feature("replicas", "saturating at 8", 0, 1, "Pods r of its Deployment, r / (r + 8)."),
        Feature("to_come", "saturating at 8", 0, 1, "Of these r come after it, r / (r + 8)."),
    ),
    context=(
        Feature("nodes", "20 doublings", 0, 2, "log2(1 + nodes)."),
        Feature("feasible", "all nodes", 0, 1, "Share of the nodes that the pod fits on."),
        Feature("nodes_used", "all nodes", 0, 1, "Share of the nodes that hold a pod."),
        Feature("cpu_load", "allocatable", 0, 1, "Share of the cluster's CPU that is requested."),
        Feature("memory_load", "allocatable", 0, 1, "Share of the cluster's memory that is requested."),
        Feature("use", "requests", 0, 2, "CPU used over CPU requested, lately."),
        Feature("cpu_mean", "allocatable", 0, 2, "Mean over nodes of cpu_before."),
        Feature("cpu_deviation", "allocatable", 0, 2, "Its standard deviation over nodes."),
        Feature("connections_each", "saturating at 100", 0, 1, "Connections c for each pod, c / (c + 100)."),
        Feature(
            "connections_mean", "saturating at 1000", 0, 1, "Mean over nodes of the connections c, c / (c + 1000)."
        ),
        Feature("connections_most", "saturating at 1000", 0, 1, "Their maximum c, c / (c + 1000)."),
        Feature("cpu_missing", "all nodes", 0, 1, "Share of the nodes without a metric of CPU used."),
        Feature("gauges_missing", "all nodes", 0, 1, "Share of the nodes without the other metrics."),
        Feature("within_soft", "all nodes", 0, 1, "Share of the nodes that the pod fits on within its soft limit."),
        Feature("within_hard", "all nodes", 0, 1, "The same for its hard limit."),
    ),
)

Row = npt.NDArray[np.float32]


@inner
def encode(
    seen: Seen,
    e: int,
    mask: npt.NDArray[np.int8],
    nodes: npt.NDArray[np.float32],
    pod: npt.NDArray[np.float32],
    context: npt.NDArray[np.float32],
) -> None:
    """Write what is seen in environment `e` of the pod in question to row `e` of every array.

    Args:
        seen: what is known.
        e: the environment.
        mask: [E, N] where the pod fits.
        nodes: [E, N, F].
        pod: [E, F].
        context: [E, F].
    """
    known, spread = rates(seen, e), spread_range(seen, mask, e)
    for n in range(seen.counts[e, NODES]):
        _encode_requests(seen, e, n, mask[e, n] != 0, spread, nodes)
        _encode_cpu(seen, e, n, known, nodes)
        _encode_gauges(seen, e, n, known, nodes)
        _encode_latency(seen, e, n, nodes)
    for n in range(seen.counts[e, NODES], nodes.shape[1]):
        for i in range(nodes.shape[2]):
            nodes[e, n, i] = 0.0
    _encode_pod(seen, e, pod)
    _encode_context(seen, e, known, mask, nodes, context)


@inner
def _cut(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


@inner
def _saturating(value: float, half: float) -> float:
    return max(value, 0.0) / (max(value, 0.0) + half)


@inner
def _encode_requests(seen: Seen, e: int, n: int, fits: bool, spread: Spread, out: npt.NDArray[np.float32]) -> None:
    c, row, user = class_of(seen, e, seen.counts[e, POD]), row_of(seen, e, n), seen.user[e, seen.counts[e, POD]]
    cpu, memory = float(capacity(seen, e, n)), float(seen.nodes.allocatable[row, MEMORY])
    out[e, n, 0] = math.log2(1.0 + cpu / 1000.0) / 7.0
    out[e, n, 1] = requested(seen, e, n) / cpu
    out[e, n, 2] = _cut((requested(seen, e, n) + seen.pods.request[c, CPU]) / cpu, 0.0, 2.0)
    out[e, n, 3] = memory_requested(seen, e, n) / memory
    out[e, n, 4] = _cut((memory_requested(seen, e, n) + seen.pods.request[c, MEMORY]) / memory, 0.0, 2.0)
    out[e, n, 5] = _saturating(running(seen, e, n), 8.0)
    out[e, n, 6] = 1.0 if running(seen, e, n) == 0 else 0.0
    out[e, n, 7] = _saturating(seen.siblings[e, n], 4.0)
    out[e, n, 8] = _cut(kube_default(seen, e, n, spread) / SCORES, 0.0, 1.0) if fits else 0.0
    out[e, n, 9] = 1.0 if user >= 0 and seen.zone[e, n] == user else 0.0


@inner
def _encode_cpu(seen: Seen, e: int, n: int, known: Rates, out: npt.NDArray[np.float32]) -> None:
    used = seen.measured[e, n, CPU_USED]
    missing = math.isnan(used)
    out[e, n, 10] = 1.0 if missing else 0.0
    out[e, n, 11] = _cut(seen.age[e, n, CPU_USED] / MINUTE, 0.0, 5.0)
    if missing:
        for i in range(12, 21):
            out[e, n, i] = 0.0
        return
    before, after = cpu_now(seen, e, n, known), cpu_after(seen, e, n, known)
    from_mean, from_mean_after = _cut(before - known.cpu_mean, -2.0, 2.0), _cut(after - known.cpu_mean, -2.0, 2.0)
    out[e, n, 12] = _cut(used / 100.0, 0.0, 1.0)
    out[e, n, 13] = _cut(seen.since[e, n, REQUESTED_SINCE] / capacity(seen, e, n), -1.0, 1.0)
    out[e, n, 14] = _cut(before, 0.0, 2.0)
    out[e, n, 15] = _cut(after, 0.0, 2.0)
    out[e, n, 16] = from_mean
    out[e, n, 17] = from_mean_after
    out[e, n, 18] = from_mean * from_mean
    out[e, n, 19] = from_mean_after * from_mean_after
    out[e, n, 20] = 1.0 if after > BUSY else 0.0


@inner
def _encode_gauges(seen: Seen, e: int, n: int, known: Rates, out: npt.NDArray[np.float32]) -> None:
    network = seen.measured[e, n, NETWORK_RECEIVED]
    out[e, n, 24] = 0.0 if math.isnan(network) else _cut(network / GIGABIT, 0.0, 4.0)
    out[e, n, 28] = _cut(seen.since[e, n, PODS_SINCE] / 8.0, -4.0, 4.0)
    missing = math.isnan(seen.measured[e, n, CONNECTIONS])
    out[e, n, 21] = 1.0 if missing else 0.0
    if missing:
        out[e, n, 22] = out[e, n, 23] = out[e, n, 25] = out[e, n, 26] = out[e, n, 27] = 0.0
        return
    memory = float(seen.nodes.allocatable[row_of(seen, e, n), MEMORY])
    after = connections_after(seen, e, n, known)
    out[e, n, 22] = _cut(1.0 - seen.measured[e, n, MEMORY_AVAILABLE] / memory, 0.0, 1.0)
    out[e, n, 23] = _cut(seen.measured[e, n, FILESYSTEM_USED] / 100.0, 0.0, 1.0)
    out[e, n, 25] = _saturating(connections_now(seen, e, n, known), 1000.0)
    out[e, n, 26] = _saturating(after, 1000.0)
    out[e, n, 27] = _cut(after / max(known.connections_mean, 1.0) - 1.0, -1.0, 8.0)


@inner
def _encode_latency(seen: Seen, e: int, n: int, out: npt.NDArray[np.float32]) -> None:
    pod = seen.counts[e, POD]
    limited = seen.user[e, pod] >= 0
    there = latency_to_users(seen, e, n)
    out[e, n, 29] = 1.0 if limited and math.isnan(there) else 0.0
    out[e, n, 30] = _cut(seen.age[e, n, LATENCY] / MINUTE, 0.0, 5.0)
    if math.isnan(there):
        for i in range(31, 36):
            out[e, n, i] = 0.0
        return
    soft, hard = seen.limit[e, pod, SOFT], seen.limit[e, pod, HARD]
    out[e, n, 31] = _cut(there / 100.0, 0.0, 10.0)
    out[e, n, 32] = _cut((soft - there) / 100.0, -10.0, 10.0)
    out[e, n, 33] = _cut((hard - there) / 100.0, -10.0, 10.0)
    out[e, n, 34] = 1.0 if there <= soft else 0.0
    out[e, n, 35] = 1.0 if there <= hard else 0.0


@inner
def _encode_pod(seen: Seen, e: int, out: npt.NDArray[np.float32]) -> None:
    pod = seen.counts[e, POD]
    c = class_of(seen, e, pod)
    limited = seen.user[e, pod] >= 0
    cores, gib = seen.pods.request[c, CPU] / 1000.0, seen.pods.request[c, MEMORY] / GIB
    replicas, index = seen.replica[e, pod, REPLICAS], seen.replica[e, pod, INDEX]
    out[e, 0] = 1.0
    out[e, 1] = out[e, 2] = out[e, 3] = 0.0
    out[e, 4] = _cut(cores / 8.0, 0.0, 8.0)
    out[e, 5] = _cut(math.log2(1.0 + cores) / 7.0, 0.0, 2.0)
    out[e, 6] = _cut(math.log2(1.0 + gib) / 10.0, 0.0, 2.0)
    out[e, 7] = 1.0 if limited else 0.0
    out[e, 8] = _cut(seen.limit[e, pod, SOFT] / 100.0, 0.0, 10.0) if limited else 0.0
    out[e, 9] = _cut(seen.limit[e, pod, HARD] / 100.0, 0.0, 10.0) if limited else 0.0
    out[e, 10] = _saturating(replicas, 8.0)
    out[e, 11] = _saturating(replicas - index - 1, 8.0)


@inner
def _encode_context(
    seen: Seen,
    e: int,
    known: Rates,
    mask: npt.NDArray[np.int8],
    nodes: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
) -> None:
    count = seen.counts[e, NODES]
    feasible = used = no_cpu = no_gauges = soft = hard = 0.0
    cpu = cpu_all = memory = memory_all = 0.0
    for n in range(count):
        feasible += 1.0 if mask[e, n] else 0.0
        used += 1.0 - nodes[e, n, 6]
        no_cpu += nodes[e, n, 10]
        no_gauges += nodes[e, n, 21]
        soft += nodes[e, n, 34] if mask[e, n] else 0.0
        hard += nodes[e, n, 35] if mask[e, n] else 0.0
        cpu += requested(seen, e, n)
        cpu_all += capacity(seen, e, n)
        memory += memory_requested(seen, e, n)
        memory_all += seen.nodes.allocatable[row_of(seen, e, n), MEMORY]
    out[e, 0] = math.log2(1.0 + count) / 20.0
    out[e, 1] = feasible / count
    out[e, 2] = used / count
    out[e, 3] = cpu / cpu_all
    out[e, 4] = memory / memory_all
    out[e, 5] = known.use
    some_cpu, some_connections = not math.isnan(known.cpu_mean), not math.isnan(known.connections_mean)
    variance = known.cpu_square - known.cpu_mean * known.cpu_mean
    out[e, 6] = _cut(known.cpu_mean, 0.0, 2.0) if some_cpu else 0.0
    out[e, 7] = _cut(math.sqrt(max(variance, 0.0)), 0.0, 2.0) if some_cpu else 0.0
    out[e, 8] = _saturating(known.connections, 100.0)
    out[e, 9] = _saturating(known.connections_mean, 1000.0) if some_connections else 0.0
    out[e, 10] = _saturating(known.connections_most, 1000.0)
    out[e, 11] = no_cpu / count
    out[e, 12] = no_gauges / count
    out[e, 13] = soft / count
    out[e, 14] = hard / count
