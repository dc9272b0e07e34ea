"""What a nightly run adds: four times as many examples of each property, more cases, and the longest tests."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

import pytest
from _pytest.mark import ParameterSet

NIGHTLY = "STEERSMAN_NIGHTLY"
DEFAULT = 100
"""Examples of a nightly test that names no number, Hypothesis's own."""
FEWEST = 10


def is_nightly() -> bool:
    """Return whether this is a nightly run."""
    return bool(os.environ.get(NIGHTLY))


def examples(nightly: int) -> int:
    """Return the number of examples to draw of those that a nightly run draws."""
    return nightly if is_nightly() else min(nightly, max(nightly // 4, FEWEST))


def by_default(run: Collection[str], among: Iterable[str]) -> list[ParameterSet]:
    """Return the values of a parameter, of which a nightly run takes all and any other only those of `run`."""
    values = list(among)
    assert set(run) <= set(values), f"{sorted(set(run) - set(values))} are no values of the parameter"
    return [pytest.param(each, marks=() if each in run else pytest.mark.nightly) for each in values]
