"""Read CSV files of runs: whole ones, line by line, and growing ones, from where they were read last."""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import re
import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

from steersman.apps.dashboard.runs.folders import FoundRun
from steersman.core.errors import InputError

CHUNK_BYTES = 1 << 20
MOST_ROWS = 20_000
"""Rows of a growing file that are kept; of more, every second, fourth, ... is."""
LONGEST_LINE = 1 << 16
TOO_LONG = f"has more than {LONGEST_LINE} bytes: the file is damaged"
MOST_TEXT_BYTES = 1 << 27
"""Of a text that is read as a whole, unpacked; of a recording of 1,000 nodes these are about 6,000 pods."""
T = TypeVar("T")
WHOLE_NUMBER = re.compile(r"[0-9]{1,19}")


def parse_growing(run: FoundRun, name: str, parse: Callable[[Path, Iterable[str]], T]) -> T:
    """Parse a text to which another process may append: half a line at the end is left out.

    A last line without an end that can be parsed is taken as whole, since people write such files.

    Args:
        run: the run.
        name: of the file.
        parse: parses lines; the path is for errors.

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
    """Yield the rows of a CSV file with these columns, with their line numbers.

    Raises:
        InputError: it has other columns, a row of another length, or is not text.
    """
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


class GrowingTable:
    """Columns of numbers of a CSV file that another process appends to, or rewrites with more columns.

    Args:
        run: the run.
        name: of the file, whose first column counts up.

    Attributes:
        generation: changes whenever earlier rows are others than before.
        columns: numbers by name; NaN where a cell is empty.
    """

    def __init__(self, run: FoundRun, name: str) -> None:
        self._run, self._name = run, name
        self.generation = 0
        self._forget()

    def _forget(self) -> None:
        self.generation += 1
        self.columns: dict[str, array[float]] = {}
        self._header, self._offset, self._last = b"", 0, b""
        self._read, self._stride = 0, 1

    @property
    def rows(self) -> int:
        """Number of rows that are kept."""
        return len(next(iter(self.columns.values()), ()))

    def read(self) -> None:
        """Read what was appended since. Half a line at the end waits for its other half.

        Raises:
            InputError: the file cannot be read, or is no such table.
        """
        path = self._run.folder / self._name
        if not os.path.lexists(path):
            if self._offset:
                self._forget()
            return
        # Of any size, since it is read in parts.
        with self._run.open(self._name, sys.maxsize) as file:
            header = file.readline(LONGEST_LINE)
            if len(header) == LONGEST_LINE and not header.endswith(b"\n"):
                raise InputError(path, "line 1", "", TOO_LONG)
            if not header.endswith(b"\n"):
                if self._offset:
                    self._forget()
                return
            # A resumed run rewrites its table from the last checkpoint.
            if self._offset and not self._continues(file, header):
                self._forget()
            if not self._offset:
                self._begin(header)
            file.seek(self._offset)
            rest = b""
            while chunk := file.read(CHUNK_BYTES):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._add(line)
                if len(rest) > LONGEST_LINE:
                    raise InputError(path, f"line {self._read + 2}", "", TOO_LONG)

    def _continues(self, file: BinaryIO, header: bytes) -> bool:
        file.seek(self._offset - len(self._last))
        return header == self._header and file.read(len(self._last)) == self._last

    def _begin(self, header: bytes) -> None:
        names = header.decode(errors="replace").rstrip("\r\n").split(",")
        if names[0] != "iteration":
            problem = f"begins with the column {names[0][:40]!r}; expected iteration"
            raise InputError(self._run.folder / self._name, "line 1", "", problem)
        self._header, self._offset, self._last = header, len(header), header
        self.columns = {name: array("d") for name in names}

    def _add(self, line: bytes) -> None:
        cells = line.decode(errors="replace").rstrip("\r").split(",")
        try:
            numbers = [float(cell) if cell else math.nan for cell in cells]
        except ValueError:
            numbers = []
        if len(numbers) != len(self.columns):
            problem = "is no row of numbers as its columns are: the file is damaged"
            raise InputError(self._run.folder / self._name, f"line {self._read + 2}", "", problem)
        self._offset += len(line) + 1
        self._last = line + b"\n"
        if self._read % self._stride == 0:
            for column, number in zip(self.columns.values(), numbers, strict=True):
                column.append(number)
        self._read += 1
        if self.rows > MOST_ROWS:
            self._stride *= 2
            self.generation += 1
            self.columns = {name: column[::2] for name, column in self.columns.items()}

    def since(self, generation: int, row: int) -> tuple[int, dict[str, list[float | None]]]:
        """Return the columns from a row of a generation on: the first row that is returned, and the numbers."""
        first = row if generation == self.generation and row <= self.rows else 0
        return first, {
            name: [number if math.isfinite(number) else None for number in column[first:]]
            for name, column in self.columns.items()
        }
