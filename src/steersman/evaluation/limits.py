"""The limit of an experiment: the bound on GPU allocation of every workload and seed, beside the runs' results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from steersman.errors import SteersmanError
from steersman.evaluation.bound import GpuBound, check_bound
from steersman.evaluation.experiment import Experiment, OnRun
from steersman.evaluation.statistics import interquartile_mean, mean, mean_intervals
from steersman.evaluation.summary import ALL, SummaryRow, Table
from steersman.processes import Workers
from steersman.simulation.result import Protocol

BOUND = "bound"
"""In result files the limit stands where policies do, under this name."""
METRIC = "gpu_allocation_percent"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Limits:
    """What no scheduler exceeds that places every pod that fits (see `evaluation.bound`).

    Attributes:
        protocol: of the runs.
        seeds: of the runs.
        percent: [S] GPU allocated at the end, by workload; NaN where no bound was found.
        warnings: why there is none, one line each.
    """

    protocol: Protocol
    seeds: tuple[int, ...]
    percent: dict[str, Floats]
    warnings: tuple[str, ...] = ()

    def get(self, workload: str) -> Floats:
        """[S] of a workload; of `all` the mean over workloads."""
        return np.mean(list(self.percent.values()), axis=0) if workload == ALL else self.percent[workload]


def find_limits(experiment: Experiment, *, jobs: int = 1, on_limit: OnRun | None = None) -> Limits:
    """The limit of every workload and seed, `jobs` at a time.

    They are solved by processes of their own: HiGHS hears no signal, and a process can be ended.

    Raises:
        UsageError, MissingExtraError: see `bound.check_bound`.
    """
    for workload in experiment.workloads:
        check_bound(workload, experiment.protocol)
    tasks = [(w, s) for w in range(len(experiment.workloads)) for s in range(len(experiment.seeds))]
    values = np.full((len(experiment.workloads), len(experiment.seeds)), np.nan)
    problems: dict[tuple[int, int], str] = {}
    with Workers(min(jobs, len(tasks)), partial(_open_solver, experiment)) as workers:
        for done, (position, answer) in enumerate(workers.answers(tasks), start=1):
            workload_index, seed_index = tasks[position]
            if isinstance(answer, str):  # no reason to lose the runs
                problems[tasks[position]] = f"seed {experiment.seeds[seed_index]}: {answer}"
            else:
                values[workload_index, seed_index] = answer
            if on_limit is not None:
                on_limit(done, len(tasks))
    percent = {workload.name: values[w] for w, workload in enumerate(experiment.workloads)}
    warnings = tuple(problems[task] for task in tasks if task in problems)
    return Limits(experiment.protocol, experiment.seeds, percent, warnings)


def _open_solver(experiment: Experiment) -> Callable[[tuple[int, int]], float | str]:
    """In a worker: what solves the LP of a workload and a seed, by their positions, or says why there is no bound."""
    bounds: dict[int, GpuBound] = {}

    def solve(task: tuple[int, int]) -> float | str:
        workload, seed = task
        try:
            if workload not in bounds:
                bounds.clear()  # tasks come workload by workload
                bounds[workload] = GpuBound(experiment.workloads[workload])
            return bounds[workload].solve(experiment.protocol, seed=experiment.seeds[seed], ratio=experiment.ratio)
        except SteersmanError as error:
            return str(error)

    return solve


def limit_summary(limits: Limits, table: Table, baseline: str) -> list[SummaryRow]:
    """The rows of `summary.csv` for the limit; their difference is what is left to gain from the baseline."""
    workloads = [*table.workloads, ALL] if len(table.workloads) > 1 else table.workloads
    values = np.array([limits.get(workload) for workload in workloads])
    differences = values - np.array([table.get(workload, baseline, METRIC) for workload in workloads])
    intervals, difference_intervals = mean_intervals(values), mean_intervals(differences)
    return [
        SummaryRow(
            workload=workload,
            policy=BOUND,
            protocol=limits.protocol,
            metric=METRIC,
            unit="percent",
            runs=int(np.isfinite(values[i]).sum()) * (len(table.workloads) if workload == ALL else 1),
            mean=mean(values[i]),
            interval=intervals[i],
            interquartile_mean=interquartile_mean(values[i]),
            baseline=baseline,
            difference=mean(differences[i]),
            difference_interval=difference_intervals[i],
        )
        for i, workload in enumerate(workloads)
    ]
