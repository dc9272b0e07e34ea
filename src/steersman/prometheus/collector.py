"""Query Prometheus periodically in the background, so that no decision waits for it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import structlog

from steersman.prometheus.client import PrometheusClient, PrometheusError, Series
from steersman.prometheus.configuration import LATENCY_FEATURE, Configuration
from steersman.prometheus.node_names import Addresses, NodeNames
from steersman.prometheus.store import MetricSample, MetricStore

WAIT_SECONDS = 0.2

log = structlog.get_logger("telemetry")


class AmbiguousSeriesError(PrometheusError):
    """Two series of a feature are of the same node, so that neither is its value."""

    def __init__(self, feature: str, node: str, series: Sequence[Series]) -> None:
        one, other = (_shown(each) for each in series[:2])
        message = (
            f"features.{feature}.query: two series are of node {node}, {one} and {other}; "
            "select one of them, or aggregate by the label that names the node"
        )
        super().__init__(message, reached=True)


class TelemetryCollector:
    """Keeper of the metric store.

    Args:
        configuration: queries.
        nodes: returns the cluster's nodes by name, with what else they are called.
        clock: monotonic clock, seconds.

    Attributes:
        store: metric store.
        limits: decisions by what became of the pod's hard limit of latency; counted by whoever decides.
        clock: monotonic clock, seconds.
        rounds: number of rounds by result: `complete`, `partial`, `failed`.
        problem: why Prometheus cannot be queried, "" if it can.
    """

    def __init__(
        self,
        configuration: Configuration,
        nodes: Callable[[], Addresses],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.configuration, self.store = configuration, MetricStore(configuration)
        self.rounds, self.limits = Counter[str](), Counter[str]()
        self.problem = ""
        self.clock, self._nodes = clock, nodes
        self._client = PrometheusClient(configuration.prometheus)
        self._failing: dict[str, str] = {}
        self._warned: set[str] = set()

    async def run(self) -> None:
        """Query until cancelled, from when there is a node."""
        async with self._client:
            while not self._nodes():
                await asyncio.sleep(WAIT_SECONDS)
            while True:
                began = self.clock()
                await self.refresh()
                await asyncio.sleep(max(self.configuration.refresh_seconds - (self.clock() - began), 0.0))

    async def query_once(self) -> Mapping[str, PrometheusError]:
        """Run one round of queries, and return the errors by feature."""
        problems = await self.try_once()
        for error in problems.values():
            if isinstance(error, AmbiguousSeriesError):
                raise error
        return problems

    async def try_once(self) -> Mapping[str, PrometheusError]:
        """Run one round of queries, and return the errors by feature, those of two series of a node among them."""
        async with self._client:
            problems = await self.refresh()
        if self.problem:
            raise PrometheusError(self.problem, reached=False)
        return problems

    async def refresh(self) -> Mapping[str, PrometheusError]:
        """Run one round of queries, and return the errors by feature; the client must be open."""
        queried = [name for name, feature in self.configuration.features.items() if feature.query]
        addresses = self._nodes()
        nodes = NodeNames(self.configuration.nodes, addresses)
        answers = await asyncio.gather(*(self._feature(name, nodes) for name in queried))
        problems = {name: error for name, error in zip(queried, answers, strict=True) if error is not None}
        self.store.prune(addresses.keys())
        self.rounds["complete" if not problems else "failed" if len(problems) == len(queried) else "partial"] += 1
        self._tell(queried, problems)
        return problems

    async def _feature(self, name: str, nodes: NodeNames) -> PrometheusError | None:
        """Query one feature, and return the error, if any."""
        feature = self.configuration.features[name]
        try:
            values, times = await asyncio.gather(self._client.ask(feature.query), self._client.ask(feature.sampled_at))
        except PrometheusError as error:
            return error
        now = self.clock()
        known = self._by_node(name, times, nodes, count=False)
        # Of several series the newest sample counts.
        ages = {key: min(series.time - series.value for series in found) for key, found in known.items()}
        measured = self._by_node(name, values, nodes, count=True)
        for (node, _), series in measured.items():
            if len(series) > 1:
                return AmbiguousSeriesError(name, node, series)
        samples = [
            MetricSample(node, user, series[0].value, ages[node, user])
            for (node, user), series in measured.items()
            # A value without the time of its sample may be arbitrarily old.
            if (node, user) in ages
        ]
        self.store.record(name, samples, now)
        return None

    def _by_node(
        self, feature: str, series: Sequence[Series], nodes: NodeNames, *, count: bool
    ) -> dict[tuple[str, str], list[Series]]:
        """Return series by node and, of latencies, by users."""
        label, user_label = self.configuration.node_label(feature), self.configuration.features[feature].user_label
        series_by_node: dict[tuple[str, str], list[Series]] = {}
        strange = ""
        for each in series:
            node = nodes.find(each.labels.get(label, ""))
            if node:
                user = each.labels.get(user_label, "") if feature == LATENCY_FEATURE and user_label else ""
                series_by_node.setdefault((node, user), []).append(each)
            elif count:
                self.store.dropped["unknown node"] += 1
                strange = strange or each.labels.get(label, "")
        if count and series and not series_by_node and feature not in self._warned:
            self._warned.add(feature)
            overrides = self.configuration.features[feature].node_label
            label_field = f"features.{feature}.nodeLabel" if overrides else "nodes.label"
            log.warning(
                f"no series is of a node of this cluster: its name, its addresses and its host name are compared; "
                f"{label_field}, nodes.pattern and nodes.names say which node it is of",
                feature=feature,
                label=label,
                example=strange,
            )
        return series_by_node

    def _tell(self, queried: Sequence[str], problems: Mapping[str, PrometheusError]) -> None:
        """Log changes of the problem and of missing features, once each."""
        # An error that Prometheus itself sends is one of a query, not of the connection.
        away = len(problems) == len(queried) and bool(queried) and not any(error.reached for error in problems.values())
        if away:
            reason = str(next(iter(problems.values())))
            if not self.problem:
                log.error("Prometheus cannot be asked; what is known grows old", error=reason)
            self.problem = reason
            return
        if self.problem:
            log.info("Prometheus answers again")
        self.problem = ""
        for name in queried:
            error = problems.get(name)
            if error is None:
                if self._failing.pop(name, None) is not None:
                    log.info("a feature is measured again", feature=name)
            elif name not in self._failing:
                self._failing[name] = str(error)
                log.warning("a feature is not measured", feature=name, error=str(error))


def _shown(series: Series) -> str:
    labels = dict(series.labels)
    name = labels.pop("__name__", "")
    text = name + "{" + ", ".join(f'{key}="{value}"' for key, value in sorted(labels.items())) + "}"
    return "".join(c if c.isprintable() else " " for c in text)
