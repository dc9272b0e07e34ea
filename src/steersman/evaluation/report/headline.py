"""A comparison in short: its outcome in sentences, and the columns of its table."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace

from steersman.evaluation.report import sentences
from steersman.evaluation.report.standings import FAILED, Standings
from steersman.evaluation.report.style import BOUND_LABEL, DASH, fixed, interval_text, signed
from steersman.evaluation.summary import ARRIVED, BOUND
from steersman.simulation.measures import COURSE, CPU_ALLOCATION, FRAGMENTED, GPU_ALLOCATION, LATENCY, Measure
from steersman.simulation.pod_kinds import KINDS
from steersman.simulation.run import AS_IT_IS

GPU_METRICS = (FRAGMENTED, COURSE[GPU_ALLOCATION].over_time)
SHORT_KINDS = {"cpu_only": "no GPU", "gpu_share": "GPU share", "one_gpu": "one GPU", "several_gpus": "several GPUs"}
PERCENTILE_WAIT = "waiting_time_p95_seconds"


OTHER_COLUMNS = (
    COURSE[FRAGMENTED].at_end(),
    Measure(PERCENTILE_WAIT, "seconds", "Longest wait of 95 % of pods, s", "95 % wait s", digits=0),
    COURSE[GPU_ALLOCATION].mean_over_time(),
    COURSE[CPU_ALLOCATION].mean_over_time(),
    Measure("evictions", "pods", "Evictions of pods", "Evictions", digits=0),
    Measure("gpu_time_lost_percent", "percent", "GPU time lost by evictions, %", "GPU lost %"),
    *map(LATENCY.__getitem__, ("hard_limits_broken_avoidable", "used_nodes", "connections_peak")),
)
"""What the table shows beside what decides and the pods that are left out."""
FAILED_COLUMN = Measure(FAILED, "pods", "Pods failed", "Pods failed", digits=1)


@dataclass(frozen=True, slots=True)
class Cell:
    """A displayed number and its note: its 95 % interval or its share."""

    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of the table: a cell by policy."""

    title: str
    short: str  # its title where space is scarce
    cells: dict[str, Cell]
    notes: str = ""  # the title of its notes where they are a column of their own; empty if they are not


