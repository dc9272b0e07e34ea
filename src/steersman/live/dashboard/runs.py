"""Folders and files of runs that the dashboard shows, and their CSV tables."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import math
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

from steersman.core.atomic_files import open_regular_file
from steersman.core.errors import InputError, SteersmanError, UsageError, displayed
from steersman.evaluation.replay_file import REPLAY
from steersman.evaluation.results import PARTIAL, PLACEMENTS, SUMMARY, TIMELINE
from steersman.workloads.files import CSV_SUFFIXES
from steersman.workloads.generators import deployments

Kind = Literal["simulation", "evaluation", "deployments", "bindings"]
FileKind = Literal["deployments", "bindings"]
MOST_FOLDERS = 5000  # folders that are looked into below one that a person named
MOST_BYTES = 1 << 29  # of a file that is read as a whole
HEADER_BYTES = 4096  # of a CSV file that are read to tell its kind
BINDINGS_COLUMNS = {"pod_name", "action", "reward"}
"""Columns by which a recording of a scheduler is told from other files; those of nodes may be thousands."""
READ = (
    "expected a folder of steersman simulate or evaluate (their --output), one that has such folders in it, a CSV file "
    "of workload run or a recording of a scheduler; training is shown by tensorboard --logdir FOLDER"
)
MOST_TEXT_BYTES = 1 << 27  # of a text, unpacked; a recording of 1,000 nodes has them at about 6,000 pods
T = TypeVar("T")
WHOLE_NUMBER = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run in a folder, or in a file of its own."""

    kind: Kind  # by its files
    folder: Path  # where it is, without links
    root: Path  # the folder that a person named, or that of the file; nothing outside of it is read
    # What it is called: its place below the root, and as much of the root's path as tells it from other roots
    name: str
    table: str = ""  # name of the file that is the run, "" where the folder is

    @property
    def id(self) -> str:
        """What pages call it."""
        return hashlib.sha256(os.fsencode(self.folder / self.table)).hexdigest()[:12]

    def open(self, name: str, most: int = MOST_BYTES) -> BinaryIO:
        """Open a file of the run for reading."""
        path = self.folder / name
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(self.root):
            raise InputError(path, "", "", f"is a link out of {self.root}; expected a file of that folder")
        try:
            file = open_regular_file(real)
        except FileNotFoundError:
            raise InputError(path, "", "", "is missing") from None
        except OSError as error:
            raise InputError(path, "", "", f"cannot be read: {error.strerror}") from None
        if (size := os.fstat(file.fileno()).st_size) > most:
            file.close()
            raise InputError(path, "", "", f"has {size} bytes; at most {most} are read")
        return file

    def version(self, name: str) -> str:
        """Return a text that changes with a file of the run. Raises InputError: see `open`."""
        with self.open(name) as file:
            status = os.fstat(file.fileno())
        return f"{status.st_mtime_ns}-{status.st_size}"

    @contextmanager
    def wrapped_read_errors(self) -> Iterator[None]:
        """Turn what damaged files make readers raise into one line, so that a list shows the other runs."""
        try:
            yield
        except (OSError, ValueError, ArithmeticError, RecursionError) as error:
            raise InputError(self.folder / self.table, "", "", f"cannot be read: {error}") from None


def find_runs(given_paths: Iterable[Path]) -> tuple[list[FoundRun], list[SteersmanError]]:
    """Return the runs in folders and files, each once, and what keeps others from being read."""
    runs: dict[tuple[Path, Kind], FoundRun] = {}
    problems: list[SteersmanError] = []
    roots = {given: Path(os.path.realpath(given)) for given in given_paths}
    names = _root_names(roots.values())
    for given, root in roots.items():
        if not os.path.exists(root):
            raise UsageError(f"{given}: there is no such file or folder; {READ}")
        if not root.is_dir():
            if (of_file := _kind_of_file(root)) is None:
                raise UsageError(f"{given}: is no CSV of workload run and no recording of a scheduler; {READ}")
            found = FoundRun(of_file, root.parent, root.parent, displayed(names[root]), root.name)
            runs.setdefault((root, of_file), found)
            continue
        before = len(runs), len(problems)
        for folder, files in _below(root):
            name = os.path.normpath(names[root] / folder.relative_to(root))
            kinds, problem = _kinds(folder, files)
            for kind in kinds:
                runs.setdefault((folder, kind), FoundRun(kind, folder, root, displayed(name)))
            for table in sorted(files):
                if (of_file := _kind_of_file(folder / table)) is not None:
                    found = FoundRun(of_file, folder, root, displayed(f"{name}/{table}"), table)
                    runs.setdefault((folder / table, of_file), found)
            if problem:
                problems.append(problem)
        if (len(runs), len(problems)) == before and not any(root in each.folder.parents for each in runs.values()):
            if any(each.folder == root for each in runs.values()):
                continue  # the same folder, given twice, or a file in it
            raise UsageError(f"{given}: has no run in it; {READ}")
    if not runs and problems:
        raise problems[0]
    return list(runs.values()), problems


def _root_names(roots: Iterable[Path]) -> dict[Path, Path]:
    """Return the end of each path by which its runs are told from those of the others: its last part, if that does."""
    lengths = dict.fromkeys(roots, 1)
    while True:
        by_end: dict[tuple[str, ...], set[Path]] = {}
        for root, length in lengths.items():
            by_end.setdefault(root.parts[-length:], set()).add(root)
        clashing: set[Path] = set()
        for root, length in lengths.items():
            for shorter in range(1, length + 1):
                # A root and one above it, named alike, give the same name to the same folder alone.
                ancestor = Path(*root.parts[: len(root.parts) - length + shorter])
                others = by_end.get(root.parts[-length:][:shorter], set()) - {ancestor}
                clashing |= others | {root} if others else set()
        if not clashing:
            return {root: Path(*root.parts[-length:]) for root, length in lengths.items()}
        for root in clashing:
            lengths[root] = min(lengths[root] + 1, len(root.parts))


