"""Asks Prometheus in the background, again and again, so that a decision never waits for it."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import structlog

from steersman.telemetry.prometheus.client import PrometheusClient, PrometheusError, Series
from steersman.telemetry.prometheus.configuration import LATENCY, Configuration
from steersman.telemetry.prometheus.readings import Found, Readings

WAIT_SECONDS = 0.2

log = structlog.get_logger("telemetry")


class Collector:
    """Keeps readings up to date.

    Args:
        configuration: what is asked.
        nodes: names of the cluster's nodes now.
        clock: monotonic seconds.

    Attributes:
        readings: the values.
        limits: decisions by what became of the pod's hard limit of latency; whoever decides counts them.
        clock: monotonic seconds.
        rounds: how many rounds of questions ended in which way: `complete`, `partial`, `failed`.
        problem: why Prometheus cannot be asked, "" if it can.
    """

    def __init__(
        self,
        configuration: Configuration,
        nodes: Callable[[], Collection[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.configuration, self.readings = configuration, Readings(configuration)
        self.rounds, self.limits = Counter[str](), Counter[str]()
        self.problem = ""
        self.clock, self._nodes = clock, nodes
        self._client = PrometheusClient(configuration.prometheus)
        self._pattern = re.compile(configuration.nodes.pattern)
        self._failing: dict[str, str] = {}
        self._puzzled: set[str] = set()

    async def run(self) -> None:
        """Ask until cancelled, from when there is a node."""
        async with self._client:
            while not self._nodes():
                await asyncio.sleep(WAIT_SECONDS)
            while True:
                began = self.clock()
                await self.refresh()
                await asyncio.sleep(max(self.configuration.refresh_seconds - (self.clock() - began), 0.0))

    async def refresh(self) -> None:
        """One round of questions; the client must be open."""
        asked = [name for name, feature in self.configuration.features.items() if feature.query]
        nodes = frozenset(self._nodes())
        answers = await asyncio.gather(*(self._feature(name, nodes) for name in asked))
        problems = {name: error for name, error in zip(asked, answers, strict=True) if error is not None}
        self.readings.tidy(nodes)
        self.rounds["complete" if not problems else "failed" if len(problems) == len(asked) else "partial"] += 1
        self._tell(asked, problems)

    async def _feature(self, name: str, nodes: Collection[str]) -> PrometheusError | None:
        """Ask for one feature; what went wrong."""
        feature = self.configuration.features[name]
        try:
            values, times = await asyncio.gather(self._client.ask(feature.query), self._client.ask(feature.sampled_at))
        except PrometheusError as error:
            return error
        now = self.clock()
        known = self._by_node(name, times, nodes, count=False)
        ages = {key: min(series.time - series.value for series in found) for key, found in known.items()}
        found = [
            Found(node, user, each.value, ages[node, user])
            for (node, user), series in self._by_node(name, values, nodes, count=True).items()
            if (node, user) in ages
            for each in series
        ]
        self.readings.take(name, found, now)
        return None

    def _by_node(
        self, feature: str, series: Sequence[Series], nodes: Collection[str], *, count: bool
    ) -> dict[tuple[str, str], list[Series]]:
        """Series by node and, of latencies, by users."""
        label, user_label = self.configuration.node_label(feature), self.configuration.features[feature].user_label
        made: dict[tuple[str, str], list[Series]] = {}
        strange = ""
        for each in series:
            node = self.node_of(each.labels.get(label, ""))
            if node in nodes:
                user = each.labels.get(user_label, "") if feature == LATENCY and user_label else ""
                made.setdefault((node, user), []).append(each)
            elif count:
                self.readings.dropped["unknown node"] += 1
                strange = strange or each.labels.get(label, "")
        if count and series and nodes and not made and feature not in self._puzzled:
            self._puzzled.add(feature)
            log.warning(
                "no series is of a node of this cluster; nodes.label, nodes.pattern and nodes.names say which it is of",
                feature=feature,
                label=label,
                example=strange,
            )
        return made

    def node_of(self, text: str) -> str:
        """The node that a label's value names, "" if it does not match."""
        matched = self._pattern.fullmatch(text)
        named = (matched[1] or "") if matched is not None else ""
        return self.configuration.nodes.names.get(named, named)

    def _tell(self, asked: Sequence[str], problems: Mapping[str, PrometheusError]) -> None:
        """Say what has changed, once."""
        away = len(problems) == len(asked) and bool(asked) and not any(error.reached for error in problems.values())
        if away:
            said = str(next(iter(problems.values())))
            if not self.problem:
                log.error("Prometheus cannot be asked; what is known grows old", error=said)
            self.problem = said
            return
        if self.problem:
            log.info("Prometheus answers again")
        self.problem = ""
        for name in asked:
            error = problems.get(name)
            if error is None:
                if self._failing.pop(name, None) is not None:
                    log.info("a feature is measured again", feature=name)
            elif name not in self._failing:
                self._failing[name] = str(error)
                log.warning("a feature is not measured", feature=name, error=str(error))
