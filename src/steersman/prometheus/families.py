"""Families of metrics with one label, or without any, for collectors."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


def gauge_family(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    """Return a gauge with an amount for each value of a label; label "": it has none, and `values` one amount."""
    family = GaugeMetricFamily(name, text, labels=(label,) if label else ())
    for value, amount in values.items():
        family.add_metric((value,) if label else (), amount)
    return family


def counter_family(name: str, text: str, label: str, values: Mapping[str, float]) -> CounterMetricFamily:
    """Return a counter, as `gauge_family`."""
    family = CounterMetricFamily(name, text, labels=(label,) if label else ())
    for value, amount in values.items():
        family.add_metric((value,) if label else (), amount)
    return family
