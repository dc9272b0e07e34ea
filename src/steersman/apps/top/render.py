"""Render the dashboard: choice and order of nodes, a line of bars for each, and a heading."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

from steersman.apps.runtime.cluster_use import ClusterUse, NodeRow
from steersman.apps.top.leaders import Leader
from steersman.cluster.account import obstacles
from steersman.cluster.gpu_units import gpu_milli, held_milli
from steersman.cluster.model import GPU_MILLI, UNLIMITED
from steersman.core.counting import counted

Column = Literal["name", "cpu", "memory", "pods", "gpu"]
TITLES: Mapping[Column, str] = {"cpu": "CPU", "memory": "GiB", "pods": "Pods", "gpu": "GPUs"}
NAMED_PROBLEMS = 3
NAME_WIDTH = (12, 40)
BAR_WIDTH = (3, 24)
ONCE_BAR_WIDTH = 10
GAP = 2
NEARLY_FULL, FULL = 0.7, 0.9
BLOCKS, ASCII = "█░", "#."


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """Filter and order of the nodes.

    Attributes:
        column: column to sort by; names alphabetically, others by fullness.
        reverse: whether the order is reversed.
        pattern: only nodes with this in their name, GPU model or state.
    """

    column: Column = "name"
    reverse: bool = False
    pattern: str = ""

    def of(self, rows: Sequence[NodeRow]) -> list[NodeRow]:
        """Return the chosen rows in order."""
        pattern = self.pattern.lower()
        result = [row for row in rows if pattern in f"{row.node.name}\n{row.node.gpu_model}\n{row.state}".lower()]
        result.sort(key=lambda row: row.node.name)
        if self.column != "name":
            result.sort(key=lambda row: row.fraction(self.column), reverse=not self.reverse)
        elif self.reverse:
            result.reverse()
        return result


@dataclass(frozen=True, slots=True)
class Layout:
    """Widths of a line, in characters: the name, a bar, and the numbers beside it by column."""

    name: int
    bar: int
    numbers: Mapping[Column, int]

    @property
    def width(self) -> int:
        """Width of a whole line."""
        return self.name + sum(GAP + self.bar + 1 + width for width in self.numbers.values())

    def titles(self, choice: ViewOptions) -> Text:
        """Return the line of titles; an arrow marks the sorted column."""
        line = Text(set_cell_size("Node" + _arrow("name", choice), self.name), style="bold")
        for column, width in self.numbers.items():
            title = TITLES[column] + _arrow(column, choice)
            line.append(" " * GAP + set_cell_size(title, self.bar + 1 + width))
        return line

    def line(self, row: NodeRow, blocks: str = BLOCKS) -> Text:
        """Return the line of a node."""
        line = name_cell(row, self.name)
        for column, width in self.numbers.items():
            line.append(" " * GAP)
            line.append_text(bar_cell(row, column, self.bar, width, blocks))
        return line


def layout_for(rows: Sequence[NodeRow], width: int) -> Layout:
    """Return the layout that fills `width` characters, within limits."""
    numbers = {column: _numbers_width(rows, column) for column in columns_of(rows)}
    room = width - sum(GAP + 1 + each for each in numbers.values())
    longest = max((cell_len(_named(row)) for row in rows), default=0)
    least, most = NAME_WIDTH
    name = min(max(longest, least), most, max(room - BAR_WIDTH[0] * len(numbers), least))
    bar = min(max((room - name) // max(len(numbers), 1), BAR_WIDTH[0]), BAR_WIDTH[1])
    return Layout(name, bar, numbers)


def columns_of(rows: Sequence[NodeRow]) -> list[Column]:
    """Return the columns: GPUs only where a node has any."""
    gpus = any(gpu_milli(row.node) for row in rows)
    return ["cpu", "memory", "pods", "gpu"] if gpus else ["cpu", "memory", "pods"]


def name_cell(row: NodeRow, width: int = 0) -> Text:
    """Return a node's name and what keeps pods off it."""
    style = {"": "", "cordoned": "yellow"}.get(row.state, "red")
    named = _named(row)
    if width and cell_len(named) > width:
        named = set_cell_size(named, width - 1) + "…"
    return Text(set_cell_size(named, width) if width else named, style=style, no_wrap=True)


