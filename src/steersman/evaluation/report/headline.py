"""The outcome of a comparison in one sentence, and the columns of its table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.core.statistics import BLOCKS, Interval, mean
from steersman.evaluation.bound.experiment_bounds import BOUND, ExperimentBounds
from steersman.evaluation.criteria import FINAL_STATE_CRITERIA, TIMED_CRITERIA, WAITING_TIME, Criterion
from steersman.evaluation.summary import ALL, TRACE_BLOCKS, SummaryRow, SummaryTable
from steersman.simulation.result import RunResult
from steersman.simulation.run import AS_IT_IS

GPU_ALLOCATION = "gpu_allocation_percent"
CPU_ALLOCATION = "cpu_allocation_percent"
MEAN_WAIT = "waiting_time_mean_seconds"
FEW_SEEDS = 5
"""With fewer seeds an interval is wide and leans on normally distributed values; the text says that they are few."""
REACHED = 0.015
"""Points: a policy nearer to the bound has reached it, since the bound is rounded up and allocations are rounded."""
NAMED = 3
"""Most policies that a sentence names; of more it gives the number."""
BOUND_LABEL = "bound (LP)"
"""Displayed name of the policy `bound` of the result files."""
FAILED, STILL_WAITING = "pods_failed", "pods_waiting"
FRAGMENTED = "gpu_fragmented_percent"
GPU_METRICS = (FRAGMENTED, "gpu_allocation_over_time_percent")
INTERVAL = "95 % interval"

PERCENTILE_WAIT = "waiting_time_p95_seconds"
OTHER_COLUMNS = (
    ("GPU fragmented at the end, % of all GPUs", "Fragmented %", FRAGMENTED, 2),
    ("Longest wait of 95 % of pods, s", "95 % wait s", PERCENTILE_WAIT, 0),
    ("GPU allocated over time, %", "GPU %", "gpu_allocation_over_time_percent", 2),
    ("CPU allocated over time, %", "CPU %", "cpu_allocation_over_time_percent", 2),
    ("Hard limits broken though a node could have met them, pods", "Hard broken", "hard_limits_broken_avoidable", 1),
    ("Nodes in use over time", "Nodes used", "used_nodes", 2),
    ("Most connections of a node ever", "Peak conn.", "connections_peak", 0),
)
"""Title, short title, metric and digits of what the table shows beside what decides and the pods that are left out."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A displayed number and its note: its 95 % interval or its share."""

    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of the table: a cell by policy.

    Attributes:
        short: its title where space is scarce.
        notes: the title of its notes where they are a column of their own; empty if they are not.
    """

    title: str
    short: str
    cells: dict[str, Cell]
    notes: str = ""


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


class Headline:
    """A comparison in short, in one protocol.

    The primary metric is that of the first criterion. Without one it is the GPU allocated at the end of a run, the CPU
    if no run allocates any GPU, and the mean wait of a pod in the `timed` protocol, in which the final allocation says
    nothing. Beside it stand the pods that never ran (`unplaced_metric`), which may be more for a policy that allocates
    more.

    Attributes:
        workload: the workload that the sentence is about: the only one, or `all`.
        gpus: of the cluster, by workload; of `all`, if all clusters have equally many, else 0.
        nodes: of the (first) cluster.
        on_gpu: whether any GPU was ever allocated; else the comparison is about CPU.
        computed_bounds: upper bounds on GPU allocation, if requested.
        criteria: what the comparison is by, the first of which decides; empty: the default.
        criterion: the one that decides.
        is_given: whether the workload gives the arrivals, so that seeds only rank equal nodes.
        recorded: the workloads with a recorded placement, which is a row of the table beside the policies.
    """

    def __init__(
        self,
        runs: Sequence[RunResult],
        summary: Sequence[SummaryRow],
        baseline: str,
        bounds: ExperimentBounds | None = None,
        criteria: Sequence[Criterion] = (),
    ) -> None:
        self._table = SummaryTable(runs)
        self._rows = {(row.workload, row.policy, row.metric): row for row in summary}
        self.baseline = baseline
        self.protocol = runs[0].protocol
        self.policies = self._table.policies
        self.workloads = self._table.workloads
        self.seeds = self._table.seeds
        self.is_given = self._table.is_given
        self.workload = self.workloads[0] if len(self.workloads) == 1 else ALL
        self.gpus = {
            run.workload: round(float(run.final_nodes.gpu_count.sum())) for run in runs if run.final_nodes.names
        }
        self.gpus[ALL] = max(self.gpus.values()) if len(set(self.gpus.values())) == 1 else 0
        self.nodes = len(runs[0].final_nodes.names)
        self.on_gpu = any((run.curve.gpu_allocation_percent > 0).any() for run in runs)
        self.timed = self.protocol == "timed"
        self.unplaced_metric = STILL_WAITING if self.timed else FAILED
        self.criteria = tuple(criteria)
        self.criterion = self.criteria[0] if criteria else self._default_criterion()
        self.computed_bounds = bounds
        self.recorded = {row.workload for row in summary if row.policy == AS_IT_IS}

    @property
    def primary(self) -> str:
        """Return the metric that decides."""
        return self.criterion.metric

    @property
    def bounds(self) -> ExperimentBounds | None:
        """Return the bounds; None if there are none, or another metric than theirs decides."""
        return self.computed_bounds if self.primary == GPU_ALLOCATION else None

    @property
    def _waits(self) -> bool:
        """Return whether the mean wait decides."""
        return self.primary == MEAN_WAIT

    @property
    def _has_own_words(self) -> bool:
        """Return whether sentences name the criterion: allocation and waiting have verbs instead."""
        return self.primary not in (MEAN_WAIT, GPU_ALLOCATION, CPU_ALLOCATION)

    def _default_criterion(self) -> Criterion:
        if self.timed:
            return TIMED_CRITERIA[WAITING_TIME]
        of_gpu, resource = FINAL_STATE_CRITERIA["allocation"], self.resource
        metric = GPU_ALLOCATION if self.on_gpu else CPU_ALLOCATION
        title = of_gpu.title.replace("GPU", resource)
        return replace(of_gpu, metric=metric, curve=metric, title=title, short=f"{resource} %")

    def with_criterion(self, criterion: Criterion) -> Headline:
        """Return the same comparison with another criterion first."""
        other = copy(self)
        other.criterion = criterion
        return other

    def sentences(self) -> list[str]:
        """Return the outcome by every criterion, in a sentence each."""
        return [self.with_criterion(each).sentence() for each in self.criteria or (self.criterion,)]

    @property
    def has_intervals(self) -> bool:
        """Return whether what decides has intervals: over seeds, or over blocks of a given trace."""
        if not self.is_given:
            return len(self.seeds) > 1
        rows = [self.row(self.workload, policy, self.primary) for policy in self.policies]
        return any(row is not None and row.interval_over == TRACE_BLOCKS for row in rows)

    @property
    def resource(self) -> str:
        """Return the compared quantity as a word in a sentence."""
        return "GPU" if self.on_gpu else "CPU"

    @property
    def primary_title(self) -> str:
        """Return the title of the primary metric, with its unit."""
        return self.criterion.title

    def row(self, workload: str, policy: str, metric: str) -> SummaryRow | None:
        """Return the summary of a metric, None if no run has it."""
        return self._rows.get((workload, policy, metric))

    def means(self, workload: str) -> dict[str, float]:
        """Return the mean of the primary metric, by policy."""
        rows = {policy: self.row(workload, policy, self.primary) for policy in self.policies}
        return {policy: row.mean if row is not None else math.nan for policy, row in rows.items()}

    def order(self, workload: str) -> list[str]:
        """Return the policies, the best first, those without a value last."""
        means = self.means(workload)
        sign = -1 if self.criterion.larger_is_better else 1
        return sorted(self.policies, key=lambda p: sign * means[p] if math.isfinite(means[p]) else math.inf)

    def differences(self, workload: str, metric: str) -> dict[str, tuple[float, float, float]]:
        """Return the difference of each other policy from the baseline and its interval, NaN for none, by policy."""
        rows = {policy: self.row(workload, policy, metric) for policy in self.policies if policy != self.baseline}
        return {
            policy: (math.nan, math.nan, math.nan) if row is None else (row.difference, *row.difference_interval)
            for policy, row in rows.items()
        }

    def lost(self, workload: str, policy: str) -> npt.NDArray[np.float64]:
        """Return [seed] the quantity that a good scheduler minimises: percent unallocated, or the mean wait.

        It is defined for the default criteria alone: of others, such as `balance`, `100 - value` means nothing.
        """
        if policy == BOUND and self.bounds is not None:
            return 100 - self.bounds.get(workload)
        if policy == AS_IT_IS:
            row = self.row(workload, policy, self.primary)
            return np.array([100 - row.mean if row is not None else math.nan])
        values = self._table.get(workload, policy, self.primary)
        return values if self._waits else 100 - values

    def bound(self, workload: str) -> float:
        """Return the GPU in percent that no scheduler exceeds, mean over seeds; NaN if unknown."""
        return math.nan if self.bounds is None else mean(self.bounds.get(workload))

    @property
    def differs(self) -> bool:
        """Return whether any policy's primary metric differs from the baseline's in any run."""
        pairs = ((workload, policy) for workload in self.workloads for policy in self.policies)
        return any(
            (
                self._table.get(workload, policy, self.primary)
                != self._table.get(workload, self.baseline, self.primary)
            ).any()
            for workload, policy in pairs
        )

    def difference(self, workload: str, metric: str, policy: str, other: str) -> Difference:
        """Return the difference of a policy's metric from another's, paired by seed."""
        values = self._table.get(workload, policy, metric) - self._table.get(workload, other, metric)
        interval = self._table.difference_interval(workload, policy, other, metric)
        return Difference(mean(values), interval, int(np.isfinite(values).sum()))

    def is_better(self, workload: str, policy: str, other: str) -> bool:
        """Return whether a policy is better than another in the primary metric beyond chance."""
        result = self.difference(workload, self.primary, policy, other)
        return result.is_significant and (result.mean > 0) == self.criterion.larger_is_better

    def columns(self, workload: str) -> list[TableColumn]:
        """Return the table of a workload, with a cell for the bound (`bound`), without columns that have no value."""
        columns = []
        for each in self.criteria or (self.criterion,):
            columns += [
                self._column(each.title, each.short, workload, each.metric, each.digits),
                self._differences(
                    f"Difference from {self.baseline}{', ' * bool(each.unit)}{each.unit}",
                    f"Diff. {each.unit}".rstrip(),
                    workload,
                    each.metric,
                ),
            ]
        if not (self.criteria or self.timed):
            title = f"{self.resource}{self._plural} unallocated"
            columns.append(
                self._build(
                    workload, title, f"{self.resource}{self._plural} left", lambda p: self._unallocated(workload, p)
                )
            )
        left = "Pods still waiting" if self.timed else "Pods failed"
        columns += [
            self._column(left, "Pods waiting" if self.timed else left, workload, self.unplaced_metric, 1, note=False),
            self._differences(f"{left}, difference from {self.baseline}", "Diff. pods", workload, self.unplaced_metric),
        ]
        shown = {each.metric for each in self.criteria}
        if self.criteria and not self.timed and not shown & {GPU_ALLOCATION, CPU_ALLOCATION}:
            default = self._default_criterion()
            columns.append(self._column(default.title, default.short, workload, default.metric, 2, note=False))
        for title, short, metric, digits in OTHER_COLUMNS:
            if metric in shown or (self.timed and metric == GPU_METRICS[0]):
                continue
            if self.on_gpu or metric not in GPU_METRICS:
                columns.append(self._column(title, short, workload, metric, digits, note=metric == PERCENTILE_WAIT))
        return [column for column in columns if any(cell.text != DASH for cell in column.cells.values())]

    def others(self, workload: str) -> dict[str, str]:
        """Return the rows of the table below the policies: name in result files, and displayed name."""
        recording = {AS_IT_IS: AS_IT_IS} if workload in self.recorded else {}
        return recording | ({BOUND: BOUND_LABEL} if self.bounds is not None else {})

    def _build(self, workload: str, title: str, short: str, cell: Callable[[str], Cell]) -> TableColumn:
        return TableColumn(title, short, {policy: cell(policy) for policy in [*self.policies, *self.others(workload)]})

    def _column(
        self, title: str, short: str, workload: str, metric: str, digits: int, *, note: bool = True
    ) -> TableColumn:
        def cell(policy: str) -> Cell:
            row = self.row(workload, policy, metric)
            if row is None:
                return Cell(DASH)
            return Cell(fixed(row.mean, digits), interval_text(row.interval, digits) if note else "")

        return self._build(workload, title, short, cell)

    def _differences(self, title: str, short: str, workload: str, metric: str) -> TableColumn:
        digits = self._digits(metric)

        def cell(policy: str) -> Cell:
            row = self.row(workload, policy, metric)
            if row is None or not row.baseline:
                return Cell(DASH)
            return Cell(signed(row.difference, digits), interval_text(row.difference_interval, digits, sign=True))

        notes = {self.primary: INTERVAL, self.unplaced_metric: f"{INTERVAL}, pods"}.get(metric, "")
        return replace(self._build(workload, title, short, cell), notes=notes)

    def _digits(self, metric: str) -> int:
        """Return the digits of a difference, the same in the table and in the sentence."""
        digits = {each.metric: each.digits for each in (*self.criteria, self.criterion)}
        return 1 if metric == self.unplaced_metric else digits[metric]

    def _unallocated(self, workload: str, policy: str) -> Cell:
        share = mean(self.lost(workload, policy))
        if not (self.on_gpu and math.isfinite(share)):
            return Cell(fixed(share, 2) + " %" if math.isfinite(share) else DASH)
        gpus = self.gpus.get(workload, 0)
        return Cell(fixed(share * gpus / 100, 0), fixed(share, 2) + " %") if gpus else Cell(fixed(share, 2) + " %")

    def sentence(self) -> str:
        """Return the outcome in a sentence: the best policy and its gain, or that no difference was shown."""
        workload, order = self.workload, self.order(self.workload)
        means = self.means(workload)
        known = [policy for policy in order if math.isfinite(means[policy])]
        if len(known) < 2 or (self._waits and not any(means[policy] for policy in known)):
            return self._alone()
        best = known[0]
        rivals = [policy for policy in known[1:] if not self.is_better(workload, best, policy)]
        reference = self._reference(known)
        if not self.has_intervals:
            text = f"{self._where()}, {best} {self._amount(best)}, {self._more(reference)}"
            reason = "Arrivals given once have no interval" if self.is_given else "One seed cannot show a difference"
            return f"{reason}: {text}."
        pairs = self.difference(self.workload, self.primary, best, reference).pairs
        small = f"intervals over {BLOCKS} blocks of the trace" if self.is_given else seeds_text(pairs, "paired seed")
        if rivals:
            return f"{self._undecided(best, rivals)}; {small}."
        pods, is_traded = self._pods(best, known)
        wins = "lets pods wait the least" if self._waits else f"allocates the most {self.resource}{self._plural}"
        gain = self._more(reference)
        if self._has_own_words:
            wins = f"has the {'highest' if self.criterion.larger_is_better else 'lowest'} {self.criterion.phrase}"
        claim = f"{best} {wins if is_traded else 'is best'} {self._where()}"
        return f"{claim}: {self._amount(best, short=True)}, {gain}{pods}; {small}."

    def _reference(self, known: Sequence[str]) -> str:
        """Return the policy that the best one is compared with in a sentence: the baseline, else the second best."""
        return self.baseline if self.baseline in known[1:] else known[1]

    def _undecided(self, best: str, rivals: Sequence[str]) -> str:
        """Return the sentence for a best policy that cannot be told from others.

        It says nothing of the others among themselves: only their differences from the best one are tested.
        """
        workload = self.workload
        head = f"{best} is not shown to differ from {listed(rivals)} {self._where()}"
        if all(self.difference(workload, self.primary, best, each).interval == (0, 0) for each in rivals):
            head = f"{listed([best, *rivals])} do equally well {self._where()}"
        elif any(self.is_better(workload, each, best) for each in rivals):
            head = f"No best policy shown of {listed([best, *rivals])} {self._where()}, whose seeds differ"
        known = [each for each in self.order(workload) if math.isfinite(self.means(workload)[each])]
        pods, _ = self._pods(best, known)
        amount = self._amount(best) if self._has_own_words else f"{best} {self._amount(best)}"
        return f"{head}: {amount}, {self._more(self._reference(known))}{pods}"

    def _amount(self, policy: str, *, short: bool = False) -> str:
        """Return the primary metric as a part of a sentence; short: without a verb."""
        value = self.means(self.workload)[policy]
        if self._has_own_words:
            each = self.criterion
            amount = f"{value:,.{each.digits}f}{each.symbol}"
            return f"{each.phrase} {amount}" + ("" if short else f" under {policy}")
        if self._waits:
            return f"{'pods wait' if short else 'lets pods wait'} {value:,.1f} s on average"
        gpus = self.gpus.get(self.workload, 0) if self.on_gpu else 0
        of = f"of {count(gpus, 'GPU')}" if gpus else f"of the {self.resource}{self._plural}"
        return f"{value:.2f} % {of} allocated" if short else f"allocates {value:.2f} % {of}"

    def _more(self, other: str) -> str:
        """Return the gain of the best policy on another, with the interval, as in the table.

        If the two have different seeds, the best by its mean may be the worse in the seeds that both have.
        """
        best = self.order(self.workload)[0]
        more = self.difference(self.workload, self.primary, best, other)
        same = "as long as under" if self._waits else "as much as"
        digits, unit = self.criterion.digits, self.criterion.unit
        if not math.isfinite(more.mean):
            return f"in other seeds than {other}"
        size = abs(more.mean)
        if size == 0 and not more.interval.low < more.interval.high:
            return f"{same} {other}"
        smallest = 10.0**-digits
        text = (f"less than {smallest:g} {unit}" if size < smallest / 2 else f"{size:,.{digits}f} {unit}").rstrip()
        is_less = more.mean < 0 or (more.mean == 0 and not self.criterion.larger_is_better)
        low, high = more.interval
        ends = Interval(-high, -low) if is_less else more.interval
        sign, than = "less" if is_less else "more", "than under" if self._waits else "than"
        return f"{text}{brackets(ends, digits)} {sign} {than} {other}"

    def _pods(self, best: str, known: Sequence[str]) -> tuple[str, bool]:
        """Return the pods that the best policy leaves out against others, and whether another is shown to be better.

        The first comparison is with the policy that the gain refers to; if another leaves out fewer, both are named.
        """
        reference = self._reference(known)
        against = {each: self.difference(self.workload, self.unplaced_metric, best, each) for each in known[1:]}
        fewer = {
            each: difference
            for each, difference in against.items()
            if difference.is_significant and difference.mean > 0
        }
        verb, what = ("leaves", " waiting") if self.timed else ("fails", "")
        if reference in fewer:
            return f", but it {verb} {self._pods_amount(fewer[reference])} more{what}", True
        text = self._no_more_pods(against[reference], reference if fewer else "")
        if not fewer:
            return text, False
        other = max(fewer, key=lambda each: fewer[each].mean)
        return f"{text}, but it {verb} {self._pods_amount(fewer[other])} more{what} than {other}", True

    def _no_more_pods(self, result: Difference, reference: str) -> str:
        """Return that the best policy leaves out fewer pods, as many, or that nothing is shown.

        Args:
            result: the difference of its pods from the reference's.
            reference: its name, empty if the sentence goes on to no other policy.
        """
        verb, what = ("leaves", " waiting") if self.timed else ("fails", "")
        if not math.isfinite(result.mean):
            return ""
        if result.is_significant:
            low, high = result.interval
            amount = self._pods_amount(Difference(-result.mean, Interval(-high, -low), result.pairs))
            return f"; it {verb} {amount} fewer{what}{f' than {reference}' if reference else ''}"
        if result.interval.low == result.interval.high == 0:
            return f"; it {verb} as many pods{what}{f' as {reference}' if reference else ''}"
        which = "left waiting" if self.timed else "that fail"
        return f"; no difference {f'from {reference} ' if reference else ''}shown in the pods {which}"

    def _pods_amount(self, result: Difference) -> str:
        """Return a difference in pods with its interval."""
        digits = self._digits(self.unplaced_metric)
        return f"{result.mean:,.{digits}f} pods{brackets(result.interval, digits)}"

    def bound_sentence(self) -> str:
        """Return the sentence on what is left to gain, empty without a bound."""
        bound, best = self.bound(self.workload), self.order(self.workload)[0]
        if not math.isfinite(bound):
            return ""
        left = bound - self.means(self.workload)[best]
        text = f"Bound: no scheduler that places every pod that fits allocates more than {bound:.2f} % of the GPUs"
        if not left >= REACHED:
            return f"{text} {self._where()}; {best} reaches that."
        return f"{text} {self._where()}; {best} is {left:.2f} points below."

    def _alone(self) -> str:
        policy = self.order(self.workload)[0]
        row = self.row(self.workload, policy, self.primary)
        seeds = "arrivals given" if self.is_given else seeds_text(len(self.seeds), "seed")
        if row is None or not math.isfinite(row.mean):
            if self._has_own_words:
                return f"Nothing is known of the {self.criterion.phrase} {self._where()}, {seeds}."
            if self._waits and self.workload == ALL:
                return f"There is no mean wait {self._where()}: on one of them no pod was bound, {seeds}."
            if self._waits:
                return f"No pod was bound under any policy {self._where()}, {seeds}."
            return f"Nothing is known of the {self.resource} allocated {self._where()}, {seeds}."
        if self._waits and all(value == 0 for value in self.means(self.workload).values()):
            return f"No pod has to wait under any policy {self._where()}, {seeds}."
        if self._has_own_words:
            text = f"{self._amount(policy)} {self._where()}"
            text = text[0].upper() + text[1:]
        elif self._waits:
            text = f"Pods wait {row.mean:,.1f} s on average under {policy} {self._where()}"
        else:
            text = f"{policy} allocates {row.mean:.2f} % of the {self.resource}{self._plural} {self._where()}"
        interval = interval_text(row.interval, self._digits(self.primary))
        return f"{text}{', 95 % interval ' + interval if interval else ''}, {seeds}."

    @property
    def _plural(self) -> str:
        return "s" if self.on_gpu else ""

    def _where(self) -> str:
        if self.workload == ALL:
            return f"on average over {len(self.workloads)} workloads ({self.protocol})"
        return f"on {self.workload} ({self.protocol})"


DASH = "–"


def fixed(value: float, digits: int) -> str:
    """Return a displayed number: this many decimals, a thousands separator, a dash for NaN."""
    return f"{value + 0.0:,.{digits}f}" if math.isfinite(value) else DASH


def signed(value: float, digits: int) -> str:
    """Return a displayed number with its sign, a true minus."""
    return f"{value + 0.0:+,.{digits}f}".replace("-", "−") if math.isfinite(value) else DASH


def interval_text(interval: Interval, digits: int, *, sign: bool = False) -> str:
    """Return a displayed interval, empty if there is none."""
    if not math.isfinite(interval.low):
        return ""
    write = signed if sign else fixed
    return f"{write(interval.low, digits)} to {write(interval.high, digits)}"


def brackets(interval: Interval, digits: int) -> str:
    """Return an interval in a sentence, with the space before it; empty if there is none."""
    low, high = (signed(end, digits).removeprefix("+") for end in interval)
    return f" [{low}, {high}]" if math.isfinite(interval.low) else ""


def listed(names: Sequence[str]) -> str:
    """Return names in a sentence: all of a few, else the first ones and the number of others."""
    if len(names) > NAMED + 1:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} others"
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def seeds_text(number: int, noun: str) -> str:
    """Return the number of seeds of a claim, with a note if they are few."""
    return f"{'only ' if number < FEW_SEEDS else ''}{count(number, noun)}"


def count(number: int, noun: str) -> str:
    """Return a number and a noun in singular or plural."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
