"""Intervals that are called 95 % hold the truth about so often; one over a single stretch does not, and says so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from benchmarks.simulation.coverage import BEYOND, KINDS, SIZES, coverage, stretch

from steersman.simulation.waiting import LEAST_BUSY_PERIODS

ROOT = Path(__file__).parents[3]
RESULTS = json.loads((ROOT / "benchmarks" / "results.json").read_text())["interval-coverage"]
PAGE = (ROOT / "docs" / "explanation" / "decisions" / "results.md").read_text()
CASES = [(kind, n) for kind, (_, _, sizes) in KINDS.items() for n in sizes]


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "n"), CASES)
def test_interval_called_95_percent_holds_the_truth_about_so_often(kind: str, n: int) -> None:
    draw, truth, _ = KINDS[kind]
    assert 92 <= coverage(draw, truth, n, samples=2500, seed=31) <= 97.5


@pytest.mark.nightly
def test_interval_of_one_stretch_is_not_one_of_95_percent() -> None:
    """In a queue at a load of 0.9; so no page calls it that."""
    measured = stretch(0.9, queues=200)
    assert measured["busy_periods"] > LEAST_BUSY_PERIODS
    assert measured["percent"] < 85


@pytest.mark.parametrize(("kind", "n"), [("mean of even values", 5), ("reduction in percent", 10)])
def test_coverage_counts_what_holds_the_truth(kind: str, n: int) -> None:
    draw, truth, _ = KINDS[kind]
    assert 90 <= coverage(draw, truth, n, samples=600) <= 99
    assert coverage(draw, truth + 1000, n, samples=100) == 0


def test_page_has_the_measured_percentages() -> None:
    table = dict(re.findall(r"^\| ([a-z0-9 ,.]+?) \| ([^\n]+) \|$", PAGE, re.M))
    for kind in (*KINDS, BEYOND):
        cells = [each.strip() for each in table[kind].split("|")]
        measured = RESULTS["kinds"][kind]
        assert cells == [f"{measured[str(n)]:.0f}" if str(n) in measured else "" for n in SIZES], kind
    for load, measured in RESULTS["one stretch"].items():
        cells = [each.strip() for each in table[f"one stretch, load {load}"].split("|")]
        assert cells == [f"{measured['busy_periods']:.0f}", f"{measured['percent']:.0f}"]
