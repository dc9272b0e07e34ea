"""Files of a run or an experiment: tidy CSV, the same bytes for the same seeds; nobody else's files are overwritten."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import MappingProxyType

import numpy as np

from steersman.core.atomic_files import STAGE, filling, naming_in_errors
from steersman.core.counting import first_names
from steersman.core.errors import InputError, UsageError
from steersman.core.folder_lock import LOCK
from steersman.core.stored_command import COMMAND, read_command
from steersman.evaluation.bound.experiment_bounds import ExperimentBounds
from steersman.evaluation.replay_file import REPLAY, REPLAY_START, ReplayFile, encode_replay
from steersman.evaluation.summary import BOUND, Recordings, SummaryRow, SummaryTable
from steersman.policies.policy_file import SUFFIX, read_policy
from steersman.simulation.measures import COURSE, GPU_ALLOCATION
from steersman.simulation.result import Curve, Placements, Protocol, RunResult
from steersman.simulation.run import AS_IT_IS
from steersman.workloads.files import check_writable
from steersman.workloads.formats.tables import csv_text, write_table

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
ADVICE, README, SCHEDULER, ADVISED_POLICY = "advice.json", "README.md", "scheduler.yaml", "advised.safetensors"
SCHEDULER_EKS, KUBEADM_PATCH = "scheduler.eks.json", "kube-scheduler+json.yaml"
MADE_BY_ADVISE = (SCHEDULER_EKS, SCHEDULER, "scheduler.aks.yaml", KUBEADM_PATCH, ADVISED_POLICY, README, ADVICE)
ADVICE_FILES = (*MADE_BY_ADVISE, REPORT)
ADVICE_MARK = "steersman advise"  # near the start of its files
RUN_FILES = (PLACEMENTS, TIMELINE, METRICS, REPLAY)
TRAINED = "trained.safetensors"
DEMO_FILES = (*EVALUATION_FILES, TRAINED)
COMMANDS = dict.fromkeys(RUN_FILES, "simulate") | dict.fromkeys(EVALUATION_FILES, "evaluate") | {TRAINED: "demo"}
COMMANDS |= dict.fromkeys(MADE_BY_ADVISE, "advise")
"""The command that writes a file; `metrics.csv` is written by both."""
REPORT_MARK = '<meta name="generator" content="steersman">'  # a line near the start of every report

RESULTS_COLUMNS = (
    "workload",
    "policy",
    "seed",
    "arrived_percent",
    GPU_ALLOCATION,
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
    return (list(map(_cell, cells)) for run in runs for cells in metric_cells(run))


def bound_rows(bounds: ExperimentBounds) -> Iterator[list[str]]:
    """Yield the rows of `metrics.csv` for the bound, whose policy is `bound`."""
    for workload, of_workload in bounds.percent.items():
        for seed, value in zip(bounds.seeds, of_workload.tolist(), strict=True):
            yield [workload, BOUND, str(seed), bounds.protocol, GPU_ALLOCATION, "percent", number(value)]


def recorded_rows(recordings: Recordings, protocol: Protocol) -> Iterator[list[str]]:
    """Yield the rows of `metrics.csv` for recorded placements, whose policy is `as it is`; they have no seed."""
    for workload, metrics in recordings.items():
        for metric in metrics:
            yield [workload, AS_IT_IS, "", protocol, metric.name, metric.unit, number(metric.value)]


def summary_rows(rows: Iterable[SummaryRow]) -> Iterator[list[str]]:
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
    columns = (placements.pod, placements.node, placements.devices, placements.outcome, placements.reason)
    for event, (time, *cells) in enumerate(zip(placements.time.tolist(), *columns, strict=True)):
        yield [str(event), number(time), *cells]


def timeline_columns(protocol: Protocol) -> list[str]:
    """Return the columns of `timeline.csv`; pods that wait are pods that failed where nothing waits."""
    names = [each.name for each in COURSE.values() if each.in_timeline]
    renamed = {} if protocol == "timed" else {"pods_waiting": "pods_failed"}
    return ["event", "time", *(renamed.get(name, name) for name in names)]


def first_lines(name: str) -> list[str]:
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


def timeline_rows(timeline: Curve) -> Iterator[list[str]]:
    columns = [timeline.x, *(timeline.measured[each.name] for each in COURSE.values() if each.in_timeline)]
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
    return csv_text(SUMMARY_COLUMNS, summary_rows(summary))


def metrics_csv(runs: Sequence[RunResult]) -> str:
    return csv_text(METRICS_COLUMNS, metrics_rows(runs))


MARK_WITHIN_BYTES = 1024
FORMATS = ("table", "json", "csv", "yaml")  # names that are formats to users of kubectl


def check_output(folder: Path, files: Collection[str]) -> None:
    """Check that `files` may be written to `folder`, new, empty, or with earlier results of these names."""
    if folder.name in FORMATS and str(folder) == folder.name and not folder.exists():
        raise UsageError(f"--output {folder}: names a folder; for the printed format give --format {folder}")
    target = Path(os.path.realpath(folder))  # `new/../x` is `x`, and does not create `new`
    if os.path.isdir(target):  # also of a name that is too long
        entries = sorted(each for each in target.iterdir() if each.name != LOCK and not each.name.startswith(STAGE))
        for entry in entries:
            _check_entry(folder, entry, files)
        if entries and not any(entry.name in files for entry in entries):
            problem = f"holds {first_names([entry.name for entry in entries])}, and no earlier result of this command"
            raise UsageError(f"--output {folder}: {problem}; name another folder")
    check_writable("--output", folder, max(files, key=len))


def _check_entry(folder: Path, entry: Path, files: Collection[str]) -> None:
    if entry.name in files and not is_result(entry):
        problem = f"{entry.name} is there and no result of steersman, and would be written over"
    elif entry.name not in files and is_result(entry):
        problem = f"the folder holds {entry.name} of an earlier steersman {COMMANDS[entry.name]}"
    else:
        return
    raise UsageError(f"--output {folder}: {problem}; name another folder")


def is_result(path: Path) -> bool:
    """Return whether a file was written by steersman, by its name and its first line."""
    if path.name not in COMMANDS or not path.is_file():
        return False
    try:
        if path.name == COMMAND:
            return read_command(path.parent).name == COMMANDS[COMMAND]
        if path.suffix == SUFFIX:
            read_policy(path)
            return True
        with path.open("rb") as file:
            if start := {REPLAY: REPLAY_START, FINISHED: FINISHED_START}.get(path.name):
                return gzip.GzipFile(fileobj=file).read(len(start)) == start
            if path.name == SCHEDULER_EKS:  # AWS takes nothing else in it
                return is_result(path.with_name(SCHEDULER))
            if path.name in MADE_BY_ADVISE:
                return ADVICE_MARK.encode() in file.read(MARK_WITHIN_BYTES)
            if path.name == REPORT:
                return REPORT_MARK.encode() in file.read(MARK_WITHIN_BYTES)
            return file.readline().decode(errors="replace").rstrip("\r\n") in first_lines(path.name)
    except (OSError, EOFError, zlib.error, InputError):
        return False


@contextmanager
def staged(folder: Path, replaced: Collection[str] = ()) -> Iterator[Path]:
    """Yield a folder to write result files to. They move to `folder` if the block succeeds; otherwise nothing changes.

    A new folder appears with all files at once; in an existing one they are replaced one by one. Earlier results among
    `replaced` that were not written again are removed.
    """
    with filling(folder) as stage:
        yield stage
        written = {entry.name for entry in stage.iterdir()}
    # Only after the new files are in place.
    for name in replaced:
        if name not in written and is_result(folder / name):
            with naming_in_errors(folder / name):
                (folder / name).unlink()
