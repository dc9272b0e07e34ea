"""The comparison of policies: for every workload and metric the mean over the runs, against a baseline.

Beside the runs stands the recorded placement of workloads: one value per metric, the same for every seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.core.statistics import (
    NO_INTERVAL,
    Interval,
    deviations,
    interquartile_mean,
    mean,
    mean_interval,
    moving_block_interval,
)
from steersman.simulation.result import Metric, Protocol, RunResult
from steersman.simulation.run import AS_IT_IS, Simulator
from steersman.workloads.workload import Workload

ALL = "all"  # name of the mean over several workloads, which none of these may have
BOUND, ARRIVED = "bound", "arrived"  # names of the rows of the bound and of the pods that arrive, among policies
SEEDS, TRACE_BLOCKS = "seeds", "blocks"  # what intervals are over: seeds that draw arrivals, or blocks of a given trace


class FigureKey(NamedTuple):
    """What tells a figure of a summary from all others; the policy's name includes its order."""

    protocol: Protocol
    workload: str
    policy: str
    metric: str


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """A policy's metric on a workload. NaN if undefined (and an empty `baseline` for the baseline itself)."""

    workload: str  # its name, or `all`: each seed's value is the mean over the workloads, NaN if one of them has none
    policy: str
    protocol: Protocol
    metric: str
    unit: str
    runs: int
    mean: float
    interval: Interval = NO_INTERVAL
    interquartile_mean: float = math.nan
    baseline: str = ""  # the policy that `difference` refers to
    # `difference`, `difference_interval`: mean of (policy - baseline) over the seeds that both have.
    difference: float = math.nan
    difference_interval: Interval = NO_INTERVAL
    # `SEEDS`, `TRACE_BLOCKS`, or "" where no interval is known, as arrivals are given once and for all
    interval_over: str = SEEDS

    @property
    def key(self) -> FigureKey:
        return FigureKey(self.protocol, self.workload, self.policy, self.metric)

    @property
    def cells(self) -> dict[str, str | float]:
        """Return its values by the columns of `summary.csv`, and its unit."""
        names = ("workload", "policy", "protocol", "metric", "unit", "runs", "mean")
        ends = zip(("ci_low", "ci_high"), self.interval, strict=True)
        of_difference = zip(("difference_ci_low", "difference_ci_high"), self.difference_interval, strict=True)
        return (
            {name: getattr(self, name) for name in names}
            | dict(ends)
            | {"baseline": self.baseline, "difference": self.difference}
            | dict(of_difference)
            | {"interval_over": self.interval_over}
        )


def figures_by_key(rows: Iterable[SummaryRow]) -> dict[FigureKey, SummaryRow]:
    return {row.key: row for row in rows}


class SummaryTable:
    """Metrics of runs of one protocol, [workload, policy, metric, seed]; NaN where a run or a metric is missing.

    Where the workload gives the arrivals (`is_given`), seeds only rank equal nodes, so intervals are over blocks of the
    trace, paired by arrival or moment, and there are none of metrics that are not means over a trace.
    """

    def __init__(self, runs: Sequence[RunResult]) -> None:
        (self.protocol,) = dict.fromkeys(run.protocol for run in runs)
        self.workloads = list(dict.fromkeys(run.workload for run in runs))
        self.rows = [*self.workloads, ALL] if len(self.workloads) > 1 else self.workloads
        self.policies = list(dict.fromkeys(run.policy for run in runs))
        self.seeds = list(dict.fromkeys(run.seed for run in runs))
        self.units = {metric.name: metric.unit for run in runs for metric in run.metrics}
        self.metrics = list(self.units)
        shape = (len(self.workloads), len(self.policies), len(self.metrics), len(self.seeds))
        self.values: npt.NDArray[np.float64] = np.full(shape, np.nan)
        index = {name: i for i, name in enumerate(self.metrics)}
        for run in runs:
            place = self.workloads.index(run.workload), self.policies.index(run.policy)
            seed = self.seeds.index(run.seed)
            for metric in run.metrics:
                self.values[(*place, index[metric.name], seed)] = metric.value
        self.is_given = all(run.is_given for run in runs)
        self._parts: dict[tuple[str, str, str], list[npt.NDArray[np.float64]]] = {}
        for run in runs:
            for name, parts in run.parts.items():
                self._parts.setdefault((run.workload, run.policy, name), []).append(parts)

    def get(self, workload: str, policy: str, metric: str) -> npt.NDArray[np.float64]:
        """Return [seed] values; all NaN if the runs have no such metric. `all` is the mean over workloads."""
        if metric not in self.units:
            return np.full(len(self.seeds), np.nan)
        rows = [self.workloads.index(each) for each in self.over(workload)]
        # NaN for a seed that one workload lacks: a mean over the others would be of another set.
        values = self.values[rows, self.policies.index(policy), self.metrics.index(metric)].mean(axis=0)
        return np.asarray(values, dtype=np.float64)

    def over(self, workload: str) -> list[str]:
        """Return the workloads of a row: the one of this name, else, for `all`, all of them."""
        return [workload] if workload in self.workloads else self.workloads

    def interval(self, workload: str, policy: str, metric: str) -> Interval:
        values = self.get(workload, policy, metric)
        if not self.is_given:
            return mean_interval(values)
        return moving_block_interval(mean(values), self.deviations(workload, policy, metric))

    def difference_interval(self, workload: str, policy: str, other: str, metric: str) -> Interval:
        differences = self.get(workload, policy, metric) - self.get(workload, other, metric)
        if not self.is_given:
            return mean_interval(differences)
        series = self.deviations(workload, policy, metric) - self.deviations(workload, other, metric)
        return moving_block_interval(mean(differences), series)

    def interval_over(self, workload: str, policy: str, metric: str) -> str:
        """Return what an interval is over, see `SummaryRow`."""
        if not self.is_given:
            return SEEDS
        return TRACE_BLOCKS if np.isfinite(self.deviations(workload, policy, metric)).all() else ""

    def deviations(self, workload: str, policy: str, metric: str) -> npt.NDArray[np.float64]:
        """Return [K] deviations of the parts of a trace, means over seeds, of `all` over workloads; NaN: unknown."""
        workloads = self.over(workload)
        parts = [self._parts.get((each, policy, metric)) for each in workloads]
        # Seeds only rank equal nodes here, so their parts are averaged first.
        series = [deviations(np.mean(of_seeds, axis=0)) for of_seeds in parts if of_seeds]
        return np.mean(series, axis=0) if len(series) == len(workloads) else np.full(1, np.nan)


