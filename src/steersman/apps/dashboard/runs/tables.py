"""Read CSV files of runs, also while another process appends to them."""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

from steersman.apps.dashboard.runs.folders import FoundRun
from steersman.core.errors import InputError

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
