"""Query Prometheus periodically in the background, so that no decision waits for it; metrics of that on `/metrics`.

The node of a series is found by its name, an address, or a host name with or without its domain.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import structlog
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from steersman.cluster.gpu_units import HOSTNAME
from steersman.cluster.model import Node
from steersman.prometheus.client import PrometheusClient, PrometheusError, Series
from steersman.prometheus.configuration import FEATURES, LATENCY_FEATURE, Configuration, NodeMapping
from steersman.prometheus.families import counter_family
from steersman.prometheus.store import MetricSample, MetricStore

Addresses = Mapping[str, tuple[str, ...]]  # by name of a node what else it is called: its addresses and its host name


def addresses_of(nodes: Iterable[Node | None]) -> Addresses:
    """Return what nodes are called: `status.addresses` and the label of their host names."""
    return {node.name: (*node.addresses, node.labels.get(HOSTNAME, node.name)) for node in nodes if node is not None}


class NodeNames:
    """Finds nodes by what labels of series call them.

    A name that two nodes share finds neither of them.
    """

    def __init__(self, mapping: NodeMapping, addresses: Addresses) -> None:
        self._pattern, self._names = re.compile(mapping.pattern), mapping.names
        self._nodes = frozenset(addresses)
        self._full = _unique((_normalized(name), node) for node, names in addresses.items() for name in (node, *names))
        self._short = _unique(
            (short, node)
            for node, names in addresses.items()
            for name in (node, *names)
            if (short := _host(_normalized(name)))
        )

    def find(self, text: str) -> str:
        """Return the node that the value of a label means, "" if it means none.

        `names` of the configuration decide first, then names of nodes, then addresses, then host names without domain.
        """
        matched = self._pattern.fullmatch(text)
        named = (matched[1] or "") if matched is not None else ""
        if named in self._names:
            named = self._names[named]
        if not named or named in self._nodes:
            return named
        # The whole text first: the default pattern would cut the last group off an IPv6 address, as if it were a port.
        for name in (_normalized(text) if _is_address(text) else "", _normalized(named)):
            if name and (node := self._full.get(name) or self._short.get(_host(name), "")):
                return node
        return ""


def _unique(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    nodes: dict[str, set[str]] = {}
    for name, node in pairs:
        nodes.setdefault(name, set()).add(node)
    return {name: next(iter(those)) for name, those in nodes.items() if len(those) == 1}


def _normalized(name: str) -> str:
    """Return a name in one spelling: an address as ipaddress writes it, a host in lower case without a last dot."""
    bare = name.strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return name.lower().rstrip(".")
    return str(getattr(address, "ipv4_mapped", None) or address)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return True


def _host(name: str) -> str:
    """Return a host name without its domain, "" of an address."""
    return "" if _is_address(name) else name.partition(".")[0]


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
    """Keeper of the metric store. `nodes`: returns the cluster's nodes by name, with what else they are called."""

    def __init__(
        self, configuration: Configuration, nodes: Callable[[], Addresses], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.configuration, self.store = configuration, MetricStore(configuration)
        # `rounds`: number of rounds by result: `complete`, `partial`, `failed`
        # `limits`: decisions by what became of the pod's hard limit of latency; counted by whoever decides
        self.rounds, self.limits = Counter[str](), Counter[str]()
        self.problem = ""  # why Prometheus cannot be queried, "" if it can
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


STATES = ("fresh", "stale", "missing")


class TelemetryMetrics(Collector):
    """Collector of metrics that are computed at a scrape."""

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
        yield counter_family(
            "steersman_telemetry_rounds", "Rounds of questions to Prometheus.", "result", collector.rounds
        )
        dropped, limits = (
            {words.replace(" ", "_"): count for words, count in each.items()}
            for each in (collector.store.dropped, collector.limits)
        )
        yield counter_family("steersman_telemetry_values_dropped", "Values that were not taken.", "reason", dropped)
        yield counter_family(
            "steersman_latency_limits", "Decisions on pods with a hard limit of latency.", "outcome", limits
        )

    def _ages(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return the ages of queried features, [N] seconds by name, inf where there never was a value."""
        collector = self._collector
        nodes = list(self._nodes())
        raw, present = collector.store.last_values(nodes), np.ones(len(nodes), dtype=np.bool_)
        ages = collector.store.resolve(*raw, present, collector.clock()).age
        return {name: ages[:, i] for i, name in enumerate(FEATURES) if collector.configuration.features[name].query}
