"""Query Prometheus periodically in the background, so that no decision waits for it."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import structlog

from steersman.prometheus.client import PrometheusClient, PrometheusError, Series
from steersman.prometheus.configuration import LATENCY_FEATURE, Configuration
from steersman.prometheus.store import MetricSample, MetricStore

WAIT_SECONDS = 0.2

log = structlog.get_logger("telemetry")


class TelemetryCollector:
    """Keeper of the metric store.

    Args:
        configuration: queries.
        nodes: returns the names of the cluster's nodes.
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
        nodes: Callable[[], Collection[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.configuration, self.store = configuration, MetricStore(configuration)
        self.rounds, self.limits = Counter[str](), Counter[str]()
        self.problem = ""
        self.clock, self._nodes = clock, nodes
        self._client = PrometheusClient(configuration.prometheus)
        self._pattern = re.compile(configuration.nodes.pattern)
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

    async def query_once(self) -> None:
        """Run one round of queries. Raises PrometheusError: Prometheus cannot be queried."""
        async with self._client:
            await self.refresh()
        if self.problem:
            raise PrometheusError(self.problem, reached=False)

    async def refresh(self) -> None:
        """Run one round of queries; the client must be open."""
        queried = [name for name, feature in self.configuration.features.items() if feature.query]
        nodes = frozenset(self._nodes())
        answers = await asyncio.gather(*(self._feature(name, nodes) for name in queried))
        problems = {name: error for name, error in zip(queried, answers, strict=True) if error is not None}
        self.store.prune(nodes)
        self.rounds["complete" if not problems else "failed" if len(problems) == len(queried) else "partial"] += 1
        self._tell(queried, problems)

    async def _feature(self, name: str, nodes: Collection[str]) -> PrometheusError | None:
        """Query one feature, and return the error, if any."""
        feature = self.configuration.features[name]
        try:
            values, times = await asyncio.gather(self._client.ask(feature.query), self._client.ask(feature.sampled_at))
        except PrometheusError as error:
            return error
        now = self.clock()
        known = self._by_node(name, times, nodes, count=False)
        ages = {key: min(series.time - series.value for series in result) for key, result in known.items()}
        result = [
            MetricSample(node, user, each.value, ages[node, user])
            for (node, user), series in self._by_node(name, values, nodes, count=True).items()
            if (node, user) in ages
            for each in series
        ]
        self.store.record(name, result, now)
        return None

    def _by_node(
        self, feature: str, series: Sequence[Series], nodes: Collection[str], *, count: bool
    ) -> dict[tuple[str, str], list[Series]]:
        """Return series by node and, of latencies, by users."""
        label, user_label = self.configuration.node_label(feature), self.configuration.features[feature].user_label
        series_by_node: dict[tuple[str, str], list[Series]] = {}
        strange = ""
        for each in series:
            node = self.node_of(each.labels.get(label, ""))
            if node in nodes:
                user = each.labels.get(user_label, "") if feature == LATENCY_FEATURE and user_label else ""
                series_by_node.setdefault((node, user), []).append(each)
            elif count:
                self.store.dropped["unknown node"] += 1
                strange = strange or each.labels.get(label, "")
        if count and series and nodes and not series_by_node and feature not in self._warned:
            self._warned.add(feature)
            overrides = self.configuration.features[feature].node_label
            label_field = f"features.{feature}.nodeLabel" if overrides else "nodes.label"
            log.warning(
                f"no series is of a node of this cluster; {label_field}, nodes.pattern and nodes.names say which it is "
                "of",
                feature=feature,
                label=label,
                example=strange,
            )
        return series_by_node

    def node_of(self, text: str) -> str:
        """Return the node that a label's value names, "" if it does not match."""
        matched = self._pattern.fullmatch(text)
        named = (matched[1] or "") if matched is not None else ""
        return self.configuration.nodes.names.get(named, named)

    def _tell(self, queried: Sequence[str], problems: Mapping[str, PrometheusError]) -> None:
        """Log changes of the problem and of missing features, once each."""
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
