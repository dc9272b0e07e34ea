"""Bootstrap intervals of means, paired differences and reductions, for comparisons of a few runs.

Everything is a function of the numbers alone: the resamples depend only on how many values there are, so equal input
gives equal bytes, and quantities measured on the same seeds are resampled together.

NaN means "does not apply". Such values are left out, a pair with a NaN on either side is left out as a pair, and fewer
than two values have no interval (NaN, an empty cell in a file).
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
RESAMPLES = 10_000
ROWS_AT_ONCE = 128  # 10 MB of resampled means at a time

Floats = npt.NDArray[np.float64]


class Interval(NamedTuple):
    """A confidence interval; NaN at both ends where there is none."""

    low: float
    high: float


NO_INTERVAL = Interval(float("nan"), float("nan"))


def interquartile_mean(values: npt.ArrayLike) -> float:
    """Return the mean of the middle half: floor(n / 4) values are cut at either end. NaN without values.

    Source: Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", NeurIPS 2021.
    """
    array = np.sort(_applicable(np.asarray(values, dtype=np.float64)))
    cut = len(array) // 4
    return float(np.mean(array[cut : len(array) - cut])) if len(array) else float("nan")


def mean(values: npt.ArrayLike) -> float:
    """Return the mean of the values that apply; NaN if none does."""
    array = _applicable(np.asarray(values, dtype=np.float64))
    return float(np.mean(array)) if len(array) else float("nan")


def mean_interval(values: npt.ArrayLike) -> Interval:
    """Return the 95 % interval of the mean of [n] values."""
    return mean_intervals(np.asarray(values, dtype=np.float64)[np.newaxis])[0]


def mean_intervals(samples: Floats) -> list[Interval]:
    """Return the 95 % interval of the mean of each row of [C, n] samples (BCa bootstrap)."""
    intervals = [NO_INTERVAL] * len(samples)
    applies = np.isfinite(samples)
    patterns, pattern_of = np.unique(applies, axis=0, return_inverse=True)
    for index, pattern in enumerate(patterns):
        rows = np.flatnonzero(pattern_of.reshape(-1) == index)
        if np.count_nonzero(pattern) < 2:
            continue
        for start in range(0, len(rows), ROWS_AT_ONCE):
            block = rows[start : start + ROWS_AT_ONCE]
            values = samples[block][:, pattern]
            bounds = _bca(values.mean(axis=1), _resampled_means(values), _leave_one_out(values))
            for row, (low, high) in zip(block, bounds, strict=True):
                intervals[row] = Interval(float(low), float(high))
    return intervals


def reduction_percent(values: Floats, baseline: Floats) -> tuple[float, Interval]:
    """Return by how many percent the mean of [n] values is below that of [n] baseline values, and its 95 % interval.

    Values and baseline are pairs. NaN if the baseline's mean is not above zero.
    """
    both = np.isfinite(values) & np.isfinite(baseline)
    pair = np.stack([values[both], baseline[both]])
    if not pair.size or pair[1].mean() <= 0:
        return float("nan"), NO_INTERVAL
    estimate = _reduction(pair.mean(axis=1))
    if pair.shape[1] < 2:
        return float(estimate), NO_INTERVAL
    replicates = _resampled_means(pair)
    if (replicates[1] <= 0).any():
        return float(estimate), NO_INTERVAL
    bounds = _bca(
        np.array([estimate]), _reduction(replicates)[np.newaxis], _reduction(_leave_one_out(pair))[np.newaxis]
    )
    return float(estimate), Interval(float(bounds[0, 0]), float(bounds[0, 1]))


def _reduction(means: Floats) -> Floats:
    return np.asarray(100 * (1 - means[0] / means[1]), dtype=np.float64)


def _applicable(array: Floats) -> Floats:
    return array[np.isfinite(array)]


@lru_cache(maxsize=8)
def _weights(n: int) -> Floats:
    """Return how often each of n values is drawn in each resample, divided by n, [RESAMPLES, n]."""
    random = np.random.default_rng(n)
    counts = random.multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
    return np.asarray(counts / n, dtype=np.float64)


def _resampled_means(samples: Floats) -> Floats:
    """Return means of resamples of each row of [C, n], [C, RESAMPLES], with the same resamples for every row."""
    # einsum adds in a fixed order; BLAS would not on every machine.
    return np.asarray(np.einsum("cn,bn->cb", samples, _weights(samples.shape[1])), dtype=np.float64)


def _leave_one_out(samples: Floats) -> Floats:
    """Return means of each row of [C, n] without its i-th value (the jackknife), [C, n]."""
    n = samples.shape[1]
    return np.asarray((samples.sum(axis=1, keepdims=True) - samples) / (n - 1), dtype=np.float64)


def _bca(estimates: Floats, replicates: Floats, jackknife: Floats) -> Floats:
    """Return bias-corrected and accelerated bootstrap intervals, [C, 2].

    Args:
        estimates: [C] the statistic of the sample.
        replicates: [C, RESAMPLES] the statistic of resamples.
        jackknife: [C, n] the statistic without the i-th value.

    Source: Efron, "Better Bootstrap Confidence Intervals", JASA 82 (1987). Where the correction is not defined (all
    resamples on one side), the plain percentile interval.
    """
    normal = NormalDist()
    tail = (1 - CONFIDENCE) / 2
    ordered = np.sort(replicates, axis=1)
    deviations = jackknife.mean(axis=1, keepdims=True) - jackknife
    squares = (deviations**2).sum(axis=1)
    bounds = np.empty((len(estimates), 2))
    for row, estimate in enumerate(estimates):
        # Sums of equal numbers differ in their last bits by their order; that is no spread.
        if ordered[row, -1] - ordered[row, 0] <= 1e-12 * max(1.0, abs(estimate)):
            bounds[row] = estimate
            continue
        # A resample that draws every value once is a tie, whatever the last bits of its mean.
        tie = 1e-9 * (ordered[row, -1] - ordered[row, 0])
        below = np.searchsorted(ordered[row], [estimate - tie, estimate + tie]).sum()
        share = below / (2 * ordered.shape[1])
        levels = [tail, 1 - tail]
        if 0 < share < 1 and squares[row] > 0:
            bias = normal.inv_cdf(share)
            acceleration = (deviations[row] ** 3).sum() / (6 * squares[row] ** 1.5)
            quantiles = [bias + normal.inv_cdf(level) for level in levels]
            levels = [normal.cdf(bias + z / (1 - acceleration * z)) for z in quantiles]
        bounds[row] = np.quantile(ordered[row], levels)
    return bounds
