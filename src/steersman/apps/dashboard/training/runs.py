"""A training run as its folder shows it: metrics, validations, progress and the end of its log, read as they grow."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from steersman.apps.dashboard.runs.folders import OPTIONS, FoundRun
from steersman.apps.dashboard.runs.tables import GrowingTable
from steersman.core.errors import InputError, SteersmanError
from steersman.core.folder_lock import is_locked
from steersman.training.control.progress import PROGRESS, RunProgress, decode_progress
from steersman.training.control.requests import LOG, pending_request, post_request

METRICS, VALIDATION = "metrics.csv", "validation.csv"
TABLES = (METRICS, VALIDATION)
LOG_BYTES, LOG_LINES = 16_384, 40
SMALL_BYTES = 1 << 22
"""Of run.json and progress.json."""

State = Literal["learning", "paused", "done", "stopped", "unknown"]


class RunHead(msgspec.Struct, kw_only=True, rename="camel"):
    """What a list says of a run.

    Attributes:
        id, name: what it is called.
        algorithm, reference: from its options: what it learns by, and the rule that validations compare with.
        state: `stopped` also if its process was killed; `unknown` of a run of an older version that does not run.
        progress: None for runs of older versions.
        seconds_left: estimate; None if nothing is known.
        pending: a request that it has not obeyed yet.
        problem: why it cannot be shown.
    """

    id: str
    name: str
    algorithm: str = ""
    reference: str = ""
    state: State = "unknown"
    progress: RunProgress | None = None
    seconds_left: float | None = None
    pending: str = ""
    problem: str = ""


class TableNews(msgspec.Struct, kw_only=True):
    """Rows of a growing table from `first` on; `generation` changes whenever earlier rows are others than before."""

    generation: int
    first: int
    columns: dict[str, list[float | None]]


class RunNews(msgspec.Struct, kw_only=True):
    """What is new of a run.

    Attributes:
        head: what a list says of it.
        tables: those that can be read.
        problems: why others cannot.
        log: its last lines.
    """

    head: RunHead
    tables: dict[str, TableNews]
    problems: list[str]
    log: list[str]


@dataclass(frozen=True, slots=True)
class Position:
    """What a page has of a table: its generation, and the number of rows."""

    generation: int = 0
    rows: int = 0


class TrainingFolder:
    """A training run, read incrementally.

    Args:
        run: where it is.
    """

    def __init__(self, run: FoundRun) -> None:
        self.run = run
        self._tables = {name: GrowingTable(run, name) for name in TABLES}

    def head(self) -> RunHead:
        """Return what a list says of the run."""
        head = RunHead(id=self.run.id, name=self.run.name)
        try:
            with self.run.wrapped_read_errors():
                self._read_head(head)
        except SteersmanError as error:
            head.problem = str(error)
        return head

    def _read_head(self, head: RunHead) -> None:
        options = _options(self.run)
        head.algorithm, head.reference = options["algorithm"], options["reference"]
        head.progress = _progress(self.run)
        runs = is_locked(self.run.folder)
        head.state = _state(head.progress, runs)
        if runs:
            head.pending = pending_request(self.run.folder)
        if head.progress is not None and head.state == "learning":
            head.seconds_left = seconds_left(head.progress)

    def ask(self, request: str) -> None:
        """Leave a request in the folder. Raises SteersmanError: see `post_request`; or the folder is a link by now."""
        folder = self.run.folder
        if Path(os.path.realpath(folder)) != folder:
            raise SteersmanError(f"{folder}: is a link by now, and was none when the dashboard began")
        post_request(folder, request)

    def news(self, known: dict[str, Position]) -> RunNews:
        """Return what a page does not know yet.

        Args:
            known: what it has, by table.
        """
        news = RunNews(head=self.head(), tables={}, problems=[], log=[])
        for name, table in self._tables.items():
            position = known.get(name, Position())
            try:
                with self.run.wrapped_read_errors():
                    table.read()
            except SteersmanError as error:
                news.problems.append(str(error))
                continue
            first, columns = table.since(position.generation, position.rows)
            news.tables[name] = TableNews(generation=table.generation, first=first, columns=columns)
        try:
            with self.run.wrapped_read_errors():
                news.log = _last_lines(self.run)
        except SteersmanError as error:
            news.problems.append(str(error))
        return news


def seconds_left(progress: RunProgress) -> float | None:
    """Return the estimated seconds to a run's limits, by the mean time of an iteration; None: it has no limits."""
    ends = []
    if progress.iterations is not None and progress.iteration:
        ends.append(progress.seconds / progress.iteration * (progress.iterations - progress.iteration))
    if progress.minutes is not None:
        ends.append(60 * progress.minutes - progress.seconds)
    return max(0.0, min(ends)) if ends else None


def _state(progress: RunProgress | None, runs: bool) -> State:
    if progress is None:
        return "learning" if runs else "unknown"
    if runs:
        return "paused" if progress.state == "paused" else "learning"
    return "done" if progress.state == "done" else "stopped"


def _options(run: FoundRun) -> dict[str, str]:
    with run.open(OPTIONS, SMALL_BYTES) as file:
        text = file.read()
    try:
        content = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InputError(run.folder / OPTIONS, "", "", f"is no run.json of steersman train: {error}") from None
    config = content.get("config")
    reference = content.get("reference") or (config.get("reference") if isinstance(config, dict) else "")
    return {"algorithm": str(content.get("algorithm", ""))[:100], "reference": str(reference or "")[:100]}


def _progress(run: FoundRun) -> RunProgress | None:
    if not os.path.lexists(run.folder / PROGRESS):
        return None
    with run.open(PROGRESS, SMALL_BYTES) as file:
        return decode_progress(run.folder / PROGRESS, file.read())


def _last_lines(run: FoundRun) -> list[str]:
    """Return the last lines of the log; of a large one only the end is read."""
    try:
        file = run.open(LOG, 1 << 40)
    except InputError:
        return []
    with file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - LOG_BYTES))
        lines = file.read(LOG_BYTES).decode(errors="replace").splitlines()
    # The first line may have lost its beginning.
    return lines[1 if size > LOG_BYTES else 0 :][-LOG_LINES:]
