"""Who is better than whom in a comparison: means, ranks, differences and their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from steersman.core.statistics import Interval, mean
from steersman.evaluation.bound.experiment_bounds import ExperimentBounds
from steersman.evaluation.report.style import INTERVAL, OF_STRETCH
from steersman.evaluation.summary import ALL, TRACE_BLOCKS, FigureKey, SummaryRow, SummaryTable, figures_by_key
from steersman.simulation.measures import COURSE, CPU_ALLOCATION, GPU_ALLOCATION, MEAN_WAIT, Measure
from steersman.simulation.pod_kinds import KINDS, arrived_metric, failed_metric, wait_metric
from steersman.simulation.result import RunResult
from steersman.simulation.run import AS_IT_IS

FAILED, STILL_WAITING = "pods_failed", "pods_waiting"


class Difference(NamedTuple):
    """The difference of two policies' metrics, its 95 % interval, and the number of paired seeds.

    The interval is over seeds, or over blocks of a given trace.
    """

    mean: float
    interval: Interval
    pairs: int

    @property
    def is_significant(self) -> bool:
        """Return whether the 95 % interval excludes zero; False without an interval."""
        return self.interval.low > 0 or self.interval.high < 0


class Standings:
    """The policies of a comparison in one protocol, ranked by its first criterion.

    The primary metric is that of the first criterion. Without one it is the GPU allocated at the end of a run, the CPU
    if no run allocates any GPU, and the mean wait of a pod in the `timed` protocol, in which the final allocation says
    nothing. Beside it stand the pods that never ran (`unplaced_metric`), which may be more for a policy that allocates
    more.
    """

    def __init__(
        self,
        runs: Sequence[RunResult],
        summary: Sequence[SummaryRow],
        baseline: str,
        bounds: ExperimentBounds | None = None,
        criteria: Sequence[Measure] = (),
    ) -> None:
        self._table = SummaryTable(runs)
        self._rows = figures_by_key(summary)
        self.baseline = baseline
        self.protocol = self._table.protocol
        self.policies = self._table.policies
        self.workloads = self._table.workloads
        self.seeds = self._table.seeds
        # Whether the workload gives the arrivals, so that seeds only rank equal nodes
        self.is_given = self._table.is_given
        # The workload that sentences are about: the only one, or `all`
        self.workload = self.workloads[0] if len(self.workloads) == 1 else ALL
        # Of the cluster, by workload; of `all`, if all clusters have equally many, else 0
        self.gpus = {
            run.workload: round(float(run.final_nodes.gpu_count.sum())) for run in runs if run.final_nodes.names
        }
        # Over-committed nodes: what is requested beyond their GPUs leaves no GPU of another node less idle.
        self.excess_gpus = {
            run.workload: float(np.nansum(nodes.gpu_count * np.maximum(nodes.gpu_used_share - 1, 0.0)))
            for run in runs
            if (nodes := run.final_nodes).names
        }
        self.excess_gpus[ALL] = float(np.mean(list(self.excess_gpus.values()) or [0.0]))
        # 0: clusters of different sizes have no common number of GPUs.
        self.gpus.setdefault(ALL, max(self.gpus.values()) if len(set(self.gpus.values())) == 1 else 0)
        self.nodes = len(runs[0].final_nodes.names)
        # Whether any GPU was ever allocated; else the comparison is about CPU
        self.on_gpu = any((run.curve.gpu_allocation_percent > 0).any() for run in runs)
        self.timed = self.protocol == "timed"
        self.unplaced_metric = STILL_WAITING if self.timed else FAILED
        self.criteria = tuple(criteria)  # what the comparison is by, the first of which decides; empty: the default
        self.criterion = self.criteria[0] if criteria else self.default_criterion()
        self.computed_bounds = bounds
        # The workloads with a recorded placement, which is a row of the table beside the policies
        self.recorded = {key.workload for key in self._rows if (key.protocol, key.policy) == (self.protocol, AS_IT_IS)}

    def default_criterion(self) -> Measure:
        """Return what decides if nobody said: the mean wait if times are given, else the GPU or CPU allocated."""
        if self.timed:
            return MEAN_WAIT
        return COURSE[GPU_ALLOCATION if self.on_gpu else CPU_ALLOCATION].at_end()

    @property
    def primary(self) -> str:
        return self.criterion.name

    @property
    def primary_title(self) -> str:
        return self.criterion.title

    @property
    def bounds(self) -> ExperimentBounds | None:
        """Return the bounds; None if there are none, or another metric than theirs decides."""
        return self.computed_bounds if self.primary == GPU_ALLOCATION else None

    @property
    def resource(self) -> str:
        return "GPU" if self.on_gpu else "CPU"

    @property
    def resources(self) -> str:
        """Return the compared resource as a noun in a sentence: GPUs are counted, CPU is not."""
        return "GPUs" if self.on_gpu else "CPU"

    @property
    def has_intervals(self) -> bool:
        """Return whether what decides has intervals: over seeds, or over blocks of a given trace."""
        if not self.is_given:
            return len(self.seeds) > 1
        rows = [self.row(self.workload, policy, self.primary) for policy in self.policies]
        return any(row is not None and row.interval_over == TRACE_BLOCKS for row in rows)

    @property
    def interval_title(self) -> str:
        """Return what intervals are called: those of a trace that is given once say nothing of another stretch."""
        return OF_STRETCH if self.is_given else INTERVAL

    @property
    def differs(self) -> bool:
        """Return whether any policy's primary metric differs from the baseline's in any run."""
        values = [
            [self._table.get(workload, policy, self.primary) for policy in (self.baseline, *self.policies)]
            for workload in self.workloads
        ]
        return any((of_policy != of_workload[0]).any() for of_workload in values for of_policy in of_workload)

    def row(self, workload: str, policy: str, metric: str) -> SummaryRow | None:
        return self._rows.get(FigureKey(self.protocol, workload, policy, metric))

    def means(self, workload: str) -> dict[str, float]:
        return self.means_of(workload, self.primary)

    def means_of(self, workload: str, metric: str) -> dict[str, float]:
        rows = {policy: self.row(workload, policy, metric) for policy in self.policies}
        return {policy: row.mean if row is not None else math.nan for policy, row in rows.items()}

    def some_fail(self, workload: str) -> bool:
        return any(mean > 0 for mean in self.means_of(workload, FAILED).values())

    def order(self, workload: str) -> list[str]:
        """Return the policies, the best first, those without a value last."""
        means = self.means(workload)
        sign = -1 if self.criterion.larger_is_better else 1
        return sorted(self.policies, key=lambda p: sign * means[p] if math.isfinite(means[p]) else math.inf)

    def bound(self, workload: str) -> float:
        """Return the GPU in percent that no scheduler exceeds, mean over seeds; NaN if unknown."""
        return math.nan if self.bounds is None else mean(self.bounds.get(workload))

    def kinds(self, workload: str) -> dict[str, str]:
        """Return the metric of what each kind of pod pays, failed pods or the mean wait, of the kinds that arrive.

        Empty if only one kind arrives, if no pod waits, and in a protocol that does not tell kinds apart.
        """
        of_kind = wait_metric if self.timed else failed_metric
        if self.timed and not any(mean > 0 for mean in self.means_of(workload, MEAN_WAIT.name).values()):
            return {}
        came = {kind: self.means_of(workload, of_kind(kind) if self.timed else arrived_metric(kind)) for kind in KINDS}
        found = {
            kind: of_kind(kind)
            for kind, means in came.items()
            if any(mean >= 0 if self.timed else mean > 0 for mean in means.values())
        }
        return found if len(found) > 1 else {}

    def arrived(self, workload: str, kind: str) -> float:
        row = self.row(workload, self.baseline, arrived_metric(kind))
        return math.nan if row is None else row.mean

    def differences(self, workload: str, metric: str) -> dict[str, tuple[float, float, float]]:
        """Return the difference of each other policy from the baseline and its interval, NaN for none, by policy."""
        rows = {policy: self.row(workload, policy, metric) for policy in self.policies if policy != self.baseline}
        return {
            policy: (math.nan, math.nan, math.nan) if row is None else (row.difference, *row.difference_interval)
            for policy, row in rows.items()
        }

    def difference(self, workload: str, metric: str, policy: str, other: str) -> Difference:
        """Return the difference of a policy's metric from another's, paired by seed."""
        values = self._table.get(workload, policy, metric) - self._table.get(workload, other, metric)
        interval = self._table.difference_interval(workload, policy, other, metric)
        return Difference(mean(values), interval, int(np.isfinite(values).sum()))

    def is_better(self, workload: str, policy: str, other: str) -> bool:
        result = self.difference(workload, self.primary, policy, other)
        return result.is_significant and (result.mean > 0) == self.criterion.larger_is_better
