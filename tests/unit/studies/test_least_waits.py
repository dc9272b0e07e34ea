"""No schedule of a few pods has less weighted wait than the bound, which is close to the best one."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from studies.queues.least_waits import least_weighted_wait

CAPACITY, PODS = 3.0, 6


def test_bound_of_two_pods_by_hand() -> None:
    """Both take everything: the short one of 10 s goes first, and the long one waits for it."""
    arrival, duration, size = np.zeros(2), np.array([100.0, 10.0]), np.full(2, 8.0)
    found = least_weighted_wait(arrival, duration, size, np.ones(2), 8.0, reached=100.0, last=110.0)
    assert found == pytest.approx(10.0, rel=0.01)
    # With a hundred times the weight the long one goes first.
    found = least_weighted_wait(arrival, duration, size, np.array([100.0, 1.0]), 8.0, reached=100.0, last=110.0)
    assert found == pytest.approx(100.0, rel=0.01)


def test_nobody_waits_where_everything_fits() -> None:
    arrival, duration, size = np.array([0.0, 1.0]), np.full(2, 50.0), np.full(2, 1.0)
    assert least_weighted_wait(arrival, duration, size, np.ones(2), 2.0, reached=5.0, last=60.0) == 0.0


@pytest.mark.parametrize("seed", range(12))
def test_no_schedule_is_below_the_bound(seed: int) -> None:
    random = np.random.default_rng(seed)
    arrival, duration = random.integers(0, 6, PODS).astype(float), random.integers(1, 8, PODS).astype(float)
    size, weight = random.integers(1, 4, PODS).astype(float), random.integers(1, 4, PODS).astype(float)
    best = min(
        sum(weight[i] * (start - arrival[i]) for i, start in _starts(order, arrival, duration, size).items())
        for order in permutations(range(PODS))
    )
    found = least_weighted_wait(arrival, duration, size, weight, CAPACITY, best, float(arrival.max() + duration.sum()))
    assert 0.5 * best <= found <= best + 1e-9


def _starts(order: tuple[int, ...], arrival: np.ndarray, duration: np.ndarray, size: np.ndarray) -> dict[int, float]:
    """Start each pod in turn as early as it fits beside those before it: one of these schedules is the best of all."""
    starts: dict[int, float] = {}
    for i in order:
        ends = sorted(starts[k] + duration[k] for k in starts)
        for begin in [arrival[i], *(end for end in ends if end > arrival[i])]:
            moments = [begin, *(at for at in starts.values() if begin < at < begin + duration[i])]
            if all(
                size[i] + sum(size[k] for k in starts if starts[k] <= at < starts[k] + duration[k]) <= CAPACITY
                for at in moments
            ):
                starts[i] = begin
                break
    return starts
