"""Tables as CSV files, read strictly: their text, header and rows."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TextIO

from steersman.cluster.gpu_units import GIB
from steersman.core.errors import InputError
from steersman.core.quantities import MAX_MEMORY_BYTES
from steersman.workloads.files import read_bytes

PLAIN = ("submit", "duration")  # columns that a table of jobs must have
PLAIN_TABLE = "a table of jobs written by hand"
HEAD_BYTES = 1 << 16  # bytes of a file by which its format is recognised
GZIP = b"\x1f\x8b"
NOTHING = frozenset(("", "none", "nan", "null", "unknown", "n/a"))  # cells that state nothing, in lower case
MAX_GIB = MAX_MEMORY_BYTES // GIB
_CLOCK = re.compile(r"(?:([0-9]+)-)?([0-9]+(?::[0-9]+){0,2}(?:\.[0-9]*)?)", re.ASCII)


class TableRow:
    """One CSV row with its position, so that every error names file, line and field."""

    def __init__(self, file: str, line: int, cells: Mapping[str, str]) -> None:
        self.file = file
        self.line = line
        self.cells = cells

    def error(self, field: str, problem: str) -> InputError:
        return InputError(self.file, f"line {self.line}", field, problem)

    def name(self, field: str) -> str:
        """Return a text that is not empty. Raises InputError."""
        value = self.cells[field].strip()
        if not value:
            raise self.error(field, "is empty; every row needs a name")
        return self.text(field)

    def text(self, field: str) -> str:
        """Return a text, "" of a column that is not there. Raises InputError: it cannot be printed."""
        value = self.cells.get(field, "").strip()
        if not value.isprintable():
            raise self.error(field, f"{value!r} has a character that cannot be printed")
        return value

    def integer(self, field: str, limit: int) -> int:
        """Return a whole number from 0 to a limit. Raises InputError."""
        text = self.cells[field].strip()
        # Plain ASCII digits only: int() would also take "1_000", "²" and the like.
        if not (text.isascii() and text.isdigit()):
            raise self.error(field, f"{text!r} is not a whole number of 0 or more")
        # Longer ones are above every limit, and Python refuses to convert thousands of digits.
        value = int(text) if len(text) < 20 else limit + 1
        if value > limit:
            raise self.error(field, f"{text} is beyond any real machine (at most {limit})")
        return value

    def number(self, field: str, limit: int) -> Decimal:
        """Return a decimal number from 0 to a limit. Raises InputError."""
        text = self.cells[field].strip()
        try:
            value = Decimal(text)
        except InvalidOperation:
            raise self.error(field, f"{text!r} is not a number of 0 or more") from None
        if not value.is_finite() or value < 0:
            raise self.error(field, f"{text!r} is not a number of 0 or more")
        if value > limit:
            raise self.error(field, f"{text} is beyond any real machine (at most {limit})")
        return value

    def seconds(self, field: str, *, positive: bool = False) -> float | None:
        """Return a time such as 90, 1:30 or 1-02:03:04 in seconds, None if the cell is empty."""
        text = self.cells.get(field, "").strip()
        if not text:
            return None
        try:
            value = float(text) if (clock := clock_seconds(text)) is None else clock
        except ValueError:
            raise self.error(field, f"{text!r} is not a number of seconds, nor a time such as 1-02:03:04") from None
        if positive and not 0 < value < 1e15:
            raise self.error(field, f"{text} is not a time above 0 seconds")
        if not 0 <= value < 1e15:
            raise self.error(field, f"{text} is not a time of 0 seconds or more")
        return value

    def date(self, field: str) -> float:
        """Return a date with a time of day in Unix seconds, in UTC if it names no zone. Raises InputError."""
        text = self.cells[field].strip()
        try:
            moment = datetime.fromisoformat(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            raise self.error(field, f"{text!r} is not a date; expected one such as 2024-05-01 12:00:00") from None

    def amount(self, field: str, limit: int) -> Decimal:
        """Return a number from 0 to a limit, 0 of a cell that states none. Raises InputError."""
        return self.number(field, limit) if self.is_stated(field) else Decimal(0)

    def gib(self, field: str) -> int:
        """Return an amount of memory in GiB in bytes, 0 of a cell that states none. Raises InputError."""
        return math.ceil(self.amount(field, MAX_GIB) * GIB)

    def is_stated(self, field: str) -> bool:
        """Return whether a cell is there and says something. Raises InputError: it cannot be printed."""
        return self.text(field).lower() not in NOTHING

    def time(self, field: str) -> float | None:
        """Return a time in seconds, None of a cell that states none. Raises InputError."""
        return self.seconds(field) if self.is_stated(field) else None

    def moment(self, field: str) -> float | None:
        """Return a date in Unix seconds, None of a cell that states none. Raises InputError."""
        return self.date(field) if self.is_stated(field) else None


def clock_seconds(text: str) -> float | None:
    """Return the seconds of MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS, None of any other text."""
    match = _CLOCK.fullmatch(text)
    if match is None or not (match[1] or ":" in text):
        return None
    parts = [float(part) for part in match[2].split(":")]
    missing = [0.0] * (3 - len(parts))
    hours, minutes, seconds = [*parts, *missing] if match[1] else [*missing, *parts]
    return float(match[1] or 0) * 86_400 + hours * 3600 + minutes * 60 + seconds


def read_text(path: str | Path, errors: str = "strict", *, head: bool = False) -> str:
    """Return the text of a file, decompressed if it is gzip: UTF-8, or UTF-16 as PowerShell writes it.

    `errors` ("strict", "replace"): what becomes of bytes that are not text. With `head` only `HEAD_BYTES` are read.
    """
    path = Path(path)
    try:
        with path.open("rb") if path.is_file() else io.BytesIO(read_bytes(path)) as file:
            is_gzip = path.name.endswith(".gz") or file.read(len(GZIP)) == GZIP
            file.seek(0)
            content = gzip.GzipFile(fileobj=file) if is_gzip else file
            data = content.read(HEAD_BYTES if head else -1)
        encoding = _encoding(data)
        # A beginning may end within a character.
        whole = len(data) != HEAD_BYTES
        return codecs.getincrementaldecoder(encoding)(errors).decode(data, final=whole or not head)
    except FileNotFoundError:
        raise InputError(path, "", "", "no such file") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(path, "", "", f"cannot be read: {reason}") from None
    except UnicodeDecodeError as error:
        encoding = "UTF-16" if error.encoding.startswith("utf-16") else "UTF-8"
        raise InputError(path, f"byte {error.start}", "", f"is not {encoding} text") from None


def _encoding(data: bytes) -> str:
    """Return the encoding of a text that begins with an ASCII character or a byte order mark."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if data[:1] and b"\0" in data[:2]:
        return "utf-16-be" if data[0] == 0 else "utf-16-le"
    return "utf-8-sig"


