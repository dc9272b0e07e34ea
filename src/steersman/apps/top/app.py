"""The screen of `steersman top`; only visible nodes are drawn."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from dataclasses import replace

import structlog
from rich.console import Console
from rich.live import Live
from rich.text import Text

from steersman.apps.runtime.cluster_use import ClusterUse, handlers
from steersman.apps.runtime.device_lists import list_device_offers
from steersman.apps.runtime.tasks import BackgroundTasks
from steersman.apps.top.keys import pressed_keys
from steersman.apps.top.leaders import Leader, leaders
from steersman.apps.top.render import Column, ViewOptions, heading, layout_for
from steersman.kubernetes.client import Client
from steersman.kubernetes.watch import Reflector

REFRESH_SECONDS = 0.33
LEADERS_SECONDS = 3.0
WARNING_SECONDS = 10.0
SORT_KEYS: dict[str, Column] = {"n": "name", "c": "cpu", "m": "memory", "p": "pods", "g": "gpu"}
SCROLL_KEYS = {"k": "up", "j": "down", " ": "page down"}
FOOTER = "[b]q[/] Quit  [b]n[/] Name  [b]c[/] CPU  [b]m[/] Memory  [b]p[/] Pods  [b]g[/] GPUs  [b]/[/] Filter"
HINT = "part of a name, GPU model or state"


class TopApp:
    """The terminal application.

    Args:
        client: connection to the cluster.
        title: name of the cluster.
        choice: initial sorting and filter.
        blocks: characters of bars.

    Attributes:
        view: the cluster.
    """

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
