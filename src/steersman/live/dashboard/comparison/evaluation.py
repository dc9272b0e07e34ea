"""The results in a folder of `evaluate`: its summary, and its runs as far as CSV files have them.

Runs are read for what `summary.csv` has not: another baseline, and the report's sentences and curves. They go through
the same code as in `evaluate`, so the same numbers come out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import get_args

import numpy as np
import numpy.typing as npt

from steersman.core.errors import InputError
from steersman.core.statistics import Interval
from steersman.evaluation.criteria import FINAL_STATE_CRITERIA, LATENCY_CRITERIA, TIMED_CRITERIA
from steersman.evaluation.report.headline import Headline
from steersman.evaluation.report.page import report_warnings
from steersman.evaluation.results import (
    METRICS,
    METRICS_COLUMNS,
    PARTS,
    PARTS_COLUMNS,
    REPORT,
    RESULTS,
    RESULTS_COLUMNS,
    SUMMARY,
    SUMMARY_COLUMNS,
)
from steersman.evaluation.summary import BOUND, SEEDS, TRACE_BLOCKS, FigureKey, SummaryRow, figures_by_key, summarise
from steersman.live.dashboard.runs import FoundRun, cell_number, cell_whole_number, rows_of
from steersman.simulation.measures import FRAGMENTED, GPU_ALLOCATION
from steersman.simulation.result import Curve, FinalNodes, Floats, Metric, Protocol, RunResult
from steersman.simulation.run import AS_IT_IS

CRITERIA = {
    each.name: each
    for criteria in (LATENCY_CRITERIA, TIMED_CRITERIA, FINAL_STATE_CRITERIA)
    for each in criteria.values()
}
"""What is known of metrics, by name: titles, and which values are better."""
NO_NODES = FinalNodes((), (), np.zeros(0), np.zeros(0), np.zeros(0))
BESIDE = (AS_IT_IS, BOUND)  # what stands beside policies in result files, and is none


@dataclass(frozen=True, slots=True)
class Subject:
    """What runs have in common in a comparison: a workload, or `all`, in a protocol."""

    workload: str
    protocol: Protocol


def version_of(run: FoundRun) -> str:
    """Return a text that changes with the results in a folder of `evaluate`, also when a file is gone."""
    versions = []
    for name in (RESULTS, METRICS, SUMMARY, PARTS):
        try:
            versions.append(run.version(name))
        except InputError as error:
            versions.append(error.problem)
    return " ".join(versions)


class EvaluationFolder:
    """A folder of `evaluate`, read once."""

    def __init__(self, run: FoundRun) -> None:
        self.run = run
        self.version = version_of(run)
        with run.wrapped_read_errors():
            self.summary = _summary(run)
        self.subjects = tuple(dict.fromkeys(Subject(row.workload, row.protocol) for row in self.summary))
        self.policies = tuple(dict.fromkeys(row.policy for row in self.summary if row.policy not in BESIDE))
        self.metrics: dict[str, dict[str, None]] = {}
        for row in self.summary:
            self.metrics.setdefault(row.protocol, {})[row.metric] = None
        based = {row.baseline for row in self.summary if row.baseline}
        self.baseline = next(
            (policy for policy in self.policies if policy in based), self.policies[0] if self.policies else ""
        )

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings of the folder's report, none if it has no report."""
        try:
            with self.run.open(REPORT) as file:
                return report_warnings(file.read().decode("utf-8", errors="replace"))
        except (InputError, OSError):
            return ()

    @cached_property
    def runs(self) -> list[RunResult]:
        """Return the runs, with their metrics, and curves of `inflation`."""
        with self.run.wrapped_read_errors():
            policies = [row for row in self.summary if row.policy not in BESIDE]
            given = {row.protocol for row in policies if row.interval_over != SEEDS}
            parts = _parts(self.run) if any(row.interval_over == TRACE_BLOCKS for row in policies) else {}
            runs = [
                replace(
                    run, is_given=run.protocol in given, parts=parts.get((run.workload, run.policy, run.protocol), {})
                )
                for run in _runs(self.run)
            ]
        if version_of(self.run) != self.version:
            raise InputError(self.run.folder, "", "", "is being written again")
        return runs

    def rows(self, subject: Subject, metric: str, baseline: str) -> list[SummaryRow]:
        """Return a metric's summary; differences from another baseline than the folder's are computed as there."""
        rows = figures_by_key(self._summary_against(subject.protocol, baseline))
        keys = (FigureKey(subject.protocol, subject.workload, policy, metric) for policy in (*self.policies, *BESIDE))
        return [rows[key] for key in keys if key in rows]

    def _summary_against(self, protocol: Protocol, baseline: str) -> list[SummaryRow]:
        if baseline == self.baseline or baseline not in self.policies:
            return self.summary
        computed = summarise([run for run in self.runs if run.protocol == protocol], baseline)
        return [*computed, *(row for row in self.summary if row.policy in BESIDE)]

    def headline(self, subject: Subject, metric: str, baseline: str) -> Headline | None:
        """Return the report's comparison by a metric, None if the folder has no runs or no sentence speaks of it."""
        runs = [run for run in self.runs if run.protocol == subject.protocol]
        if subject.workload in {run.workload for run in runs}:
            runs = [run for run in runs if run.workload == subject.workload]
        if not runs:
            return None
        used = baseline if baseline in {run.policy for run in runs} else runs[0].policy
        headline = Headline(runs, self._summary_against(subject.protocol, used), used)
        criterion = headline.criterion if headline.primary == metric else CRITERIA.get(metric)
        return headline.with_criterion(criterion) if criterion is not None else None

    def curves(self, subject: Subject) -> dict[str, list[Curve]]:
        """Return the curves of `inflation` runs on a workload, by policy."""
        curves: dict[str, list[Curve]] = {}
        for run in self.runs:
            if (run.workload, run.protocol) == (subject.workload, subject.protocol) and len(run.curve.x) > 1:
                curves.setdefault(run.policy, []).append(run.curve)
        return curves


