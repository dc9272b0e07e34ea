"""Prometheus metrics of the scheduler: names as kube-scheduler's where it has them, with the prefix `steersman_`.

Events are counted as they happen; states (pending pods, leadership, age of the profile) are read at a scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from steersman.kubernetes.watch import Reflector
from steersman.prometheus.families import counter_family, gauge_family

SECONDS = tuple(0.0001 * 2**i for i in range(18))  # buckets of durations, 0.1 ms to 13 s
ATTEMPTS = (1, 2, 4, 8, 16)
OCTAVES = (0.25, 0.5, 1, 2, 3, 4, 6, 8)  # buckets of errors of estimates: 1 is half or twice the run time

Result = Literal["scheduled", "unschedulable", "error"]
BIND_STATUSES = 0, 403, 404, 409, 422, 429, 500, 503, 504
"""HTTP statuses of bindings that failed, whose series begin with 0: the first failure is an increase then."""


@dataclass(frozen=True, slots=True)
class MetricSources:
    """States that are read at a scrape; None is left out."""

    pending: Callable[[], Mapping[str, int]] = dict  # pending pods by queue
    in_flight: Callable[[], int] | None = None  # bindings in flight
    bind_errors: Callable[[], Mapping[int, int]] | None = None  # by HTTP status, 0 where there was no answer
    reflectors: Mapping[str, Reflector] = field(default_factory=dict)  # by resource
    is_leader: Callable[[], bool] | None = None  # whether this scheduler may decide
    scheduler_name: str = ""  # `schedulerName` of its pods
    profile_age: Callable[[], float] | None = None  # seconds since the workload profile was computed
    events_dropped: Callable[[], int] | None = None  # events that were never written
    taken: Callable[[], int] | None = None  # pods of ours that another scheduler bound
    node_problems: Callable[[], int] | None = None  # nodes that take no pods since their objects make no sense


class SchedulerMetrics:
    """Metrics of one scheduler, in a registry of its own. `sources`: states that are read at a scrape."""

    def __init__(self, sources: MetricSources) -> None:
        self.registry = CollectorRegistry()
        self._attempts = self._counter(
            "steersman_schedule_attempts",
            "Attempts to schedule a pod, by result: scheduled, unschedulable or error.",
            "result",
        )
        for result in get_args(Result):
            self._attempts.labels(result)
        self._attempt_seconds = self._seconds(
            "steersman_scheduling_attempt_duration_seconds",
            "An attempt to schedule a pod: decision and binding.",
            "result",
        )
        self._decision_seconds = self._seconds("steersman_scheduling_algorithm_duration_seconds", "A decision alone.")
        self._decision_cpu_seconds = self._seconds(
            "steersman_scheduling_algorithm_cpu_seconds",
            "CPU of a decision alone; for the rest of its duration it had no core.",
        )
        self._pod_seconds = self._seconds(
            "steersman_pod_scheduling_sli_duration_seconds",
            "From when a pod was created, or its gates were removed, until it was bound, all attempts.",
        )
        self._pod_attempts = Histogram(
            "steersman_pod_scheduling_attempts",
            "Attempts that a pod took until it was bound.",
            buckets=ATTEMPTS,
            registry=self.registry,
        )
        self._estimate_errors = Histogram(
            "steersman_run_time_estimate_error",
            "Error of estimated run times of pods that ended, |log2(actual / estimated)|, by source: stated, history.",
            ("source",),
            buckets=OCTAVES,
            registry=self.registry,
        )
        self.registry.register(_ScrapeCollector(sources))
        ProcessCollector(registry=self.registry)

    def attempt(self, result: Result, seconds: float) -> None:
        """Count an attempt to schedule a pod: bound, unschedulable, or failed."""
        self._attempts.labels(result).inc()
        self._attempt_seconds.labels(result).observe(seconds)

    def decided(self, seconds: float, cpu_seconds: float) -> None:
        """Observe the duration of a decision and its CPU time."""
        self._decision_seconds.observe(seconds)
        self._decision_cpu_seconds.observe(cpu_seconds)

    def bound(self, seconds: float, attempts: int) -> None:
        """Observe the time from queueing to binding of a pod, and its number of attempts."""
        self._pod_seconds.observe(seconds)
        self._pod_attempts.observe(attempts)

    def estimated(self, source: str, error: float) -> None:
        """Observe the error of an estimate, |log2(actual / estimated)|, of a pod that ended."""
        self._estimate_errors.labels(source).observe(error)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _seconds(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(name, text, labels, buckets=SECONDS, registry=self.registry)


class _ScrapeCollector(Collector):
    """Collector of the values that are read from their sources at a scrape."""

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        s = self._sources
        yield gauge_family("steersman_pending_pods", "Pods that wait for a node, by queue.", "queue", s.pending())
        if s.in_flight is not None:
            yield gauge_family("steersman_binds_in_flight", "Binds under way.", "", {"": s.in_flight()})
        if s.bind_errors is not None:
            counts = {**dict.fromkeys(BIND_STATUSES, 0), **s.bind_errors()}
            errors = {str(status or "none"): count for status, count in counts.items()}
            yield counter_family("steersman_bind_errors", "Binds that failed, by HTTP status.", "status", errors)
        relists = {name: max(reflector.lists - 1, 0) for name, reflector in s.reflectors.items()}
        restarts = {name: max(reflector.watches - 1, 0) for name, reflector in s.reflectors.items()}
        yield counter_family(
            "steersman_relists", "Lists after the first, since a watch could not be resumed.", "resource", relists
        )
        yield counter_family("steersman_watch_restarts", "Watches after the first.", "resource", restarts)
        if s.is_leader is not None:
            yield gauge_family(
                "steersman_leader_election_master_status",
                "1 if this scheduler may decide: it holds the lease, or there is no election. The name is the "
                "schedulerName of its pods.",
                "name",
                {s.scheduler_name: int(s.is_leader())},
            )
        if s.profile_age is not None:
            age = {"": s.profile_age()}
            yield gauge_family(
                "steersman_profile_age_seconds", "Since the workload profile of typical pods was computed.", "", age
            )
        if s.events_dropped is not None:
            yield counter_family(
                "steersman_events_dropped", "Events that were never written.", "", {"": s.events_dropped()}
            )
        if s.taken is not None:
            text = "Pods that another scheduler bound while we did: two schedulers answer to one name."
            yield counter_family("steersman_bound_by_others", text, "", {"": s.taken()})
        if s.node_problems is not None:
            closed = {"": s.node_problems()}
            yield gauge_family(
                "steersman_nodes_not_understood", "Nodes that take no pods, since they make no sense.", "", closed
            )
