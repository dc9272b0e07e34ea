"""What our own `/metrics` says about telemetry: how old it is, how much is missing, how questions went."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import numpy as np
import numpy.typing as npt
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector as Metrics

from steersman.telemetry.prometheus.collector import Collector
from steersman.telemetry.prometheus.configuration import FEATURES

PREFIX = "steersman"
STATES = ("fresh", "stale", "missing")


class TelemetryMetrics(Metrics):
    """Metrics that are worked out at a scrape.

    Args:
        collector: what is known.
        nodes: names of the cluster's nodes now.
    """

    def __init__(self, collector: Collector, nodes: Callable[[], Collection[str]]) -> None:
        self._collector, self._nodes = collector, nodes

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        collector = self._collector
        age = GaugeMetricFamily(
            f"{PREFIX}_telemetry_age_seconds",
            "Since the newest sample of a feature was taken, of the node where that is longest; nodes that never had "
            "one are counted as missing.",
            labels=("feature",),
        )
        nodes = GaugeMetricFamily(
            f"{PREFIX}_telemetry_nodes", "Nodes by how their value of a feature is.", labels=("feature", "state")
        )
        for feature, ages in self._ages().items():
            known = np.isfinite(ages)
            fresh = ages <= collector.configuration.age_limit(feature)
            if known.any():
                age.add_metric((feature,), float(ages[known].max()))
            counts = int(fresh.sum()), int((known & ~fresh).sum()), int((~known).sum())
            for state, count in zip(STATES, counts, strict=True):
                nodes.add_metric((feature, state), count)
        yield age
        yield nodes
        yield _counter("telemetry_rounds", "Rounds of questions to Prometheus.", "result", collector.rounds)
        dropped = collector.readings.dropped
        yield _counter("telemetry_values_dropped", "Values that were not taken.", "reason", dropped)
        yield _counter("latency_limits", "Decisions on pods with a hard limit of latency.", "outcome", collector.limits)

    def _ages(self) -> dict[str, npt.NDArray[np.float64]]:
        """Of the features that are asked for, [N] seconds, inf where there never was a value."""
        collector = self._collector
        _, taken = collector.readings.raw(list(self._nodes()))
        ages = collector.clock() - taken
        return {name: ages[:, i] for i, name in enumerate(FEATURES) if collector.configuration.features[name].query}


def _counter(name: str, text: str, label: str, values: dict[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=(label,))
    for value, amount in values.items():
        family.add_metric((value.replace(" ", "_"),), amount)
    return family
