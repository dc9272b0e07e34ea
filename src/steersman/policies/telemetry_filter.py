"""Hard limits of latency as a filter: where any node can keep a pod's, the others are no choice at all.

It comes before any policy, as a Filter plugin comes before scores: it narrows the mask of the nodes that a pod fits on.
It needs what a scheduler may know (`Seen`) and nothing else, so it is the same code in an environment and in front of a
live scheduler. A latency is measured late, with errors, and before the pod is there; so a node counts as able to keep a
limit if it would even with a margin and with a pod that uses twice what it requests. Where no node does, an environment
leaves the nodes of the least risk (`keep_hard_limits`), and a live scheduler all that keep the limit as far as anybody
knows (`keep_measured_limit`).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU
from steersman.compiled import inner, kernel
from steersman.policies.telemetry_estimates import cpu_worst, latency_to_users
from steersman.telemetry.model import (
    CPU_USED,
    HARD,
    LINK,
    NETWORK_RECEIVED,
    NODES,
    POD,
    POD_LINK,
    PODS_SINCE,
    SERVICE,
    Seen,
)
from steersman.telemetry.requests import capacity, class_of, requested

OVERRUN = 0.8
"""Share of a node's CPU, or of its link, above which queues grow fast, in the worst case."""
MARGIN = 1.1
"""A latency is trusted to be within a limit if 1.1 times it is: it was measured with an error, without the pod."""

SAFE, UNKNOWN, BEYOND = 0.0, 50.0, 100.0
"""Risks: none; no latency of its whole zone is measured; the node is too far even when it is idle."""

NO_LIMIT, KEPT_SAFELY, KEPT, NOT_KEPT, NOT_MEASURED = range(5)
"""What became of a pod's hard limit: it has none; nodes are left that keep it whatever comes; that keep it now; no
node that it fits on does; and no such node's latency is known."""


@kernel
def keep_hard_limits(seen: Seen, mask: npt.NDArray[np.int8], first: int, last: int) -> None:
    """Narrow the masks, [E, N], of environments `first` to `last` - 1.

    A pod with limits keeps the nodes that are safe, or where there are none those of the least risk, so that it is
    always placed where it fits.
    """
    for e in range(first, last):
        pod = seen.counts[e, POD]
        if pod >= seen.user.shape[1] or seen.user[e, pod] < 0:
            continue
        find_nearest(seen, e)
        least = np.inf
        for n in range(seen.counts[e, NODES]):
            if mask[e, n]:
                least = min(least, hard_limit_risk(seen, e, n))
        for n in range(seen.counts[e, NODES]):
            if mask[e, n] and hard_limit_risk(seen, e, n) > least:
                mask[e, n] = 0


@kernel
def keep_measured_limit(seen: Seen, mask: npt.NDArray[np.int8], e: int) -> int:
    """Narrow the mask, [E, N], of environment `e` as is right where a latency may be missing everywhere and for good.

    To the nodes that are safe; where there are none, to those whose measured latency is within the hard limit; where
    there are none of these either, not at all. So the other policies' choice is left as large as the limit allows.

    Returns:
        What became of the limit: `NO_LIMIT`...
    """
    pod = seen.counts[e, POD]
    if seen.user[e, pod] < 0 or math.isinf(seen.limit[e, pod, HARD]):
        return NO_LIMIT
    find_nearest(seen, e)
    found = NOT_MEASURED
    for n in range(seen.counts[e, NODES]):
        if mask[e, n]:
            found = min(found, _kept(seen, e, n))
    if found <= KEPT:
        for n in range(seen.counts[e, NODES]):
            if mask[e, n] and _kept(seen, e, n) > found:
                mask[e, n] = 0
    return found


@inner
def _kept(seen: Seen, e: int, n: int) -> int:
    there = latency_to_users(seen, e, n)
    if math.isnan(there):
        return NOT_MEASURED
    if hard_limit_risk(seen, e, n) == SAFE:
        return KEPT_SAFELY
    return KEPT if there <= float(seen.limit[e, seen.counts[e, POD], HARD]) else NOT_KEPT


@inner
def hard_limit_risk(seen: Seen, e: int, n: int) -> float:
    """How likely node `n` is to break the hard limit of the pod in question, which has one; the lower the better.

    A node d ms from the users, in use by a share r, answers after d + s / (1 - r) ms, the time in an M/M/1 queue, with
    s the time of service on an idle node. So it keeps a limit h up to r = 1 - s / (h - d). `SAFE` if it does in the
    worst case, with a margin. Else 1 + how much its likely use is above that: halfway from the measured use to the
    worst, or all that is requested where use is not measured. Traffic is averaged over minutes, and pods of a
    Deployment come together: those of the same one, or all that came since the node was sampled, count as not yet seen.

    Call `find_nearest` first.
    """
    hard, distance = float(seen.limit[e, seen.counts[e, POD], HARD]), _distance(seen, e, n)
    service = seen.assumed[e, SERVICE]
    if math.isnan(distance):
        return UNKNOWN
    there, now = latency_to_users(seen, e, n), _use(seen, e, n)
    if distance + service >= hard:
        return float(BEYOND + (distance if math.isnan(there) else there) / hard)
    most = 1.0 - service / (hard - distance)
    if math.isnan(now):
        asked = requested(seen, e, n) + seen.pods.request[class_of(seen, e, seen.counts[e, POD]), CPU]
        return float(1.0 + max(asked / capacity(seen, e, n) - most, -0.9))
    unseen = max(seen.since[e, n, PODS_SINCE], float(seen.siblings[e, n]), 0.0)
    link = seen.measured[e, n, NETWORK_RECEIVED] / seen.assumed[e, LINK]
    network = link + seen.assumed[e, POD_LINK] * (unseen + 1.0)
    worst = max(cpu_worst(seen, e, n), network)
    if worst <= min(most, OVERRUN) and there * MARGIN <= hard:  # not where it is NaN
        return SAFE
    return float(1.0 + max(0.5 * (now + worst) - most, -0.9))


@inner
def _use(seen: Seen, e: int, n: int) -> float:
    """The larger one of the shares of CPU and link that node `n` uses, as measured; NaN: one of them is missing."""
    cpu = seen.measured[e, n, CPU_USED] / 100.0
    network = seen.measured[e, n, NETWORK_RECEIVED] / seen.assumed[e, LINK]
    return float(max(cpu, network)) if not (math.isnan(cpu) or math.isnan(network)) else np.nan


@inner
def _distance(seen: Seen, e: int, n: int) -> float:
    """Milliseconds from an idle node of the zone of node `n` to the pod's users; NaN: nothing is measured there."""
    least = seen.nearest[e, seen.zone[e, n]]
    return float(max(least, 0.0)) if not math.isnan(least) else np.nan


@inner
def find_nearest(seen: Seen, e: int) -> None:
    """Write, for the pod in question, the latency of each zone's nearest node into `seen.nearest`, without its queue.

    As far as that can be told: beyond `OVERRUN` the queue changes much between two samples.
    """
    service = seen.assumed[e, SERVICE]
    for zone in range(seen.nearest.shape[1]):
        seen.nearest[e, zone] = np.nan
    for n in range(seen.counts[e, NODES]):
        use, zone = _use(seen, e, n), seen.zone[e, n]
        idle = latency_to_users(seen, e, n) - (service / (1.0 - use) if use < OVERRUN else service)
        if math.isnan(seen.nearest[e, zone]) or idle < seen.nearest[e, zone]:
            seen.nearest[e, zone] = idle
