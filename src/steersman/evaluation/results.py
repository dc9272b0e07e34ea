"""The files that a run or an experiment leaves: tidy CSV, the same bytes for the same seeds, all of it or nothing."""

from __future__ import annotations

import csv
import io
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from steersman.errors import UsageError
from steersman.evaluation.summary import SummaryRow
from steersman.simulation.result import FRAGMENTATION_CAUSES, Placements, RunResult

RESULTS = "results.csv"
PARTIAL = "results.partial.csv"
METRICS = "metrics.csv"
SUMMARY = "summary.csv"
PLACEMENTS = "placements.csv"
TIMELINE = "timeline.csv"
REPORT = "report.html"
FILES = (RESULTS, PARTIAL, METRICS, SUMMARY, PLACEMENTS, TIMELINE, REPORT)
STAGE = ".steersman-"

RESULTS_COLUMNS = (
    "workload",
    "policy",
    "seed",
    "arrived_percent",
    "gpu_allocation_percent",
    "gpu_fragmentation_percent",
)
METRICS_COLUMNS = ("workload", "policy", "seed", "protocol", "metric", "unit", "value")
SUMMARY_COLUMNS = (
    "workload",
    "policy",
    "metric",
    "runs",
    "mean",
    "ci_low",
    "ci_high",
    "baseline",
    "difference",
    "difference_ci_low",
    "difference_ci_high",
)
PLACEMENTS_COLUMNS = ("event", "time", "pod", "node", "devices", "outcome", "reason")


