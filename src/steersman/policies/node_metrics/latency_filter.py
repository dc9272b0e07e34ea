"""Hard latency limits as a filter: if any node can keep a pod's limit, the others are excluded.

It narrows the mask of the nodes that a pod fits on, as a Filter plugin does before scores: in a live scheduler for
every policy, in an environment where that is asked for (`LatencyOptions.keep_hard_limits`). It needs what a scheduler
may know (`SchedulerView`) and nothing else, so the same code serves an environment and a live scheduler. A latency is
measured late, with errors, and before the pod is there; so a node counts as able to keep a limit if it would even with
a margin and with a pod that uses twice its request. If no node does, an environment leaves the nodes of the least risk
(`filter_environments`), and a live scheduler the nodes of the least risk among those that keep the limit as far as is
known, or all if there are none (`filter_live`).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU
from steersman.cluster.node_metrics import CPU_USED, NETWORK_RECEIVED
from steersman.core.compiled import inlined_kernel, kernel
from steersman.policies.node_metrics.arrays import HARD, LINK, NODES, POD, POD_LINK, PODS_SINCE, SERVICE, SchedulerView
from steersman.policies.node_metrics.estimates import cpu_worst, latency_to_users
from steersman.policies.node_metrics.requests import class_of, cpu_allocatable, cpu_requested

QUEUEING_KNEE = 0.8
"""Share of a node's CPU, or of its link, above which queues grow fast."""
MARGIN = 1.1
"""A latency counts as within a limit if 1.1 times it is: it was measured with an error, without the pod."""

QUEUE_ERROR = 0.15
"""Error of a share of use by how long users wait: the latency's own, of both nodes that are compared."""

SAFE, UNKNOWN, BEYOND = 0.0, 50.0, 100.0
"""Risks: none; no latency of the whole zone is measured; the node is too far even when idle."""

NO_LIMIT, KEPT_SAFELY, KEPT, NOT_KEPT, NOT_MEASURED = range(5)
"""Outcomes of a pod's hard limit: it has none; nodes are left that keep it whatever comes; nodes that keep it now; no
feasible node does; no latency of a feasible node is known."""


@kernel
def filter_environments(view: SchedulerView, mask: npt.NDArray[np.int8], first: int, last: int) -> None:
    """Narrow the masks, [E, N], of simulated environments `first` to `last` - 1.

    A pod with limits keeps the nodes that are safe, or if there are none those of the least risk, so that it is always
    placed where it fits.
    """
    for e in range(first, last):
        pod = view.counts[e, POD]
        # `pod` is beyond the last one when an episode has ended.
        if pod >= view.user.shape[1] or view.user[e, pod] < 0:
            continue
        find_nearest(view, e)
        least = np.inf
        for n in range(view.counts[e, NODES]):
            if mask[e, n]:
                least = min(least, hard_limit_risk(view, e, n))
        for n in range(view.counts[e, NODES]):
            if mask[e, n] and hard_limit_risk(view, e, n) > least:
                mask[e, n] = 0


@kernel
def filter_live(view: SchedulerView, mask: npt.NDArray[np.int8], e: int) -> int:
    """Narrow the mask, [E, N], of a live cluster, row `e`, where a latency may be missing everywhere and for good.

    It leaves the nodes that are safe; if there are none, of those whose latency, or their zone's if it is not measured,
    is within the hard limit those of the least risk; if there are none of these either, all. So the policy's choice
    stays as large as the limit allows. Return the outcome of the limit: `NO_LIMIT`...
    """
    pod = view.counts[e, POD]
    if view.user[e, pod] < 0 or math.isinf(view.limit[e, pod, HARD]):
        return NO_LIMIT
    find_nearest(view, e)
    result, least = NOT_MEASURED, np.inf
    for n in range(view.counts[e, NODES]):
        if mask[e, n]:
            outcome = _limit_outcome(view, e, n)
            result = min(result, outcome)
            if outcome == KEPT:
                least = min(least, hard_limit_risk(view, e, n))
    # NOT_KEPT and NOT_MEASURED leave all nodes.
    if result <= KEPT:
        for n in range(view.counts[e, NODES]):
            if mask[e, n]:
                outcome = _limit_outcome(view, e, n)
                # Outcomes ascend from the best: KEPT_SAFELY < KEPT < NOT_KEPT < NOT_MEASURED.
                if outcome > result or (result == KEPT and hard_limit_risk(view, e, n) > least):
                    mask[e, n] = 0
    return result


@inlined_kernel
def _limit_outcome(view: SchedulerView, e: int, n: int) -> int:
    """Return the outcome of the current pod's hard limit on node `n`, from `KEPT_SAFELY` to `NOT_MEASURED`."""
    latency, risk = latency_to_users(view, e, n), hard_limit_risk(view, e, n)
    if risk == SAFE:
        return KEPT_SAFELY
    if math.isnan(latency):  # as far away as its zone
        return KEPT if risk < UNKNOWN else NOT_MEASURED
    return KEPT if latency <= float(view.limit[e, view.counts[e, POD], HARD]) else NOT_KEPT


