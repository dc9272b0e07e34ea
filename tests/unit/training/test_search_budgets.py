"""Searches end after generations or draws, so that a busy machine changes nothing in what they find."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from tests.unit.training.test_fit_order import history

from steersman.policies.portfolio_policy import PortfolioPolicy
from steersman.policies.registry import resolve
from steersman.training.search import fit as fitting
from steersman.training.search.distil import DistillationOptions, distil
from steersman.training.search.fit import FitOptions, fit
from steersman.training.search.fit_order import OrderFitOptions, fit_order
from steersman.training.search.fit_scheduler import SchedulerFitOptions, fit_scheduler
from steersman.workloads.generators.clusters import random_cluster

WORKLOAD = random_cluster(16, nodes=(6, 9))


def fitted(jobs: int) -> object:
    start = resolve("steersman")
    assert isinstance(start, PortfolioPolicy)
    found = fit(WORKLOAD, start, FitOptions(), jobs=jobs)
    return found.generations, found.chosen, {name: each.tobytes() for name, each in found.arrays.items()}


def distilled(_: int) -> object:
    found = distil(WORKLOAD, resolve("fgd"), DistillationOptions(generations=5))
    return found.generations, found.formula


def ordered(jobs: int) -> object:
    found = fit_order(history(), resolve("fgd"), OrderFitOptions(2), jobs=jobs)
    return found.chosen, found.order.weights


def configured(_: int) -> object:
    return fit_scheduler(WORKLOAD, SchedulerFitOptions(), today=resolve("kube-default")).profile


@pytest.mark.parametrize("search", [fitted, distilled, ordered, configured])
def test_a_slow_machine_finds_the_same(search: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "GENERATIONS", (3, 3))
    quiet = search(1)
    clock = itertools.count(0, 3600)
    for name in ("monotonic", "perf_counter", "time"):
        monkeypatch.setattr(time, name, lambda: float(next(clock)))
    assert search(1) == quiet


@pytest.mark.parametrize("search", [fitted, ordered])
def test_number_of_processes_changes_nothing(search: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "GENERATIONS", (2, 2))
    assert search(2) == search(1)


def test_generations_follow_from_the_size_of_the_workload() -> None:
    assert fitting.generations_of(FitOptions(generations=7), 10**9) == 7
    assert [fitting.generations_of(FitOptions(), arrivals) for arrivals in (10, 1_000, 10**7)] == [200, 83, 20]
