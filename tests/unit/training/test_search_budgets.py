"""Searches end after generations or draws, so that a busy machine changes nothing in what they find."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from tests.unit.training.test_order_search import history

from steersman.policies.registry import resolve
from steersman.simulation.selection.stock_search import SearchOptions, StockSearchOptions
from steersman.training.search.orders import OrderFitOptions, search_order
from steersman.training.search.policies import fit, search_scheduler
from steersman.workloads.generators.clusters import random_cluster

WORKLOAD = random_cluster(16, nodes=(6, 9))


def fitted(_: int) -> object:
    found = fit(WORKLOAD, SearchOptions())
    return found.evidence, {name: each.tobytes() for name, each in found.arrays.items()}


def ordered(jobs: int) -> object:
    found = search_order(history(), resolve("fgd"), OrderFitOptions(2), jobs=jobs)
    return found.chosen, found.order.weights


def configured(_: int) -> object:
    return search_scheduler(WORKLOAD, StockSearchOptions(), today=resolve("kube-default")).profile


@pytest.mark.parametrize("search", [fitted, ordered, configured])
def test_a_slow_machine_finds_the_same(search: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = search(1)
    clock = itertools.count(0, 3600)
    for name in ("monotonic", "perf_counter", "time"):
        monkeypatch.setattr(time, name, lambda: float(next(clock)))
    assert search(1) == quiet


def test_number_of_processes_changes_nothing() -> None:
    assert ordered(2) == ordered(1)