class Headline(Standings):
    """A comparison in one protocol, as it is shown."""

    def with_criterion(self, criterion: Measure) -> Headline:
        """Return the same comparison with another criterion first."""
        other = copy(self)
        other.criterion = criterion
        return other

    def sentence(self) -> str:
        return sentences.sentence(self)

    def sentences(self) -> list[str]:
        """Return the outcome by every criterion, in a sentence each."""
        return [self.with_criterion(each).sentence() for each in self.criteria or (self.criterion,)]

    def bound_sentence(self) -> str:
        return sentences.bound_sentence(self)

    def kinds_sentence(self) -> str:
        return sentences.kinds_sentence(self)

    @property
    def kinds_title(self) -> str:
        return f"{'Mean wait, s' if self.timed else 'Pods failed'}, by the GPUs that a pod requests"

    def kind_columns(self, workload: str) -> list[TableColumn]:
        """Return a column for each kind of pod, noted with the difference from the baseline and its interval."""
        columns = []
        for kind, metric in self.kinds(workload).items():
            cells = {policy: self._kind_cell(workload, metric, policy) for policy in [*self.policies, AS_IT_IS]}
            cells[ARRIVED] = Cell(fixed(self.arrived(workload, kind), 1))
            columns.append(TableColumn(KINDS[kind], SHORT_KINDS[kind], cells, f"Diff., {self.interval_title}"))
        return columns

    def _kind_cell(self, workload: str, metric: str, policy: str) -> Cell:
        row = self.row(workload, policy, metric)
        if row is None:
            return Cell(DASH)
        if not (row.baseline and math.isfinite(row.difference)):
            return Cell(fixed(row.mean, 1))
        interval = interval_text(row.difference_interval, 1, sign=True)
        return Cell(fixed(row.mean, 1), signed(row.difference, 1) + f" ({interval})" * bool(interval))

    def kind_rows(self, workload: str) -> dict[str, str]:
        """Return the rows of the table of kinds below the policies: name in cells, and displayed name."""
        recording = {AS_IT_IS: AS_IT_IS} if workload in self.recorded and self.protocol == "arrivals" else {}
        return recording | ({} if self.timed else {ARRIVED: "pods that arrive"})

    def others(self, workload: str) -> dict[str, str]:
        """Return the rows of the table below the policies: name in result files, and displayed name."""
        recording = {AS_IT_IS: AS_IT_IS} if workload in self.recorded else {}
        return recording | ({BOUND: BOUND_LABEL} if self.bounds is not None else {})

    def columns(self, workload: str) -> list[TableColumn]:
        """Return the table of a workload, with a cell for the bound (`bound`), without columns that have no value."""
        columns = [
            *self._criteria_columns(workload),
            *self._unplaced_columns(workload),
            *(self._column(workload, shown, note=shown.name == PERCENTILE_WAIT) for shown in self._other_metrics()),
        ]
        return [column for column in columns if any(cell.text != DASH for cell in column.cells.values())]

    def _criteria_columns(self, workload: str) -> list[TableColumn]:
        columns = []
        for each in self.criteria or (self.criterion,):
            title = f"Difference from {self.baseline}{', ' * bool(each.unit)}{each.difference_unit}"
            difference = replace(each, title=title, short=f"Diff. {each.difference_unit}".rstrip())
            notes = self.interval_title if each.name == self.primary else ""
            columns += [self._column(workload, each), self._differences(workload, difference, notes)]
        if not (self.criteria or self.timed):
            title, short = f"{self.resources} unallocated", f"{self.resources} left"
            columns.append(TableColumn(title, short, self._cells(workload, lambda p: self._unallocated(workload, p))))
        return columns

    def _unplaced_columns(self, workload: str) -> list[TableColumn]:
        left = "Pods still waiting" if self.timed else "Pods failed"
        value = Measure(self.unplaced_metric, "pods", left, "Pods waiting" if self.timed else left, digits=1)
        difference = replace(value, title=f"{left}, difference from {self.baseline}", short="Diff. pods")
        return [
            self._column(workload, value, note=False),
            self._differences(workload, difference, f"{self.interval_title}, pods"),
            # Where pods wait, one that fails would fit nowhere even if the cluster were empty.
            *([self._column(workload, FAILED_COLUMN, note=False)] if self.timed and self.some_fail(workload) else []),
        ]

    def _other_metrics(self) -> list[Measure]:
        """Return `OTHER_COLUMNS` that apply, and the allocation unless a criterion or the protocol says it."""
        shown = {each.name for each in self.criteria}
        left_out = shown | ({FRAGMENTED} if self.timed else set()) | (set() if self.on_gpu else set(GPU_METRICS))
        others = [each for each in OTHER_COLUMNS if each.name not in left_out]
        if self.criteria and not self.timed and not shown & {GPU_ALLOCATION, CPU_ALLOCATION}:
            others.insert(0, self.default_criterion())
        return others

    def _cells(self, workload: str, cell: Callable[[str], Cell]) -> dict[str, Cell]:
        return {policy: cell(policy) for policy in [*self.policies, *self.others(workload)]}

    def _column(self, workload: str, shown: Measure, *, note: bool = True) -> TableColumn:
        def cell(policy: str) -> Cell:
            row = self.row(workload, policy, shown.name)
            if row is None:
                return Cell(DASH)
            return Cell(fixed(row.mean, shown.digits), interval_text(row.interval, shown.digits) if note else "")

        return TableColumn(shown.title, shown.short, self._cells(workload, cell))

    def _differences(self, workload: str, shown: Measure, notes: str) -> TableColumn:
        def cell(policy: str) -> Cell:
            row = self.row(workload, policy, shown.name)
            if row is None or not row.baseline:
                return Cell(DASH)
            note = interval_text(row.difference_interval, shown.digits, sign=True)
            return Cell(signed(row.difference, shown.digits), note)

        return TableColumn(shown.title, shown.short, self._cells(workload, cell), notes)

    def _unallocated(self, workload: str, policy: str) -> Cell:
        """Return how many GPUs are unallocated, and their share; the share alone where their number is unknown."""
        row = self.row(workload, policy, self.primary)
        if row is None or not math.isfinite(row.mean):
            return Cell(DASH)
        gpus = self.gpus.get(workload, 0) if self.on_gpu else 0
        excess = 100 * self.excess_gpus.get(workload, 0.0) / gpus if gpus else 0.0
        share = max(0.0, 100 - row.mean + excess)
        percent = f"{fixed(share, 2)} %"
        return Cell(fixed(share * gpus / 100, 0), percent) if gpus else Cell(percent)
