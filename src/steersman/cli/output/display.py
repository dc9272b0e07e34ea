"""Terminal output: one-line messages, a progress bar after two seconds, tables."""

from __future__ import annotations

import enum
import math
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from steersman.core.redaction import redact

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.table import Table

    from steersman.training.run import TrainingProgress

PATIENCE_SECONDS = 2.0
LINE_EVERY_SECONDS = 10.0
REFRESH_SECONDS = 0.1
PIPE_WIDTH = 200
TEXT_WIDTH = 118
PROGRESS_METRICS = (
    "gain",
    "reward",
    "return",
    "loss",
    "policy_loss",
    "allocation",
    "throughput",
)  # metrics of an iteration that a line of progress shows


_mirrors: list[Callable[[str], None]] = []


def mirror_lines(write: Callable[[str], None] | None) -> None:
    """Pass every line that this process says from now on to `write`, too; None: to nothing."""
    _mirrors[:] = [] if write is None else [write]


def say(message: str) -> None:
    """Print a line on standard error, without secrets. A closed terminal is no error."""
    message = redact(message)
    with suppress(OSError):
        print(message, file=sys.stderr, flush=True)
    _mirror(message)


def _mirror(message: str) -> None:
    for write in _mirrors:
        write(message)


def say_text(text: str) -> None:
    say(wrapped(text, min(terminal_width(), TEXT_WIDTH) if sys.stderr.isatty() else TEXT_WIDTH))


def print_text(text: str) -> None:
    print(wrapped(text, min(width(), TEXT_WIDTH)))


def wrapped(text: str, room: int) -> str:
    """Return paragraphs, wrapped at words to `room` columns; indented lines (commands to copy) stay whole."""
    wrapper = textwrap.TextWrapper(room, break_long_words=False, break_on_hyphens=False)
    return "\n".join(line if line.startswith(" ") else wrapper.fill(line) for line in text.splitlines())


def one_line(text: str) -> str:
    return " ".join(text.split())


