"""Metrics of nodes as monitoring measures them: columns of arrays, names and units."""

from __future__ import annotations

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
AGE_LIMIT = 300.0
"""Seconds. Prometheus looks back this far for a value; a metric without any value has this age."""
