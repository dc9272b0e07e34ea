"""Estimates from metrics and requests together: a node's use once the pod runs there.

A metric is older than the pods that came since, and many pods of a Deployment come at once. So measurements are
corrected by what is known exactly, requests bound and freed since then: what came uses as much of its requests as the
cluster does, what left took its part of what its node used. Missing metrics are NaN and never taken as a value.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from steersman.cluster.arrays import CPU
from steersman.cluster.node_metrics import CONNECTIONS, CPU_USED, LATENCY
from steersman.core.compiled import inlined_kernel
from steersman.policies.node_metrics.arrays import NODES, POD, PODS_SINCE, REQUESTED_SINCE, SchedulerView
from steersman.policies.node_metrics.requests import class_of, cpu_allocatable, cpu_requested, running

USE_PRIOR = 0.6
"""CPU used over CPU requested, as long as nothing is measured."""
PRIOR_SHARE = 0.05
"""What that is worth beside measurements: requests of this share of the CPU. Where little is requested, most of what is
used is the nodes' own."""
LEAST_USE, MOST_USE = 0.1, 2.0


class Rates(NamedTuple):
    """Averages of the cluster's metrics, over nodes whose metrics exist.

    Attributes:
        use: CPU used over CPU requested, near `USE_PRIOR` where little is requested.
        connections: established TCP connections for each pod.
        cpu_mean: mean of the nodes' estimated current shares of CPU used; NaN: none is known.
        cpu_square: mean of its square.
        connections_mean: mean of the nodes' estimated current connections; NaN: none is known.
        connections_most: their maximum.
    """

    use: float
    connections: float
    cpu_mean: float
    cpu_square: float
    connections_mean: float
    connections_most: float


@inlined_kernel
def rates(view: SchedulerView, e: int) -> Rates:
    used, total_requested, allocatable, connections, pods = 0.0, 0.0, 0.0, 0.0, 0.0
    for n in range(view.counts[e, NODES]):
        cpu = view.measured[e, n, CPU_USED]
        if not math.isnan(cpu):
            used += cpu / 100.0 * cpu_allocatable(view, e, n)
            total_requested += cpu_requested(view, e, n) - view.since[e, n, REQUESTED_SINCE]
            allocatable += cpu_allocatable(view, e, n)
        if not math.isnan(view.measured[e, n, CONNECTIONS]):
            connections += view.measured[e, n, CONNECTIONS]
            pods += running(view, e, n) - view.since[e, n, PODS_SINCE]
    # The prior weighs as much as requests of PRIOR_SHARE of the CPU.
    worth = PRIOR_SHARE * allocatable
    use = (used + USE_PRIOR * worth) / (total_requested + worth) if allocatable > 0.0 else USE_PRIOR
    use = min(max(use, LEAST_USE), MOST_USE)
    each = connections / pods if pods > 0.0 else 0.0
    total, squares, averages = 0.0, 0.0, 0
    sum_connections, most, counted = 0.0, 0.0, 0
    # A second pass, since estimates of nodes need the cluster's use.
    for n in range(view.counts[e, NODES]):
        share = _cpu_share(view, e, n, use, 0)
        if not math.isnan(share):
            total += share
            squares += share * share
            averages += 1
        count = _connections(view, e, n, each, 0)
        if not math.isnan(count):
            sum_connections += count
            most = max(most, count)
            counted += 1
    cpu_mean = total / averages if averages > 0 else np.nan
    cpu_square = squares / averages if averages > 0 else np.nan
    mean = sum_connections / counted if counted > 0 else np.nan
    return Rates(use, each, cpu_mean, cpu_square, mean, most)


@inlined_kernel
def _cpu_share(view: SchedulerView, e: int, n: int, use: float, extra: int) -> float:
    measured, since = view.measured[e, n, CPU_USED] / 100.0, view.since[e, n, REQUESTED_SINCE]
    # What left took its share of the use with it; what came uses `use` of its requests.
    left = _use_after_departures(measured, float(cpu_requested(view, e, n)), since)
    return float(left + use * (max(since, 0.0) + extra) / cpu_allocatable(view, e, n))


@inlined_kernel
def _connections(view: SchedulerView, e: int, n: int, each: float, extra: int) -> float:
    since = view.since[e, n, PODS_SINCE]
    left = _use_after_departures(view.measured[e, n, CONNECTIONS], float(running(view, e, n)), since)
    return float(left + each * (max(since, 0.0) + extra))


@inlined_kernel
def _use_after_departures(measured: float, now: float, since: float) -> float:
    """Return what is left of a measured use if `now` is what is there, and it changed by `since` meanwhile."""
    # since < 0: now - since pods or requests were there, of which `now` are left.
    return measured * now / (now - since) if since < 0.0 else measured


@inlined_kernel
def cpu_now(view: SchedulerView, e: int, n: int, averages: Rates) -> float:
    """Return the estimated current share of node `n`'s CPU in use; NaN: the metric is missing."""
    return _cpu_share(view, e, n, averages.use, 0)


@inlined_kernel
def cpu_after(view: SchedulerView, e: int, n: int, averages: Rates) -> float:
    return _cpu_share(view, e, n, averages.use, view.pods.request[class_of(view, e, view.counts[e, POD]), CPU])


@inlined_kernel
def cpu_worst(view: SchedulerView, e: int, n: int) -> float:
    """Return the share of CPU in use if the pod, and all that came lately, used `MOST_USE` of their requests."""
    extra = view.pods.request[class_of(view, e, view.counts[e, POD]), CPU]
    since = max(view.since[e, n, REQUESTED_SINCE], 0.0)
    return float(view.measured[e, n, CPU_USED] / 100.0 + MOST_USE * (since + extra) / cpu_allocatable(view, e, n))


@inlined_kernel
def connections_now(view: SchedulerView, e: int, n: int, averages: Rates) -> float:
    """Return the estimated current connections of node `n`; NaN: the metric is missing."""
    return _connections(view, e, n, averages.connections, 0)


@inlined_kernel
def connections_after(view: SchedulerView, e: int, n: int, averages: Rates) -> float:
    return _connections(view, e, n, averages.connections, 1)


@inlined_kernel
def latency_to_users(view: SchedulerView, e: int, n: int) -> float:
    """Return the measured milliseconds from node `n` to the users of the current pod; NaN: missing, or it has none."""
    user = view.user[e, view.counts[e, POD]]
    return float(view.measured[e, n, LATENCY + user]) if user >= 0 else np.nan
