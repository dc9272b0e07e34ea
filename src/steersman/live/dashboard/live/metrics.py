"""Metrics of schedulers and services, asked for over HTTP: what there is of a list of what the page can show."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal
from urllib.parse import urlsplit

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from steersman.core.errors import UsageError
from steersman.core.http_failures import reason_of
from steersman.core.redaction import redact, redact_url
from steersman.live.dashboard.live.documents import MetricRow, SourceStatus

SECONDS = 5.0
TIMEOUT_SECONDS = 4.0
LARGEST_BODY = 4 << 20  # bytes of an answer that is read
LONGEST_LINE = 1000  # characters of a sample that is shown
MOST_ROWS = 40  # rows of a source; labels are its own, and there may be many

Kind = Literal["gauge", "age", "timestamp", "rate", "share", "duration", "state", "name"]


@dataclass(frozen=True, slots=True)
class ShownMetric:
    """A metric and how it is shown."""

    name: str  # of the samples; of a histogram without its suffixes
    # `gauge`; `age` in seconds; `timestamp`, whose age is shown; `rate` per second of a counter, by `label`; `share`
    # of a counter whose `label` is `true`; `duration`, median and 99th percentile of a histogram's observations since
    # the last question; `state`, the `label` whose value is 1; `name`, the labels' values
    kind: Kind
    title: str  # what it is
    label: str = ""  # label by which values are told apart, "" for none


SHOWN = (
    ShownMetric("steersman_policy_info", "name", "policy"),
    ShownMetric("steersman_schedule_attempts_total", "rate", "attempts", "result"),
    ShownMetric("steersman_pending_pods", "gauge", "pending pods", "queue"),
    ShownMetric("steersman_scheduling_algorithm_duration_seconds", "duration", "decision"),
    ShownMetric("steersman_pod_scheduling_sli_duration_seconds", "duration", "queued until bound"),
    ShownMetric("steersman_bind_errors_total", "rate", "failed binds", "status"),
    ShownMetric("steersman_profile_age_seconds", "age", "age of the workload profile"),
    ShownMetric("steersman_telemetry_age_seconds", "age", "age of telemetry", "feature"),
    ShownMetric("steersman_policy_server_decisions_total", "rate", "policy server", "result"),
    ShownMetric("steersman_leader_election_master_status", "gauge", "leads"),
    ShownMetric("steersman_bound_by_others_total", "rate", "bound by others"),
    ShownMetric("steersman_plugin_decisions_total", "rate", "plugin", "outcome"),
    ShownMetric("steersman_plugin_unscored_total", "rate", "fallback", "reason"),
    ShownMetric("steersman_plugin_agreement_total", "share", "agreement with the policy", "agrees"),
    ShownMetric("steersman_plugin_decision_duration_seconds", "duration", "scores"),
    ShownMetric("steersman_plugin_breaker_state", "state", "breaker", "state"),
    ShownMetric("steersman_plugin_policy_loaded_timestamp_seconds", "timestamp", "age of the policy"),
    ShownMetric("scheduler_schedule_attempts_total", "rate", "attempts", "result"),
    ShownMetric("scheduler_pending_pods", "gauge", "pending pods", "queue"),
    ShownMetric("scheduler_scheduling_algorithm_duration_seconds", "duration", "decision"),
    ShownMetric("scheduler_pod_scheduling_sli_duration_seconds", "duration", "queued until bound"),
    ShownMetric("steersman_service_requests_total", "rate", "requests", "endpoint"),
    ShownMetric("steersman_service_decisions_total", "rate", "answers", "outcome"),
    ShownMetric("steersman_service_neutral_total", "rate", "fallback", "reason"),
    ShownMetric("steersman_service_agreement_total", "share", "agreement with the policy", "agrees"),
    ShownMetric("steersman_service_request_duration_seconds", "duration", "request"),
    ShownMetric("steersman_service_state_age_seconds", "age", "age of the service's state"),
)

Labels = tuple[tuple[str, str], ...]
Samples = dict[str, dict[Labels, float]]  # value by name of the sample, then by its labels


def read_samples(text: str) -> Samples:
    """Return the samples that can be shown; others are not parsed, since kube-scheduler has thousands.

    Raises:
        ValueError: it is no Prometheus text.
    """
    names = {shown.name for shown in SHOWN}
    wanted = []
    for line in text.split("\n"):  # labels may have other ends of lines
        if len(line) > LONGEST_LINE:
            continue
        name = line.split(" ")[2] if line.startswith(("# TYPE ", "# HELP ")) and line.count(" ") >= 2 else line
        name = name.partition("{")[0].partition(" ")[0]
        if name in names or name.removesuffix("_bucket") in names or f"{name}_total" in names:
            wanted.append(line)
    if not wanted and "# TYPE " not in text:
        raise ValueError("that is no Prometheus text")
    result: Samples = {}
    try:
        for family in text_string_to_metric_families("\n".join(wanted) + "\n"):
            for sample in family.samples:
                result.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = float(sample.value)
    except (LookupError, ArithmeticError) as error:  # of the parser, and of integers that are no float
        raise ValueError(f"that is no Prometheus text: {error}") from error
    return result


def rows_of(source: str, before: Samples, now: Samples, seconds: float, unix: float) -> list[MetricRow]:
    """Return the rows that two answers make, `seconds` apart."""
    rows = (row for shown in SHOWN for row in _rows(source, shown, before, now, seconds, unix))
    return list(islice(rows, MOST_ROWS))


def _rows(
    source: str, shown: ShownMetric, before: Samples, now: Samples, seconds: float, unix: float
) -> Iterator[MetricRow]:
    def row(title: str, value: float, unit: str = "") -> MetricRow:
        return MetricRow(
            source=source,
            title=title,
            value=float(f"{value:.4g}") if math.isfinite(value) else None,
            unit=unit,
            series=f"{source}: {title}",
        )

    values_by_label = now.get(shown.name, {})
    if shown.kind in ("state", "share"):
        values_by_label = {labels: value for labels, value in values_by_label.items() if shown.label in dict(labels)}
    match shown.kind:
        case "duration":
            for title, part in (("median", 0.5), ("99th percentile", 0.99)):
                value = _quantile(before.get(f"{shown.name}_bucket", {}), now.get(f"{shown.name}_bucket", {}), part)
                if value is not None:
                    yield row(f"{shown.title}, {title}", 1000 * value, "ms")
        case "name":
            for labels, value in values_by_label.items():
                if value == 1:
                    words = " ".join(text for name, text in labels if text and name in ("member", "name"))
                    yield MetricRow(source=source, title=shown.title, word=words)
        case "state":
            for labels, value in values_by_label.items():
                if value == 1:
                    others = " ".join(text for name, text in labels if name != shown.label)
                    yield MetricRow(
                        source=source, title=f"{shown.title} {others}".strip(), word=dict(labels)[shown.label]
                    )
        case "share":
            total, yes = (
                sum(values_by_label.values()),
                sum(v for labels, v in values_by_label.items() if dict(labels)[shown.label] == "true"),
            )
            if total:
                yield row(shown.title, 100 * yes / total, "%")
        case "rate":
            if before and seconds > 0:  # a counter that was not there counted nothing
                earlier = _by_label(shown, before.get(shown.name, {}))
                for label, value in _by_label(shown, values_by_label).items():
                    # A counter that fell belongs to a process that was restarted.
                    grown = max(0.0, value - earlier.get(label, 0.0))
                    yield row(f"{shown.title} {label}".strip(), grown / seconds, "/s")
        case _:
            for label, value in _by_label(shown, values_by_label).items():
                title = f"{shown.title} {label}".strip()
                if shown.kind == "timestamp":
                    yield row(title, unix - value, "s")
                else:
                    yield row(title, value, "s" if shown.kind == "age" else "")


def _by_label(shown: ShownMetric, samples: Mapping[Labels, float]) -> dict[str, float]:
    result: dict[str, float] = {}
    for labels, value in samples.items():
        label = dict(labels).get(shown.label, "")
        result[label] = result.get(label, 0.0) + value
    return result


def _quantile(before: Mapping[Labels, float], now: Mapping[Labels, float], part: float) -> float | None:
    """Return a quantile of what a histogram observed between two answers, None if that was nothing."""
    counts: dict[float, float] = {}
    for labels, value in now.items():
        edge = float(dict(labels).get("le", "inf"))
        counts[edge] = counts.get(edge, 0.0) + value - before.get(labels, 0.0)
    edges = sorted(counts)
    if not edges or not counts[edges[-1]] > 0:  # NaN neither
        return None
    wanted, low, below = part * counts[edges[-1]], 0.0, 0.0
    for edge in edges:
        if counts[edge] >= wanted:
            if math.isinf(edge):
                return low
            return low + (edge - low) * (wanted - below) / max(counts[edge] - below, 1e-12)
        low, below = edge, counts[edge]
    return low


def metrics_url(flag: str, url: str) -> str:
    """Return the address of a server's metrics. Raises UsageError: that is not an address."""
    if not url.startswith(("http://", "https://")) or not url.partition("://")[2].strip("/"):
        raise UsageError(f"{flag} {url}: is not an address; expected one such as http://127.0.0.1:10251")
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    return parts._replace(path=path if path.endswith("/metrics") else f"{path}/metrics").geturl()


