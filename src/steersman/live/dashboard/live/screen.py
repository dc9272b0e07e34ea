"""The screen of a live cluster: its stream, its history, and what the page asks about nodes and pods."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from aiohttp import web

from steersman.cluster.model import GPU_MILLI
from steersman.cluster.state import device_indices
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.kubernetes.client import ApiError, Client
from steersman.kubernetes.config import KubeConfig
from steersman.live.dashboard.columns import node_columns
from steersman.live.dashboard.live.cluster import ClusterWatch, SeenBinding
from steersman.live.dashboard.live.documents import (
    ChartLine,
    HistoryDocument,
    Match,
    Metrics,
    NodeCard,
    NodeLatency,
    PodRow,
    Summary,
)
from steersman.live.dashboard.live.explanations import LiveExplainer, LiveQueue
from steersman.live.dashboard.live.history import ClusterHistory, Floats
from steersman.live.dashboard.live.metrics import MetricsSource
from steersman.live.dashboard.server import HEADERS, json_response, position_in_query, refused
from steersman.prometheus.collector import TelemetryCollector, addresses_of
from steersman.prometheus.configuration import FEATURES, Configuration

HEARTBEAT_SECONDS = 10.0
SLOW_SECONDS = 30.0  # time after which a browser that does not read is disconnected; it comes back to a snapshot
MOST_CLIENTS = 32
TICK_SECONDS = 0.5  # time between two messages to browsers
PROFILE_SECONDS = 30.0
PODS_LISTED = 500
MATCHES = 20
SINGLE_LINES = 20  # nodes up to which each has a line of its own


@dataclass(frozen=True, slots=True)
class Seen:
    """What a browser has been sent: layout and change of the nodes, and the last summary and metrics."""

    layout: int = -1
    change: int = -1
    summary: Summary | None = None
    metrics: Metrics | None = None


class Stream:
    """Events for browsers.

    There is no queue: a message holds what changed since the browser's last one, made when the browser takes it.
    """

    def __init__(self, cluster: ClusterWatch) -> None:
        self._cluster = cluster
        self._ticked = asyncio.Event()
        self._summary: Summary | None = None
        self._metrics: Metrics | None = None
        self._made: tuple[Seen, Seen, bytes] | None = None
        self.clients = 0

    def tick(self, summary: Summary, metrics: Metrics) -> None:
        """Have what changed sent."""
        self._summary, self._metrics = summary, metrics
        # A new event for each tick: each waiter wakes once, and no event has to be cleared.
        ticked, self._ticked = self._ticked, asyncio.Event()
        ticked.set()

    def message(self, seen: Seen) -> tuple[bytes, Seen]:
        """Return the events for a browser, empty if nothing changed, and what it has been sent then."""
        cluster = self._cluster
        if not cluster.began:
            return b"", seen
        now = Seen(cluster.layout, cluster.change, self._summary, self._metrics)
        if self._made is None or self._made[0] != seen or self._made[1] != now:  # most browsers are at the same point
            self._made = seen, now, self._encode(seen, now)
        return self._made[2], now

    def _encode(self, seen: Seen, now: Seen) -> bytes:
        parts = []
        if now.layout != seen.layout:
            parts.append(_event("snapshot", self._cluster.snapshot()))
        elif now.change != seen.change and (use := self._cluster.uses_since(seen.change)).at:
            parts.append(_event("use", use))
        if now.summary is not None and now.summary != seen.summary:
            parts.append(_event("summary", now.summary))
        if now.metrics is not None and now.metrics != seen.metrics:
            parts.append(_event("metrics", now.metrics))
        return b"".join(parts)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer a browser until it leaves; one too many gets the event `refused` alone.

        A status other than 200 would not say why, and the browser would not try again: an EventSource shows no body of
        such a response.
        """
        headers = HEADERS | {"Content-Type": "text/event-stream"}
        if self.clients >= MOST_CLIENTS:
            reason = f"{MOST_CLIENTS} pages are open already; close one"
            return web.Response(body=_event("refused", reason), headers=headers)
        response = web.StreamResponse(headers=headers)
        self.clients += 1
        try:
            await response.prepare(request)
            await self._send(request, response)
        except (TimeoutError, ConnectionError):
            if request.transport is not None:
                # Closing would wait for what is buffered to be read.
                request.transport.abort()
        finally:
            self.clients -= 1
        return response

    async def _send(self, request: web.Request, response: web.StreamResponse) -> None:
        loop, seen = asyncio.get_running_loop(), Seen()
        sent = loop.time()
        while request.transport is not None:
            # Before the message is made, so that a tick during the write is not missed.
            ticked = self._ticked
            body, seen = self.message(seen)
            if not body and loop.time() - sent >= HEARTBEAT_SECONDS:
                body = b": the connection is alive\n\n"
            if body:
                async with asyncio.timeout(SLOW_SECONDS):
                    await response.write(body)
                sent = loop.time()
            await ticked.wait()


