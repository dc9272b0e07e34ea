"""The outcome of a comparison on standard output: a table for a person, CSV or JSON for a program."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich import box
from rich.markup import escape
from rich.table import Table

from steersman.evaluation.headline import Headline, count, fixed
from steersman.evaluation.summary import SummaryRow

if TYPE_CHECKING:
    from steersman.simulation.result import RunResult


def comparison_table(headline: Headline) -> Table:
    """The policies, the best first, on the only workload or in the mean over all of them."""
    table = _table(f"{headline.workload}: {headline.protocol}, {count(len(headline.seeds), 'seed')}")
    table.caption = f"* baseline: differences are to {headline.baseline}, seed by seed"
    table.add_column("Policy", no_wrap=True)
    columns = headline.columns(headline.workload)
    for column in columns:
        table.add_column(column.short, justify="right")
        if column.short.startswith("Diff."):
            table.add_column("95 % interval", justify="right", no_wrap=True)
    for policy in headline.order(headline.workload):
        cells = [policy + (" *" if policy == headline.baseline else "")]
        for column in columns:
            cells.append(column.cells[policy].text)
            if column.short.startswith("Diff."):
                cells.append(column.cells[policy].note)
        table.add_row(*map(escape, cells))
    return table


def _table(title: str) -> Table:
    return Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left", pad_edge=False)


def workloads_table(headline: Headline) -> Table:
    """What decides, on every workload by policy, the best of them bold."""
    table = _table(f"{headline.primary_title}, mean of {count(len(headline.seeds), 'seed')}")
    table.add_column("Workload", no_wrap=True)
    for policy in headline.policies:
        table.add_column(policy, justify="right")
    for workload in headline.workloads:
        best = headline.order(workload)[0]
        cells = {policy: fixed(mean, 2) for policy, mean in headline.means(workload).items()}
        table.add_row(workload, *(f"[bold]{cell}[/bold]" if p == best else cell for p, cell in cells.items()))
    return table


def run_table(run: RunResult) -> Table:
    """The metrics of one run."""
    table = _table(f"{run.policy} on {run.workload}, seed {run.seed}, {run.protocol}")
    table.add_column("Metric")
    table.add_column("Value", justify="right")
    table.add_column("Unit")
    for metric in run.metrics:
        digits = 0 if math.isfinite(metric.value) and metric.value == int(metric.value) else 2
        table.add_row(metric.name, fixed(metric.value, digits), metric.unit)
    return table


def to_json(records: Sequence[object]) -> str:
    """Records as JSON, null for what does not apply."""
    return json.dumps(records, indent=2, allow_nan=False)


def summary_records(summary: Sequence[SummaryRow]) -> list[dict[str, object]]:
    """The rows of `summary.csv` with its column names."""
    records = []
    for row in summary:
        record = {
            "workload": row.workload,
            "policy": row.policy,
            "metric": row.metric,
            "unit": row.unit,
            "runs": row.runs,
            "mean": row.mean,
            "ci_low": row.interval.low,
            "ci_high": row.interval.high,
            "baseline": row.baseline or None,
            "difference": row.difference,
            "difference_ci_low": row.difference_interval.low,
            "difference_ci_high": row.difference_interval.high,
        }
        records.append({name: finite(value) for name, value in record.items()})
    return records


def metric_records(run: RunResult) -> list[dict[str, object]]:
    """The rows of `metrics.csv` with its column names."""
    key = {"workload": run.workload, "policy": run.policy, "seed": run.seed, "protocol": run.protocol}
    return [
        {**key, "metric": metric["name"], "unit": metric["unit"], "value": finite(metric["value"])}
        for metric in map(asdict, run.metrics)
    ]


def finite(value: object) -> object:
    """The value, None for NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
