"""Intervals are those of SciPy and hold the truth as often as they say."""

import math

import numpy as np
import pytest
from scipy import stats
from studies.tables import reduction_percent

from steersman.core.statistics import interquartile_mean, mean_interval, t_critical_value


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 10, 11, 100])
def test_interquartile_mean_cuts_a_quarter_at_either_end(n: int) -> None:
    values = np.random.default_rng(n).exponential(size=n)
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25))


def test_interquartile_mean_ignores_outliers_and_missing_values() -> None:
    assert interquartile_mean([1, 2, 3, 4, 5, 6, 7, 1e9, math.nan]) == pytest.approx(4.5)
    assert math.isnan(interquartile_mean([]))
    assert math.isnan(interquartile_mean([math.nan]))


@pytest.mark.parametrize("degrees", [*range(1, 31), 50, 100, 1000, 100_000])
def test_critical_values_match_scipy(degrees: int) -> None:
    assert t_critical_value(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=1e-5)


@pytest.mark.parametrize("n", [2, 5, 10, 30])
def test_intervals_match_scipy(n: int) -> None:
    values = np.random.default_rng(n).exponential(size=n)
    theirs = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert mean_interval(values) == pytest.approx((theirs.low, theirs.high), rel=1e-4)


@pytest.mark.parametrize("n", [2, 3, 5, 10, 40])
def test_mean_intervals_have_nominal_coverage(n: int) -> None:
    samples = np.random.default_rng(n).normal(7.0, 2.0, size=(4000, n))
    inside = [low <= 7.0 <= high for low, high in map(mean_interval, samples)]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("n", [3, 5, 10, 40])
def test_reduction_intervals_have_nominal_coverage(n: int) -> None:
    random = np.random.default_rng(n)
    inside = []
    for _ in range(4000):
        baseline = random.normal(10.0, 1.0, size=n)
        values = 0.6 * baseline + random.normal(0.0, 1.0, size=n)
        low, high = reduction_percent(values, baseline)[1]
        inside.append(low <= 40.0 <= high)
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)


def test_an_interval_does_not_depend_on_the_unit() -> None:
    values = np.random.default_rng(3).normal(size=10)
    assert mean_interval(values * 3) == pytest.approx(np.multiply(mean_interval(values), 3), rel=1e-9)


def test_constant_values_have_a_zero_width_interval() -> None:
    assert mean_interval([0.1] * 10) == pytest.approx((0.1, 0.1))
    assert mean_interval([0.0] * 10) == (0.0, 0.0)


@pytest.mark.parametrize("values", [[], [3.0], [3.0, math.nan], [math.nan] * 10])
def test_fewer_than_two_values_have_no_interval(values: list[float]) -> None:
    assert all(map(math.isnan, mean_interval(values)))


def test_missing_values_are_left_out() -> None:
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
def test_reduction_of_zero_is_undefined(baseline: list[float]) -> None:
    share, interval = reduction_percent(np.ones(len(baseline)), np.array(baseline, dtype=np.float64))
    assert math.isnan(share)
    assert all(map(math.isnan, interval))


def test_reduction_with_baseline_near_zero_has_no_interval() -> None:
    share, interval = reduction_percent(np.array([1.0, 2.0, 3.0]), np.array([-5.0, 10.0, 1.0]))
    assert share == pytest.approx(0.0)
    assert all(map(math.isnan, interval))
