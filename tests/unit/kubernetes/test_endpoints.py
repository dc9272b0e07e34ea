"""What a scheduler tells Prometheus and the kubelet."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable
from typing import Any

import aiohttp
from prometheus_client import generate_latest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from tests.support.errors import raises
from tests.support.servers.fake_api_server import KubeDouble

from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import Client
from steersman.kubernetes.watch import Reflector
from steersman.live.runtime.http_server import Checks, ListenAddress, Probes, WebServer
from steersman.live.scheduler.metrics import MetricSources, SchedulerMetrics


async def ask(port: int, path: str, **headers: str) -> tuple[int, str, str]:
    url = f"http://127.0.0.1:{port}/{path}"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
        return response.status, await response.text(), response.headers["Content-Type"]


def served(
    metrics: SchedulerMetrics, story: Callable[[int], Any], healthy: Checks | None = None, ready: Checks | None = None
) -> None:
    async def main() -> None:
        async with WebServer(metrics.registry, Probes(healthy or {}, ready or {}), ListenAddress()) as endpoints:
            assert endpoints.port > 0
            await story(endpoints.port)

    asyncio.run(main())


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counters_and_gauges_are_exported() -> None:
    pending = {"active": 3, "backoff": 1}
    metrics = SchedulerMetrics(
        MetricSources(
            pending=lambda: pending,
            in_flight=lambda: 7,
            bind_errors=lambda: {409: 2, 0: 1},
            is_leader=lambda: True,
            scheduler_name="mine",
            profile_age=lambda: 12.5,
            events_dropped=lambda: 9,
        )
    )
    metrics.attempt("scheduled", 0.00015)
    metrics.attempt("unschedulable", 0.3)
    metrics.decided(0.0005, 0.00015)
    metrics.bound(2.0, 3)

    async def story(port: int) -> None:
        status, text, kind = await ask(port, "metrics")
        assert status == 200
        assert kind.startswith("text/plain")
        found = samples(text)

        def value(name: str, /, **labels: str) -> float:
            return found[f"steersman_{name}", tuple(sorted(labels.items()))]

        assert value("schedule_attempts_total", result="scheduled") == 1
        assert value("schedule_attempts_total", result="unschedulable") == 1
        assert value("scheduling_attempt_duration_seconds_bucket", result="scheduled", le="0.0001") == 0
        assert value("scheduling_attempt_duration_seconds_bucket", result="scheduled", le="0.0002") == 1
        assert value("scheduling_algorithm_duration_seconds_count") == 1
        assert value("scheduling_algorithm_duration_seconds_sum") == 0.0005
        assert value("scheduling_algorithm_cpu_seconds_sum") == 0.00015
        assert value("pod_scheduling_sli_duration_seconds_sum") == 2
        assert value("pod_scheduling_attempts_bucket", le="4.0") == 1
        assert value("pending_pods", queue="active") == 3
        assert value("binds_in_flight") == 7
        assert value("bind_errors_total", status="409") == 2
        assert value("bind_errors_total", status="none") == 1
        assert value("leader_election_master_status", name="mine") == 1
        assert value("schedule_attempts_total", result="error") == 0, "alerts see the first increase"
        assert value("bind_errors_total", status="403") == 0
        assert value("profile_age_seconds") == 12.5
        assert value("events_dropped_total") == 9
        pending["active"] = 5
        assert samples((await ask(port, "metrics"))[1])["steersman_pending_pods", (("queue", "active"),)] == 5
        _, text, kind = await ask(port, "metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
        assert list(openmetrics.text_string_to_metric_families(text))

    served(metrics, story)


def test_durations_are_resolved_from_a_tenth_of_a_millisecond_to_ten_seconds() -> None:
    metrics = SchedulerMetrics(MetricSources())
    metrics.decided(9.0, 9.0)
    found = {name: value for name, value in samples_of(metrics) if "algorithm_duration_seconds_bucket" in name[0]}
    bounds = sorted(float(dict(labels)["le"]) for _, labels in found)
    assert bounds[0] == 0.0001
    assert bounds[-2] > 10
    assert all(b <= 2.01 * a for a, b in itertools.pairwise(bounds[:-1]))


def samples_of(metrics: SchedulerMetrics) -> list[tuple[Any, float]]:
    return list(samples(generate_latest(metrics.registry).decode()).items())


async def test_watch_restarts_exclude_the_first_list() -> None:
    class Nobody:
        def keep(self, keys: set[str]) -> None: ...

        def change(self, kind: str, obj: Any) -> None: ...

    async with KubeDouble() as server, Client(server.config()) as client:
        reflector = Reflector(client, "/api/v1/nodes", Nobody())
        metrics = SchedulerMetrics(MetricSources(reflectors={"nodes": reflector}))
        assert dict(samples_of(metrics))["steersman_relists_total", (("resource", "nodes"),)] == 0
        reflector.lists, reflector.watches = 2, 5
        found = dict(samples_of(metrics))
        assert found["steersman_relists_total", (("resource", "nodes"),)] == 1
        assert found["steersman_watch_restarts_total", (("resource", "nodes"),)] == 4


def test_probes_report_what_is_missing() -> None:
    problem = "nodes were not listed yet"
    dead = ""

    async def story(port: int) -> None:
        nonlocal problem, dead
        assert await ask(port, "healthz") == (200, "[+]loop ok\nhealthz check passed\n", "text/plain; charset=utf-8")
        status, text, _ = await ask(port, "readyz")
        assert (status, text) == (
            503,
            "[+]loop ok\n[-]informers failed: nodes were not listed yet\nreadyz check failed\n",
        )
        problem = ""
        assert (await ask(port, "readyz"))[0] == 200
        dead = "stands still"
        assert (await ask(port, "healthz"))[0] == 503
        assert (await ask(port, "readyz"))[0] == 503
        assert (await ask(port, "secrets"))[0] == 404

    served(SchedulerMetrics(MetricSources()), story, {"loop": lambda: dead}, {"informers": lambda: problem})


def test_port_in_use_fails_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        async def main() -> None:
            async with WebServer(SchedulerMetrics(MetricSources()).registry, Probes(), ListenAddress(port=port)):
                pass

        with raises(SteersmanError, "--port", port, "--port", "0"):
            asyncio.run(main())
