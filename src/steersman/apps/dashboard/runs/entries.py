"""Entries of a list of runs, each read once, and again whenever the files of its run have changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from steersman.core.errors import SteersmanError


class HasProblem(Protocol):
    """What a list says of a run; `problem` says why it cannot be shown."""

    problem: str


R = TypeVar("R")
E = TypeVar("E", bound=HasProblem)


class RunEntries(Generic[R, E]):
    """Entries of runs.

    Args:
        runs: the runs.
        version: returns a text that changes with the files of a run; raises SteersmanError if there are none.
        entry: reads the entry of a run.
    """

    def __init__(self, runs: Sequence[R], version: Callable[[R], str], entry: Callable[[R], E]) -> None:
        self._runs, self._version, self._entry = runs, version, entry
        self._known: dict[int, tuple[str, E]] = {}

    def read(self) -> list[E]:
        """Return the entries, in the order of the runs."""
        return [self._read(number, run) for number, run in enumerate(self._runs)]

    def _read(self, number: int, run: R) -> E:
        known = self._known.get(number)
        try:
            version = self._version(run)
        except SteersmanError:
            version = ""
        if known is None or known[0] != version:
            known = self._known[number] = version, self._entry(run)
        return known[1]