class MetricsSource:
    """A server that is asked for its metrics again and again."""

    def __init__(self, name: str, url: str) -> None:
        self._url = url
        self.status = SourceStatus(source=name, url=redact_url(url), problem="has not been asked yet")
        self.rows: list[MetricRow] = []
        self._samples: Samples = {}
        self._asked = 0.0

    async def run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, headers={"Accept": "text/plain"}) as session:
            while True:
                await self.ask(session)
                await asyncio.sleep(SECONDS)

    async def ask(self, session: aiohttp.ClientSession) -> None:
        problem = ""
        try:
            async with session.get(self._url, allow_redirects=False) as answer:
                body = bytearray()
                async for chunk in answer.content.iter_chunked(1 << 16):
                    body += chunk
                    if len(body) > LARGEST_BODY:
                        problem = f"answers with more than {LARGEST_BODY >> 20} MiB"
                        break
                if answer.status != 200:
                    problem = f"answers with status {answer.status}"
                elif not problem:
                    # Megabytes of text take the parser longer than the event loop may stand still.
                    await asyncio.to_thread(self._take, body.decode(errors="replace"))
        except ValueError:
            problem = "does not answer with Prometheus metrics"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            problem = redact(f"does not answer: {reason_of(error)}")
        if problem:
            self.rows, self._samples = [], {}
        self.status = SourceStatus(source=self.status.source, url=self.status.url, problem=problem)

    def _take(self, text: str) -> None:
        samples, now = read_samples(text), time.monotonic()
        self.rows = rows_of(self.status.source, self._samples, samples, now - self._asked, time.time())
        self._samples, self._asked = samples, now