@inlined_kernel
def hard_limit_risk(view: SchedulerView, e: int, n: int) -> float:
    """Return the risk that node `n` breaks the hard limit of the current pod, which has one; lower is better.

    A node d ms from the users, in use by a share r, answers after d + s / (1 - r) ms, the time in an M/M/1 queue, with
    s the time of service on an idle node. So it keeps a limit h up to r = 1 - s / (h - d). `SAFE` if it does in the
    worst case, with a margin. Else 1 + how much its likely use is above that: halfway from the measured use to the
    worst, or all that is requested if use is not measured. Traffic is averaged over minutes, and pods of a Deployment
    come together: those of the same one, or all that came since the node was sampled, count as not yet measured. What
    users wait longer than the node's CPU explains is its link's use at the moment of the sample (`_link_by_queue`).

    Call `find_nearest` first.
    """
    hard, distance = float(view.limit[e, view.counts[e, POD], HARD]), _distance(view, e, n)
    service = view.assumed[e, SERVICE]
    if math.isnan(distance):
        return UNKNOWN
    latency, now = latency_to_users(view, e, n), _use(view, e, n)
    # Too far even when idle: 1 - s / (h - d) would not be above 0.
    if distance + service >= hard:
        return float(BEYOND + (distance if math.isnan(latency) else latency) / hard)
    # r = 1 - s / (h - d), the highest use that keeps the limit.
    most = 1.0 - service / (hard - distance)
    if math.isnan(now):
        cpu = cpu_requested(view, e, n) + view.pods.request[class_of(view, e, view.counts[e, POD]), CPU]
        # At least 0.1, so that it is never SAFE.
        return float(1.0 + max(cpu / cpu_allocatable(view, e, n) - most, -0.9))
    unseen = max(view.since[e, n, PODS_SINCE], float(view.siblings[e, n]), 0.0)
    link = view.measured[e, n, NETWORK_RECEIVED] / view.assumed[e, LINK]
    by_queue = _link_by_queue(view, e, n, distance)
    since = max(view.since[e, n, PODS_SINCE], 0.0)
    network = max(
        link + view.assumed[e, POD_LINK] * (unseen + 1.0), by_queue + view.assumed[e, POD_LINK] * (since + 1.0)
    )
    worst, now = max(cpu_worst(view, e, n), network), max(now, by_queue)
    if worst <= min(most, QUEUEING_KNEE) and latency * MARGIN <= hard:  # not where it is NaN
        return SAFE
    return float(1.0 + max(0.5 * (now + worst) - most, -0.9))


@inlined_kernel
def _use(view: SchedulerView, e: int, n: int) -> float:
    """Return the larger of the measured shares of CPU and link that node `n` uses; NaN: one of them is missing."""
    cpu = view.measured[e, n, CPU_USED] / 100.0
    network = view.measured[e, n, NETWORK_RECEIVED] / view.assumed[e, LINK]
    return float(max(cpu, network)) if not (math.isnan(cpu) or math.isnan(network)) else np.nan


@inlined_kernel
def _link_by_queue(view: SchedulerView, e: int, n: int, distance: float) -> float:
    """Return the share of node `n`'s link in use, by how long its users wait; 0 where CPU in use explains it.

    Traffic averaged over minutes is far too low while pods come; a latency is that of the sample's moment.
    """
    queue = latency_to_users(view, e, n) - distance
    if not queue > view.assumed[e, SERVICE]:  # also where it is NaN
        return 0.0
    # r from s / (1 - r) = queue.
    share = 1.0 - view.assumed[e, SERVICE] / queue
    return float(share) if share > view.measured[e, n, CPU_USED] / 100.0 + QUEUE_ERROR else 0.0


@inlined_kernel
def _distance(view: SchedulerView, e: int, n: int) -> float:
    """Return the milliseconds from an idle node of node `n`'s zone to the pod's users; NaN: not measured."""
    least = view.nearest[e, view.zone[e, n]]
    return float(max(least, 0.0)) if not math.isnan(least) else np.nan


@inlined_kernel
def find_nearest(view: SchedulerView, e: int) -> None:
    """Write the latency of each zone's nearest node, without its queue, for the current pod into `view.nearest`.

    It is as exact as can be told: beyond `QUEUEING_KNEE` the queue changes much between two samples.
    """
    service = view.assumed[e, SERVICE]
    for zone in range(view.nearest.shape[1]):
        view.nearest[e, zone] = np.nan
    for n in range(view.counts[e, NODES]):
        use, zone = _use(view, e, n), view.zone[e, n]
        idle = latency_to_users(view, e, n) - (service / (1.0 - use) if use < QUEUEING_KNEE else service)
        # A missing latency (NaN) replaces nothing but another NaN.
        if math.isnan(view.nearest[e, zone]) or idle < view.nearest[e, zone]:
            view.nearest[e, zone] = idle
