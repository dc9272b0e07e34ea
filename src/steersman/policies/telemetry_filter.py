"""Hard limits of latency as a filter: where any node can keep a pod's, the others are no choice at all.

It comes before any policy, as a Filter plugin comes before scores: it narrows the mask of the nodes that a pod fits on.
It needs what a scheduler may know (`Seen`) and nothing else, so it is the same code in an environment and in front of a
live scheduler. A latency is measured late, with errors, and before the pod is there; so a node counts as able to keep a
limit if it would even with a margin and with a pod that uses twice what it requests.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU
from steersman.compiled import inner, kernel
from steersman.policies.telemetry_estimates import cpu_worst, latency_to_users
from steersman.telemetry.model import CPU_USED, HARD, NETWORK_RECEIVED, NODES, POD, PODS_SINCE, Seen
from steersman.telemetry.requests import capacity, class_of, requested

OVERRUN = 0.8
"""Share of a node's CPU, or of its link, above which queues grow fast, in the worst case."""
MARGIN = 1.1
"""A latency is trusted to be within a limit if 1.1 times it is: it was measured with an error, without the pod."""
SERVICE = 2.0
"""Milliseconds that a request is served in on an idle node, as is assumed of what is not known."""
LINK = 125e6
"""Bytes a second: 1 Gbit/s."""
POD_LINK = 0.15
"""The most of a link that a pod is thought to take. Traffic is averaged over minutes, and pods of a Deployment come
together: those of the same one, or all that came since the node was sampled, count as not yet seen."""

SAFE, UNKNOWN, BEYOND = 0.0, 50.0, 100.0
"""Risks: none; no latency of its whole zone is measured; the node is too far even when it is idle."""


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
        least = np.inf
        for n in range(seen.counts[e, NODES]):
            if mask[e, n]:
                least = min(least, hard_limit_risk(seen, e, n))
        for n in range(seen.counts[e, NODES]):
            if mask[e, n] and hard_limit_risk(seen, e, n) > least:
                mask[e, n] = 0


@inner
def hard_limit_risk(seen: Seen, e: int, n: int) -> float:
    """How likely node `n` is to break the hard limit of the pod in question, which has one; the lower the better.

    A node d ms from the users, in use by a share r, answers after d + `SERVICE` / (1 - r) ms, the time in an M/M/1
    queue. So it keeps a limit h up to r = 1 - `SERVICE` / (h - d). `SAFE` if it does in the worst case, with a margin.
    Else 1 + how much its likely use is above that: halfway from the measured use to the worst, or all that is
    requested where use is not measured.
    """
    hard, distance = float(seen.limit[e, seen.counts[e, POD], HARD]), _distance(seen, e, n)
    if math.isnan(distance):
        return UNKNOWN
    there, now = latency_to_users(seen, e, n), _use(seen, e, n)
    if distance + SERVICE >= hard:
        return float(BEYOND + (distance if math.isnan(there) else there) / hard)
    most = 1.0 - SERVICE / (hard - distance)
    if math.isnan(now):
        asked = requested(seen, e, n) + seen.pods.request[class_of(seen, e, seen.counts[e, POD]), CPU]
        return float(1.0 + max(asked / capacity(seen, e, n) - most, -0.9))
    unseen = max(seen.since[e, n, PODS_SINCE], float(seen.siblings[e, n]), 0.0)
    network = seen.measured[e, n, NETWORK_RECEIVED] / LINK + POD_LINK * (unseen + 1.0)
    worst = max(cpu_worst(seen, e, n), network)
    if worst <= min(most, OVERRUN) and there * MARGIN <= hard:  # not where it is NaN
        return SAFE
    return float(1.0 + max(0.5 * (now + worst) - most, -0.9))


@inner
def _use(seen: Seen, e: int, n: int) -> float:
    """The larger one of the shares of CPU and link that node `n` uses, as measured; NaN: one of them is missing."""
    cpu, network = seen.measured[e, n, CPU_USED] / 100.0, seen.measured[e, n, NETWORK_RECEIVED] / LINK
    return float(max(cpu, network)) if not (math.isnan(cpu) or math.isnan(network)) else np.nan


@inner
def _distance(seen: Seen, e: int, n: int) -> float:
    """Milliseconds from an idle node of the zone of node `n` to the pod's users; NaN: nothing is measured there.

    The least of the zone's nodes, each without its queue, as far as that can be told: beyond `OVERRUN` it changes much
    between two samples.
    """
    least = np.nan
    for other in range(seen.counts[e, NODES]):
        if seen.zone[e, other] == seen.zone[e, n]:
            use = _use(seen, e, other)
            idle = latency_to_users(seen, e, other) - (SERVICE / (1.0 - use) if use < OVERRUN else SERVICE)
            if math.isnan(least) or idle < least:
                least = idle
    return float(max(least, 0.0)) if not math.isnan(least) else np.nan
