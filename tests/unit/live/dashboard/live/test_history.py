"""History of a live cluster: what it says is what it was told, and its memory has a bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from steersman.live.dashboard.live import history as module
from steersman.live.dashboard.live.history import COARSE, FINE, MOST_SERIES, OTHERS, ClusterHistory
from steersman.live.dashboard.live.status import WaitingPod, reason_without_counts

DAY = 86_400
MOST_BYTES = 40 << 20
"""Of the largest history: 8,192 nodes, 128 series and 32 reasons."""


def fed(seconds: float, nodes: int = 3, step: float = 5.0) -> ClusterHistory:
    history = ClusterHistory()
    for i in range(int(seconds / step)):
        now = step * i
        history.sample(now, {"waiting": float(i)}, {f"n{n}": n + i % 7 for n in range(nodes)}, {})
    return history


def test_history_is_fine_for_an_hour_and_coarse_for_a_day() -> None:
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


def test_many_groups_are_merged() -> None:
    history = fed(60, nodes=50)
    lines = history.pods(0, math.inf, {f"n{n}": f"g{n}" for n in range(50)})
    assert len(lines.values) == module.MOST_LINES
    assert OTHERS in lines.values


def test_late_and_removed_nodes_have_gaps() -> None:
    history = ClusterHistory()
    for i in range(10):
        there = {"stays": 1} | ({"early": 5} if i < 5 else {"late": 9})
        history.sample(5.0 * i, {}, there, {})
    lines = history.pods(0, math.inf, {"early": "early", "late": "late", "stays": "stays"})
    assert np.isnan(lines.values["late"][:5]).all()
    assert lines.values["late"][5:].tolist() == [9.0] * 5
    assert np.isnan(lines.values["early"][5:]).all()


def test_columns_of_nodes_that_are_gone_are_used_again() -> None:
    history, sizes = ClusterHistory(), set[int]()
    for hour in range(4 * 24):
        history.sample(3600.0 * hour, {}, {f"n{hour}": 1}, {})
        sizes.add(history.bytes)
    assert len(sizes) == 1


def test_memory_is_bounded_for_any_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A day and more in which all nodes and metrics are always new."""
    monkeypatch.setattr(module, "MOST_NODES", 64)
    history = ClusterHistory()
    size = 0
    for i in range(2 * DAY // 300):
        values = {f"metric {i} {j}": 1.0 for j in range(3)}
        reasons = {f"reason {i} {j}": 1 for j in range(module.MOST_REASONS + 3)}
        history.sample(300.0 * i, values, {f"node-{i}-{j}": 3 for j in range(30)}, reasons)
        if i == 400:
            size = history.bytes
    assert history.bytes == size
    assert len(history._columns) <= 64
    waiting = history.waiting(0, math.inf)
    assert len(waiting.values) == module.MOST_REASON_LINES + 1
    assert sum(waiting.values.values()).tolist() == [module.MOST_REASONS + 3] * len(waiting.times)
    assert len(history.numbers(0, math.inf).values) == MOST_SERIES
    assert history.pods(0, math.inf, {f"node-{i}-0": "x"}, also="").values["x"][-1] == 3.0


def test_largest_history_is_small() -> None:
    history = ClusterHistory()
    for i in range(3):
        values = {f"metric {j}": 1.0 for j in range(MOST_SERIES + 10)}
        reasons = {f"reason {j}": 1 for j in range(module.MOST_REASONS + 10)}
        history.sample(60.0 * i, values, {f"node-{j}": 1 for j in range(module.MOST_NODES + 10)}, reasons)
    samples = FINE[1] + COARSE[1]
    assert history.bytes == samples * (8 + 2 * module.MOST_NODES + 4 * (MOST_SERIES + module.MOST_REASONS + 1))
    assert history.bytes < MOST_BYTES


def test_waiting_pods_are_counted_by_reason() -> None:
    history = ClusterHistory()
    for i in range(36):
        history.sample(5.0 * i, {}, {}, {"cpu": 3} if i < 24 else {"cpu": 1, "taint": 2})
    lines = history.waiting(0, math.inf)
    assert list(lines.values) == ["cpu", "taint"], "of most pods first"
    assert lines.values["cpu"].tolist() == [3] * 24 + [1] * 12
    assert lines.values["taint"].tolist() == [0] * 24 + [2] * 12
    assert list(history.waiting(0, 100).values) == ["cpu"]


def test_a_coarse_sample_has_the_mean_of_waiting_pods() -> None:
    history = ClusterHistory()
    for i in range(3 * FINE[1]):
        history.sample(5.0 * i, {}, {}, {"cpu": 12} if i % 12 == 0 else {})
    early = history.waiting(60, 3600)
    assert set(early.values["cpu"].tolist()) == {1.0}


def test_old_reason_is_replaced_without_losing_pods() -> None:
    history = ClusterHistory()
    for i in range(module.MOST_REASONS + 10):
        history.sample(5.0 * i, {}, {}, {f"reason {i}": 100 if i == 41 else 1})
    lines = history.waiting(0, math.inf)
    assert next(iter(lines.values)) == "reason 41"
    assert len(lines.values) == module.MOST_REASON_LINES + 1
    assert sum(lines.values.values()).tolist() == [1.0] * 41 + [100.0]
    assert len(history._fine.reasons) == module.MOST_REASONS + 1


MESSAGES = (
    (
        "0/5 nodes are available: 2 Insufficient cpu, 3 node(s) had untolerated taint {a: b}. preemption: 0/5 nodes "
        "are available: 5 No preemption victims found for incoming pod.",
        "Insufficient cpu, node(s) had untolerated taint {a: b}",
    ),
    ("0/10 nodes are available: 10 Insufficient memory.", "Insufficient memory"),
    (
        "0/9 nodes are available: 9 Insufficient cpu. no new claims to deallocate, preemption: 0/9 nodes are "
        "available: 9 Preemption is not helpful for scheduling.",
        "Insufficient cpu",
    ),
    (
        "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
        "pod has unbound immediate PersistentVolumeClaims",
    ),
    ("no nodes available to schedule pods", "no nodes available to schedule pods"),
    ("", "not tried yet"),
)


@pytest.mark.parametrize(("message", "reason"), MESSAGES)
def test_reason_does_not_depend_on_the_number_of_nodes(message: str, reason: str) -> None:
    assert reason_without_counts(WaitingPod("default-scheduler", 0.0, "", message)) == reason
