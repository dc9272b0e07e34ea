"""Estimated state of a cluster after a placement, and its reward, from what a scheduler knows when it decides.

The environment `steersman/Latency-v0` rewards the true state after the action. On a cluster the truth is measured late,
so the nodes' use after the action is estimated from metrics and requests (`estimates`), and the latency to the pod's
users is the measured one. What is missing counts as follows: the CPU use of a node is a share of its requests
(`USE_PRIOR`); a node without a number of connections is left out; a limit whose latency is not measured is not kept.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU
from steersman.core.compiled import inlined_kernel, kernel
from steersman.objectives import summary
from steersman.objectives.connections import least_connections
from steersman.objectives.latency import BEYOND_ANY, BEYOND_AVOIDABLE, WITHIN_HARD, WITHIN_SOFT, latency_aware
from steersman.objectives.measures import measure
from steersman.objectives.telemetry import LATENCY_AWARE, LEAST_CONNECTIONS
from steersman.policies.node_metrics.arrays import HARD, NODES, POD, SOFT, SchedulerView
from steersman.policies.node_metrics.estimates import (
    USE_PRIOR,
    Rates,
    connections_after,
    connections_now,
    cpu_after,
    cpu_now,
    latency_to_users,
    rates,
)
from steersman.policies.node_metrics.requests import class_of, cpu_allocatable, cpu_requested, running


@kernel
def write_outcome(
    view: SchedulerView,
    mask: npt.NDArray[np.int8],
    chosen: int,
    objectives: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float64],
    row: npt.NDArray[np.float64],
) -> float:
    """Write the state after the current pod's placement on node `chosen` to `row`, [16], and return its reward.

    All nodes have CPU, which in `row` is what is used. `mask`: [1, N] where it may run. `objectives`, `weights`: [K].
    """
    averages = rates(view, 0)
    row[:] = 0.0
    nodes = view.counts[0, NODES]
    row[summary.NODES] = row[summary.CPU_NODES] = nodes
    for n in range(nodes):
        share = _cpu(view, n, averages, n == chosen)
        row[summary.NODES_USED] += running(view, 0, n) > 0 or n == chosen
        row[summary.CPU_SHARE] += share
        row[summary.CPU_SQUARE] += share * share
    total = 0.0
    for i in range(objectives.shape[0]):
        if objectives[i] == LEAST_CONNECTIONS:
            value = _connections(view, chosen, averages)
        elif objectives[i] == LATENCY_AWARE:
            value = _latency(view, mask, chosen)
        else:
            # The same row twice: formulas of these objectives read the state after the action only.
            value = measure(objectives[i], row, row)
        total += weights[i] * value
    return total


@inlined_kernel
def _cpu(view: SchedulerView, n: int, averages: Rates, is_chosen: bool) -> float:
    share = cpu_after(view, 0, n, averages) if is_chosen else cpu_now(view, 0, n, averages)
    if not math.isnan(share):
        return share
    extra = view.pods.request[class_of(view, 0, view.counts[0, POD]), CPU] if is_chosen else 0
    return float(USE_PRIOR * (cpu_requested(view, 0, n) + extra) / cpu_allocatable(view, 0, n))


@inlined_kernel
def _connections(view: SchedulerView, chosen: int, averages: Rates) -> float:
    total, most, known = 0.0, 0.0, 0
    for n in range(view.counts[0, NODES]):
        count = connections_after(view, 0, n, averages) if n == chosen else connections_now(view, 0, n, averages)
        if not math.isnan(count):
            total += count
            most = max(most, count)
            known += 1
    # Without a known node both are 0, and the reward is 1.
    return least_connections(total / max(known, 1), most)


@inlined_kernel
def _latency(view: SchedulerView, mask: npt.NDArray[np.int8], chosen: int) -> float:
    request = view.pods.request[class_of(view, 0, view.counts[0, POD]), CPU]
    total_requested, allocatable, used, nodes = 0, 0, 0, view.counts[0, NODES]
    for n in range(nodes):
        if running(view, 0, n) > 0 or n == chosen:
            total_requested += cpu_requested(view, 0, n) + (request if n == chosen else 0)
            allocatable += cpu_allocatable(view, 0, n)
            used += 1
    share = total_requested / allocatable if allocatable > 0 else 0.0
    return latency_aware(nodes, used, share, _limit_level(view, mask, chosen))


@inlined_kernel
def _limit_level(view: SchedulerView, mask: npt.NDArray[np.int8], chosen: int) -> int:
    """Return which limit the chosen node keeps, `WITHIN_SOFT`... of `objectives.latency`."""
    pod = view.counts[0, POD]
    if view.user[0, pod] < 0:
        return WITHIN_SOFT
    soft, hard = view.limit[0, pod, SOFT], view.limit[0, pod, HARD]
    milliseconds = latency_to_users(view, 0, chosen)
    # NaN compares false: a latency that is not measured keeps no limit.
    if milliseconds <= soft:
        return WITHIN_SOFT
    if milliseconds <= hard:
        return WITHIN_HARD
    for n in range(view.counts[0, NODES]):
        if mask[0, n] and latency_to_users(view, 0, n) <= hard:
            return BEYOND_AVOIDABLE
    return BEYOND_ANY
