"""Reference of exported Prometheus metrics, from the calls that define them in Python and Go."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "steersman"
PLUGIN = ROOT / "plugin" / "pkg" / "steersman" / "metrics.go"
KINDS = {
    "Counter": "counter",
    "_counter": "counter",
    "counter_family": "counter",
    "CounterMetricFamily": "counter",
    "Gauge": "gauge",
    "gauge_family": "gauge",
    "GaugeMetricFamily": "gauge",
    "Histogram": "histogram",
    "_seconds": "histogram",
}
"""Kinds of metrics by the names of the classes and functions that make them."""
PLACES = {
    "live/scheduler": "`steersman schedule`",
    "live/http_policy": "`steersman schedule` with a server as policy",
    "live/runtime": "`steersman schedule` and `steersman serve`",
    "live/service": "`steersman serve`",
    "prometheus/collector.py": "`steersman schedule` and `steersman serve` with `--telemetry`",
    "prometheus/probe.py": "`steersman probe`",
    "live/local_cluster": "`steersman cluster up --telemetry`: the truth about the simulated nodes",
}
"""Who exports the metrics that a file or folder defines, in the order of the page."""
GO = re.compile(
    r'metrics\.New(\w+?)Vec\(.*?Name: "(\w+)".*?Help: ((?:"[^"]*"(?: \+\s*)?)+).*?\}, \[\]string\{([^}]*)\}', re.S
)


class ExportedMetric(NamedTuple):
    """A metric as a scrape shows it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


def page() -> str:
    """Return the page."""
    parts = [
        "# Metrics",
        "What `/metrics` of the scheduler, the service, the plugin and the probe has. Histograms also have `_bucket`, "
        "`_sum` and `_count`. Where a metric is about a process alone (`process_*`), it is prometheus_client's.",
    ]
    for place, who in PLACES.items():
        parts.append(f"## {who}\n\n{_table(exported(place))}")
    parts.append(f"## kube-scheduler with the plugin\n\n{_table(of_plugin())}")
    return "\n\n".join(parts) + "\n"


def exported(place: str) -> list[ExportedMetric]:
    """Return the metrics that a file or folder of the package defines, by name."""
    path = PACKAGE / place
    found: dict[str, ExportedMetric] = {}
    for file in [path] if path.suffix else sorted(path.rglob("*.py")):
        found |= {metric.name: metric for metric in _defined(ast.parse(file.read_text()))}
    return sorted(found.values())


def of_plugin() -> list[ExportedMetric]:
    """Return the metrics of the plugin."""
    return [
        ExportedMetric(
            name,
            kind.lower(),
            tuple(re.findall(r'"(\w+)"', labels)),
            "".join(re.findall(r'"([^"]*)"', text)),
        )
        for kind, name, text, labels in GO.findall(PLUGIN.read_text())
    ]


def _defined(tree: ast.Module) -> Iterator[ExportedMetric]:
    texts = {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (kind := KINDS.get(_name(node.func))):
            words = [_text(each, texts) for each in node.args[:2]]
            if len(words) == 2 and words[0].startswith("steersman_"):
                name = words[0] + ("_total" if kind == "counter" else "")
                yield ExportedMetric(name, kind, tuple(_labels(node)), words[1])
    prefix = texts.get("PREFIX", "")
    for statement in tree.body if prefix.startswith("steersman_") else ():
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            kind = "counter" if _name(statement.targets[0]).endswith("COUNTERS") else "gauge"
            for key, value in zip(statement.value.keys, statement.value.values, strict=True):
                ending = "_total" if kind == "counter" else ""
                yield ExportedMetric(f"{prefix}{_text(key, texts)}{ending}", kind, (), _text(value, texts))


def _labels(call: ast.Call) -> Iterator[str]:
    """Names of labels in a call: words or a sequence of them after the help, or the argument `labels`."""
    for each in (*call.args[2:], *(keyword.value for keyword in call.keywords if keyword.arg == "labels")):
        for part in each.elts if isinstance(each, ast.Tuple | ast.List) else (each,):
            if name := _text(part, {}):
                yield name


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.expr | None, texts: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return texts.get(node.id, "")
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _table(metrics: list[ExportedMetric]) -> str:
    rows = [
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels) or ' '} | {text} |"
        for name, kind, labels, text in metrics
    ]
    return "\n".join(("| metric | kind | labels | meaning |", "| --- | --- | --- | --- |", *rows))
