"""What follows from metrics and requests together: a node's use once the pod runs there.

A metric is older than the pods that came since, and many pods of a Deployment come at once. So what was measured is
corrected by what is known exactly: requests bound and freed since then, times what a request was worth in use lately.
Missing metrics are told apart (NaN), never taken as a value.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from steersman.cluster.arrays import CPU
from steersman.compiled import inner
from steersman.telemetry.model import (
    CONNECTIONS,
    CPU_USED,
    LATENCY,
    NODES,
    POD,
    PODS_SINCE,
    REQUESTED_SINCE,
    Seen,
)
from steersman.telemetry.requests import capacity, class_of, requested, running

USE_PRIOR = 0.6
"""CPU used over CPU requested, as long as nothing is known."""
LEAST_USE, MOST_USE = 0.1, 2.0


class Rates(NamedTuple):
    """What the cluster's metrics say on average, over nodes whose metrics are there.

    Attributes:
        use: CPU used over CPU requested.
        connections: established TCP connections for each pod.
        cpu_mean: mean of the nodes' shares of CPU used, as it should be now; NaN: no node's is known.
        cpu_square: mean of its square.
        connections_mean: mean of the nodes' connections, as they should be now; NaN: no node's are known.
        connections_most: their maximum.
    """

    use: float
    connections: float
    cpu_mean: float
    cpu_square: float
    connections_mean: float
    connections_most: float


@inner
def rates(seen: Seen, e: int) -> Rates:
    """The averages of environment `e`."""
    used, asked, connections, pods = 0.0, 0.0, 0.0, 0.0
    for n in range(seen.counts[e, NODES]):
        cpu = seen.measured[e, n, CPU_USED]
        if not math.isnan(cpu):
            used += cpu / 100.0 * capacity(seen, e, n)
            asked += requested(seen, e, n) - seen.since[e, n, REQUESTED_SINCE]
        if not math.isnan(seen.measured[e, n, CONNECTIONS]):
            connections += seen.measured[e, n, CONNECTIONS]
            pods += running(seen, e, n) - seen.since[e, n, PODS_SINCE]
    use = min(max(used / asked, LEAST_USE), MOST_USE) if asked > 0.0 else USE_PRIOR
    each = connections / pods if pods > 0.0 else 0.0
    total, squares, known = 0.0, 0.0, 0
    sum_connections, most, counted = 0.0, 0.0, 0
    for n in range(seen.counts[e, NODES]):
        share = _cpu_share(seen, e, n, use, 0)
        if not math.isnan(share):
            total += share
            squares += share * share
            known += 1
        count = _connections(seen, e, n, each, 0)
        if not math.isnan(count):
            sum_connections += count
            most = max(most, count)
            counted += 1
    cpu_mean = total / known if known > 0 else np.nan
    cpu_square = squares / known if known > 0 else np.nan
    mean = sum_connections / counted if counted > 0 else np.nan
    return Rates(use, each, cpu_mean, cpu_square, mean, most)


@inner
def _cpu_share(seen: Seen, e: int, n: int, use: float, extra: int) -> float:
    measured = seen.measured[e, n, CPU_USED] / 100.0
    return float(max(measured + use * (seen.since[e, n, REQUESTED_SINCE] + extra) / capacity(seen, e, n), 0.0))


@inner
def _connections(seen: Seen, e: int, n: int, each: float, extra: int) -> float:
    return float(max(seen.measured[e, n, CONNECTIONS] + each * (seen.since[e, n, PODS_SINCE] + extra), 0.0))


@inner
def cpu_now(seen: Seen, e: int, n: int, known: Rates) -> float:
    """Share of node `n`'s CPU in use, as it should be now; NaN: the metric is missing."""
    return _cpu_share(seen, e, n, known.use, 0)


@inner
def cpu_after(seen: Seen, e: int, n: int, known: Rates) -> float:
    """The same with the pod in question on it."""
    return _cpu_share(seen, e, n, known.use, seen.pods.request[class_of(seen, e, seen.counts[e, POD]), CPU])


@inner
def cpu_worst(seen: Seen, e: int, n: int) -> float:
    """The same if it, and all pods that came since the metric was measured, used `MOST_USE` of what they request."""
    extra = seen.pods.request[class_of(seen, e, seen.counts[e, POD]), CPU]
    since = max(seen.since[e, n, REQUESTED_SINCE], 0.0)
    return float(seen.measured[e, n, CPU_USED] / 100.0 + MOST_USE * (since + extra) / capacity(seen, e, n))


@inner
def connections_now(seen: Seen, e: int, n: int, known: Rates) -> float:
    """Connections of node `n`, as they should be now; NaN: the metric is missing."""
    return _connections(seen, e, n, known.connections, 0)


@inner
def connections_after(seen: Seen, e: int, n: int, known: Rates) -> float:
    """The same with the pod in question on it."""
    return _connections(seen, e, n, known.connections, 1)


@inner
def latency_to_users(seen: Seen, e: int, n: int) -> float:
    """Milliseconds from node `n` to the users of the pod in question, as measured; NaN: missing, or it has none."""
    user = seen.user[e, seen.counts[e, POD]]
    return float(seen.measured[e, n, LATENCY + user]) if user >= 0 else np.nan
