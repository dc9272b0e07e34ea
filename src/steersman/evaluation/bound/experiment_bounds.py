"""The bound on GPU allocation of every workload and seed of an experiment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from steersman.core.engines import make_workers
from steersman.core.errors import SteersmanError
from steersman.core.statistics import interquartile_mean, mean, mean_interval
from steersman.evaluation.bound.gpu_bound import GpuBound, check_bound
from steersman.evaluation.experiment import Experiment, OnRun
from steersman.evaluation.summary import BOUND, SummaryRow, SummaryTable, clip_interval
from steersman.simulation.measures import GPU_ALLOCATION
from steersman.simulation.result import Protocol
from steersman.workloads.workload import Workload

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ExperimentBounds:
    """GPU allocation that no scheduler exceeds which places every pod that fits (see `evaluation.bound.gpu_bound`)."""

    protocol: Protocol
    seeds: tuple[int, ...]
    percent: dict[str, Floats]  # [S] GPU allocated at the end, by workload; NaN if no bound was found
    warnings: tuple[str, ...] = ()  # the reasons why there is none, one line each

    def get(self, workload: str) -> Floats:
        """Return [S] bounds of a workload; of `all` the mean over workloads."""
        return self.percent[workload] if workload in self.percent else np.mean(list(self.percent.values()), axis=0)


def check_bounded(experiment: Experiment) -> None:
    for workload in experiment.workloads:
        check_bound(workload, experiment.protocol)


def find_bounds(experiment: Experiment, *, jobs: int = 1, on_bound: OnRun | None = None) -> ExperimentBounds:
    """Return the bounds of every workload and seed, solving `jobs` at a time.

    They are solved by separate processes: HiGHS handles no signal, and a process can be ended.
    """
    check_bounded(experiment)
    tasks = [(w, s) for w in range(len(experiment.workloads)) for s in range(len(experiment.seeds))]
    values = np.full((len(experiment.workloads), len(experiment.seeds)), np.nan)
    problems: dict[tuple[int, int], str] = {}
    prepare = partial(_open_solver, experiment.workloads, experiment.seeds, experiment.protocol, experiment.ratio)
    with make_workers(min(jobs, len(tasks)), prepare) as workers:
        for done, (position, answer) in enumerate(workers.answers(tasks), start=1):
            workload_index, seed_index = tasks[position]
            if isinstance(answer, str):  # a missing bound is no reason to lose the runs
                problems[tasks[position]] = f"seed {experiment.seeds[seed_index]}: {answer}"
            else:
                values[workload_index, seed_index] = answer
            if on_bound is not None:
                on_bound(done, len(tasks))
    percent = {workload.name: values[w] for w, workload in enumerate(experiment.workloads)}
    warnings = tuple(problems[task] for task in tasks if task in problems)
    return ExperimentBounds(experiment.protocol, experiment.seeds, percent, warnings)


def _open_solver(
    workloads: tuple[Workload, ...], seeds: tuple[int, ...], protocol: Protocol, ratio: float
) -> Callable[[tuple[int, int]], float | str]:
    bounds: dict[int, GpuBound] = {}

    def solve(task: tuple[int, int]) -> float | str:
        workload, seed = task
        try:
            if workload not in bounds:
                bounds.clear()  # tasks are ordered by workload
                bounds[workload] = GpuBound(workloads[workload])
            return bounds[workload].solve(protocol, seed=seeds[seed], ratio=ratio)
        # As a text: an error would end the other tasks of this worker.
        except SteersmanError as error:
            return str(error)

    return solve


def bound_summary(bounds: ExperimentBounds, table: SummaryTable, baseline: str) -> list[SummaryRow]:
    """Return the rows of `summary.csv` for the bound; their difference is what is left to gain from the baseline."""
    values = np.array([bounds.get(workload) for workload in table.rows])
    differences = values - np.array([table.get(workload, baseline, GPU_ALLOCATION) for workload in table.rows])
    return [
        SummaryRow(
            workload=workload,
            policy=BOUND,
            protocol=bounds.protocol,
            metric=GPU_ALLOCATION,
            unit="percent",
            runs=int(np.isfinite(values[i]).sum()) * len(table.over(workload)),
            mean=mean(values[i]),
            interval=clip_interval(mean_interval(values[i]), "percent"),
            interquartile_mean=interquartile_mean(values[i]),
            baseline=baseline,
            difference=mean(differences[i]),
            difference_interval=mean_interval(differences[i]),
        )
        for i, workload in enumerate(table.rows)
    ]