def _summary(run: FoundRun) -> list[SummaryRow]:
    rows = []
    for line, cells in rows_of(run, SUMMARY, SUMMARY_COLUMNS):
        given = dict(zip(SUMMARY_COLUMNS, cells, strict=True))

        def number(name: str, line: int = line, given: dict[str, str] = given) -> float:
            return cell_number(run, SUMMARY, line, name, given[name])

        rows.append(
            SummaryRow(
                workload=given["workload"],
                policy=given["policy"],
                protocol=_protocol(run, SUMMARY, line, given["protocol"]),
                metric=given["metric"],
                unit="",
                runs=cell_whole_number(run, SUMMARY, line, "runs", given["runs"] or "0"),
                mean=number("mean"),
                interval=Interval(number("ci_low"), number("ci_high")),
                interquartile_mean=math.nan,
                baseline=given["baseline"],
                difference=number("difference"),
                difference_interval=Interval(number("difference_ci_low"), number("difference_ci_high")),
                interval_over=given["interval_over"],
            )
        )
    if not rows:
        raise InputError(run.folder / SUMMARY, "", "", "has no row: evaluate wrote none, or was interrupted")
    return rows


def _protocol(run: FoundRun, name: str, line: int, text: str) -> Protocol:
    for known in get_args(Protocol):
        if text == known:
            return known  # type: ignore[no-any-return]
    problem = f"{text[:40]!r} is not a protocol; expected one of {', '.join(get_args(Protocol))}"
    raise InputError(run.folder / name, f"line {line}", "protocol", problem)


def _runs(run: FoundRun) -> list[RunResult]:
    metrics: dict[tuple[str, str, int, Protocol], list[Metric]] = {}
    for line, (workload, policy, seed, protocol, metric, unit, value) in rows_of(run, METRICS, METRICS_COLUMNS):
        if policy in BESIDE:
            continue
        number = cell_whole_number(run, METRICS, line, "seed", seed)
        key = workload, policy, number, _protocol(run, METRICS, line, protocol)
        metrics.setdefault(key, []).append(Metric(metric, unit, cell_number(run, METRICS, line, "value", value)))
    curves = _curves(run)
    return [
        RunResult(
            workload=workload,
            policy=policy,
            seed=seed,
            protocol=protocol,
            curve=curves.get((workload, policy, seed), _end(of_run)) if protocol == "inflation" else _end(of_run),
            metrics=tuple(of_run),
            final_nodes=NO_NODES,
        )
        for (workload, policy, seed, protocol), of_run in metrics.items()
    ]


def _curves(run: FoundRun) -> dict[tuple[str, str, int], Curve]:
    points: dict[tuple[str, str, int], list[list[float]]] = {}
    for line, (workload, policy, seed, *cells) in rows_of(run, RESULTS, RESULTS_COLUMNS):
        key = workload, policy, cell_whole_number(run, RESULTS, line, "seed", seed)
        values = [
            cell_number(run, RESULTS, line, name, cell) for name, cell in zip(RESULTS_COLUMNS[3:], cells, strict=True)
        ]
        points.setdefault(key, []).append(values)
    return {key: _curve(*np.array(values).T) for key, values in points.items()}


def _parts(run: FoundRun) -> dict[tuple[str, str, Protocol], dict[str, npt.NDArray[np.float64]]]:
    """Return the parts of given traces by run and metric, with equal weights: see `RunResult.parts`.

    Of seeds the file has the mean, which is what intervals are made of.
    """
    found: dict[tuple[str, str, Protocol], dict[str, list[float]]] = {}
    for line, (workload, policy, protocol, metric, _, deviation) in rows_of(run, PARTS, PARTS_COLUMNS):
        of_run = found.setdefault((workload, policy, _protocol(run, PARTS, line, protocol)), {})
        of_run.setdefault(metric, []).append(cell_number(run, PARTS, line, "deviation", deviation))
    return {
        key: {metric: np.stack([values, np.ones(len(values))], axis=1) for metric, values in of_run.items()}
        for key, of_run in found.items()
    }


def _end(metrics: Sequence[Metric]) -> Curve:
    end = next((each.value for each in metrics if each.name == GPU_ALLOCATION), math.nan)
    return Curve(np.zeros(1), {GPU_ALLOCATION: np.array([end])})


def _curve(x: Floats, allocated: Floats, fragmented_of_idle: Floats) -> Curve:
    return Curve(x, {GPU_ALLOCATION: allocated, FRAGMENTED: fragmented_of_idle * (100.0 - allocated) / 100.0})