def _below(root: Path) -> Iterator[tuple[Path, set[str]]]:
    """Yield a folder and those below it, without hidden ones and links, with the names of their files."""
    for count, (place, folders, names) in enumerate(os.walk(root, followlinks=False), start=1):
        if count > MOST_FOLDERS:
            raise UsageError(f"{root}: has more than {MOST_FOLDERS} folders in it; name those of the runs")
        # In place, by which os.walk learns where to go.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield Path(place), set(names)


def _kinds(folder: Path, names: set[str]) -> tuple[Sequence[Kind], SteersmanError | None]:
    """Return the kinds of runs in a folder by the names of its files, and what keeps one from being read."""
    kinds: list[Kind] = []
    if {PLACEMENTS, TIMELINE, REPLAY} <= names:
        kinds.append("simulation")
    elif names & {PLACEMENTS, TIMELINE, REPLAY}:
        missing = ", ".join(sorted({PLACEMENTS, TIMELINE, REPLAY} - names))
        return kinds, InputError(folder, "", "", f"is half of a simulated run: {missing} is missing; simulate it again")
    if SUMMARY in names:
        kinds.append("evaluation")
    elif PARTIAL in names:
        problem = f"holds an evaluation that was interrupted ({PARTIAL}); run steersman evaluate to its end"
        return kinds, InputError(folder, "", "", problem)
    return kinds, None


def _kind_of_file(path: Path) -> FileKind | None:
    if not path.name.endswith(CSV_SUFFIXES):
        return None
    try:
        with open_regular_file(path) as file:
            text = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
            header = text.readline(HEADER_BYTES).decode("utf-8-sig", errors="replace")
    except (OSError, EOFError, zlib.error):
        return None
    columns = {cell.strip() for cell in header.split(",")}
    if columns >= set(deployments.COLUMNS):
        return "deployments"
    return "bindings" if columns >= BINDINGS_COLUMNS else None


def parse_growing(run: FoundRun, name: str, parse: Callable[[Path, Iterable[str]], T]) -> T:
    """Parse a text to which another process may append: half a line at the end is left out.

    A last line without an end that can be parsed is taken as whole, since people write such files.

    Raises:
        InputError: it cannot be read or unpacked, or has more than `MOST_TEXT_BYTES`.
        Exception: what `parse` raises.
    """
    path, content = run.folder / name, _unpacked(run, name)
    complete = content[: content.rfind(b"\n") + 1]
    try:
        return parse(path, _decoded_lines(path, io.BytesIO(content)))
    except (InputError, ValueError):
        if len(complete) == len(content):
            raise
    return parse(path, _decoded_lines(path, io.BytesIO(complete)))


def _unpacked(run: FoundRun, name: str) -> bytes:
    packed = name.endswith(".gz")
    with run.open(name) as file:
        try:
            # One byte more tells that there are too many, and a packed file is never unpacked beyond.
            content = (gzip.GzipFile(fileobj=file) if packed else file).read(MOST_TEXT_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(run.folder / name, "", "", f"cannot be read: {error}") from None
    if len(content) > MOST_TEXT_BYTES:
        unpacked = "unpacked " if packed else ""
        problem = f"has {unpacked}more than {MOST_TEXT_BYTES >> 20} MiB; the dashboard reads files of less"
        raise InputError(run.folder / name, "", "", problem)
    return content


def _decoded_lines(path: Path, file: BinaryIO) -> Iterator[str]:
    # A strict decoder fails for the whole block that it reads ahead, and does not say in which line.
    with io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
        for number, line in enumerate(text, start=1):
            try:
                line.encode()
            except UnicodeEncodeError:
                raise InputError(path, f"line {number}", "", "is no UTF-8: the file is damaged") from None
            yield line


def rows_of(run: FoundRun, name: str, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file with these columns, with their line numbers."""
    with run.open(name) as file:
        reader = csv.reader(_decoded_lines(run.folder / name, file))
        try:
            header = next(reader, [])
            if header != list(columns):
                problem = f"has the columns {','.join(header)[:200] or 'of no line'}; expected {','.join(columns)}"
                raise InputError(run.folder / name, "line 1", "", problem)
            for row in reader:
                if len(row) != len(columns):
                    problem = f"has {len(row)} of {len(columns)} cells: it is damaged, or was not written to its end"
                    raise InputError(run.folder / name, f"line {reader.line_num}", "", problem)
                yield reader.line_num, row
        except csv.Error as error:
            place = f"line {reader.line_num + 1}"
            raise InputError(run.folder / name, place, "", f"is no CSV of steersman: {error}") from None


def cell_number(run: FoundRun, name: str, line: int, column: str, text: str) -> float:
    """Return the number in a cell, NaN if it is empty. Raises InputError: it is none."""
    try:
        return float(text) if text else math.nan
    except ValueError:
        raise InputError(run.folder / name, f"line {line}", column, f"{text[:40]!r} is not a number") from None


def cell_whole_number(run: FoundRun, name: str, line: int, column: str, text: str) -> int:
    """Return the whole number in a cell, such as a seed or a count. Raises InputError: it is none."""
    if not WHOLE_NUMBER.fullmatch(text):
        problem = f"{text[:40]!r} is no whole number of at most 19 digits"
        raise InputError(run.folder / name, f"line {line}", column, problem)
    return int(text)
