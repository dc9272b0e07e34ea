"""Searches end after generations or draws, so that a busy machine changes nothing in what they find."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from tests.unit.training.test_fit_order import history

from steersman.policies.registry import resolve
from steersman.simulation.selection.stock_search import SearchOptions
from steersman.training.search.fit import fit
from steersman.training.search.fit_order import OrderFitOptions, fit_order
from steersman.training.search.fit_scheduler import SchedulerFitOptions, fit_scheduler
from steersman.workloads.generators.clusters import random_cluster

WORKLOAD = random_cluster(16, nodes=(6, 9))


def fitted(_: int) -> object:
    found = fit(WORKLOAD, SearchOptions())
    return found.evidence, {name: each.tobytes() for name, each in found.arrays.items()}


def ordered(jobs: int) -> object:
    found = fit_order(history(), resolve("fgd"), OrderFitOptions(2), jobs=jobs)
    return found.chosen, found.order.weights


def configured(_: int) -> object:
    return fit_scheduler(WORKLOAD, SchedulerFitOptions(), today=resolve("kube-default")).profile


@pytest.mark.parametrize("search", [fitted, ordered, configured])
def test_a_slow_machine_finds_the_same(search: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = search(1)
    clock = itertools.count(0, 3600)
    for name in ("monotonic", "perf_counter", "time"):
        monkeypatch.setattr(time, name, lambda: float(next(clock)))
    assert search(1) == quiet


def test_number_of_processes_changes_nothing() -> None:
    assert ordered(2) == ordered(1)
