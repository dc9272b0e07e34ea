"""Metrics of nodes as monitoring measures them, and limits of the latency from a pod to its users."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Metrics: the queries of Matranga's thesis. From `LATENCY` on: latency to the users of each zone.
CPU_USED, MEMORY_AVAILABLE, FILESYSTEM_USED, NETWORK_RECEIVED, CONNECTIONS, RUNNING_PODS, LATENCY = range(7)
METRICS = (
    ("cpu_used_percent", "percent"),
    ("memory_available_bytes", "bytes"),
    ("filesystem_used_percent", "percent"),
    ("network_received_bytes_per_second", "bytes/s"),
    ("tcp_connections", "connections"),
    ("running_pods", "pods"),
)
"""Name and unit of the metrics before `LATENCY`, whose unit is milliseconds."""
AGE_LIMIT = 300.0  # Seconds. Prometheus looks back this far for a value; a metric without any value has this age.


PREFIX = "steersman.dev/"
SOFT_KEYS = (f"{PREFIX}latency-soft-constraint", "latencySoftConstraint")
HARD_KEYS = (f"{PREFIX}latency-hard-constraint", "latencyHardConstraint")  # the first annotation that exists counts
USER_KEY = f"{PREFIX}latency-user"  # annotation with the name of the pod's users, as the probe of latencies names them
SHOWN = 40


@dataclass(frozen=True, slots=True)
class LatencyLimits:
    """Limits of the latency from a pod to its users, in milliseconds; inf: no limit."""

    soft: float = math.inf  # preferred limit
    hard: float = math.inf  # where some node keeps it, the pod goes to such a node
    user: str = ""  # name of its users; "": all users, so that the largest latency of a node counts
    ignored: tuple[str, ...] = ()  # problems of invalid annotations; the pod is scheduled without these limits

    @property
    def limited(self) -> bool:
        return self.soft < math.inf or self.hard < math.inf


NO_LIMITS = LatencyLimits()


def limits_of(annotations: Mapping[str, Any]) -> LatencyLimits:
    """Return the limits of a pod's annotations. An invalid one does not keep the pod from being scheduled."""
    ignored: list[str] = []
    soft, hard = (_milliseconds(annotations, keys, ignored) for keys in (SOFT_KEYS, HARD_KEYS))
    user = annotations.get(USER_KEY, "")
    if not isinstance(user, str):
        ignored.append(f"annotation {USER_KEY}: is not text")
        user = ""
    return LatencyLimits(soft, hard, user, tuple(ignored))


def _milliseconds(annotations: Mapping[str, Any], keys: tuple[str, ...], ignored: list[str]) -> float:
    for key in keys:
        value = annotations.get(key)
        if value is None:
            continue
        try:
            number = math.nan if isinstance(value, bool) or "_" in str(value) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if 0 < number < math.inf:
            return number
        shown = str(value)[:SHOWN]
        ignored.append(f"annotation {key}: {shown!r} is not a number of milliseconds above 0, such as 100; ignored")
        return math.inf
    return math.inf
