"""Intervals are those of SciPy, cover what they should, and are the same bytes every time."""

import math

import numpy as np
import pytest
from scipy import stats

from steersman.core.statistics import interquartile_mean, mean_interval, mean_intervals, reduction_percent


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 10, 11, 100])
def test_interquartile_mean_cuts_a_quarter_at_either_end(n: int) -> None:
    values = np.random.default_rng(n).exponential(size=n)
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25))


def test_interquartile_mean_ignores_outliers_and_what_does_not_apply() -> None:
    assert interquartile_mean([1, 2, 3, 4, 5, 6, 7, 1e9, math.nan]) == pytest.approx(4.5)
    assert math.isnan(interquartile_mean([]))
    assert math.isnan(interquartile_mean([math.nan]))


@pytest.mark.parametrize("n", [5, 10, 30])
def test_intervals_are_those_of_scipy(n: int) -> None:
    values = np.random.default_rng(n).exponential(size=n)  # skewed, so that the correction matters
    theirs = stats.bootstrap((values,), np.mean, n_resamples=40_000, method="BCa", rng=1).confidence_interval
    low, high = mean_interval(values)
    width = theirs.high - theirs.low
    assert low == pytest.approx(theirs.low, abs=0.03 * width)
    assert high == pytest.approx(theirs.high, abs=0.03 * width)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    samples = np.random.default_rng(5).normal(7.0, 2.0, size=(2000, 10))
    inside = [low <= 7.0 <= high for low, high in mean_intervals(samples)]
    # With ten values a bootstrap interval is known to be somewhat too narrow; 95 % would take many more.
    assert 0.88 < np.mean(inside) < 0.96


def test_equal_input_gives_equal_bytes() -> None:
    samples = np.random.default_rng(3).normal(size=(300, 10))
    assert mean_intervals(samples) == mean_intervals(samples.copy())


def test_an_interval_does_not_depend_on_what_it_is_asked_with_nor_on_the_unit() -> None:
    samples = np.random.default_rng(3).normal(size=(300, 10))
    together = np.array(mean_intervals(samples))
    alone = np.array([mean_interval(sample) for sample in samples])
    assert together == pytest.approx(alone, rel=1e-9)
    assert np.array(mean_intervals(samples * 3)) == pytest.approx(together * 3, rel=1e-9)


def test_values_without_spread_have_an_interval_without_width() -> None:
    assert mean_interval([0.1] * 10) == pytest.approx((0.1, 0.1))
    assert mean_interval([0.0] * 10) == (0.0, 0.0)


@pytest.mark.parametrize("values", [[], [3.0], [3.0, math.nan], [math.nan] * 10])
def test_fewer_than_two_values_have_no_interval(values: list[float]) -> None:
    assert all(map(math.isnan, mean_interval(values)))


def test_what_does_not_apply_is_left_out() -> None:
    values = [1.0, 2.0, 4.0, 8.0]
    assert mean_interval([math.nan, *values]) == mean_interval(values)


def test_reduction_is_taken_between_means_of_pairs() -> None:
    share, (low, high) = reduction_percent(np.array([4.0, 5.0, 4.5]), np.array([8.0, 10.0, 9.0]))
    assert share == pytest.approx(50.0)
    assert (low, high) == pytest.approx((50.0, 50.0))  # half in every pair: no doubt, although values differ


def test_reduction_leaves_out_pairs_of_which_one_is_missing() -> None:
    share, _ = reduction_percent(np.array([4.0, math.nan, 6.0]), np.array([8.0, 100.0, 12.0]))
    assert share == pytest.approx(50.0)


@pytest.mark.parametrize("baseline", [[0.0, 0.0], [math.nan, math.nan], []])
def test_nothing_cannot_be_reduced(baseline: list[float]) -> None:
    share, interval = reduction_percent(np.ones(len(baseline)), np.array(baseline, dtype=np.float64))
    assert math.isnan(share)
    assert all(map(math.isnan, interval))
