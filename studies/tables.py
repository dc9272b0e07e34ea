"""Numbers of studies for people: values by workload and policy, their statistics, and Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.core.statistics import NO_INTERVAL, Interval, interquartile_mean, mean, mean_interval, t_critical_value
from steersman.evaluation.summary import SummaryTable, clip_interval
from steersman.simulation.result import RunResult
from studies.common import plain, short_name

Floats = npt.NDArray[np.float64]
Values = dict[str, dict[str, list[float]]]
"""By workload and policy: one value a seed."""

Json = dict[str, Any]
ALL = "all"


def divided(json: Json, unit: float) -> Json:
    """Numbers by name in another unit, such as seconds in hours; None stays None."""
    return {name: None if value is None else value / unit for name, value in json.items()}


def values_of(runs: Sequence[RunResult], metric: str) -> Values:
    """Return the values of a metric at the end of runs."""
    table = SummaryTable(runs)
    return {
        short_name(workload): {policy: table.get(workload, policy, metric).tolist() for policy in table.policies}
        for workload in table.workloads
    }


def with_mean(values: Values) -> Values:
    """Return the values by workload and, if there are several, `all`: for each seed the mean over workloads."""
    if len(values) < 2:
        return values
    policies = next(iter(values.values()))
    means = {p: np.mean([values[w][p] for w in values], axis=0).tolist() for p in policies}
    return {**values, ALL: means}


def spread(values: npt.ArrayLike) -> Json:
    """`mean`, `interquartile_mean`, `low` and `high` (95 % interval of the mean) of [n] values."""
    low, high = mean_interval(values)
    return {"mean": mean(values), "interquartile_mean": interquartile_mean(values), "low": low, "high": high}


def by_unit(values: npt.ArrayLike, units: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return [units, ...] means of [draws, ...] values over the draws of each unit, by the units' numbers.

    Draws of one cluster, of one list of pods or of overlapping windows depend on each other. An interval over them as
    if they were independent is too narrow, and one over the means of independent units is not.

    Args:
        values: the values.
        units: [draws] number of the unit of each draw.
    """
    array, of_draw = np.asarray(values, dtype=np.float64), np.asarray(units)
    return np.stack([array[of_draw == unit].mean(axis=0) for unit in np.unique(of_draw)])


def difference(values: npt.ArrayLike, baseline: npt.ArrayLike) -> Json:
    """`spread` of the paired differences of [n] values to [n] of a baseline."""
    return spread(np.asarray(values, dtype=np.float64) - np.asarray(baseline, dtype=np.float64))


def geometric(logarithms: npt.ArrayLike) -> Json:
    """Return `spread` of [n] ratios from their logarithms: their geometric mean and its interval."""
    return {name: None if value is None else float(np.exp(value)) for name, value in spread(logarithms).items()}


def reduction_percent(values: Floats, baseline: Floats) -> tuple[float, Interval]:
    """Return by how many percent the mean of [n] values is below that of [n] baseline values, and its 95 % interval.

    Values and baseline are pairs. NaN if the baseline's mean is not above zero; no interval if it may be zero.

    Source of the interval: Fieller, "Some Problems in Interval Estimation", JRSS B 16 (1954): the ratios r for which
    the 95 % interval of the mean of `values - r * baseline` holds zero.
    """
    both = np.isfinite(values) & np.isfinite(baseline)
    pair = np.stack([values[both], baseline[both]])
    if not pair.size or pair[1].mean() <= 0:
        return float("nan"), NO_INTERVAL
    of_values, of_baseline = (float(each) for each in pair.mean(axis=1))
    estimate = 100 * (1 - of_values / of_baseline)
    n = pair.shape[1]
    if n < 2:
        return estimate, NO_INTERVAL
    errors = t_critical_value(n - 1) ** 2 * np.cov(pair) / n
    square = of_baseline**2 - errors[1, 1]
    if square <= 0:
        return estimate, NO_INTERVAL
    middle = (of_values * of_baseline - errors[0, 1]) / square
    # Rounding may leave less than nothing where all pairs have the same ratio.
    half = math.sqrt(max(0.0, middle**2 - (of_values**2 - errors[0, 0]) / square))
    return estimate, Interval(100 * (1 - middle - half), 100 * (1 - middle + half))


def saved(values: npt.ArrayLike, baseline: npt.ArrayLike) -> Json:
    """By how many percent the mean of [n] values is below that of [n] paired ones: `mean`, `low`, `high`."""
    estimate, (low, high) = reduction_percent(
        np.asarray(values, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    )
    return {"mean": estimate, "low": low, "high": high}


def unallocated_saved(allocated: npt.ArrayLike, baseline: npt.ArrayLike) -> Json:
    """Return the share `saved` of unallocated GPU, given [n] percent of GPU allocated."""
    return saved(100.0 - np.asarray(allocated, dtype=np.float64), 100.0 - np.asarray(baseline, dtype=np.float64))


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose first column is text and whose others are numbers."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def number(value: float | None, digits: int = 2) -> str:
    """Return a number for a table; a dash if it is undefined."""
    return "–" if value is None else f"{value:.{digits}f}"


def interval(json: Json, digits: int = 2, sign: bool = True, unit: str = "") -> str:
    """`+0.98 (0.91 to 1.05)` of a `spread` or `difference`; a dash where none applies.

    Args:
        json: the mean and its interval.
        digits: after the point.
        sign: whether the mean has one also above 0.
        unit: of the mean of a metric, which is never below 0, nor above 100 if it is `percent`: its interval is
            clipped as in summary.csv. Empty: no limits, as for differences.
    """
    json = plain(json)
    if json["mean"] is None:
        return "–"
    text = f"{json['mean']:+.{digits}f}" if sign else f"{json['mean']:.{digits}f}"
    if json["low"] is None:
        return text
    low, high = clip_interval(Interval(json["low"], json["high"]), unit)
    return f"{text} ({low:.{digits}f} to {high:.{digits}f})"


def seeds_text(seeds: Sequence[int]) -> str:
    """`142-161`, or the seeds one by one."""
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}-{seeds[-1]}"
    return ", ".join(map(str, seeds))
