"""What a comparison says in one sentence, and the few columns of its table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.evaluation.limits import BOUND, Limits
from steersman.evaluation.statistics import NO_INTERVAL, Interval, mean, reduction_percent
from steersman.evaluation.summary import ALL, SummaryRow, Table
from steersman.simulation.result import RunResult
from steersman.simulation.run import AS_IT_IS

GPU_ALLOCATION = "gpu_allocation_percent"
CPU_ALLOCATION = "cpu_allocation_percent"
MEAN_WAIT = "waiting_time_mean_seconds"
FEW_SEEDS = 5
"""With fewer a bootstrap interval is a guess, which is said."""
SMALLEST = 0.05
"""Percent; less is 0.0 when rounded."""
LIMIT_NAME = "limit (LP)"
"""What a person is told for the policy `bound` of the result files."""
GPU_METRICS = ("gpu_fragmentation_percent", "gpu_allocation_over_time_percent")

OTHER_COLUMNS = (
    ("GPU fragmentation, % of idle GPU", "Frag. %", "gpu_fragmentation_percent", 1),
    ("Longest wait of 95 % of pods, s", "95 % wait s", "waiting_time_p95_seconds", 0),
    ("GPU allocated over time, %", "GPU %", "gpu_allocation_over_time_percent", 2),
    ("CPU allocated over time, %", "CPU %", "cpu_allocation_over_time_percent", 2),
    ("Pods failed", "Pods failed", "pods_failed", 0),
    ("Pods still waiting", "Pods waiting", "pods_waiting", 0),
)
"""Title, short title, metric and digits of what the table shows beside what decides."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A number for a person and, smaller, what belongs to it: its 95 % interval or its share."""

    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: a cell by policy. `short` is its title where room is scarce."""

    title: str
    short: str
    cells: dict[str, Cell]


class Headline:
    """A comparison in short.

    What decides (`primary`) is the GPU allocated at the end of a run, the CPU where no run allocates any GPU, and the
    mean wait of a pod in the `timed` protocol, in which what is allocated in the end says nothing.

    Attributes:
        workload: which workload the sentence is about: the only one, or `all`.
        gpus, nodes: of the cluster.
        on_gpu: whether any GPU was ever allocated; else the comparison is about CPU.
        limits: what no scheduler exceeds, where it was asked for; it is no policy, and never the best of them.
        has_recording: whether the recorded placement of `workload` is known; it is no policy either.
    """

    def __init__(
        self,
        runs: Sequence[RunResult],
        summary: Sequence[SummaryRow],
        baseline: str,
        limits: Limits | None = None,
    ) -> None:
        self._table = Table(runs)
        self._rows = {(row.workload, row.policy, row.metric): row for row in summary}
        self.baseline = baseline
        self.protocol = runs[0].protocol
        self.policies = self._table.policies
        self.workloads = self._table.workloads
        self.seeds = self._table.seeds
        self.workload = self.workloads[0] if len(self.workloads) == 1 else ALL
        self.gpus = int(runs[0].final_nodes.gpu_count.sum())
        self.nodes = len(runs[0].final_nodes.names)
        self.on_gpu = any((run.curve.gpu_allocation_percent > 0).any() for run in runs)
        self.timed = self.protocol == "timed"
        self.primary = MEAN_WAIT if self.timed else GPU_ALLOCATION if self.on_gpu else CPU_ALLOCATION
        self.limits = limits if self.primary == GPU_ALLOCATION else None
        self.has_recording = any(row.policy == AS_IT_IS and row.workload == self.workload for row in summary)

    @property
    def resource(self) -> str:
        """What is compared, as a word in a sentence."""
        return "GPU" if self.on_gpu else "CPU"

    @property
    def primary_title(self) -> str:
        """What decides, with its unit."""
        return "Mean wait, s" if self.timed else f"{self.resource} allocated at the end, %"

    def row(self, workload: str, policy: str, metric: str) -> SummaryRow | None:
        """The summary of a metric, None if no run has it."""
        return self._rows.get((workload, policy, metric))

    def means(self, workload: str) -> dict[str, float]:
        """The mean of what decides, by policy."""
        rows = {policy: self.row(workload, policy, self.primary) for policy in self.policies}
        return {policy: row.mean if row is not None else math.nan for policy, row in rows.items()}

    def order(self, workload: str) -> list[str]:
        """The policies, the best first, those without a value last."""
        means = self.means(workload)
        sign = 1 if self.timed else -1
        return sorted(self.policies, key=lambda p: sign * means[p] if math.isfinite(means[p]) else math.inf)

    def lost(self, workload: str, policy: str) -> npt.NDArray[np.float64]:
        """[seed] what a good scheduler makes small: the resource left unallocated in percent, or the mean wait."""
        if policy == BOUND and self.limits is not None:
            return 100 - self.limits.get(workload)
        if policy == AS_IT_IS:
            row = self.row(workload, policy, self.primary)
            return np.array([100 - row.mean if row is not None else math.nan])
        values = self._table.get(workload, policy, self.primary)
        return values if self.timed else 100 - values

    def limit(self, workload: str) -> float:
        """The GPU in percent that no scheduler exceeds, mean over seeds; NaN if it was not asked for."""
        return math.nan if self.limits is None else mean(self.limits.get(workload))

    def reduction(self, workload: str, policy: str) -> tuple[float, Interval]:
        """By how many percent a policy loses less than the baseline, with its interval."""
        return reduction_percent(self.lost(workload, policy), self.lost(workload, self.baseline))

    def columns(self, workload: str) -> list[Column]:
        """The table of a workload, with a cell for the limit (`bound`), too; columns without any value are left out."""
        unit = "s" if self.timed else "points"
        short = "Mean wait s" if self.timed else f"{self.resource} %"
        difference = f"Difference from {self.baseline}, {unit}"
        columns = [
            self._column(self.primary_title, short, workload, self.primary, 1 if self.timed else 2),
            self._build(difference, f"Diff. {unit}", lambda p: self._difference(workload, p)),
        ]
        if not self.timed:
            title = f"{self.resource}{self._plural} unallocated"
            columns.append(
                self._build(title, f"{self.resource}{self._plural} left", lambda p: self._unallocated(workload, p))
            )
        title = f"{'Wait' if self.timed else 'Unallocated'} against {self.baseline}, %"
        columns.append(self._build(title, "Wait ±%" if self.timed else "Left ±%", lambda p: self._change(workload, p)))
        for title, short, metric, digits in OTHER_COLUMNS:
            if not (self.timed and metric == GPU_METRICS[0]) and (self.on_gpu or metric not in GPU_METRICS):
                columns.append(self._column(title, short, workload, metric, digits, note=False))
        return [column for column in columns if any(cell.text != DASH for cell in column.cells.values())]

    @property
    def others(self) -> dict[str, str]:
        """What the table shows below the policies: its name in result files, and what a person is told."""
        recording = {AS_IT_IS: AS_IT_IS} if self.has_recording else {}
        return recording | ({BOUND: LIMIT_NAME} if self.limits is not None else {})

    def _build(self, title: str, short: str, cell: Callable[[str], Cell]) -> Column:
        return Column(title, short, {policy: cell(policy) for policy in [*self.policies, *self.others]})

    def _column(self, title: str, short: str, workload: str, metric: str, digits: int, *, note: bool = True) -> Column:
        def cell(policy: str) -> Cell:
            row = self.row(workload, policy, metric)
            if row is None:
                return Cell(DASH)
            return Cell(fixed(row.mean, digits), interval_text(row.interval, digits) if note else "")

        return self._build(title, short, cell)

    def _difference(self, workload: str, policy: str) -> Cell:
        row = self.row(workload, policy, self.primary)
        if row is None or not row.baseline:
            return Cell(DASH)
        return Cell(signed(row.difference, 2), interval_text(row.difference_interval, 2, sign=True))

    def _unallocated(self, workload: str, policy: str) -> Cell:
        share = mean(self.lost(workload, policy))
        if not (self.on_gpu and math.isfinite(share)):
            return Cell(fixed(share, 2) + " %" if math.isfinite(share) else DASH)
        return Cell(fixed(share * self.gpus / 100, 0), fixed(share, 2) + " %")

    def _change(self, workload: str, policy: str) -> Cell:
        alone = policy in (self.baseline, AS_IT_IS)
        share, (low, high) = (math.nan, NO_INTERVAL) if alone else self.reduction(workload, policy)
        return Cell(signed(-share, 1), interval_text(Interval(-high, -low), 1, sign=True))

    def sentence(self) -> str:
        """The outcome in a sentence."""
        best = next((policy for policy in self.order(self.workload) if policy != self.baseline), self.baseline)
        share, (low, high) = self.reduction(self.workload, best)
        if best == self.baseline or not math.isfinite(share):
            return self._alone()
        pairs = self._seeds("paired seed")
        if np.array_equal(self.lost(self.workload, best), self.lost(self.workload, self.baseline), equal_nan=True):
            left = f"leave the same share of the {self.resource}{self._plural} unallocated"
            what = "let pods wait equally long" if self.timed else left
            return f"{best} and {self.baseline} {what} {self._where()}: no difference, {pairs}."
        better = share >= 0
        size = f"{abs(share):.1f} %" if abs(share) >= SMALLEST else f"less than {SMALLEST * 2:g} %"
        if self.timed:
            what = f"lets pods wait {size} {'less' if better else 'longer'} than"
        else:
            less = ("fewer GPUs" if self.on_gpu else "less CPU") if better else f"more {self.resource}{self._plural}"
            what = f"leaves {size} {less} unallocated than"
        text = f"{best} {what} {self.baseline} {self._where()}"
        if math.isfinite(low):
            ends = (low, high) if better else (-high, -low)
            text += f", 95 % interval {ends[0]:.1f} to {ends[1]:.1f} %, {pairs}."
            return text + (" The difference may be chance." if low <= 0 <= high else "")
        return f"{text}, {pairs}."

    def limit_sentence(self) -> str:
        """What is left to gain, empty without a limit."""
        limit, best = self.limit(self.workload), self.order(self.workload)[0]
        if not math.isfinite(limit):
            return ""
        share, _ = reduction_percent(self.lost(self.workload, BOUND), self.lost(self.workload, best))
        text = f"Limit: no scheduler that places every pod that fits allocates more than {limit:.2f} % of the GPUs"
        if not share >= SMALLEST:
            return f"{text} {self._where()}; {best} reaches that."
        return f"{text} {self._where()}; {best} could leave at most {share:.1f} % fewer unallocated."

    def _alone(self) -> str:
        policy = self.order(self.workload)[0]
        row = self.row(self.workload, policy, self.primary)
        seeds = self._seeds("seed")
        if row is None or not math.isfinite(row.mean):
            if self.timed and self.workload == ALL:
                return f"There is no mean wait {self._where()}: on one of them no pod was bound, {seeds}."
            if self.timed:
                return f"No pod was bound under any policy {self._where()}, {seeds}."
            return f"Nothing is known of the {self.resource} allocated {self._where()}, {seeds}."
        if self.timed and all(value == 0 for value in self.means(self.workload).values()):
            return f"No pod has to wait under any policy {self._where()}, {seeds}."
        if self.timed:
            text = f"Pods wait {row.mean:,.1f} s in the mean under {policy} {self._where()}"
        else:
            text = f"{policy} allocates {row.mean:.2f} % of the {self.resource}{self._plural} {self._where()}"
        interval = interval_text(row.interval, 2)
        return f"{text}{', 95 % interval ' + interval if interval else ''}, {seeds}."

    @property
    def _plural(self) -> str:
        return "s" if self.on_gpu else ""

    def _seeds(self, noun: str) -> str:
        number = len(self.seeds)
        return f"{'only ' if number < FEW_SEEDS else ''}{count(number, noun)}"

    def _where(self) -> str:
        if self.workload == ALL:
            return f"on average over {len(self.workloads)} workloads"
        return f"on {self.workload}"


DASH = "–"


def fixed(value: float, digits: int) -> str:
    """A number for a person: so many digits after the point, thousands apart, a dash for NaN."""
    return f"{value + 0.0:,.{digits}f}" if math.isfinite(value) else DASH


def signed(value: float, digits: int) -> str:
    """The same with its sign, a true minus."""
    return f"{value + 0.0:+,.{digits}f}".replace("-", "−") if math.isfinite(value) else DASH


def interval_text(interval: Interval, digits: int, *, sign: bool = False) -> str:
    """An interval for a person, empty if there is none."""
    if not math.isfinite(interval.low):
        return ""
    write = signed if sign else fixed
    return f"{write(interval.low, digits)} to {write(interval.high, digits)}"


def count(number: int, noun: str) -> str:
    """A number and a noun in the right number."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
