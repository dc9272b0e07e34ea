"""Errors in tests: a test says the type and the values that an error must name; the whole text is in a golden file.

So a sentence can be made better without touching a test: run the tests with `STEERSMAN_UPDATE_ERROR_TEXTS=1`, and read
what is different in `tests/data/error_texts.json`.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

GOLDEN = Path(__file__).parents[1] / "data" / "error_texts.json"
UPDATE = "STEERSMAN_UPDATE_ERROR_TEXTS"
PARTS = Path(__file__).parents[2] / ".pytest_cache" / "error_texts"
CHANGING = (
    (re.compile(re.escape(str(Path(__file__).parents[2]))), "CHECKOUT"),
    (re.compile(r"/[^\s'\"]*?pytest-of-[^/]+/pytest-\d+/(popen-gw\d+/)?"), "TMP/"),
    # Folders of equal names (of a test's name the first 30 letters count) are numbered in the order in which they come.
    (re.compile(r"(TMP/[^/\s,'\":]*?)\d+(?=[/\s,'\":.]|$)"), r"\1N"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r"port [1-9]\d{3,4}"), "port PORT"),
    (re.compile(r"\('127\.0\.0\.1', \d+\)"), "('127.0.0.1', PORT)"),
    (re.compile(r"0x[0-9a-f]{6,}"), "0xADDRESS"),
    (re.compile(r"\(process \d+\)"), "(process PID)"),
    (re.compile(r"\.py, line \d+"), ".py, line N"),
    (re.compile(r"process \d+ on \S+ since [-\d]+ [:\d]+"), "process PID on HOST since TIME"),
    (re.compile(r"\b[0-9a-f]{16}\b"), "DIGEST"),  # trained weights differ in their last bits between processors
)
"""What is another one in every run, and what stands for it."""

E = TypeVar("E", bound=BaseException)
_seen: Counter[str] = Counter()


@contextmanager
def raises(kind: type[E], *named: object, **attributes: object) -> Iterator[pytest.ExceptionInfo[E]]:
    """Expect an error of a type, whose text names all of some values, and which has some attributes."""
    with pytest.raises(kind) as caught:
        yield caught
    text = str(caught.value)
    for each in named:
        assert str(each) in text, f"{each} is not named: {text}"
    for name, value in attributes.items():
        assert getattr(caught.value, name) == value
    check_text(text)


def error_of(capsys: pytest.CaptureFixture[str], status: int, arguments: Sequence[str], *named: object) -> str:
    """Run a command that fails, and return its error: one line that names all of some values.

    A note that the simulator is compiled may come before.
    """
    from steersman.cli.main import main  # what conftest.py imports loads no command

    assert main(list(arguments)) == status
    (line,) = [each for each in capsys.readouterr().err.splitlines() if not each.startswith("compiling ")]
    assert line.startswith("error: ")
    for each in named:
        assert str(each) in line, f"{each} is not named: {line}"
    return line


def check_text(text: str) -> None:
    """Compare an error's whole text with the one in the golden file; one line."""
    assert "\n" not in text, text
    for pattern, stands in CHANGING:
        text = pattern.sub(stands, text)
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    number = _seen[test]
    _seen[test] += 1
    if os.environ.get(UPDATE):
        PARTS.mkdir(parents=True, exist_ok=True)
        with (PARTS / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps([test, number, text]) + "\n")
        return
    known = _golden().get(test, [])
    wanted = known[number] if number < len(known) else None
    assert text == wanted, f"another text than in {GOLDEN.name} ({UPDATE}=1 takes it over):\n  {text}\n  {wanted}"


@cache
def _golden() -> dict[str, list[str]]:
    return dict(json.loads(GOLDEN.read_text(encoding="utf-8"))) if GOLDEN.exists() else {}


def take_over() -> None:
    """Write the golden file anew with what the tests of this run saw; texts of tests that did not run stay."""
    seen: dict[str, list[str]] = {}
    for part in sorted(PARTS.glob("*.jsonl")):
        for line in part.read_text(encoding="utf-8").splitlines():
            test, number, text = json.loads(line)
            texts = seen.setdefault(test, [])
            texts.extend([""] * (number + 1 - len(texts)))
            texts[number] = text
        part.unlink()
    content = json.dumps(dict(sorted((_golden() | seen).items())), indent=1, ensure_ascii=False)
    GOLDEN.write_text(content + "\n", encoding="utf-8")
