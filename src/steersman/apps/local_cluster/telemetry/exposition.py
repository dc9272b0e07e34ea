"""What the simulated exporters show: node-exporter's and kube-state-metrics' names, the probe's, and the truth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from steersman.envs.latency.live import NodeSample, Truth

USERS = "users"
"""Name of the only users, in the label `user` of latencies."""
PREFIX = "steersman_simulated_"
TRUTH_GAUGES = {
    "empty_nodes": "Nodes without pods.",
    "used_nodes": "Nodes with pods.",
    "cpu_use_deviation_percent": "Standard deviation over nodes of the share of CPU used.",
    "connections_maximum": "Established TCP connections of the node that has most.",
    "limited_pods": "Bound pods with limits of latency.",
    "soft_limits_kept": "Bound pods within their soft limit.",
    "hard_limits_broken": "Bound pods beyond their hard limit.",
}
TRUTH_COUNTERS = {
    "placed": "Pods bound.",
    "placed_limited": "Pods with limits of latency bound.",
    "placed_within_soft": "Pods within their soft limit when they were bound.",
    "placed_beyond_hard": "Pods beyond their hard limit when they were bound.",
    "placed_beyond_hard_avoidably": "Those of them that another node could have kept within it.",
}
"""Metrics of the true state, by field of `Truth`."""


class PodInfo(NamedTuple):
    """A bound pod, as kube-state-metrics shows it."""

    namespace: str
    pod: str
    node: str


class NodeCollector(Collector):
    """Metrics of one node, from one sample."""

    def __init__(self, sample: NodeSample) -> None:
        self._sample = sample

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, see prometheus_client."""
        sample = self._sample
        cpu = CounterMetricFamily(
            "node_cpu_seconds", "Seconds; one CPU stands for all of the node's.", labels=("cpu", "mode")
        )
        cpu.add_metric(("0", "idle"), sample.idle_seconds)
        cpu.add_metric(("0", "user"), sample.used_seconds)
        yield cpu
        yield GaugeMetricFamily("node_memory_MemAvailable_bytes", "Memory available.", value=sample.memory_available)
        yield GaugeMetricFamily("node_memory_MemTotal_bytes", "Memory in all.", value=sample.memory_total)
        for name, value in (("avail", sample.filesystem_available), ("size", sample.filesystem_size)):
            family = GaugeMetricFamily(f"node_filesystem_{name}_bytes", "Filesystem.", labels=("device", "mountpoint"))
            family.add_metric(("simulated", "/"), value)
            yield family
        network = CounterMetricFamily("node_network_receive_bytes", "Bytes received.", labels=("device",))
        network.add_metric(("eth0",), sample.network_received)
        yield network
        yield GaugeMetricFamily("node_netstat_Tcp_CurrEstab", "Established connections.", value=sample.connections)
        if not math.isnan(sample.latency):
            latency = GaugeMetricFamily(
                "steersman_probe_latency_milliseconds", "Round trip from this node to users.", labels=("user",)
            )
            latency.add_metric((USERS,), sample.latency)
            yield latency


class ClusterCollector(Collector):
    """Metrics of the cluster: where pods are, and the truth.

    Args:
        pods: returns the bound pods.
        truth: returns the true state now.
    """

    def __init__(self, pods: Callable[[], Iterable[PodInfo]], truth: Callable[[], Truth]) -> None:
        self._pods, self._truth = pods, truth

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, see prometheus_client."""
        info = GaugeMetricFamily("kube_pod_info", "Where a pod is.", labels=PodInfo._fields)
        for pod in self._pods():
            info.add_metric(pod, 1.0)
        yield info
        truth = self._truth()
        for name, text in TRUTH_GAUGES.items():
            yield GaugeMetricFamily(f"{PREFIX}{name}", text, value=getattr(truth, name))
        for name, text in TRUTH_COUNTERS.items():
            yield CounterMetricFamily(f"{PREFIX}{name}", text, value=getattr(truth, name))
