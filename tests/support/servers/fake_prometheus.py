"""A Prometheus that answers as a test says, and telemetry of which a test says what it is."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any, Self

from aiohttp import web

from steersman.prometheus.collector import TelemetryCollector
from steersman.prometheus.configuration import FEATURES, configuration
from steersman.prometheus.store import MetricSample, MetricStore

CPU, NETWORK, CONNECTIONS = "cpu_used_percent", "network_received_bytes_per_second", "tcp_connections"
LATENCY = "latency_milliseconds"
Json = dict[str, Any]


class Told:
    """Telemetry of which the test says what it is."""

    def __init__(self, changes: dict[str, object] | None = None) -> None:
        self.configuration = configuration(changes or {})
        self.store = MetricStore(self.configuration)
        self.limits: Counter[str] = Counter()
        self.now = 1000.0

    def clock(self) -> float:
        return self.now

    def tell(self, feature: str, values: dict[str, float], age: float = 0.0, user: str = "") -> None:
        self.store.record(feature, [MetricSample(node, user, value, age) for node, value in values.items()], self.now)


Answer = Callable[[str], tuple[int, object]]


class Prometheus:
    """Answers questions as a test says."""

    def __init__(self) -> None:
        self.answer: Answer = lambda _: (200, vector())
        self.headers: list[str] = []
        self.hangs = False
        self.slow: set[str] = set()

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/prefix/api/v1/query", self._query)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/prefix/"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _query(self, request: web.Request) -> web.Response:
        self.headers.append(request.headers.get("Authorization", ""))
        query = str((await request.post())["query"])
        if self.hangs or query in self.slow:
            await asyncio.sleep(60)
        status, content = self.answer(query)
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return web.Response(status=status, body=body)


def vector(*elements: tuple[dict[str, str], float, object]) -> Json:
    result = [{"metric": labels, "value": [time, str(value)]} for labels, time, value in elements]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


ONE = {CONNECTIONS: {"query": "connections", "sampledAt": "time"}}
OFF = {name: {"query": ""} for name in FEATURES if name != CONNECTIONS}


async def ask(answer: Answer, nodes: tuple[str, ...] = ("n0", "n1"), **changes: Any) -> TelemetryCollector:
    """One round of questions about one feature."""
    async with Prometheus() as server:
        server.answer = answer
        made = collector(server, nodes, **changes)
        async with made._client:
            await made.refresh()
    return made


def collector(server: Prometheus, nodes: tuple[str, ...] = ("n0", "n1"), **changes: Any) -> TelemetryCollector:
    where = {"url": server.url, "timeoutSeconds": 0.2, "maxBodyBytes": 4096} | changes.pop("prometheus", {})
    return TelemetryCollector(
        configuration({"prometheus": where, "features": OFF | ONE, **changes}),
        lambda: dict.fromkeys(nodes, ()),
        clock=lambda: 1000.0,  # stopped: ages do not depend on how busy the machine is
    )


def known(made: TelemetryCollector, names: tuple[str, ...] = ("n0", "n1")) -> list[tuple[float, float]]:
    """Connections of nodes and their age."""
    values, taken = made.store.last_values(names)
    return [(value, round(made.clock() - time, 1)) for value, time in zip(values[:, 4], taken[:, 4], strict=True)]


def answering(values: Json, times: Json) -> Answer:
    return lambda query: (200, values if query == "connections" else times)
