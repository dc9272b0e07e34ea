"""Prometheus metrics of the service."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

SECONDS = tuple(0.0001 * 2**i for i in range(16))  # buckets of durations, 0.1 ms to 3 s
REMEMBERED = 10_000  # pods whose choice is kept until their binding is seen
LONGEST_KEY = 320  # characters of a valid pod's namespace and name


class ServiceMetrics:
    """Metrics of one service, in a registry of its own; `state_age` is None where no cluster is watched."""

    def __init__(self, state_age: Callable[[], float] | None = None) -> None:
        self.registry = CollectorRegistry()
        self._requests = self._counter(
            "steersman_service_requests", "Requests, by endpoint and status.", "endpoint", "status"
        )
        self._seconds = Histogram(
            "steersman_service_request_duration_seconds",
            "From when the head of a request was read until it was answered.",
            ("endpoint",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self._decisions = self._counter(
            "steersman_service_decisions", "Answers about pods: scored, or neutral.", "outcome"
        )
        self._neutral = self._counter("steersman_service_neutral", "Neutral answers, by reason.", "reason")
        self._agreement = self._counter(
            "steersman_service_agreement",
            "Pods that were scored and bound since: whether they went where the policy wanted.",
            "agrees",
        )
        if state_age is not None:
            gauge = Gauge(
                "steersman_service_state_age_seconds",
                "Since the cluster was last known as it is.",
                registry=self.registry,
            )
            gauge.set_function(state_age)
        ProcessCollector(registry=self.registry)
        self._wanted: OrderedDict[str, str] = OrderedDict()
        self._scored = self._decisions.labels("scored")
        self._of: dict[tuple[str, int], tuple[Counter, Histogram]] = {}  # looking up labels costs more than counting

    def watch_files(self, problem: Callable[[], str]) -> None:
        """Export whether token and certificate files can be used; `problem` returns why not, "" if they can."""
        gauge = Gauge(
            "steersman_service_files_broken",
            "1 if token or certificates as they are now cannot be used and the previous ones stay in use.",
            registry=self.registry,
        )
        gauge.set_function(lambda: int(bool(problem())))

    def request(self, endpoint: str, status: int, seconds: float) -> None:
        key = (endpoint, status)
        if key not in self._of:
            self._of[key] = self._requests.labels(endpoint, str(status)), self._seconds.labels(endpoint)
        requests, durations = self._of[key]
        requests.inc()
        durations.observe(seconds)

    def scored(self, pod: str, node: str) -> None:
        """Record the policy's choice of a node for a pod (namespace and name; "": of another cluster)."""
        self._scored.inc()
        # No pod with a longer name can be bound; clients could fill memory with such names.
        if not pod or len(pod) > LONGEST_KEY:
            return
        self._wanted[pod] = node
        self._wanted.move_to_end(pod)
        if len(self._wanted) > REMEMBERED:
            self._wanted.popitem(last=False)

    def neutral(self, reason: str) -> None:
        self._decisions.labels("neutral").inc()
        self._neutral.labels(reason).inc()

    def bound(self, pod: str, node: str) -> None:
        """Compare a pod's node, by whatever scheduler, with the recorded choice."""
        choice = self._wanted.pop(pod, None)
        if choice is not None:
            self._agreement.labels(str(choice == node).lower()).inc()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)
