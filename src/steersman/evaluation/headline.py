"""What a comparison says in one sentence, and the few columns of its table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.evaluation.limits import BOUND, Limits
from steersman.evaluation.statistics import Interval, mean, mean_interval
from steersman.evaluation.summary import ALL, SummaryRow, Table
from steersman.simulation.result import RunResult
from steersman.simulation.run import AS_IT_IS

GPU_ALLOCATION = "gpu_allocation_percent"
CPU_ALLOCATION = "cpu_allocation_percent"
MEAN_WAIT = "waiting_time_mean_seconds"
FEW_SEEDS = 5
"""With fewer a bootstrap interval is a guess, which is said."""
REACHED = 0.015
"""Points: who is nearer to the limit has reached it, which is rounded up where what is allocated is rounded."""
NAMED = 3
"""Policies that a sentence names, at most; of more it says how many."""
LIMIT_NAME = "limit (LP)"
"""What a person is told for the policy `bound` of the result files."""
GPU_METRICS = ("gpu_fragmentation_percent", "gpu_allocation_over_time_percent")
FAILED, STILL_WAITING = "pods_failed", "pods_waiting"
INTERVAL = "95 % interval"

OTHER_COLUMNS = (
    ("GPU fragmentation, % of idle GPU", "Frag. %", "gpu_fragmentation_percent", 1),
    ("Longest wait of 95 % of pods, s", "95 % wait s", "waiting_time_p95_seconds", 0),
    ("GPU allocated over time, %", "GPU %", "gpu_allocation_over_time_percent", 2),
    ("CPU allocated over time, %", "CPU %", "cpu_allocation_over_time_percent", 2),
)
"""Title, short title, metric and digits of what the table shows beside what decides and the pods that are left out."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A number for a person and, smaller, what belongs to it: its 95 % interval or its share."""

    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: a cell by policy.

    Attributes:
        short: its title where room is scarce.
        notes: the title of its notes where they are a column of their own; empty if they are no column.
    """

    title: str
    short: str
    cells: dict[str, Cell]
    notes: str = ""


class Difference(NamedTuple):
    """By how much one policy's metric is above another's, the 95 % interval of that, and of how many paired seeds."""

    mean: float
    interval: Interval
    pairs: int

    @property
    def is_shown(self) -> bool:
        """Whether it is one at all: the interval, which one seed does not have, leaves out zero."""
        return self.interval.low > 0 or self.interval.high < 0


class Headline:
    """A comparison in short, in one protocol.

    What decides (`primary`) is the GPU allocated at the end of a run, the CPU where no run allocates any GPU, and the
    mean wait of a pod in the `timed` protocol, in which what is allocated in the end says nothing. Beside it stand the
    pods that never ran (`left_out`), of which who allocates more may have more.

    Attributes:
        workload: which workload the sentence is about: the only one, or `all`.
        gpus: of the cluster, by workload; of `all`, if the clusters of all have equally many, else 0.
        nodes: of the (first) cluster.
        on_gpu: whether any GPU was ever allocated; else the comparison is about CPU.
        found_limits: what no scheduler exceeds in GPU allocation, where it was asked for.
        limits: the same where the comparison is about that; it is no policy, and never the best of them.
        recorded: the workloads whose recorded placement is known; that is no policy either.
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
        self.gpus = {run.workload: int(run.final_nodes.gpu_count.sum()) for run in runs if run.final_nodes.names}
        self.gpus[ALL] = max(self.gpus.values()) if len(set(self.gpus.values())) == 1 else 0
        self.nodes = len(runs[0].final_nodes.names)
        self.on_gpu = any((run.curve.gpu_allocation_percent > 0).any() for run in runs)
        self.timed = self.protocol == "timed"
        self.left_out = STILL_WAITING if self.timed else FAILED
        self.primary = MEAN_WAIT if self.timed else GPU_ALLOCATION if self.on_gpu else CPU_ALLOCATION
        self.found_limits = limits
        self.limits = limits if self.primary == GPU_ALLOCATION else None
        self.recorded = {row.workload for row in summary if row.policy == AS_IT_IS}

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

    def difference(self, workload: str, metric: str, policy: str, other: str) -> Difference:
        """Return by how much a policy's metric is above another policy's, seed by seed."""
        values = self._table.get(workload, policy, metric) - self._table.get(workload, other, metric)
        return Difference(mean(values), mean_interval(values), int(np.isfinite(values).sum()))

    def is_better(self, workload: str, policy: str, other: str) -> bool:
        """Return whether a policy was shown to be better than another in what decides."""
        found = self.difference(workload, self.primary, policy, other)
        return found.is_shown and (found.mean < 0) == self.timed

    def columns(self, workload: str) -> list[Column]:
        """The table of a workload, with a cell for the limit (`bound`), too; columns without any value are left out."""
        unit = "s" if self.timed else "points"
        short = "Mean wait s" if self.timed else f"{self.resource} %"
        columns = [
            self._column(self.primary_title, short, workload, self.primary, 1 if self.timed else 2),
            self._differences(f"Difference from {self.baseline}, {unit}", f"Diff. {unit}", workload, self.primary),
        ]
        if not self.timed:
            title = f"{self.resource}{self._plural} unallocated"
            columns.append(
                self._build(
                    workload, title, f"{self.resource}{self._plural} left", lambda p: self._unallocated(workload, p)
                )
            )
        left = "Pods still waiting" if self.timed else "Pods failed"
        columns += [
            self._column(left, "Pods waiting" if self.timed else left, workload, self.left_out, 1, note=False),
            self._differences(f"{left}, difference from {self.baseline}", "Diff. pods", workload, self.left_out),
        ]
        for title, short, metric, digits in OTHER_COLUMNS:
            if not (self.timed and metric == GPU_METRICS[0]) and (self.on_gpu or metric not in GPU_METRICS):
                columns.append(self._column(title, short, workload, metric, digits, note=False))
        return [column for column in columns if any(cell.text != DASH for cell in column.cells.values())]

    def others(self, workload: str) -> dict[str, str]:
        """Return what the table shows below the policies: its name in result files, and what a person is told."""
        recording = {AS_IT_IS: AS_IT_IS} if workload in self.recorded else {}
        return recording | ({BOUND: LIMIT_NAME} if self.limits is not None else {})

    def _build(self, workload: str, title: str, short: str, cell: Callable[[str], Cell]) -> Column:
        return Column(title, short, {policy: cell(policy) for policy in [*self.policies, *self.others(workload)]})

    def _column(self, title: str, short: str, workload: str, metric: str, digits: int, *, note: bool = True) -> Column:
        def cell(policy: str) -> Cell:
            row = self.row(workload, policy, metric)
            if row is None:
                return Cell(DASH)
            return Cell(fixed(row.mean, digits), interval_text(row.interval, digits) if note else "")

        return self._build(workload, title, short, cell)

    def _differences(self, title: str, short: str, workload: str, metric: str) -> Column:
        digits = self._digits(metric)

        def cell(policy: str) -> Cell:
            row = self.row(workload, policy, metric)
            if row is None or not row.baseline:
                return Cell(DASH)
            return Cell(signed(row.difference, digits), interval_text(row.difference_interval, digits, sign=True))

        notes = f"{INTERVAL}{'' if metric == self.primary else ', pods'}"
        return replace(self._build(workload, title, short, cell), notes=notes)

    def _digits(self, metric: str) -> int:
        """Return the digits of a difference, the same in the table and in the sentence."""
        return 1 if metric == self.left_out or self.timed else 2

    def _unallocated(self, workload: str, policy: str) -> Cell:
        share = mean(self.lost(workload, policy))
        if not (self.on_gpu and math.isfinite(share)):
            return Cell(fixed(share, 2) + " %" if math.isfinite(share) else DASH)
        gpus = self.gpus.get(workload, 0)
        return Cell(fixed(share * gpus / 100, 0), fixed(share, 2) + " %") if gpus else Cell(fixed(share, 2) + " %")

    def sentence(self) -> str:
        """Return the outcome in a sentence: who is best here, by how much, or that this was not shown."""
        workload, order = self.workload, self.order(self.workload)
        means = self.means(workload)
        known = [policy for policy in order if math.isfinite(means[policy])]
        if len(known) < 2 or (self.timed and not any(means[policy] for policy in known)):
            return self._alone()
        best = known[0]
        rivals = [policy for policy in known[1:] if not self.is_better(workload, best, policy)]
        if len(self.seeds) == 1:
            other = self._reference(known)
            return f"One seed shows no difference: {self._where()}, {best} {self._amount(best)}, {self._more(other)}."
        reference = self._reference(known)
        small = seeds_text(self.difference(self.workload, self.primary, best, reference).pairs, "paired seed")
        if rivals:
            return f"{self._undecided(best, rivals)}; {small}."
        pods, is_traded = self._pods(best, known)
        wins = ("lets pods wait least" if self.timed else f"allocates most {self.resource}{self._plural}") * is_traded
        gain = self._more(reference)
        return f"{best} {wins or 'is best'} {self._where()}: {self._amount(best, short=True)}, {gain}{pods}; {small}."

    def _reference(self, known: Sequence[str]) -> str:
        """Return who the best of the policies is compared with in a sentence: the baseline, else the second best."""
        return self.baseline if self.baseline in known[1:] else known[1]

    def _undecided(self, best: str, rivals: Sequence[str]) -> str:
        """Return what can be said where the best cannot be told from others."""
        workload = self.workload
        group = [best, *rivals]
        names = listed(group)
        head = f"no difference shown between {names} {self._where()}"
        if all(self.difference(workload, self.primary, best, each).mean == 0 for each in rivals):
            head = f"{names} do equally well {self._where()}"
        elif any(self.is_better(workload, each, best) for each in rivals):
            head = f"no best policy shown of {names} {self._where()}, whose seeds differ"
        known = [each for each in self.order(workload) if math.isfinite(self.means(workload)[each])]
        pods, _ = self._pods(best, known)
        text = f"{head}: {best} {self._amount(best)}, {self._more(self._reference(known))}{pods}"
        return text[0].upper() + text[1:] if head.startswith("no ") else text

    def _amount(self, policy: str, *, short: bool = False) -> str:
        """Return what decides as a part of a sentence; short: without a verb that a policy could have."""
        value = self.means(self.workload)[policy]
        if self.timed:
            return f"{'pods wait' if short else 'lets pods wait'} {value:,.1f} s in the mean"
        gpus = self.gpus.get(self.workload, 0) if self.on_gpu else 0
        of = f"of {count(gpus, 'GPU')}" if gpus else f"of the {self.resource}{self._plural}"
        return f"{value:.2f} % {of} allocated" if short else f"allocates {value:.2f} % {of}"

    def _more(self, other: str) -> str:
        """Return by how much the best differs from another, with the interval, as the table has it.

        Where the two have different seeds, the best by its mean may be the worse in the seeds that both have.
        """
        best = self.order(self.workload)[0]
        found = self.difference(self.workload, self.primary, best, other)
        same = "as long as under" if self.timed else "as much as"
        digits = self._digits(self.primary)
        unit = "s" if self.timed else "points"
        if not math.isfinite(found.mean):
            return f"in other seeds than {other}"
        size = abs(found.mean)
        if size == 0 and not found.interval.low < found.interval.high:
            return f"{same} {other}"
        smallest = 10.0**-digits
        text = f"less than {smallest:g} {unit}" if size < smallest / 2 else f"{size:,.{digits}f} {unit}"
        is_less = found.mean < 0 or (found.mean == 0 and self.timed)
        low, high = found.interval
        ends = Interval(-high, -low) if is_less else found.interval
        sign, than = "less" if is_less else "more", "than under" if self.timed else "than"
        return f"{text}{brackets(ends, digits)} {sign} {than} {other}"

    def _pods(self, best: str, known: Sequence[str]) -> tuple[str, bool]:
        """Return how many pods the best policy leaves out against others, and whether another is shown to be better."""
        workload, metric = self.workload, self.left_out
        digits = self._digits(metric)
        against = {each: self.difference(workload, metric, best, each) for each in known[1:]}
        fewer = {each: found for each, found in against.items() if found.is_shown and found.mean > 0}
        if fewer:
            other = self._reference(known)
            if other not in fewer:
                other = max(fewer, key=lambda each: fewer[each].mean)
            found = fewer[other]
            left = "leaves" if self.timed else "fails"
            what = " waiting" if self.timed else ""
            many = f"{found.mean:,.{digits}f} pods{brackets(found.interval, digits)}"
            than = "" if other == self._reference(known) else f" than {other}"
            return f", but it {left} {many} more{what}{than}", True
        other = self._reference(known)
        found = against[other]
        if not math.isfinite(found.mean):
            return "", False
        verb, what = ("leaves", " waiting") if self.timed else ("fails", "")
        if found.is_shown:
            ends = brackets(Interval(-found.interval.high, -found.interval.low), digits)
            return f"; it {verb} {-found.mean:,.{digits}f} pods{ends} fewer{what}", False
        if found.interval.low == found.interval.high == 0:
            return f"; it {verb} as many pods{what}", False
        return f"; no difference shown in the pods {'left waiting' if self.timed else 'that fail'}", False

    def limit_sentence(self) -> str:
        """Return what is left to gain, empty without a limit."""
        limit, best = self.limit(self.workload), self.order(self.workload)[0]
        if not math.isfinite(limit):
            return ""
        left = limit - self.means(self.workload)[best]
        text = f"Limit: no scheduler that places every pod that fits allocates more than {limit:.2f} % of the GPUs"
        if not left >= REACHED:
            return f"{text} {self._where()}; {best} reaches that."
        return f"{text} {self._where()}; {best} is {left:.2f} points below."

    def _alone(self) -> str:
        policy = self.order(self.workload)[0]
        row = self.row(self.workload, policy, self.primary)
        seeds = seeds_text(len(self.seeds), "seed")
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


def brackets(interval: Interval, digits: int) -> str:
    """An interval in a sentence, with the space before it; empty if there is none."""
    low, high = (signed(end, digits).removeprefix("+") for end in interval)
    return f" [{low}, {high}]" if math.isfinite(interval.low) else ""


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: all of few, else the first ones and how many there are besides."""
    if len(names) > NAMED + 1:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} others"
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def seeds_text(number: int, noun: str) -> str:
    """How many seeds a claim is of, and that they are few."""
    return f"{'only ' if number < FEW_SEEDS else ''}{count(number, noun)}"


def count(number: int, noun: str) -> str:
    """A number and a noun in the right number."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
