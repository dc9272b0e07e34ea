"""The limit of an experiment: the bound on GPU allocation of every workload and seed, beside the runs' results."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.errors import SteersmanError
from steersman.evaluation.bound import GpuBound
from steersman.evaluation.experiment import Experiment, OnRun
from steersman.evaluation.statistics import interquartile_mean, mean, mean_intervals
from steersman.evaluation.summary import ALL, SummaryRow, Table
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
    """The limit of every workload and seed, `jobs` at a time. They are threads: HiGHS works outside Python's lock.

    Raises:
        UsageError, MissingExtraError: see `bound.check_bound`.
    """
    percent: dict[str, Floats] = {}
    warnings: list[str] = []
    total = len(experiment.workloads) * len(experiment.seeds)
    done = 0
    pool = ThreadPoolExecutor(jobs)
    try:
        for workload in experiment.workloads:
            bound = GpuBound(workload)
            futures = [
                pool.submit(bound.solve, experiment.protocol, seed=seed, ratio=experiment.ratio)
                for seed in experiment.seeds
            ]
            values = percent[workload.name] = np.full(len(futures), np.nan)
            for i, future in enumerate(futures):
                try:
                    values[i] = future.result()
                except SteersmanError as error:  # no reason to lose the runs
                    warnings.append(f"seed {experiment.seeds[i]}: {error}")
                done += 1
                if on_limit is not None:
                    on_limit(done, total)
    finally:
        pool.shutdown(cancel_futures=True)
    return Limits(experiment.protocol, experiment.seeds, percent, tuple(warnings))


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
