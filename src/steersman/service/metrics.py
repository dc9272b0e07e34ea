"""What Prometheus scrapes of the service."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

PREFIX = "steersman_service"
SECONDS = tuple(0.0001 * 2**i for i in range(16))
"""Buckets of durations: 0.1 ms to 3 s."""
REMEMBERED = 10_000
"""Pods whose scores are kept until it is seen where they went."""
LONGEST_KEY = 320
"""Characters of the namespace and name of a pod that can exist."""


class Metrics:
    """The metrics of one service, in a registry of its own.

    Args:
        state_age: seconds since what is known of the cluster was right; None: no cluster is watched.
    """

    def __init__(self, state_age: Callable[[], float] | None = None) -> None:
        self.registry = CollectorRegistry()
        self._requests = self._counter("requests", "Requests, by endpoint and status.", "endpoint", "status")
        self._seconds = Histogram(
            f"{PREFIX}_request_duration_seconds",
            "From when the head of a request was read until it was answered.",
            ("endpoint",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self._decisions = self._counter("decisions", "Answers about pods: scored, or neutral.", "outcome")
        self._fallbacks = self._counter("fallbacks", "Neutral answers, by reason.", "reason")
        self._agreement = self._counter(
            "agreement",
            "Pods that were scored and bound since: whether they went where the policy wanted.",
            "agrees",
        )
        if state_age is not None:
            gauge = Gauge(
                f"{PREFIX}_state_age_seconds", "Since the cluster was last known as it is.", registry=self.registry
            )
            gauge.set_function(state_age)
        ProcessCollector(registry=self.registry)
        self._wanted: OrderedDict[str, str] = OrderedDict()
        self._scored = self._decisions.labels("scored")
        self._of: dict[tuple[str, int], tuple[Counter, Histogram]] = {}  # to look labels up costs more than to count

    def watch_files(self, problem: Callable[[], str]) -> None:
        """Show whether token and certificates as they are now cannot be used; `problem`: why, "" if they can."""
        gauge = Gauge(
            f"{PREFIX}_files_broken",
            "1 if token or certificates as they are now cannot be used and the former ones go on.",
            registry=self.registry,
        )
        gauge.set_function(lambda: int(bool(problem())))

    def request(self, endpoint: str, status: int, seconds: float) -> None:
        """A request was answered."""
        key = (endpoint, status)
        if key not in self._of:
            self._of[key] = self._requests.labels(endpoint, str(status)), self._seconds.labels(endpoint)
        requests, durations = self._of[key]
        requests.inc()
        durations.observe(seconds)

    def scored(self, pod: str, node: str) -> None:
        """The policy wants a pod (namespace and name; "": one of another cluster) on a node."""
        self._scored.inc()
        if not pod or len(pod) > LONGEST_KEY:
            return
        self._wanted[pod] = node
        self._wanted.move_to_end(pod)
        if len(self._wanted) > REMEMBERED:
            self._wanted.popitem(last=False)

    def fell_back(self, reason: str) -> None:
        """Scores were neutral."""
        self._decisions.labels("neutral").inc()
        self._fallbacks.labels(reason).inc()

    def bound(self, pod: str, node: str) -> None:
        """A pod was bound, by whomever."""
        wanted = self._wanted.pop(pod, None)
        if wanted is not None:
            self._agreement.labels(str(wanted == node).lower()).inc()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)
