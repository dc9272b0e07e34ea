"""Result files of a run or an experiment: tidy CSV, the same bytes for the same seeds."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType

import numpy as np

from steersman.core.stored_command import COMMAND
from steersman.evaluation.bound.experiment_bounds import METRIC, ExperimentBounds
from steersman.evaluation.recorded import Recordings
from steersman.evaluation.replay_file import REPLAY, ReplayFile, encode_replay
from steersman.evaluation.summary import BOUND, SummaryRow, SummaryTable
from steersman.objectives.fragmentation import CAUSES
from steersman.simulation.result import Placements, Protocol, RunResult, Timeline
from steersman.simulation.run import AS_IT_IS
from steersman.workloads.formats.tables import write_rows, write_table

RESULTS = "results.csv"
PARTIAL = "results.partial.csv"
FINISHED = "results.partial.msgpack.gz"
FINISHED_START = b"steersman finished runs 2\n"
METRICS = "metrics.csv"
SUMMARY = "summary.csv"
PARTS = "parts.csv"
PLACEMENTS = "placements.csv"
TIMELINE = "timeline.csv"
REPORT = "report.html"
CLUSTER_SCHEDULER = "cluster-scheduler.yaml"
EVALUATION_FILES = (RESULTS, PARTIAL, FINISHED, COMMAND, METRICS, SUMMARY, PARTS, REPORT, CLUSTER_SCHEDULER)
RUN_FILES = (PLACEMENTS, TIMELINE, METRICS, REPLAY)
TRAINED = "trained.safetensors"
DEMO_FILES = (*EVALUATION_FILES, TRAINED)
COMMANDS = dict.fromkeys(RUN_FILES, "simulate") | dict.fromkeys(EVALUATION_FILES, "evaluate") | {TRAINED: "demo"}
"""The command that writes a file; `metrics.csv` is written by both."""
REPORT_MARK = '<meta name="generator" content="steersman">'
"""A line near the start of every report, which identifies it."""

RESULTS_COLUMNS = (
    "workload",
    "policy",
    "seed",
    "arrived_percent",
    "gpu_allocation_percent",
    "gpu_fragmented_of_idle_percent",
)
METRICS_COLUMNS = ("workload", "policy", "seed", "protocol", "metric", "unit", "value")
SUMMARY_COLUMNS = (
    "workload",
    "policy",
    "protocol",
    "metric",
    "runs",
    "mean",
    "ci_low",
    "ci_high",
    "baseline",
    "difference",
    "difference_ci_low",
    "difference_ci_high",
    "interval_over",
)
PARTS_COLUMNS = ("workload", "policy", "protocol", "metric", "part", "deviation")
PLACEMENTS_COLUMNS = ("event", "time", "pod", "node", "devices", "outcome", "reason")


def number(value: float) -> str:
    """Return the text of a CSV cell: integers as such, other numbers with nine digits, empty for NaN."""
    if not math.isfinite(value):
        return ""
    # Floats are exact integers up to 2^53, about 9e15.
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.9g}"


def _cell(value: str | float) -> str:
    return value if isinstance(value, str) else number(value)


def percent(value: float) -> str:
    """Return a percentage of `results.csv`: two decimals, empty for NaN."""
    # + 0.0 turns -0.0 into 0.0.
    return "" if not math.isfinite(value) else f"{value + 0.0:.2f}"


def seed_ranges(seeds: Iterable[int]) -> str:
    """Return seeds as `42-51, 60`, neighbours joined."""
    joined: list[list[int]] = []
    for seed in seeds:
        if joined and seed == joined[-1][1] + 1:
            joined[-1][1] = seed
        else:
            joined.append([seed, seed])
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in joined)


def results_rows(runs: Iterable[RunResult]) -> Iterator[list[str]]:
    """Yield the rows of `results.csv`: curves of `inflation` runs in the format of the published experiments."""
    for run in runs:
        if run.protocol != "inflation":
            continue
        curve = run.curve
        columns = (curve.x, curve.gpu_allocation_percent, curve.gpu_fragmented_of_idle_percent)
        for x, allocation, fragmentation in zip(*(column.tolist() for column in columns), strict=True):
            yield [run.workload, run.policy, str(run.seed), number(x), percent(allocation), percent(fragmentation)]


def metric_cells(run: RunResult) -> Iterator[tuple[str | float, ...]]:
    """Yield the rows of a run, every metric at its end; see `METRICS_COLUMNS`."""
    key = run.workload, run.policy, run.seed, run.protocol
    return ((*key, metric.name, metric.unit, metric.value) for metric in run.metrics)


def metrics_rows(runs: Iterable[RunResult]) -> Iterator[list[str]]:
    """Yield the rows of `metrics.csv`."""
    return (list(map(_cell, cells)) for run in runs for cells in metric_cells(run))


def bound_rows(bounds: ExperimentBounds) -> Iterator[list[str]]:
    """Yield the rows of `metrics.csv` for the bound, whose policy is `bound`."""
    for workload, of_workload in bounds.percent.items():
        for seed, value in zip(bounds.seeds, of_workload.tolist(), strict=True):
            yield [workload, BOUND, str(seed), bounds.protocol, METRIC, "percent", number(value)]


def recorded_rows(recordings: Recordings, protocol: Protocol) -> Iterator[list[str]]:
    """Yield the rows of `metrics.csv` for recorded placements, whose policy is `as it is`; they have no seed."""
    for workload, metrics in recordings.items():
        for metric in metrics:
            yield [workload, AS_IT_IS, "", protocol, metric.name, metric.unit, number(metric.value)]


def summary_rows(rows: Iterable[SummaryRow]) -> Iterator[list[str]]:
    """Yield the rows of `summary.csv`."""
    return ([_cell(row.cells[column]) for column in SUMMARY_COLUMNS] for row in rows)


def parts_rows(runs: Sequence[RunResult]) -> Iterator[list[str]]:
    """Yield the rows of `parts.csv`: what each part of a given trace adds to a mean, of which intervals are made."""
    for protocol in dict.fromkeys(run.protocol for run in runs if run.parts):
        table = SummaryTable([run for run in runs if run.protocol == protocol])
        for key in ((w, p, m) for w in table.workloads for p in table.policies for m in table.metrics):
            deviations = table.deviations(*key)
            if np.isfinite(deviations).all():
                workload, policy, metric = key
                for part, deviation in enumerate(deviations.tolist()):
                    yield [workload, policy, protocol, metric, str(part), number(deviation)]


def placements_rows(placements: Placements) -> Iterator[list[str]]:
    """Yield the rows of `placements.csv`: every event of a run, in order."""
    columns = (placements.pod, placements.node, placements.devices, placements.outcome, placements.reason)
    for event, (time, *cells) in enumerate(zip(placements.time.tolist(), *columns, strict=True)):
        yield [str(event), number(time), *cells]


def timeline_columns(protocol: Protocol) -> list[str]:
    """Return the columns of `timeline.csv`; the last one depends on the protocol."""
    return [
        "event",
        "time",
        "arrived_percent",
        "gpu_allocation_percent",
        "cpu_allocation_percent",
        "memory_allocation_percent",
        "gpu_fragmented_percent",
        *(f"gpu_fragmented_{cause}_percent" for cause in CAUSES),
        "gpu_balance_percent",
        "cpu_balance_percent",
        "nodes_used",
        "pods_waiting" if protocol == "timed" else "pods_failed",
    ]


def first_lines(name: str) -> list[str]:
    """Return the possible first lines of the CSV file of that name; empty for other names."""
    possible: dict[str, list[Sequence[str]]] = {
        RESULTS: [RESULTS_COLUMNS],
        PARTIAL: [RESULTS_COLUMNS, METRICS_COLUMNS],
        METRICS: [METRICS_COLUMNS],
        SUMMARY: [SUMMARY_COLUMNS],
        PARTS: [PARTS_COLUMNS],
        PLACEMENTS: [PLACEMENTS_COLUMNS],
        TIMELINE: [timeline_columns("timed"), timeline_columns("inflation")],
    }
    return [",".join(columns) for columns in possible.get(name, ())]


def timeline_rows(timeline: Timeline) -> Iterator[list[str]]:
    """Yield the rows of `timeline.csv`: the cluster after every event, numbered as in `placements.csv`."""
    columns = [
        timeline.time,
        timeline.arrived_percent,
        timeline.gpu,
        timeline.cpu,
        timeline.memory,
        timeline.causes.sum(axis=1),
        *timeline.causes.T,
        timeline.gpu_balance,
        timeline.cpu_balance,
        timeline.nodes_used,
        timeline.waiting,
    ]
    for event, cells in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        yield [str(event), *map(number, cells)]


def write_evaluation(
    folder: Path,
    runs: Sequence[RunResult],
    summary: Sequence[SummaryRow],
    bounds: Sequence[ExperimentBounds] = (),
    recordings: Mapping[Protocol, Recordings] = MappingProxyType({}),
) -> None:
    """Write `results.csv` (rows of the inflation protocol only), `metrics.csv` and `summary.csv`, of all protocols.

    `parts.csv` is written where a workload gives the arrivals and runs divide them into parts.
    """
    write_table(folder / RESULTS, RESULTS_COLUMNS, results_rows(runs))
    recorded = (recorded_rows(recorded_run, protocol) for protocol, recorded_run in recordings.items())
    write_table(folder / METRICS, METRICS_COLUMNS, chain(metrics_rows(runs), *recorded, *map(bound_rows, bounds)))
    write_table(folder / SUMMARY, SUMMARY_COLUMNS, summary_rows(summary))
    if any(run.parts for run in runs):
        write_table(folder / PARTS, PARTS_COLUMNS, parts_rows(runs))


def write_partial(folder: Path, runs: Sequence[RunResult]) -> None:
    """Write `results.partial.csv`: the curves of the finished runs if all are of `inflation`, else their metrics."""
    if all(run.protocol == "inflation" for run in runs):
        write_table(folder / PARTIAL, RESULTS_COLUMNS, results_rows(runs))
    else:
        write_table(folder / PARTIAL, METRICS_COLUMNS, metrics_rows(runs))


def write_run(folder: Path, run: RunResult, replay: ReplayFile | None = None) -> None:
    """Write `placements.csv` and `timeline.csv` (if recorded), `metrics.csv` and `replay.json.gz` of one run."""
    if replay is not None:
        (folder / REPLAY).write_bytes(encode_replay(replay))
    if run.placements is not None:
        write_table(folder / PLACEMENTS, PLACEMENTS_COLUMNS, placements_rows(run.placements))
    if run.timeline is not None:
        write_table(folder / TIMELINE, timeline_columns(run.protocol), timeline_rows(run.timeline))
    write_table(folder / METRICS, METRICS_COLUMNS, metrics_rows([run]))


def summary_csv(summary: Sequence[SummaryRow]) -> str:
    """Return the text of `summary.csv`."""
    return _csv_text(SUMMARY_COLUMNS, summary_rows(summary))


def metrics_csv(runs: Sequence[RunResult]) -> str:
    """Return the text of `metrics.csv`."""
    return _csv_text(METRICS_COLUMNS, metrics_rows(runs))


def _csv_text(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO(newline="")
    write_rows(text, columns, rows)
    return text.getvalue()