def check_output(folder: Path) -> None:
    """Make sure that results may be written to `folder`: new, empty, or holding nothing but former results.

    Raises:
        UsageError: it holds something else, is no folder, or cannot be written to.
    """
    existing = folder
    while not (existing.exists() or existing.is_symlink()) and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise UsageError(f"--output {folder}: {existing} is not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UsageError(f"--output {folder}: no permission to write to {existing}")
    if existing == folder:
        others = sorted(e.name for e in folder.iterdir() if e.name not in FILES and not e.name.startswith(STAGE))
        if others:
            raise UsageError(
                f"--output {folder}: the folder holds {others[0]}, which is no result of steersman; "
                "name a new or an empty folder"
            )


@contextmanager
def staged(folder: Path, *, keep: Iterable[str] = ()) -> Iterator[Path]:
    """A folder to write result files to. They appear in `folder` when the block ends well; otherwise nothing changes.

    Former result files of other names are removed, but those named in `keep`.
    """
    created = _first_missing(folder)
    if created is None:
        stage = Path(tempfile.mkdtemp(prefix=STAGE, dir=folder))
    else:
        stage = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=created.parent))
    try:
        yield stage
        names = sorted(entry.name for entry in stage.iterdir())
        if created is not None:
            stage.chmod(0o777 & ~_umask())
            folder.parent.mkdir(parents=True, exist_ok=True)
            stage.rename(folder)
            return
        for name in names:
            (stage / name).replace(folder / name)
        for name in FILES:
            if name not in names and name not in keep:
                (folder / name).unlink(missing_ok=True)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A CSV file with a header, lines as on Unix."""
    with path.open("w", encoding="utf-8", newline="") as file:
        _write(file, columns, rows)


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a result file, a dictionary each."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def number(value: float) -> str:
    """A number of a CSV cell: whole numbers as such, others with nine digits, empty for NaN."""
    if not math.isfinite(value):
        return ""
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.9g}"


def percent(value: float) -> str:
    """A percentage of `results.csv`: two decimals, empty for NaN."""
    return "" if not math.isfinite(value) else f"{value + 0.0:.2f}"


def results_rows(runs: Iterable[RunResult]) -> Iterator[list[str]]:
    """The rows of `results.csv`: the curve of every `inflation` run, as the published experiments tabulate it."""
    for run in runs:
        if run.protocol != "inflation":
            continue
        curve = run.curve
        columns = (curve.x, curve.gpu_allocation_percent, curve.gpu_fragmentation_percent)
        for x, allocation, fragmentation in zip(*(column.tolist() for column in columns), strict=True):
            yield [
                run.workload,
                run.policy,
                str(run.seed),
                number(x),
                percent(allocation),
                percent(fragmentation),
            ]


def metrics_rows(runs: Iterable[RunResult]) -> Iterator[list[str]]:
    """The rows of `metrics.csv`: every metric of every run, at its end."""
    for run in runs:
        for metric in run.metrics:
            key = (run.workload, run.policy, str(run.seed), run.protocol)
            yield [*key, metric.name, metric.unit, number(metric.value)]


def summary_rows(rows: Iterable[SummaryRow]) -> Iterator[list[str]]:
    """The rows of `summary.csv`."""
    for row in rows:
        yield [
            row.workload,
            row.policy,
            row.metric,
            str(row.runs),
            number(row.mean),
            number(row.interval.low),
            number(row.interval.high),
            row.baseline,
            number(row.difference),
            number(row.difference_interval.low),
            number(row.difference_interval.high),
        ]


def placements_rows(placements: Placements) -> Iterator[list[str]]:
    """The rows of `placements.csv`: every event of a run, in order."""
    columns = (
        placements.pod,
        placements.node,
        placements.devices,
        placements.outcome,
        placements.reason,
    )
    for event, (time, *cells) in enumerate(zip(placements.time.tolist(), *columns, strict=True)):
        yield [str(event), number(time), *cells]


def timeline_columns(run: RunResult) -> list[str]:
    """The columns of `timeline.csv`; the first and the last are named by what the protocol counts."""
    timed = run.protocol == "timed"
    return [
        "time_seconds" if timed else "arrived_percent",
        "gpu_allocation_percent",
        "cpu_allocation_percent",
        "memory_allocation_percent",
        "gpu_fragmentation_percent",
        *(f"gpu_fragmentation_{cause}_percent" for cause in FRAGMENTATION_CAUSES),
        "gpu_balance_percent",
        "cpu_balance_percent",
        "nodes_used",
        "pods_waiting" if timed else "pods_failed",
    ]


def timeline_rows(run: RunResult) -> Iterator[list[str]]:
    """The rows of `timeline.csv`: the curve of a run."""
    curve = run.curve
    columns = [
        curve.x,
        curve.gpu_allocation_percent,
        curve.cpu_allocation_percent,
        curve.memory_allocation_percent,
        curve.gpu_fragmentation_percent,
        *curve.fragmentation_by_cause_percent.T,
        curve.gpu_balance_percent,
        curve.cpu_balance_percent,
        curve.nodes_used,
        curve.pods_waiting,
    ]
    for cells in zip(*(column.tolist() for column in columns), strict=True):
        yield [number(cell) for cell in cells]


def write_evaluation(folder: Path, runs: Sequence[RunResult], summary: Sequence[SummaryRow]) -> None:
    """`results.csv` (rows of the inflation protocol only), `metrics.csv` and `summary.csv`."""
    write_csv(folder / RESULTS, RESULTS_COLUMNS, results_rows(runs))
    write_csv(folder / METRICS, METRICS_COLUMNS, metrics_rows(runs))
    write_csv(folder / SUMMARY, SUMMARY_COLUMNS, summary_rows(summary))


def write_partial(folder: Path, runs: Sequence[RunResult]) -> None:
    """`results.partial.csv`: the finished runs; curves of the inflation protocol, metrics of the others."""
    if any(run.protocol == "inflation" for run in runs):
        write_csv(folder / PARTIAL, RESULTS_COLUMNS, results_rows(runs))
    else:
        write_csv(folder / PARTIAL, METRICS_COLUMNS, metrics_rows(runs))


def write_run(folder: Path, run: RunResult) -> None:
    """`placements.csv` (if recorded), `timeline.csv` and `metrics.csv` of one run."""
    if run.placements is not None:
        write_csv(folder / PLACEMENTS, PLACEMENTS_COLUMNS, placements_rows(run.placements))
    write_csv(folder / TIMELINE, timeline_columns(run), timeline_rows(run))
    write_csv(folder / METRICS, METRICS_COLUMNS, metrics_rows([run]))


def summary_csv(summary: Sequence[SummaryRow]) -> str:
    """The text of `summary.csv`."""
    return _csv_text(SUMMARY_COLUMNS, summary_rows(summary))


def metrics_csv(runs: Sequence[RunResult]) -> str:
    """The text of `metrics.csv`."""
    return _csv_text(METRICS_COLUMNS, metrics_rows(runs))


def _csv_text(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO(newline="")
    _write(text, columns, rows)
    return text.getvalue()


def _write(file: TextIO, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)


def _first_missing(folder: Path) -> Path | None:
    """The topmost folder that has to be made for `folder` to exist; None if it does."""
    missing = None
    while not folder.exists():
        missing, folder = folder, folder.parent
    return missing


def _umask() -> int:
    """What a new folder's mode leaves out (it can only be read by setting it)."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
