"""What `/metrics` says about the policy: who decides, and how it compared with the rules on this cluster."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from steersman.live.comparison import PolicyComparison

PREFIX = "steersman"


class PolicyMetrics(Collector):
    """Metrics that are read at a scrape; nothing is worked out or hashed then.

    Args:
        comparison: who decides, and why.
    """

    def __init__(self, comparison: PolicyComparison) -> None:
        self._comparison = comparison

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        comparison, choice = self._comparison, self._comparison.choice
        info = GaugeMetricFamily(
            f"{PREFIX}_policy_info",
            "The policy that decides, which of its members does, and the digest of its file.",
            labels=("name", "member", "digest"),
        )
        info.add_metric((choice.policy.name, choice.member, choice.version), 1)
        yield info
        file = comparison.file
        reads = CounterMetricFamily(
            f"{PREFIX}_policy_reads", "Policy files that were read, or refused as unusable.", labels=["result"]
        )
        for result, count in file.reads.items():
            reads.add_metric((result,), count)
        yield reads
        broken = GaugeMetricFamily(
            f"{PREFIX}_policy_file_broken",
            "1 if the policy file as it is now cannot be used and the former one goes on.",
        )
        broken.add_metric((), int(bool(file.problem)))
        yield broken
        failures = CounterMetricFamily(
            f"{PREFIX}_policy_comparison_failures", "Comparisons of the policy with rules that failed or took too long."
        )
        failures.add_metric((), comparison.failures)
        yield failures
        if comparison.result is None:
            return
        ended = GaugeMetricFamily(
            f"{PREFIX}_policy_comparison_timestamp_seconds", "When the policy was last compared with rules, Unix time."
        )
        ended.add_metric((), comparison.finished)
        yield ended
        difference = GaugeMetricFamily(
            f"{PREFIX}_policy_comparison_difference_points",
            "GPUs that the policy left unallocated beyond those that the best rule did, percent points.",
        )
        difference.add_metric((), comparison.result.difference)
        yield difference