def _event(name: str, content: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(content))


class LiveScreen:
    """A live cluster.

    Attributes:
        cluster: what its watches say.
        stream: what browsers are sent of that.
    """

    name = "live"

    def __init__(
        self,
        config: KubeConfig,
        title: str,
        sources: Sequence[MetricsSource] = (),
        telemetry: Configuration | None = None,
    ) -> None:
        self.title = f"Live: {title}"
        self._client = Client(config)
        self.cluster = ClusterWatch(self._client)
        self._sources = sources
        self._history = ClusterHistory()
        self.stream = Stream(self.cluster)
        self._explainer = LiveExplainer(self.cluster.cache)
        self._queue = LiveQueue(self._client)
        self._telemetry = (
            None
            if telemetry is None
            else TelemetryCollector(telemetry, lambda: addresses_of(self.cluster.cache.state.nodes))
        )

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes of the stream and of questions."""
        return (
            web.get("/api/live/stream", self.stream.serve),
            web.get("/api/live/history", self._get_history),
            web.get("/api/live/node", self._get_node),
            web.get("/api/live/pod", self._get_pod),
            web.get("/api/live/waiting", self._get_waiting),
            web.get("/api/live/search", self._get_search),
            web.get("/api/live/explanation", self._get_explanation),
            web.get("/api/live/queue", self._get_queue),
        )

    async def run(self) -> None:
        async with self._client:
            try:
                await self._client.request("GET", "/version")  # later failures are retried, this one is not
            except ApiError as error:
                if error.status != 403:
                    raise
            async with asyncio.TaskGroup() as group:
                for source in self._sources:
                    group.create_task(source.run())
                if self._telemetry is not None:
                    group.create_task(self._telemetry.run())
                for reflector in self.cluster.reflectors:
                    group.create_task(reflector.run())
                await self.cluster.listed()
                self.cluster.begin()
                await self._tick()

    async def _tick(self) -> None:
        renewed = time.monotonic()
        while True:
            now = time.time()
            if self.stream.clients or self._history.is_due(now):
                self._look(now)
            if time.monotonic() - renewed >= PROFILE_SECONDS:
                renewed = time.monotonic()
                if self.cluster.rules.renew_profile(self.cluster.cache):
                    # The profile is sent with the next snapshot.
                    self.cluster.layout += 1
            await asyncio.sleep(TICK_SECONDS)

    def _look(self, now: float) -> None:
        summary, sources = self.cluster.summary(now), self._sources
        metrics = Metrics(
            sources=[each.status for each in sources], rows=[row for each in sources for row in each.rows]
        )
        if self._history.is_due(now):
            values = {
                "pods waiting": summary.waiting,
                "bindings per second": summary.rate,
                "GPU requested": math.nan if summary.gpu is None else summary.gpu,
                "CPU requested": math.nan if summary.cpu is None else summary.cpu,
            }
            values |= {f"rule {rule}": rate for rule, rate in self.cluster.rules.rates().items()}
            values |= {row.series: row.value for row in metrics.rows if row.series and row.value is not None}
            self._history.sample(now, values, self.cluster.pods_by_node(), self.cluster.waiting_by_reason())
        self.stream.tick(summary, metrics)

    async def _get_history(self, request: web.Request) -> web.Response:
        seconds, ago = (position_in_query(request, name) for name in ("seconds", "ago"))
        until = time.time() - ago
        groups = self._node_groups(request.query.get("by", ""))
        pods = self._history.pods(until - seconds, until, groups, request.query.get("node", ""))
        numbers = self._history.numbers(until - seconds, until)
        waiting = self._history.waiting(until - seconds, until)
        return json_response(
            HistoryDocument(
                time=pods.times.round(1).tolist(),
                pods=[ChartLine(label=name, values=_values(line)) for name, line in pods.values.items()],
                waiting=[ChartLine(label=name, values=_values(line)) for name, line in waiting.values.items()],
                series={name: _values(line) for name, line in numbers.values.items()},
                latencies=self._with_users(self.cluster.latencies(until - seconds, until)),
            )
        )

    def _with_users(self, rows: list[NodeLatency]) -> list[NodeLatency]:
        """Return the rows with the latency from the node to its users, where that is measured."""
        if self._telemetry is None or not rows:
            return rows
        store = self._telemetry.store
        last = store.last_values([row.node for row in rows])
        measured = store.resolve(*last, np.ones(len(rows), dtype=np.bool_), self._telemetry.clock())
        column = measured.values[:, len(FEATURES) - 1]
        for row, value in zip(rows, column.tolist(), strict=True):
            row.user = None if math.isnan(value) else round(value, 2)
        return rows

    def _node_groups(self, by: str) -> dict[str, str]:
        """Return the group of each node: each its own where there are few."""
        columns = self.cluster.columns()
        if len(columns.name) <= SINGLE_LINES:
            return {name: name for name in columns.name}
        values, kind = (columns.groups[by], by) if by in columns.groups else (columns.model, "GPU model")
        return {name: value or f"no {kind}" for name, value in zip(columns.name, values, strict=True)}

    async def _get_node(self, request: web.Request) -> web.Response:
        cluster, name = self.cluster, request.query.get("name", "")
        slot = cluster.cache.state.slots.get(name)
        node = None if slot is None else cluster.cache.state.nodes[slot]
        if node is None and name not in cluster.cache.node_problems:
            return refused(404, "there is no such node; it may have been deleted")
        pods = cluster.cache.pods_on(name)
        card = NodeCard(
            name=name,
            state=cluster.state_of(name),
            problem=cluster.cache.node_problems.get(name, ""),
            pods=self._rows(pods[:PODS_LISTED]),
            left_out=max(0, len(pods) - PODS_LISTED),
        )
        if slot is not None and node is not None:
            use, columns = cluster.use_of(slot), node_columns([node])
            card.model, card.cpu, card.memory = columns.model[0], columns.cpu[0], columns.memory[0]
            card.gpus = columns.gpus[0] * columns.unit[0] + columns.counted[0]
            card.used_gpu = round(sum(use.gpu[0]) * columns.unit[0] + GPU_MILLI * use.counted[0])
            card.used_cpu, card.used_memory = use.cpu[0], use.memory[0]
            card.labels = dict(node.labels)
        return json_response(card)

    async def _get_pod(self, request: web.Request) -> web.Response:
        pod = self.cluster.cache.pods.get(request.query.get("name", ""))
        if pod is None:
            return refused(404, "there is no such pod; it may have ended")
        return json_response(self._rows([pod])[0])

    async def _get_waiting(self, _: web.Request) -> web.Response:
        oldest = sorted(self.cluster.waiting.pods.items(), key=lambda item: item[1].since)[:PODS_LISTED]
        pods = self.cluster.cache.pods
        return json_response(self._rows([pods[key] for key, _ in oldest if key in pods]))

    async def _get_search(self, request: web.Request) -> web.Response:
        text = request.query.get("text", "")
        found = self.cluster.find(text, MATCHES) if text else ()
        return json_response([Match(kind=kind, name=name) for kind, name in found])

    async def _get_explanation(self, request: web.Request) -> web.Response:
        pod, policy = request.query.get("pod", ""), request.query.get("policy", "")
        return json_response(await self._explainer.explain(pod, policy))

    async def _get_queue(self, request: web.Request) -> web.Response:
        policy, order = request.query.get("policy", ""), request.query.get("order", "")
        return json_response(await self._queue.predict(policy, order))

    def _rows(self, pods: Sequence[CachedPod]) -> list[PodRow]:
        bindings = {each.pod: each for each in self.cluster.bindings}
        return [self._row(pod, bindings.get(pod.key)) for pod in pods]

    def _row(self, pod: CachedPod, binding: SeenBinding | None) -> PodRow:
        requests, waiting = pod.pod.requests, self.cluster.waiting.pods.get(pod.key)
        return PodRow(
            name=pod.key,
            scheduler=pod.pod.scheduler_name,
            node=pod.node,
            cpu=requests.cpu_milli,
            memory=requests.memory_bytes >> 20,
            gpus=requests.gpu_count,
            milli=requests.gpu_milli,
            devices=device_indices(pod.devices or 0) if pod.node else (),
            since=waiting.since if waiting else None,
            waited=round(binding.waited, 3) if binding else None,
            reason=(waiting.message or waiting.reason) if waiting else "",
            rules=binding.rules if binding else {},
        )


def _values(line: Floats) -> list[float | None]:
    return [None if math.isnan(value) else value for value in np.round(line, 3).tolist()]
