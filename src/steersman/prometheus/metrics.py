"""Metrics of our own `/metrics` about telemetry: age, missing values, results of queries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import numpy as np
import numpy.typing as npt
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from steersman.prometheus.collector import TelemetryCollector
from steersman.prometheus.configuration import FEATURES

STATES = ("fresh", "stale", "missing")


class TelemetryMetrics(Collector):
    """Collector of metrics that are computed at a scrape.

    Args:
        collector: the collector of telemetry.
        nodes: returns the names of the cluster's nodes.
    """

    def __init__(self, collector: TelemetryCollector, nodes: Callable[[], Collection[str]]) -> None:
        self._collector, self._nodes = collector, nodes

    def collect(self) -> Iterator[Metric]:
        collector = self._collector
        age = GaugeMetricFamily(
            "steersman_telemetry_age_seconds",
            "Since the newest sample of a feature was taken, of the node where that is longest; nodes that never had "
            "one are counted as missing.",
            labels=("feature",),
        )
        nodes = GaugeMetricFamily(
            "steersman_telemetry_nodes", "Nodes by how their value of a feature is.", labels=("feature", "state")
        )
        for feature, ages in self._ages().items():
            known = np.isfinite(ages)
            fresh = ages <= collector.configuration.max_age(feature)
            if known.any():
                age.add_metric((feature,), float(ages[known].max()))
            counts = int(fresh.sum()), int((known & ~fresh).sum()), int((~known).sum())
            for state, count in zip(STATES, counts, strict=True):
                nodes.add_metric((feature, state), count)
        yield age
        yield nodes
        yield _counter("steersman_telemetry_rounds", "Rounds of questions to Prometheus.", "result", collector.rounds)
        dropped = collector.store.dropped
        yield _counter("steersman_telemetry_values_dropped", "Values that were not taken.", "reason", dropped)
        yield _counter(
            "steersman_latency_limits", "Decisions on pods with a hard limit of latency.", "outcome", collector.limits
        )

    def _ages(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return the ages of queried features, [N] seconds by name, inf where there never was a value."""
        collector = self._collector
        nodes = list(self._nodes())
        raw, present = collector.store.last_values(nodes), np.ones(len(nodes), dtype=np.bool_)
        ages = collector.store.resolve(*raw, present, collector.clock()).age
        return {name: ages[:, i] for i, name in enumerate(FEATURES) if collector.configuration.features[name].query}


def _counter(name: str, text: str, label: str, values: dict[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=(label,))
    for value, amount in values.items():
        family.add_metric((value.replace(" ", "_"),), amount)
    return family