@contextmanager
def status_if_slow(message: str) -> Iterator[None]:
    """Print a message if the block takes more than two seconds."""
    timer = threading.Timer(PATIENCE_SECONDS, say, [message])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Warnings:
    """Print every warning once."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, warnings: Sequence[str]) -> None:
        for warning in warnings:
            if warning not in self._said:
                self._said.add(warning)
                say(f"warning: {one_line(warning)}")


class Progress:
    """Progress of `total` steps: nothing for two seconds, then a bar, or an occasional line off a terminal.

    Args:
        estimate: whether steps are similar enough to estimate the remaining time; else the elapsed time is shown.
    """

    def __init__(self, what: str, *, estimate: bool = True) -> None:
        self._what, self._total, self._done, self._estimate = what, 0, 0, estimate
        self._began = time.monotonic()
        self._bar: Bar | None = None
        self._first_done, self._first_at = 0, 0.0
        # So that the first line comes after `PATIENCE_SECONDS`, and further ones `LINE_EVERY_SECONDS` apart.
        self._said = time.monotonic() + PATIENCE_SECONDS - LINE_EVERY_SECONDS
        self._timer = threading.Timer(PATIENCE_SECONDS, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        # A thread that was never started cannot be joined. `_show` may be running, and would start a bar after the
        # stop.
        if self._timer.ident is not None:
            self._timer.join()
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int) -> None:
        self._done, self._total = done, total
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total)
        elif not sys.stderr.isatty():
            self._line(time.monotonic())

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        clock = TimeRemainingColumn() if self._estimate else TimeElapsedColumn()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), clock)
        bar = Progress(*columns, console=Console(stderr=True), transient=True)
        bar.add_task(self._what, total=self._total or None, completed=self._done)
        bar.start()
        # Last, since `update` uses the bar in another thread as soon as it is set.
        self._bar = bar

    def _line(self, now: float) -> None:
        if not self._first_done:
            self._first_done, self._first_at = self._done, now
        if now - self._said >= LINE_EVERY_SECONDS and 0 < self._done < self._total:
            self._said = now
            # Counted from the first finished step: loading before it is not repeated.
            since = self._done - self._first_done
            seconds = (now - self._first_at) / since * (self._total - self._done) if since else 0.0
            left = f", about {seconds:.0f} s left" if since else ""
            so_far = f", {now - self._began:.0f} s so far"
            say(f"{self._what}: {self._done} of {self._total}{left if self._estimate else so_far}")


class Scroll(enum.StrEnum):
    LINE = "line"
    SCROLL = "scroll"
    NONE = "none"


class TrainingProgressBar:
    """Progress of a training run.

    Args:
        scroll: `line`, a line that is updated on a terminal, or an occasional one elsewhere; `scroll`, a line for every
            iteration; `none`.
    """

    def __init__(self, iterations: int, minutes: float | None, scroll: Scroll = Scroll.LINE) -> None:
        self._iterations, self._seconds, self._scroll = iterations, 60 * minutes if minutes else math.inf, scroll
        self._said = time.monotonic()
        self._mirrored = -math.inf
        self._live = sys.stderr.isatty() and scroll is Scroll.LINE
        self._first: tuple[int, float] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._write("\n")

    def update(self, progress: TrainingProgress, numbers: dict[str, float]) -> None:
        if self._first is None:
            self._first = progress.iteration, progress.seconds
        now = time.monotonic()
        waits = now - self._said < (REFRESH_SECONDS if self._live else LINE_EVERY_SECONDS)
        is_last = progress.iteration >= self._iterations
        if self._scroll is Scroll.NONE or (self._scroll is Scroll.LINE and waits and not is_last):
            return
        self._said = now
        texts = [f"{name} {value:.4g}" for name, value in numbers.items() if name in PROGRESS_METRICS]
        if math.isfinite(progress.best):
            texts.append(f"best validation {progress.best:.2f}")
        head = f"training: {progress.iteration} of {self._iterations}{self._left(progress)}"
        text = ": ".join(filter(None, (head, ", ".join(texts))))
        # Back to the first column and erase. A line of full width would wrap, and its first part would stay.
        self._write(f"\r\033[K{text[: terminal_width() - 1]}" if self._live else f"{text}\n")
        # The line of a terminal changes ten times a second, which would fill a log file.
        if not self._live or is_last or now - self._mirrored >= LINE_EVERY_SECONDS:
            self._mirrored = now
            _mirror(text)

    def _left(self, progress: TrainingProgress) -> str:
        assert self._first is not None
        done, took = progress.iteration - self._first[0], progress.seconds - self._first[1]
        if not done:
            return ""
        # `_seconds` is infinite without --minutes, so the first estimate counts then.
        left = min(took / done * (self._iterations - progress.iteration), self._seconds - progress.seconds)
        return f", about {max(left, 0.0) / 60:.0f} min left" if left >= 90 else f", about {max(left, 0.0):.0f} s left"

    def _write(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()


def terminal_width() -> int:
    from rich.console import Console

    return Console().width


def width() -> int:
    """Return the columns for a table on standard output: those of the terminal, many if there is none."""
    return terminal_width() if sys.stdout.isatty() else PIPE_WIDTH


def print_json(value: object) -> None:
    """Print a value as a JSON document on standard output; numbers that are not finite are null."""
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_rows(
    rows: Iterable[Sequence[str]], texts: Sequence[str], numbers: Sequence[str], title: str | None = None
) -> None:
    """Print a table with columns of texts, then of numbers, by their titles."""
    from rich import box
    from rich.table import Table

    table = Table(*texts, box=box.SIMPLE_HEAD, title=title)
    for column in numbers:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    print_table(table)


def print_table(table: Table) -> None:
    """Print a table on standard output, with its texts unchanged: a file named `jobs[v2]` is not markup."""
    from rich.console import Console

    Console(width=width(), highlight=False, markup=False, emoji=False).print(table)
