"""The outcome on standard output: a table, CSV or JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from steersman.core.counting import counted
from steersman.evaluation.report.headline import Headline, TableColumn
from steersman.evaluation.report.style import BOUND_LABEL, INTERVAL, OF_STRETCH, fixed
from steersman.evaluation.results import METRICS_COLUMNS, metric_cells
from steersman.evaluation.summary import SummaryRow
from steersman.simulation.result import RunResult

GAP, EDGES = 3, 2  # columns of the terminal between two columns of a table, and at its ends
NAME_WIDTH = 19  # the longest name of a built-in policy; longer ones are folded before a column is left out
LEAST_IMPORTANT = (
    "Fragmented %",
    "CPU %",
    "GPU %",
    f"{INTERVAL}, pods",
    f"{OF_STRETCH}, pods",
    "Diff. pods",
    "GPUs left",
    "CPU left",
    "Pods waiting",
    "95 % wait s",
    "Pods failed",
)
"""Columns that a narrow terminal goes without, the first one first; then their neighbours from right to left."""


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    cells: list[str]

    def width(self, *, wrapped: bool) -> int:
        titles = self.title.split() if wrapped else [self.title]
        return max(map(cell_len, [*titles, *self.cells]))


def comparison_table(headline: Headline, width: int) -> Table:
    """Return the policies, the best first, on the only workload or as the mean over all of them.

    A number is never cut: if `width` is too small for the table, columns are left out and named below.
    """
    title = f"{headline.workload}: {headline.protocol}, {counted(len(headline.seeds), 'seed')}"
    return _policy_table(
        headline, headline.columns(headline.workload), headline.others(headline.workload), title, width
    )


def kinds_table(headline: Headline, width: int) -> Table | None:
    """Return what each kind of pod pays under the policies, None if the protocol does not tell kinds apart.

    If `width` is too small for the differences of all kinds, none are shown.
    """
    columns = headline.kind_columns(headline.workload)
    if not columns:
        return None
    others = headline.kind_rows(headline.workload)
    names, noted = _columns(headline, columns, others)
    if len(_fitting(names, noted, width)[0]) < len(noted):
        columns = [replace(column, notes="") for column in columns]
    return _policy_table(headline, columns, others, headline.kinds_title, width)


def _columns(
    headline: Headline, shown: Sequence[TableColumn], others: Mapping[str, str]
) -> tuple[_Column, list[_Column]]:
    order = [*headline.order(headline.workload), *others]
    columns = []
    for column in shown:
        cells = [column.cells[policy] for policy in order]
        columns.append(_Column(column.short, [cell.text for cell in cells]))
        if column.notes:
            columns.append(_Column(column.notes, [cell.note for cell in cells]))
    titles = [others.get(policy, policy) for policy in order]
    return _Column("Policy", [title + (" *" if title == headline.baseline else "") for title in titles]), columns


def _policy_table(
    headline: Headline, shown_columns: Sequence[TableColumn], others: Mapping[str, str], title: str, width: int
) -> Table:
    names, columns = _columns(headline, shown_columns, others)
    kept, widths = _fitting(names, columns, width)
    table = _table(title)
    paired = "by arrival or moment" if headline.is_given else "seed by seed"
    differences = f": differences are to {headline.baseline}, {paired}"
    table.caption = "* baseline" + differences * any(column.title.startswith("Diff.") for column in kept)
    if len(kept) < len(columns):
        missing = ", ".join(column.title for column in columns if column not in kept)
        table.caption += f"\nNo room here for {missing}."
    table.add_column(names.title, overflow="fold", width=widths[0])
    for shown, room in zip(kept, widths[1:], strict=True):
        table.add_column(shown.title, justify="right", width=room)
    for row, name in enumerate(names.cells):
        if row == len(headline.policies):
            table.add_section()
        table.add_row(name, *(Text(shown.cells[row], no_wrap=True) for shown in kept))
    return table


def _fitting(names: _Column, columns: list[_Column], width: int) -> tuple[list[_Column], list[int]]:
    """Return the columns that fit beside the policies' names, at least one, and the widths of names and columns.

    Titles are wrapped first, then long names are folded, then columns left out.
    """
    kept = list(columns)
    whole = names.width(wrapped=False)
    least = min(whole, max(NAME_WIDTH, 3 * width // 10))
    while True:
        for wrapped in (False, True):
            widths = [column.width(wrapped=wrapped) for column in kept]
            room = width - EDGES - sum(widths) - GAP * len(widths)
            if room >= (least if wrapped else whole):
                return kept, [min(room, whole), *widths]
        if len(kept) == 1:
            return kept, [max(room, 1), *widths]
        titles = [column.title for column in kept]
        worst = next((title for title in LEAST_IMPORTANT if title in titles[1:]), titles[-1])
        del kept[len(titles) - 1 - titles[::-1].index(worst)]


def _table(title: str) -> Table:
    return Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left", pad_edge=False)


def regret_table(headline: Headline) -> Table:
    """Return by how many percent pods wait longer under each policy than under the best one, by workload."""
    means = {workload: headline.means(workload) for workload in headline.workloads}
    table = _table(f"Regret in %: {headline.primary_title} above that of the best policy")
    table.add_column("Policy", overflow="fold")
    for workload in headline.workloads:
        table.add_column(workload, justify="right", no_wrap=True)
    for policy in headline.order(headline.workload):
        cells = []
        for of_workload in means.values():
            # A second is added, so that waits of nearly nothing are no large regret.
            best, own = 1.0 + min(of_workload.values()), 1.0 + of_workload[policy]
            cells.append(Text("0" if own == best else fixed(100.0 * (own / best - 1.0), 1), no_wrap=True))
        table.add_row(policy, *cells)
    return table


def workloads_table(headline: Headline, width: int) -> Table:
    """Return the primary metric of every workload and policy, and the bound; one row each if space is scarce."""
    bound = headline.bounds is not None
    shown = [*headline.policies, *([BOUND_LABEL] if bound else [])]
    means = {
        workload: headline.means(workload) | ({BOUND_LABEL: headline.bound(workload)} if bound else {})
        for workload in headline.workloads
    }
    best = {workload: headline.order(workload)[0] for workload in headline.workloads}
    cells = {
        (w, p): Text(fixed(mean, 2), style="bold" if p == best[w] else "", no_wrap=True)
        for w, of_workload in means.items()
        for p, mean in of_workload.items()
    }
    title = f"{headline.primary_title}, mean of {counted(len(headline.seeds), 'seed')}"
    widths = [
        max(cell_len(policy), *(cells[workload, policy].cell_len for workload in headline.workloads))
        for policy in shown
    ]
    names = max(map(cell_len, ["Workload", *headline.workloads]))
    room = width - EDGES - sum(widths) - GAP * len(widths)
    table = _table(title)
    table.add_column("Workload", overflow="fold")
    if room >= min(names, NAME_WIDTH):
        for policy in shown:
            table.add_column(policy, justify="right", no_wrap=True)
        for workload in headline.workloads:
            table.add_row(workload, *(cells[workload, policy] for policy in shown))
        return table
    table.add_column("Policy", overflow="fold")
    table.add_column("Mean", justify="right", no_wrap=True)
    for workload in headline.workloads:
        for policy in [*headline.order(workload), *shown[len(headline.policies) :]]:
            table.add_row(workload, policy, cells[workload, policy])
    return table


def run_table(run: RunResult) -> Table:
    table = _table(f"{run.policy} on {run.workload}, seed {run.seed}, {run.protocol}")
    table.add_column("Metric", overflow="fold")
    table.add_column("Value", justify="right", no_wrap=True)
    table.add_column("Unit", no_wrap=True)
    for metric in run.metrics:
        if not math.isfinite(metric.value):
            continue  # undefined
        digits = 0 if metric.value == int(metric.value) else 2
        table.add_row(metric.name, fixed(metric.value, digits), metric.unit)
    return table


def summary_records(summary: Sequence[SummaryRow]) -> list[dict[str, object]]:
    return [
        {name: finite(value) for name, value in (row.cells | {"baseline": row.baseline or None}).items()}
        for row in summary
    ]


def metric_records(run: RunResult) -> list[dict[str, object]]:
    return [dict(zip(METRICS_COLUMNS, map(finite, cells), strict=True)) for cells in metric_cells(run)]


def finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
