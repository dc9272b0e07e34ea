"""Terminal application of `steersman top`; only visible lines are drawn."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import ClassVar

import structlog
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Footer, Input, Static

from steersman.apps.runtime.device_lists import list_device_offers
from steersman.apps.top.model import ClusterUse, NodeRow
from steersman.apps.top.render import BLOCKS, Column, Layout, ViewOptions, heading, layout_for
from steersman.apps.top.watch import Leader, leaders, reflectors
from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import Client

REFRESH_SECONDS = 0.33
LEADERS_SECONDS = 3.0
WARNING_SECONDS = 10.0


class NodeListView(ScrollView, can_focus=True):
    """Scrollable lines of all nodes; visible ones are drawn."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_up", "Up", show=False),
        Binding("down,j", "scroll_down", "Down", show=False),
        Binding("pageup", "page_up", "Page up", show=False),
        Binding("pagedown,space", "page_down", "Page down", show=False),
        Binding("home", "scroll_home", "Top", show=False),
        Binding("end", "scroll_end", "Bottom", show=False),
    ]

    def __init__(self, blocks: str) -> None:
        super().__init__()
        self._rows: Sequence[NodeRow] = ()
        self._layout = layout_for((), 80)
        self._blocks = blocks

    def show(self, rows: Sequence[NodeRow], layout: Layout) -> None:
        """Replace the rows."""
        self._rows, self._layout = rows, layout
        self.virtual_size = Size(layout.width, len(rows))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return the line at `y` of the visible part."""
        left, top = self.scroll_offset
        width = self.size.width
        if y + top >= len(self._rows):
            return Strip.blank(width, self.rich_style)
        text = self._layout.line(self._rows[y + top], self._blocks)
        strip = Strip(text.render(self.app.console, end=""))
        return strip.crop_extend(left, left + width, self.rich_style).apply_style(self.rich_style)


class TopApp(App[str]):
    """The terminal application; its return value is an error in one line, or None.

    Args:
        client: connection to the cluster.
        title: name of the cluster.
        choice: initial sorting and filter.
        blocks: characters of bars.
    """

    CSS = """
    #heading { height: auto; padding: 0 1; }
    #titles { height: 1; padding: 0 1; background: $panel; }
    NodeListView { height: 1fr; padding: 0 1; }
    #filter { display: none; border: none; height: 1; padding: 0 1; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
        Binding("n", "sort('name')", "Name"),
        Binding("c", "sort('cpu')", "CPU"),
        Binding("m", "sort('memory')", "Memory"),
        Binding("p", "sort('pods')", "Pods"),
        Binding("g", "sort('gpu')", "GPUs"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "clear_filter", "Clear filter", show=False),
    ]

    def __init__(self, client: Client, title: str, choice: ViewOptions, blocks: str = BLOCKS) -> None:
        # Textual's own answer to NO_COLOR is shades of grey, which are colours of a terminal, too.
        super().__init__(ansi_color=True if os.environ.get("NO_COLOR") else None)
        self.animation_level = "none"  # else a page is drawn a dozen times
        self._client, self._cluster, self._choice = client, title, choice
        self._view = ClusterUse()
        self._leaders: list[Leader] = []
        self._list = NodeListView(blocks)
        self._drawn: tuple[object, ...] = ()
        self._warning, self._warned_at = "", 0.0
        self._watching: list[asyncio.Task[None]] = []
        self._synced = False

    def compose(self) -> ComposeResult:
        """Return the widgets from top to bottom."""
        yield Static(id="heading", markup=False)
        yield Static(id="titles", markup=False)
        yield self._list
        yield Input(id="filter", placeholder="part of a name, GPU model or state", value=self._choice.pattern)
        yield Footer()

    def on_mount(self) -> None:
        """Start the watches."""
        # Log lines on the terminal would destroy the screen.
        structlog.configure(processors=[self._keep_warning])
        self._watching = [asyncio.create_task(self._watch()), asyncio.create_task(self._ask_leaders())]
        self._list.focus()
        self.set_interval(REFRESH_SECONDS, self._tick)

    async def on_unmount(self) -> None:
        """Stop the watches."""
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        structlog.reset_defaults()

    def action_sort(self, column: Column) -> None:
        """Sort by a column; by the same again, reverse."""
        old = self._choice
        self._choice = ViewOptions(column, column == old.column and not old.reverse, old.pattern)
        self._draw()

    def action_filter(self) -> None:
        """Open the filter's input."""
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    def action_clear_filter(self) -> None:
        """Show all nodes."""
        box = self.query_one("#filter", Input)
        box.value = ""
        box.display = False
        self._list.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Apply the filter while it is typed."""
        self._choice = ViewOptions(self._choice.column, self._choice.reverse, event.value)
        self._list.scroll_home(animate=False)
        self._draw()

    def on_input_submitted(self) -> None:
        """Close the input and keep the filter."""
        box = self.query_one("#filter", Input)
        box.display = bool(box.value)
        self._list.focus()

    def on_resize(self) -> None:
        """Adapt lines to the terminal's width."""
        self._draw()

    async def _watch(self) -> None:
        followed = reflectors(self._client, self._view)
        try:
            self._view.offers = await list_device_offers(self._client)
            async with asyncio.TaskGroup() as group:
                for reflector in followed:
                    group.create_task(reflector.run())
                for reflector in followed:
                    await reflector.synced.wait()
                self._synced = True
        # The task group raises a group; `except*` makes one of a plain error, too.
        except* SteersmanError as failed:
            self.exit(str(failed.exceptions[0]))

    async def _ask_leaders(self) -> None:
        while True:
            self._leaders = await leaders(self._client)
            await asyncio.sleep(LEADERS_SECONDS)

    def _tick(self) -> None:
        """Redraw if the cluster changed; the rate is read every time, since it is measured between reads."""
        rate = self._view.rate(time.monotonic())
        now = self._view.version, round(rate), tuple(self._leaders), self._current_warning(), self._synced
        if now != self._drawn:
            self._drawn = now
            self._draw(rate)

    def _draw(self, rate: float | None = None) -> None:
        if not self.is_running:
            return
        if rate is None:
            rate = self._view.rate(time.monotonic())
        everything = self._view.rows()
        rows = self._choice.of(everything)
        layout = layout_for(everything, self.size.width - 4)
        lines = heading(self._view, self._cluster, rate, self._leaders, len(rows))
        text = Text("\n".join(lines if self._synced else [f"{self._cluster}: reading nodes and pods"]))
        if warning := self._current_warning():
            text.append(f"\n{warning}", style="red")
        self.query_one("#heading", Static).update(text)
        self.query_one("#titles", Static).update(layout.titles(self._choice))
        self._list.show(rows, layout)

    def _current_warning(self) -> str:
        return self._warning if time.monotonic() - self._warned_at < WARNING_SECONDS else ""

    def _keep_warning(self, _: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        """Keep a log event for the status line; written to the terminal it would destroy the screen."""
        self._warning, self._warned_at = str(event.get("error") or event.get("event")), time.monotonic()
        raise structlog.DropEvent
