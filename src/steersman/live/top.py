"""The screen of `steersman top`: choice and order of nodes, a line of bars for each, and a heading."""

from __future__ import annotations

import asyncio
import codecs
import math
import os
import re
import select
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Literal

import structlog
from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from steersman.cluster.account import obstacles
from steersman.cluster.gpu_units import gpu_milli, held_milli
from steersman.cluster.model import GPU_MILLI, UNLIMITED
from steersman.core.counting import counted
from steersman.kubernetes.client import ApiError, Client, UnreachableError
from steersman.kubernetes.lease import ALL_LEASES, APP_LABEL, POLICY_KEY, held_lease
from steersman.kubernetes.watch import Reflector
from steersman.live.runtime.cluster_use import ClusterUse, NodeRow, handlers
from steersman.live.runtime.listing import list_device_offers
from steersman.live.runtime.tasks import BackgroundTasks
from steersman.workloads.topology import RACK, ZONE

Column = Literal["name", "cpu", "memory", "pods", "gpu"]
TITLES: Mapping[Column, str] = {"cpu": "CPU", "memory": "GiB", "pods": "Pods", "gpu": "GPUs"}
NAMED_PROBLEMS = 3
NAME_WIDTH = (12, 40)
BAR_WIDTH = (3, 24)
ONCE_BAR_WIDTH = 10
GAP = 2
NEARLY_FULL, FULL = 0.7, 0.9
BLOCKS, ASCII = "█░", "#."
HELD_SECONDS = 0.05  # time after which an ESC is the key Escape, and not the first byte of another key
KEY = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~])|.", re.DOTALL)
INCOMPLETE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")
CHARACTERS = {"\x03": "ctrl+c", "\x1b": "escape", "\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace"}
SEQUENCES = {
    **{"A": "up", "B": "down", "H": "home", "F": "end", "1~": "home", "7~": "home", "4~": "end", "8~": "end"},
    **{"5~": "page up", "6~": "page down"},
}
"""Keys by what follows ESC [ or ESC O, as xterm, rxvt, screen and the Linux console send it."""
REFRESH_SECONDS = 0.33
LEADERS_SECONDS = 3.0
WARNING_SECONDS = 10.0
SORT_KEYS: dict[str, Column] = {"n": "name", "c": "cpu", "m": "memory", "p": "pods", "g": "gpu"}
SCROLL_KEYS = {"k": "up", "j": "down", " ": "page down"}
FOOTER = "[b]q[/] Quit  [b]n[/] Name  [b]c[/] CPU  [b]m[/] Memory  [b]p[/] Pods  [b]g[/] GPUs  [b]/[/] Filter"
HINT = "part of a name, GPU model or state"


@dataclass(frozen=True, slots=True)
class Leader:
    """A scheduler of ours by its lease: holder ("" for none), and the policy in use."""

    lease: str
    holder: str
    policy: str


async def leaders(client: Client) -> list[Leader]:
    """Return our schedulers with leader election; empty if leases may not be listed or the server does not answer."""
    try:
        result = await client.list(ALL_LEASES, {"labelSelector": "=".join(APP_LABEL)})
    except (ApiError, UnreachableError):
        return []
    found = [(lease.metadata, lease.spec.holder_identity) for lease in map(held_lease, result.items)]
    return [
        Leader(f"{meta.namespace}/{meta.name}", holder or "", (meta.annotations or {}).get(POLICY_KEY, ""))
        for meta, holder in found
    ]


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """Filter and order of the nodes."""

    column: Column = "name"  # column to sort by; names alphabetically, others by fullness
    reverse: bool = False  # whether the order is reversed
    pattern: str = ""  # only nodes with this in their name, GPU model or state

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
        return self.name + sum(GAP + self.bar + 1 + width for width in self.numbers.values())

    def titles(self, choice: ViewOptions) -> Text:
        """Return the line of titles; an arrow marks the sorted column."""
        line = Text(set_cell_size("Node" + _arrow("name", choice), self.name), style="bold")
        for column, width in self.numbers.items():
            title = TITLES[column] + _arrow(column, choice)
            line.append(" " * GAP + set_cell_size(title, self.bar + 1 + width))
        return line

    def line(self, row: NodeRow, blocks: str = BLOCKS) -> Text:
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
                "zone": row.node.labels.get(ZONE, ""),
                "rack": row.node.labels.get(RACK, ""),
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


