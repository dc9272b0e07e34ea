"""Intervals over moving blocks of one series, whose values depend on those before."""

from __future__ import annotations

import numpy as np
import pytest

from steersman.core.statistics import deviations, mean_interval, moving_block_interval


def series(random: np.random.Generator, count: int) -> np.ndarray:
    """An autoregressive series of mean 0, in which a value is like those before it."""
    values, last = np.empty(count), random.normal(0, 1 / np.sqrt(1 - 0.9**2))
    for i, shock in enumerate(random.normal(size=count)):
        values[i] = last = 0.9 * last + shock
    return values


def test_interval_covers_the_mean_of_dependent_values() -> None:
    covered = naive = 0
    for trial in range(200):
        values = series(np.random.default_rng(trial), 4000)
        parts = np.stack([values.reshape(200, 20).sum(axis=1), np.full(200, 20.0)], axis=1)
        low, high = moving_block_interval(values.mean(), deviations(parts))
        covered += low <= 0 <= high
        low, high = mean_interval(values)
        naive += low <= 0 <= high
    assert covered >= 180
    assert naive < 120


def test_equal_series_have_an_exact_difference() -> None:
    parts = np.random.default_rng(1).uniform(1, 2, (200, 2))
    assert moving_block_interval(0.0, deviations(parts) - deviations(parts)) == (0, 0)


@pytest.mark.parametrize("parts", [np.ones((5, 2)), np.zeros((200, 2)), np.full((200, 2), np.nan)])
def test_too_few_parts_have_no_interval(parts: np.ndarray) -> None:
    assert np.isnan(moving_block_interval(1.0, deviations(parts)).low)
