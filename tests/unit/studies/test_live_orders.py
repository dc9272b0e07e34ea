"""Days of a trace for a real control plane, and forecasts of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from studies.queues import days, live_orders
from studies.queues.days import DAY, Day, cluster_nodes, day_of

DATE = "2017-10-14"


@pytest.fixture
def day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Day:
    """Return a day of a trace in which several times as much is wanted as there is."""
    random = np.random.default_rng(1)
    count = 8000
    start = np.datetime64("2017-10-09")
    times = np.sort(random.uniform(0, 7 * DAY, count))
    gpus = random.choice([1, 1, 1, 2, 4, 8, 16], count)
    rows = [
        f"{str(start + np.timedelta64(int(at), 's')).replace('T', ' ')},{seconds:.0f},{size}"
        for at, seconds, size in zip(times, random.lognormal(9.0, 1.5, count), gpus, strict=True)
    ]
    (tmp_path / days.TRACE).write_text("\n".join(["timestamp,duration,num_gpus", *rows]) + "\n")
    monkeypatch.setenv("STEERSMAN_TRACES", str(tmp_path))
    return day_of(DATE)


def test_a_day_begins_with_what_runs_and_what_waits(day: Day) -> None:
    there = day.standing + day.queued
    assert day.standing > 20
    assert day.queued > 5
    assert np.all(day.arrival[:there] == 0)
    assert np.all(np.diff(day.arrival[there:]) >= 0)
    assert 0 < day.arrival[there] < day.arrival[-1] < DAY
    assert day.gpus.max() == 8
    taken = dict.fromkeys((node.name for node in cluster_nodes()), 0)
    for where, gpus in zip(day.running, day.gpus, strict=False):
        assert where.devices.bit_count() == gpus
        assert taken[where.node] & where.devices == 0
        taken[where.node] |= where.devices
    assert all(taken[node.name].bit_length() <= node.gpu_count for node in cluster_nodes())
    capacity = sum(count * size for count, size in days.SIZES)
    coming = slice(there, None)
    work = day.gpus[coming] * np.minimum(day.duration[coming], DAY - day.arrival[coming])
    running = day.gpus[: day.standing] * np.minimum(day.duration[: day.standing], DAY)
    # What waits is not part of the load: in a cluster without limit it would have run before.
    assert (work.sum() + running.sum()) / (capacity * DAY) < 1.1
    factor = np.exp(np.quantile(np.abs(np.log(day.stated / day.duration)), 0.9))
    assert 2.5 < factor < 3.5


def test_a_faster_clock_changes_no_simulated_start(day: Day) -> None:
    """But for estimates below a second, which count as one."""
    day = replace(day, stated=np.maximum(day.stated, 512.0))
    policy = live_orders.with_order(live_orders.resolve("fgd"), live_orders.find_order("wfp3:easy"))
    nothing = np.zeros(len(day))
    slow, fast = (days.simulated_starts(day, policy, 1, nothing, nothing, speed) for speed in (1.0, 512.0))
    assert np.allclose(slow, fast, equal_nan=True)
    assert np.all(slow[: day.standing] == 0)
    figures = live_orders.figures(day, slow)
    assert figures["single"] < figures["mean"] < figures["several"]


def test_errors_of_a_forecast_are_as_large_as_those_that_were_measured() -> None:
    """If errors of days have a standard deviation of 0.2, 95 % of forecasts of other days hold what comes."""
    random = np.random.default_rng(4)
    held = []
    for _ in range(300):
        simulated = {
            f"{k}": {metric: (99.0 + random.normal(0, 1, 200)).tolist() for metric in live_orders.METRICS}
            for k in range(5)
        }
        measured = {
            f"{k}": dict.fromkeys(live_orders.METRICS, 99.0 * np.exp(random.normal(0.1, 0.2))) for k in range(4)
        }
        forecast = live_orders.with_residuals(simulated, measured)
        assert list(forecast) == ["4"]
        low, high = np.percentile(forecast["4"]["mean"], live_orders.PERCENTS)
        held.append(low < 99.0 * np.exp(random.normal(0.1, 0.2)) < high)
    assert 0.9 < np.mean(held) < 0.99
