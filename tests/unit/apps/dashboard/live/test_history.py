"""History of a live cluster: what it says is what it was told, and its memory has a bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from steersman.apps.dashboard.live import history as module
from steersman.apps.dashboard.live.history import COARSE, FINE, MOST_SERIES, OTHERS, ClusterHistory

DAY = 86_400
MOST_BYTES = 40 << 20
"""Of the largest history: 8,192 nodes and 128 series."""


def fed(seconds: float, nodes: int = 3, step: float = 5.0) -> ClusterHistory:
    history = ClusterHistory()
    for i in range(int(seconds / step)):
        now = step * i
        history.sample(now, {"waiting": float(i)}, {f"n{n}": n + i % 7 for n in range(nodes)})
    return history


def test_the_last_hour_is_fine_and_the_day_before_coarse() -> None:
    history = fed(DAY + 7200)
    lines = history.numbers(0, math.inf)
    end = DAY + 7200 - 5
    assert lines.times[-1] == end
    assert lines.times[0] == pytest.approx(end - COARSE[0] * COARSE[1], abs=2 * 60 * 10)
    assert (np.diff(lines.times) > 0).all()
    assert len(lines.times) <= module.MOST_POINTS
    hour = history.numbers(end - 600, math.inf)
    assert np.diff(hour.times).tolist() == [5.0] * (len(hour.times) - 1)
    assert hour.values["waiting"].tolist() == (hour.times / 5).tolist()
    coarse = history.numbers(3600, DAY / 2)
    assert len(coarse.times) > 100
    # A coarse sample is the mean of the fine ones since the one before: 12 of them, the newest its own.
    assert (coarse.values["waiting"] - (coarse.times / 5 - 5.5)).tolist() == pytest.approx([0.0] * len(coarse.times))


def test_pods_are_means_over_groups_and_of_a_chosen_node() -> None:
    history = fed(600, nodes=4)
    lines = history.pods(0, math.inf, {"n0": "a", "n1": "a", "n2": "b"}, also="n3")
    i = np.round(lines.times / 5).astype(int) % 7
    assert lines.values["a"].tolist() == (0.5 + i).tolist()
    assert lines.values["b"].tolist() == (2 + i).tolist()
    assert lines.values["n3"].tolist() == (3 + i).tolist()


def test_many_groups_become_few_lines() -> None:
    history = fed(60, nodes=50)
    lines = history.pods(0, math.inf, {f"n{n}": f"g{n}" for n in range(50)})
    assert len(lines.values) == module.MOST_LINES
    assert OTHERS in lines.values


def test_a_node_that_comes_late_or_goes_has_gaps_and_not_anothers_values() -> None:
    history = ClusterHistory()
    for i in range(10):
        there = {"stays": 1} | ({"early": 5} if i < 5 else {"late": 9})
        history.sample(5.0 * i, {}, there)
    lines = history.pods(0, math.inf, {"early": "early", "late": "late", "stays": "stays"})
    assert np.isnan(lines.values["late"][:5]).all()
    assert lines.values["late"][5:].tolist() == [9.0] * 5
    assert np.isnan(lines.values["early"][5:]).all()


def test_columns_of_nodes_that_are_gone_are_used_again() -> None:
    history = ClusterHistory()
    for i in range(0, 2 * DAY, 60):
        history.sample(float(i), {}, {f"n{i // 3600}": 1})
    assert history._fine.pods.shape[1] == 64
    assert "n0" not in history._columns


def test_memory_has_a_bound_whatever_names_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A day and more in which all nodes and metrics are always new."""
    monkeypatch.setattr(module, "MOST_NODES", 64)
    history = ClusterHistory()
    size = 0
    for i in range(2 * DAY // 300):
        values = {f"metric {i} {j}": 1.0 for j in range(3)}
        history.sample(300.0 * i, values, {f"node-{i}-{j}": 3 for j in range(30)})
        if i == 400:
            size = history.bytes
    assert history.bytes == size
    assert len(history._columns) <= 64
    assert len(history.numbers(0, math.inf).values) == MOST_SERIES
    assert history.pods(0, math.inf, {f"node-{i}-0": "x"}, also="").values["x"][-1] == 3.0


def test_the_largest_history_is_small() -> None:
    history = ClusterHistory()
    for i in range(3):
        values = {f"metric {j}": 1.0 for j in range(MOST_SERIES + 10)}
        history.sample(60.0 * i, values, {f"node-{j}": 1 for j in range(module.MOST_NODES + 10)})
    samples = FINE[1] + COARSE[1]
    assert history.bytes == samples * (8 + 2 * module.MOST_NODES + 4 * MOST_SERIES)
    assert history.bytes < MOST_BYTES