def bar_cell(row: NodeRow, column: Column, bar: int, numbers: int, blocks: str = BLOCKS) -> Text:
    """Return a bar and its numbers; empty for a resource that the node lacks."""
    used, capacity = row.amounts(column)
    if column == "gpu" and not capacity:
        return Text(" " * (bar + 1 + numbers))
    fraction = used / capacity if capacity else 0.0
    full = min(math.ceil(fraction * bar), bar) if fraction > 0 else 0
    style = "green" if fraction < NEARLY_FULL else "yellow" if fraction < FULL else "red"
    cell = Text(blocks[0] * full, style=style, no_wrap=True)
    cell.append(blocks[1] * (bar - full), style="bright_black")
    cell.append(f" {_numbers(used, capacity):>{numbers}}", style="default")
    return cell


def heading(view: ClusterUse, title: str, rate: float | None, result: Sequence[Leader], shown: int) -> list[str]:
    """Return the heading's lines: nodes, pods, bindings per second (None: unknown), deciding schedulers."""
    nodes, pods = len(view.nodes), len(view.pods)
    waiting = view.waiting()
    whose = f" ({', '.join(f'{name} {count}' for name, count in waiting.items())})" if waiting else ""
    some = f", {shown} shown" if shown != nodes else ""
    unknown = f"; {len(view.unreadable)} objects not understood" if view.unreadable else ""
    lines = [
        f"{title}: {nodes} nodes{some}, {pods} pods{unknown}",
        f"Pending {sum(waiting.values())}{whose}" + (f", {rate:.0f} binds/s" if rate is not None else ""),
    ]
    closed: dict[str, list[str]] = {}
    for row in ViewOptions().of(view.rows()):
        if row.state:
            closed.setdefault(f"are {row.state}", []).append(row.node.name)
    if closed:
        lines.append(f"No new pods go to {counted(sum(map(len, closed.values())), 'node')}: {obstacles(closed)}")
    problems = view.node_problems()
    lines += [f"Node {name} gets no pods: {why}" for name, why in list(problems.items())[:NAMED_PROBLEMS]]
    if len(problems) > NAMED_PROBLEMS:
        lines.append(f"... and {len(problems) - NAMED_PROBLEMS} more nodes")
    return lines + [_leader(each) for each in result]


def once_table(rows: Sequence[NodeRow], blocks: str) -> Table:
    """Return the nodes as a table of plain text."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("Node", no_wrap=True)
    columns = columns_of(rows)
    widths = {column: _numbers_width(rows, column) for column in columns}
    for column in columns:
        table.add_column(TITLES[column], no_wrap=True)
    for row in rows:
        cells = (bar_cell(row, column, ONCE_BAR_WIDTH, widths[column], blocks) for column in columns)
        table.add_row(name_cell(row), *cells)
    return table


def once_record(view: ClusterUse, title: str, leaders: Sequence[Leader], rows: Sequence[NodeRow]) -> dict[str, object]:
    """Return the heading and the nodes as values of JSON; `pods` is null where there is no limit."""
    return {
        "cluster": title,
        "nodes": [
            {
                "name": row.node.name,
                "state": row.state,
                "cpu_milli": row.node.cpu_milli,
                "cpu_requested_milli": row.use["cpu"],
                "memory_bytes": row.node.memory_bytes,
                "memory_requested_bytes": row.use["memory"],
                "pods": None if row.node.pods >= UNLIMITED else row.node.pods,
                "pods_there": row.use["pods"],
                "gpus": gpu_milli(row.node) / GPU_MILLI,
                "gpu_model": row.node.gpu_model,
                "gpu_requested_milli": held_milli(row.node, row.use),
            }
            for row in rows
        ],
        "pods": len(view.pods),
        "pods_pending_by_scheduler": dict(view.waiting()),
        "nodes_without_pods": dict(view.node_problems()),
        "objects_not_understood": len(view.unreadable),
        "schedulers": list(leaders),
    }


def _leader(leader: Leader) -> str:
    by = f"policy {leader.policy}" if leader.policy else "policy unknown"
    return f"Scheduler {leader.lease}: {by}, {f'led by {leader.holder}' if leader.holder else 'nobody leads'}"


def _named(row: NodeRow) -> str:
    return f"{row.node.name} ({row.state})" if row.state else row.node.name


def _arrow(column: Column, choice: ViewOptions) -> str:
    if column != choice.column:
        return ""
    return " ↑" if choice.reverse == (column != "name") else " ↓"


def _numbers_width(rows: Sequence[NodeRow], column: Column) -> int:
    digits = len(f"{max((row.amounts(column)[1] for row in rows), default=0.0):.0f}")
    used = digits if column == "pods" else digits + 2 if digits < 3 else max(digits, 4)
    return used + 1 + digits


def _numbers(used: float, capacity: float) -> str:
    return f"{_number(used)}/{_number(capacity)}" if capacity else f"{_number(used)}/-"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if value < 99.95 else f"{value:.0f}"
