"""What the page says of the metrics of schedulers and services."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from prometheus_client import generate_latest

from steersman.core.errors import UsageError
from steersman.live.dashboard.live import metrics
from steersman.live.dashboard.live.metrics import (
    LARGEST_BODY,
    MOST_ROWS,
    MetricsSource,
    Samples,
    metrics_url,
    read_samples,
    rows_of,
)
from steersman.live.scheduler.metrics import MetricSources, SchedulerMetrics
from steersman.live.service.metrics import ServiceMetrics

PLUGIN = """# TYPE steersman_plugin_breaker_state gauge
steersman_plugin_breaker_state{profile="p",breaker="scores",state="closed"} 0
steersman_plugin_breaker_state{profile="p",breaker="scores",state="open"} 1
# TYPE steersman_plugin_agreement_total counter
steersman_plugin_agreement_total{profile="p",agrees="true"} 30
steersman_plugin_agreement_total{profile="p",agrees="false"} 10
# TYPE steersman_plugin_unscored_total counter
steersman_plugin_unscored_total{profile="p",reason="timeout"} 7
# TYPE scheduler_something_else counter
scheduler_something_else{a="b"} 1
"""


def shown(source: str, before: str, now: str, seconds: float = 10.0) -> dict[str, float | str | None]:
    rows = rows_of(source, read_samples(before), read_samples(now), seconds, 1000.0)
    return {row.title: row.word or row.value for row in rows}


def test_a_schedulers_metrics_are_rates_numbers_and_durations() -> None:
    written = SchedulerMetrics(MetricSources(pending=lambda: {"active": 3}, profile_age=lambda: 12.0))
    before = generate_latest(written.registry).decode()
    for _ in range(20):
        written.attempt("scheduled", 0.01)
        written.decided(0.003, 0.003)
    rows = shown("scheduler", before, generate_latest(written.registry).decode())
    assert rows["pending pods active"] == 3
    assert rows["attempts scheduled"] == 2.0
    assert rows["age of the workload profile"] == 12.0
    assert isinstance(rows["decision, median"], float)
    assert 1.6 < rows["decision, median"] < 3.3


def test_a_services_metrics_are_shown() -> None:
    written = ServiceMetrics(lambda: 2.5)
    written.scored("default/a", "n1")
    written.scored("default/b", "n1")
    written.bound("default/a", "n1")
    written.bound("default/b", "n2")
    before = generate_latest(written.registry).decode()
    written.neutral("busy")
    rows = shown("service", before, generate_latest(written.registry).decode())
    assert rows["agreement with the policy"] == 50.0
    assert rows["age of the service's state"] == 2.5


def test_a_plugins_metrics_say_breaker_agreement_and_fallbacks() -> None:
    rows = shown("scheduler", PLUGIN, PLUGIN.replace('timeout"} 7', 'timeout"} 12'))
    assert rows == {"fallback timeout": 0.5, "agreement with the policy": 75.0, "breaker scores p": "open"}


def test_missing_metrics_are_not_shown_and_labels_are_limited() -> None:
    assert shown("scheduler", "# TYPE a gauge\n", "# TYPE a gauge\na 1\n") == {}
    many = "# TYPE steersman_pending_pods gauge\n" + "".join(
        f'steersman_pending_pods{{queue="{i}"}} 1\n' for i in range(1000)
    )
    assert len(shown("scheduler", many, many)) == MOST_ROWS


NOTHING = "# TYPE steersman_nothing gauge\n"
AGREEMENT = "steersman_service_agreement_total"
BUCKET = "steersman_plugin_decision_duration_seconds_bucket"


@pytest.mark.parametrize(
    ("samples", "rows"),
    [
        ("steersman_plugin_breaker_state 1", {}),
        (f"{AGREEMENT} 3", {}),
        (
            f'{AGREEMENT} 3\n{AGREEMENT}{{agrees="true"}} 1\n{AGREEMENT}{{agrees="false"}} 1',
            {"agreement with the policy": 50.0},
        ),
        ("steersman_leader_election_master_status NaN", {"leads": None}),
        ("steersman_leader_election_master_status +Inf", {"leads": None}),
        ("steersman_leader_election_master_status 1\nsteersman_leader_election_master_status 0", {"leads": 0.0}),
        ('steersman_pending_pods{queue="a\u2028b"} 3', {"pending pods a\u2028b": 3.0}),
        (f'steersman_pending_pods{{queue="{"x" * (1 << 20)}"}} 3', {}),
        (f'{BUCKET}{{le="0.1"}} 4', {"scores, median": 50.0, "scores, 99th percentile": 99.0}),
        (f'{BUCKET}{{le="0.1"}} NaN\n{BUCKET}{{le="+Inf"}} NaN', {}),
    ],
)
def test_invalid_samples_are_skipped(samples: str, rows: dict[str, float | None]) -> None:
    assert shown("scheduler", NOTHING, f"{NOTHING}{samples}\n") == rows


@pytest.mark.parametrize(
    "text",
    [
        "<html>",
        "steersman_pending_pods{ 1",
        'steersman_pending_pods{a="b", ="x"} 1',
        f"steersman_pending_pods {10**400}",
        f"steersman_pending_pods 1 {10**400}",
        "",
    ],
)
def test_non_prometheus_text_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        read_samples(text)


def test_addresses_are_checked() -> None:
    assert metrics_url("--scheduler", "http://127.0.0.1:1") == "http://127.0.0.1:1/metrics"
    assert metrics_url("--scheduler", "https://h:1/x/metrics") == "https://h:1/x/metrics"
    for url in ("127.0.0.1:1", "file:///etc/passwd", "http://"):
        with pytest.raises(UsageError, match=f"^--service {re.escape(url)}: is not an address; [^\\n]+$"):
            metrics_url("--service", url)


async def asked(**answer: Any) -> MetricsSource:
    """A source after one question to a server that answers so."""

    async def handler(_: web.Request) -> web.Response:
        return web.Response(**answer)

    app = web.Application()
    app.router.add_get("/metrics", handler)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        source = MetricsSource("scheduler", str(server.make_url("/metrics")))
        await source.ask(session)
        return source


async def test_unexpected_response_is_reported_and_redirects_are_not_followed() -> None:
    source = await asked(text=PLUGIN)
    assert source.status.problem == ""
    assert source.rows
    away = {"status": 302, "headers": {"Location": "http://127.0.0.1:1/"}}
    for answer, problem in (
        (away, "answers with status 302"),
        ({"text": "<html>"}, "does not answer with Prometheus metrics"),
        ({"text": PLUGIN + "#\n" * (LARGEST_BODY // 2)}, "answers with more than 4 MiB"),
    ):
        assert (await asked(**answer)).status.problem == problem
    gone = MetricsSource("service", "http://127.0.0.1:1/metrics")
    async with aiohttp.ClientSession() as session:
        await gone.ask(session)
    assert gone.status.problem.startswith("does not answer: ")


async def test_metrics_are_parsed_outside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    began, may_go_on = threading.Event(), threading.Event()

    def read(text: str) -> Samples:
        began.set()
        assert may_go_on.wait(10), "the event loop stood still"
        return read_samples(text)

    async def go_on() -> None:
        while not began.is_set():
            await asyncio.sleep(0.01)
        may_go_on.set()

    monkeypatch.setattr(metrics, "read_samples", read)
    source, _ = await asyncio.gather(asked(text=PLUGIN), go_on())
    assert source.rows
