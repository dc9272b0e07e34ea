"""Intervals of studies are over independent units: a cluster, not its draws; one list or trace has none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from studies import tables
from studies.queues import learned_order
from studies.queues.learned_order import CLUSTERS, FAMILIES, WAITS

RESULT = json.loads((Path(__file__).parents[3] / "studies" / "results" / "queues" / "learned_order.json").read_text())[
    "result"
]
CELL = re.compile(r"([\d.]+)(?: \(([\d.]+) to ([\d.]+)\))?$")


def test_draws_of_a_unit_count_as_their_mean() -> None:
    values = np.array([[1.0, 10.0], [3.0, 20.0], [5.0, 60.0], [7.0, 80.0]])
    assert tables.by_unit(values, [4, 2, 4, 2]).tolist() == [[5.0, 50.0], [3.0, 35.0]]
    assert tables.by_unit([1.0, 2.0], ["b", "a"]).tolist() == [2.0, 1.0]


@pytest.mark.parametrize("copies", [1, 5, 40])
def test_more_draws_of_the_same_units_make_no_interval_narrower(copies: int) -> None:
    units = np.random.default_rng(1).normal(size=8)
    draws, numbers = np.tile(units, copies), np.tile(np.arange(8), copies)
    found, expected = tables.spread(tables.by_unit(draws, numbers)), tables.spread(units)
    assert [found[name] for name in expected] == pytest.approx(list(expected.values()))


def rows() -> dict[tuple[str, str], list[str]]:
    """The cells of the first table, by order and family."""
    table = learned_order.section(RESULT).partition("Run times exact:")[2].partition("Run times within")[0]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    return {(each[0], each[1]): each[2:] for each in cells}


def test_only_generated_clusters_have_intervals() -> None:
    for (_, family), cells in rows().items():
        numbers = [CELL.match(each.strip()) for each in cells if re.match(r"\d", each)]
        assert all((found is not None and found[2] is not None) == (family == "generated") for found in numbers), family


def test_interval_is_students_over_the_means_of_clusters() -> None:
    waits = {name: np.log(np.array(each)) for name, each in RESULT["compared"]["generated-oracle"]["waits"].items()}
    ratios = waits["wfp3:easy"] - waits["age"]
    assert len(ratios) == 60
    for place in range(len(WAITS)):
        means = np.array([ratios[cluster::CLUSTERS, place].mean() for cluster in range(CLUSTERS)])
        half = stats.t.ppf(0.975, CLUSTERS - 1) * stats.sem(means)
        expected = [f"{np.exp(each):.2f}" for each in (means.mean(), means.mean() - half, means.mean() + half)]
        found = CELL.match(rows()["wfp3:easy", FAMILIES[0]][place])
        assert found is not None
        assert list(found.groups()) == expected
