"""One error tree: what a user may see as a single line, with its exit status."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from steersman.core.redaction import redact


class SteersmanError(Exception):
    """An error that a user reads as one line. `exit_status` is the exit status of the command."""

    exit_status = 1

    def __str__(self) -> str:
        """Return the line without secrets, since errors get into logs, events and pages of others."""
        return redact(super().__str__())


class UsageError(SteersmanError):
    """A wrong option or argument: the command line itself must change."""

    exit_status = 2


def unknown_name(what: str, name: str, known: Iterable[str], *others: str) -> UsageError:
    """Return the error of an unknown name: with the known name that it resembles, else with all known ones."""
    names = list(known)
    similar = get_close_matches(name, names, n=1)
    hint = f"did you mean {similar[0]!r}?" if similar else f"known: {', '.join((*names, *others))}"
    return UsageError(f"unknown {what} {name!r}; {hint}")


class InputError(SteersmanError):
    """Invalid content of a file: names the file, the place, the field and what would be right.

    Args:
        file: file or folder.
        where: place in it as a person would look it up (`line 7`, `row 3 (openb-pod-0002)`, `document 2`), or "".
        field: column or path of the field (`gpu_milli`, `spec.containers[0].resources`), or "".
        problem: what is wrong and what would be right.
    """

    def __init__(self, file: str | Path, where: str, field: str, problem: str) -> None:
        self.file = displayed(file)
        self.where = where
        self.field = field
        self.problem = problem
        place = ", ".join(part for part in (self.file, where, field) if part)
        super().__init__(f"{place}: {problem}")


def input_error(file: str | Path, text: str) -> InputError:
    """Return the error of a file that the core refused: `PLACE, FIELD: PROBLEM`, without the place, or both."""
    place, _, problem = text.partition(": ")
    where, _, field = place.rpartition(", ")
    return InputError(file, where, field, problem)


def displayed(path: str | Path) -> str:
    """Return a path as text that can be printed and sent, also if its name is no UTF-8."""
    return str(path).encode(errors="backslashreplace").decode()


def checkout_of_this() -> Path | None:
    """Return the checkout that this code runs from; None: it is installed."""
    folder = Path(__file__).resolve().parents[3]
    return folder if (folder / "pyproject.toml").is_file() else None