def delimiter_of(text: str) -> str:
    """Return what separates columns: a comma, the semicolon or tab of spreadsheets, or the vertical bar of sacct."""
    header = text.partition("\n")[0]
    return max(",;\t|", key=header.count)


def header_of(file: Path) -> list[str]:
    """Return the columns that the first line of a CSV file names. Raises InputError: it is empty or unreadable."""
    text = read_text(file, head=True)
    if not text.strip():
        raise InputError(file, "", "", "is empty")
    return [cell.strip(' "') for cell in text.splitlines()[0].split(delimiter_of(text))]


def is_plain(columns: Iterable[str]) -> bool:
    """Return whether a header is that of a table of jobs written by hand."""
    return PLAIN[0] in map(str.lower, columns)


def needs(what: str, required: Sequence[str]) -> str:
    """Return which columns a table of a known kind needs, and, if it is another one, a table of jobs."""
    plain = "" if what == PLAIN_TABLE else f"; {PLAIN_TABLE} needs {','.join(PLAIN)}"
    return f"{what}, which needs {','.join(required)}{plain}"


def rows(
    file: str,
    text: str,
    required: Sequence[str],
    taken_for: str,
    *,
    any_case: bool = False,
    without_header: bool = False,
) -> Iterator[TableRow]:
    """Yield the rows of a CSV text; `file` and what the header was `taken_for` are only named in errors.

    With `any_case` columns may be written with capitals and are named without. With `without_header` the first line is
    a row, and the columns are the required ones.
    """

    def columns(first: Iterator[list[str]]) -> Sequence[str]:
        header = required if without_header else next(first, None)
        if header is None:
            raise InputError(file, "", "", f"is empty; expected a header with {','.join(required)}")
        header = [cell.strip().lower() if any_case else cell.strip() for cell in header]
        for column in required:
            if column not in header:
                raise InputError(
                    file, "line 1", column, f"column is missing; the table is read as {needs(taken_for, required)}"
                )
        for column in header:
            if column and header.count(column) > 1:
                raise InputError(file, "line 1", column, "column appears twice")
        return header

    return rows_of(file, io.StringIO(text, newline=""), delimiter_of(text), columns)


def rows_of(
    file: str, lines: Iterable[str], delimiter: str, columns: Callable[[Iterator[list[str]]], Sequence[str]]
) -> Iterator[TableRow]:
    """Yield the rows of CSV lines; `columns` takes the header off the rows and returns the names of the columns."""
    quotechar = None if delimiter == "|" else '"'  # sacct quotes nothing
    reader = csv.reader(lines, strict=True, delimiter=delimiter, quotechar=quotechar)
    try:
        header = columns(reader)
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                problem = f"has {len(cells)} cells where the header has {len(header)}"
                raise InputError(file, f"line {reader.line_num}", "", problem)
            yield TableRow(file, reader.line_num, dict(zip(header, map(str.strip, cells), strict=True)))
    except csv.Error as error:
        problem = f"is not CSV: {error}"
        if "field limit" in str(error):
            problem = f"has a cell of more than {csv.field_size_limit()} characters; is a quote never closed?"
        raise InputError(file, f"line {reader.line_num}", "", problem) from None


def write_table(path: Path, columns: Sequence[str], cells: Iterable[Sequence[object]]) -> None:
    """Write a CSV file with a header and Unix line ends."""
    with path.open("w", encoding="utf-8", newline="") as file:
        write_rows(file, columns, cells)


def write_rows(stream: TextIO, columns: Sequence[str], cells: Iterable[Sequence[object]]) -> None:
    """Write a header and rows as CSV with Unix line ends."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(cells)


def csv_text(columns: Sequence[str], cells: Iterable[Sequence[object]]) -> str:
    text = io.StringIO(newline="")
    write_rows(text, columns, cells)
    return text.getvalue()
