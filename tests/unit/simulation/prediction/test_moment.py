"""A cluster at a moment, from the lives of its pods."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.orders.run_time_history import EVERY_POD, RunTimeHistory
from steersman.simulation.prediction.moment import moment_of
from steersman.workloads.workload import EndedPod, Life, Lives, Recorded, Workload

NOW = 10_000.0
POD = Pod("p", PodClass(Requests(cpu_milli=1)), owner="Job/a")


def cluster() -> Workload:
    """Return a cluster with two pods that ended, one that runs and one that waits."""
    runs, waits = replace(POD, name="runs"), replace(POD, name="waits")
    ended = replace(POD, name="ended", estimated_seconds=100.0)
    present = {("default", "runs"): Life(8000.0, 9000.0), ("default", "waits"): Life(9900.0, None)}
    first = EndedPod(replace(POD, name="first"), 1000.0, 1500.0, 2000.0)
    lives = Lives(present, (first, EndedPod(ended, 7000.0, 7500.0, 8300.0)))
    nodes = (Node("n", 1000, 1000),)
    return Workload("w", nodes, (runs, waits), recorded=(Recorded("n", 0), None), from_now=True, lives=lives)


@pytest.mark.parametrize("history", [None, RunTimeHistory()])
def test_what_arrived_keeps_its_run_time(history: RunTimeHistory | None) -> None:
    """With a file of run times, too. What came before the first end that is listed may be a part of what came."""
    moment = moment_of(cluster(), NOW, history)
    arrived = {each.pod.name: (each.age, each.ran, each.ended) for each in moment.arrived}
    assert arrived == {"waits": (100.0, 0.0, False), "runs": (2000.0, 1000.0, False), "ended": (3000.0, 800.0, True)}
    ages = {each.pod.name: each.age for each in moment.spells}
    assert ages == ({"first": 9000.0, "ended": 3000.0, "runs": 2000.0} if history is None else {})


def test_an_older_file_learns_from_listed_pods_how_far_stated_times_were_off() -> None:
    old = RunTimeHistory()
    old.note(POD, 50.0)
    assert moment_of(cluster(), NOW, old).history.ratio_counts(EVERY_POD).sum() == 1.0
    # A file that knows it counts alone: the listed pods may be in it already.
    new = RunTimeHistory()
    for _ in range(139):
        new.note(replace(POD, estimated_seconds=100.0), 100.0)
    assert moment_of(cluster(), NOW, new).history.ratio_counts(EVERY_POD).sum() == 139.0