@contextmanager
def pressed_keys(press: Callable[[str], None]) -> Iterator[None]:
    """Call `press` with the keys that are pressed during the block; afterwards the terminal is as it was before.

    A key is a character or a name, such as `page up`. `ctrl+c` is one, and sends no signal; so is the terminal's end.
    """
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    before, mode = termios.tcgetattr(terminal), termios.tcgetattr(terminal)
    mode[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
    mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
    stop, stopping = os.pipe()

    def read() -> None:
        text = ""
        while stop not in (ready := select.select([terminal, stop], [], [], HELD_SECONDS if text else None)[0]):
            if ready:
                try:
                    data = os.read(terminal, 4096)
                except OSError:
                    data = b""
                if not data:
                    loop.call_soon_threadsafe(press, "ctrl+c")
                    return
                text += decoder.decode(data)
            if not ready or not INCOMPLETE.search(text):
                for key in KEY.findall(text):
                    if name := CHARACTERS.get(key, key) if len(key) == 1 else SEQUENCES.get(key[2:]):
                        loop.call_soon_threadsafe(press, name)
                text = ""

    # A thread, since uvloop would make the terminal non-blocking, and frames that are written to it incomplete.
    reader = threading.Thread(target=read, daemon=True)
    termios.tcsetattr(terminal, termios.TCSADRAIN, mode)
    reader.start()
    try:
        yield
    finally:
        os.close(stopping)
        reader.join()
        os.close(stop)
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(terminal, termios.TCSAFLUSH, before)


class TopApp:
    """The terminal application."""

    def __init__(self, client: Client, title: str, choice: ViewOptions, blocks: str) -> None:
        self._client, self._title, self._choice, self._blocks = client, title, choice, blocks
        self._console = Console()
        self.view = ClusterUse()
        self._leaders: list[Leader] = []
        self._first, self._page, self._shown = 0, 1, 0
        self._warning, self._warned_at = "", 0.0
        self._synced = self._filtering = self._quitting = False
        self._pressed = asyncio.Event()

    async def run(self) -> None:
        """Show the cluster until the user quits. Raises SteersmanError: it cannot be watched."""
        # Log lines on the terminal would destroy the screen.
        structlog.configure(processors=[self._keep_warning])
        drawn: tuple[object, ...] = (None,)
        try:
            with Live(console=self._console, screen=True, auto_refresh=False) as live, pressed_keys(self._press):
                async with BackgroundTasks(self._watch(), self._ask_leaders()):
                    while not self._quitting:
                        rate, size = self.view.rate(time.monotonic()), self._console.size
                        state = (
                            *(self.view.version, round(rate), tuple(self._leaders), self._current_warning()),
                            *(self._synced, self._filtering, self._choice, self._first, size),
                        )
                        if size != drawn[-1]:
                            self._console.clear()  # a terminal may keep what no longer fits on it
                        if state != drawn:
                            live.update(self.frame(rate, *size), refresh=True)
                        drawn = state
                        with suppress(TimeoutError):
                            async with asyncio.timeout(REFRESH_SECONDS):
                                await self._pressed.wait()
                        self._pressed.clear()
        finally:
            structlog.reset_defaults()

    def _press(self, key: str) -> None:
        self._pressed.set()
        choice, filtering = self._choice, self._filtering
        if key == "ctrl+c" or (key == "q" and not filtering):
            self._quitting = True
        elif key in ("escape", "enter"):
            self._filtering = False
            if key == "escape":
                self._filter("")
        elif filtering and (key == "backspace" or len(key) == 1):
            self._filter(choice.pattern[:-1] if key == "backspace" else choice.pattern + key)
        elif key == "/":
            self._filtering = True
        elif (column := SORT_KEYS.get(key)) is not None:
            self._choice = replace(choice, column=column, reverse=column == choice.column and not choice.reverse)
        else:
            steps = {"up": -1, "down": 1, "page up": -self._page, "page down": self._page}
            steps |= {"home": -sys.maxsize, "end": sys.maxsize}
            self._scroll(steps.get(SCROLL_KEYS.get(key, key), 0))

    def _filter(self, pattern: str) -> None:
        self._choice, self._first = replace(self._choice, pattern=pattern), 0

    def _scroll(self, lines: int) -> None:
        self._first = max(0, min(self._first + lines, self._shown - self._page))

    async def _watch(self) -> None:
        followed = [Reflector(self._client, path, handler) for path, handler in handlers(self.view).items()]
        self.view.offers = await list_device_offers(self._client)
        async with BackgroundTasks(*(each.run() for each in followed)):
            for each in followed:
                await each.synced.wait()
            self._synced = True
            await asyncio.Event().wait()

    async def _ask_leaders(self) -> None:
        while True:
            self._leaders = await leaders(self._client)
            await asyncio.sleep(LEADERS_SECONDS)

    def frame(self, rate: float, width: int, height: int) -> Text:
        """Return what fills the terminal: heading, titles, nodes, the filter, keys."""
        everything = self.view.rows()
        rows = self._choice.of(everything)
        layout = layout_for(everything, width - 2)
        texts = heading(self.view, self._title, rate, self._leaders, len(rows))
        top = [Text(text) for text in (texts if self._synced else [f"{self._title}: reading nodes and pods"])]
        if warning := self._current_warning():
            top.append(Text(warning, "red"))
        top = [line for text in top for line in text.wrap(self._console, width - 2)][: height // 2]
        top.append(layout.titles(self._choice))
        top[-1].pad_right(width - top[-1].cell_len)
        top[-1].stylize("reverse")
        bottom = [Text.from_markup(FOOTER)]
        if self._filtering or self._choice.pattern:
            cursor, hint = " " if self._filtering else "", "" if self._choice.pattern else HINT
            bottom.insert(0, Text.assemble("/", self._choice.pattern, (cursor, "reverse"), (hint, "dim")))
        self._page, self._shown = max(1, height - len(top) - len(bottom)), len(rows)
        self._scroll(0)
        visible = rows[self._first : self._first + self._page]
        if len(visible) < len(rows):
            bottom[-1].append(f"  {self._first + 1}-{self._first + len(visible)} of {len(rows)}")
        nodes = [layout.line(row, self._blocks) for row in visible] + [Text()] * (self._page - len(visible))
        lines = (Text(" ").append_text(line) for line in top + nodes + bottom)
        return Text("\n", no_wrap=True, overflow="crop").join(lines)

    def _current_warning(self) -> str:
        return self._warning if time.monotonic() - self._warned_at < WARNING_SECONDS else ""

    def _keep_warning(self, _: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        """Keep a log event for the status line; written to the terminal it would destroy the screen."""
        self._warning, self._warned_at = str(event.get("error") or event.get("event")), time.monotonic()
        raise structlog.DropEvent
