"""Metrics of the active policy and of its comparison with the rules on this cluster."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from steersman.apps.runtime.comparison import PolicyComparison


class PolicyMetrics(Collector):
    """Collector of the policy's metrics; a scrape only reads values that exist already.

    Args:
        comparison: the active policy and the last comparison.
    """

    def __init__(self, comparison: PolicyComparison) -> None:
        self._comparison = comparison

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of one scrape."""
        comparison, choice = self._comparison, self._comparison.choice
        info = GaugeMetricFamily(
            "steersman_policy_info",
            "Active policy: its name, the member of a portfolio and the digest of the policy file.",
            labels=("name", "member", "digest"),
        )
        info.add_metric((choice.policy.name, choice.member, choice.version), 1)
        yield info
        file = comparison.file
        reads = CounterMetricFamily(
            "steersman_policy_reads", "Reads of the policy file by result: loaded or refused.", labels=["result"]
        )
        for outcome, count in file.reads.items():
            reads.add_metric((outcome,), count)
        yield reads
        yield GaugeMetricFamily(
            "steersman_policy_file_broken",
            "1 if the policy file is unusable and the previous policy stays active, else 0.",
            value=int(bool(file.problem)),
        )
        yield CounterMetricFamily(
            "steersman_policy_comparison_failures",
            "Comparisons of the policy with rules that failed or timed out.",
            value=comparison.failures,
        )
        if comparison.result is None:
            return
        yield GaugeMetricFamily(
            "steersman_policy_comparison_timestamp_seconds",
            "Unix time of the last comparison of the policy with rules.",
            value=comparison.finished,
        )
        savings = comparison.result.savings
        yield GaugeMetricFamily(
            "steersman_policy_comparison_difference_points",
            "Unallocated GPUs under the best candidate minus those under the fallback, in percentage points.",
            value=-float(savings.mean()) if len(savings) else 0.0,
        )
        yield GaugeMetricFamily(
            "steersman_policy_comparison_draws",
            "Draws of arrivals on which the last comparison tested the best candidate against the fallback.",
            value=len(savings),
        )
