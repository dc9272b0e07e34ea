"""Student's t intervals of means, paired differences and reductions, over a few runs or over blocks of one trace.

NaN means "does not apply". Such values are left out, a pair with a NaN on either side is left out as a pair, and fewer
than two values have no interval (NaN, an empty cell in a file).
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

T_CRITICAL_VALUES = (
    12.7062047362,
    4.3026527297,
    3.1824463053,
    2.7764451052,
    2.5705818356,
    2.4469118511,
    2.3646242516,
    2.3060041352,
    2.2621571628,
    2.2281388520,
)
"""97.5 % quantiles of Student's t with 1 to 10 degrees of freedom."""
NORMAL_CRITICAL_VALUE = NormalDist().inv_cdf(0.975)

Floats = npt.NDArray[np.float64]


BLOCKS = 20
"""Length of a series in blocks, see `moving_block_interval`: enough of them, each long enough to be nearly independent
of the next; Schmeiser, "Batch Size Effects in the Analysis of Simulation Output" (1982), advises 10 to 30."""


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
    """Return the 95 % interval of the mean of [n] values (Student's t)."""
    array = _applicable(np.asarray(values, dtype=np.float64))
    if len(array) < 2:
        return NO_INTERVAL
    centre = float(np.mean(array))
    half = t_critical_value(len(array) - 1) * float(np.std(array, ddof=1)) / math.sqrt(len(array))
    return Interval(centre - half, centre + half)


def stratified_interval(values: Floats) -> Interval:
    """Return the 95 % interval of the mean of [n, k] values, n of each of k strata (Student's t).

    Only the variance within strata counts, so that what strata differ by is no noise. Source: Cochran, "Sampling
    Techniques" (1977), chapter 5.
    """
    n, k = values.shape
    if n < 2:
        return NO_INTERVAL
    centre, variance = float(values.mean()), float(values.var(axis=0, ddof=1).mean())
    half = t_critical_value(k * (n - 1)) * math.sqrt(variance / values.size)
    return Interval(centre - half, centre + half)


def deviations(parts: Floats) -> Floats:
    """Return [K] what each part of a series adds to the ratio of its sums, as a deviation whose mean is 0.

    Args:
        parts: [K, 2] sum and weight of each part; the ratio is the whole sum over the whole weight.
    """
    total, weight = parts.sum(axis=0)
    if not weight > 0:
        return np.full(len(parts), np.nan)
    return np.asarray((parts[:, 0] - total / weight * parts[:, 1]) * len(parts) / weight)


def moving_block_interval(centre: float, series: Floats) -> Interval:
    """Return an interval of a mean of consecutive, dependent values, from overlapping blocks of them.

    It would hold the mean of other stretches in 95 % of cases if blocks were independent. Waits are not: busy periods
    are often longer than a block, and `python -m benchmarks interval-coverage` measures far less than 95 %. So it is
    printed as an interval of this stretch alone.

    The variance is that of the means of all blocks of `K / BLOCKS` consecutive values, to which the moving block
    bootstrap (Kuensch, "The Jackknife and the Bootstrap for General Stationary Observations", Annals of Statistics 17,
    1989) tends; estimator and degrees of freedom are those of Meketon and Schmeiser, "Overlapping Batch Means:
    Something for Nothing?" (1984).

    Args:
        series: [K] deviations from it in order, see `deviations`; those of a difference are differences of these.
    """
    count, size = len(series), len(series) // BLOCKS
    if not (size and math.isfinite(centre) and np.isfinite(series).all()):
        return NO_INTERVAL
    sums = np.concatenate([[0.0], np.cumsum(series - series.mean())])
    blocks = (sums[size:] - sums[:-size]) / size
    variance = size / ((count - size + 1) * (count - size)) * float((blocks**2).sum())
    half = t_critical_value(int(1.5 * (count / size - 1))) * math.sqrt(variance)
    return Interval(centre - half, centre + half)


def t_critical_value(degrees_of_freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t, to 5 digits, for two-sided 95 % intervals; 1 degree or more.

    Source: Abramowitz and Stegun, "Handbook of Mathematical Functions" (1964), 26.7.5, above the table's end.
    """
    if degrees_of_freedom <= len(T_CRITICAL_VALUES):
        return T_CRITICAL_VALUES[degrees_of_freedom - 1]
    z = NORMAL_CRITICAL_VALUE
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(sum(term / degrees_of_freedom**power for power, term in enumerate(terms)))


def _applicable(array: Floats) -> Floats:
    return array[np.isfinite(array)]