def summarise(runs: Sequence[RunResult], baseline: str) -> list[SummaryRow]:
    """Return the rows of `summary.csv`: by workload (and `all` if there are several), policy and metric."""
    table = SummaryTable(runs)
    keys = [(w, p, m) for w in table.rows for p in table.policies for m in table.metrics]
    values = np.array([table.get(*key) for key in keys])
    differences = values - np.array([table.get(w, baseline, m) for w, _, m in keys])
    rows = []
    for i, (workload, policy, metric) in enumerate(keys):
        other = policy != baseline
        rows.append(
            SummaryRow(
                workload=workload,
                policy=policy,
                protocol=table.protocol,
                metric=metric,
                unit=table.units[metric],
                runs=int(np.isfinite(values[i]).sum()) * len(table.over(workload)),
                mean=mean(values[i]),
                interval=clip_interval(table.interval(workload, policy, metric), table.units[metric]),
                interquartile_mean=interquartile_mean(values[i]),
                baseline=baseline if other else "",
                difference=mean(differences[i]) if other else float("nan"),
                difference_interval=table.difference_interval(workload, policy, baseline, metric)
                if other
                else NO_INTERVAL,
                interval_over=table.interval_over(workload, policy, metric),
            )
        )
    return rows


def clip_interval(interval: Interval, unit: str) -> Interval:
    """Return the part of a mean's interval that the mean can be in: what has a unit is never below 0, nor above 100 %.

    The mean itself is above 100 % where pods run on nodes that offer less by now. Rewards have no unit, and no limits.
    NaN stays NaN.
    """
    center = (interval.low + interval.high) / 2
    least, most = 0.0 if unit else -math.inf, 100.0 if unit == "percent" and not center > 100.0 else math.inf
    return Interval(max(interval.low, least), min(interval.high, most))


Recordings = Mapping[str, tuple[Metric, ...]]  # metrics of recorded placements by workload


def find_recordings(workloads: Sequence[Workload], protocol: Protocol) -> Recordings:
    """Return the metrics of the recorded placements.

    Empty for `timed`, in which pods come and go. In `inflation` other pods arrive than those that wait in the
    recording, so the numbers of pods are left out.
    """
    result = {}
    for workload in workloads:
        run = Simulator(workload).as_it_is() if workload.recorded and protocol != "timed" else None
        if run is not None:
            incomparable = () if protocol == "arrivals" else ("pods_failed", "pods_arrived")
            result[workload.name] = tuple(each for each in run.metrics if not each.name.startswith(incomparable))
    return result


def recorded_summary(recordings: Recordings, workloads: Sequence[str], protocol: Protocol) -> list[SummaryRow]:
    """Return the rows of `summary.csv` for recorded placements; `all` is the mean if every workload has one."""
    result = dict(recordings)
    if len(workloads) > 1 and set(workloads) <= set(result):
        every = zip(*(result[workload] for workload in workloads), strict=True)
        result[ALL] = tuple(
            Metric(some[0].name, some[0].unit, float(np.mean([each.value for each in some]))) for some in every
        )
    return [
        SummaryRow(
            workload=workload,
            policy=AS_IT_IS,
            protocol=protocol,
            metric=metric.name,
            unit=metric.unit,
            runs=1 if workload in recordings else len(workloads),
            mean=metric.value,
            interquartile_mean=metric.value,
            interval_over="",
        )
        for workload, metrics in result.items()
        for metric in metrics
    ]
