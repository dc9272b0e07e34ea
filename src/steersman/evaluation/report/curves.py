"""Plots over the course of runs: a line per policy, the mean over seeds, and a band; the learning curve of a policy."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from steersman.evaluation.report.style import (
    BOUND_COLOUR,
    BOUND_LABEL,
    Figure,
    Floats,
    Style,
    along,
    faint,
    figure,
    rounded,
    styles,
    titled,
)
from steersman.simulation.result import Curve, RunResult

SYMBOLS_ON_A_LINE = 9
POINTS = 400  # of a curve, at most; more cannot be seen


@dataclass(frozen=True, slots=True)
class CurveStats:
    """A quantity of a policy over the course of its runs: [K] points, mean, smallest and largest over seeds."""

    x: Floats
    mean: Floats
    low: Floats
    high: Floats
    seeds: int

    def cut(self, start: int, stop: int) -> CurveStats:
        part = slice(start, stop)
        return CurveStats(self.x[part], self.mean[part], self.low[part], self.high[part], self.seeds)


def grid(curves: Sequence[Curve]) -> Floats:
    """Return points at which all curves can be compared: their own if equal, else evenly over their common range."""
    first = curves[0].x
    if len(first) <= POINTS and all(np.array_equal(curve.x, first) for curve in curves):
        return first
    return np.linspace(min(curve.x[0] for curve in curves), max(curve.x[-1] for curve in curves), POINTS)


def curve_stats(curves: Sequence[Curve], quantity: str, x: Floats) -> CurveStats:
    """Return statistics of a quantity (see `Curve.values`) at `x`, over the seeds that have not ended there."""
    return stats_over_seeds(x, np.stack([at_points(curve.x, curve.values(quantity), x) for curve in curves]))


def stats_over_seeds(x: Floats, values: Floats) -> CurveStats:
    """Return statistics of [S, K] values at `x`; NaN where a seed has none."""
    return CurveStats(x, mean_of_known(values), np.fmin.reduce(values), np.fmax.reduce(values), len(values))


def mean_of_known(values: Floats) -> Floats:
    """Return the means over the first axis without NaN; NaN where nothing else is."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(axis=0) / known.sum(axis=0), dtype=np.float64)


def at_points(own: Floats, values: Floats, x: Floats) -> Floats:
    """Return values of a curve at `x`: at its own points, else at the last point before."""
    if own is x or np.array_equal(own, x):
        return values
    position = np.searchsorted(own, x, side="right") - 1
    taken = np.asarray(values[np.clip(position, 0, len(own) - 1)], dtype=np.float64)
    return np.where((position < 0) | (x > own[-1]), np.nan, taken)


@dataclass(frozen=True, slots=True)
class LinePlots:
    """Plots over the course of runs: a line per policy, the mean over seeds, in a band from smallest to largest."""

    runs: Mapping[str, Sequence[RunResult]]
    style: Mapping[str, Style]
    x_title: str

    def x(self) -> Floats:
        return grid([run.curve for of_policy in self.runs.values() for run in of_policy])

    def plot(
        self,
        quantity: str,  # see `Curve.values`
        y_title: str,
        *,
        window: tuple[float, float] | None = None,  # the part of x to show; the y axis is fitted to it
        diagonal: bool = False,  # whether to draw the line of a scheduler that places everything that arrives
        bound: float = math.nan,  # the bound to draw, from where that much has arrived; NaN if unknown
        digits: int = 2,
    ) -> Figure | None:
        """Return the plot of a quantity; None if no run has a value."""
        x = self.x()
        whole = (float(x[0]), float(x[-1]))
        stats = self._stats(quantity, x, window or whole)
        if not stats:
            return None
        has_bound = math.isfinite(bound)
        data = ([_bound_line(x, bound)] if has_bound else []) + ([_diagonal(x)] if diagonal else [])
        for policy, each in stats.items():
            data += band_and_line(policy, self.style[policy], each, digits)
        low = min(float(np.nanmin(each.low)) for each in stats.values())
        high = max(float(np.nanmax(each.high)) for each in stats.values())
        if has_bound:
            above = 0.06 * (bound - low) if window else 0.0  # space for its name
            high = max(high, bound + above)
        high = max(high, 100.0) if diagonal else high
        x_axis, y_axis = titled(self.x_title, range=list(window or whole)), titled(y_title, range=_padded(low, high))
        marks = [_bound_mark(bound)] if has_bound and window else []
        return figure(data, x_axis, y_axis, hovermode="x unified", annotations=marks)

    def _stats(self, quantity: str, x: Floats, window: tuple[float, float]) -> dict[str, CurveStats]:
        result = {}
        for policy, of_policy in self.runs.items():
            path = curve_stats([run.curve for run in of_policy], quantity, x)
            inside = np.flatnonzero(np.isfinite(path.mean) & (x >= window[0]) & (x <= window[1]))
            if len(inside):
                first, last = inside[[0, -1]]
                result[policy] = path.cut(first, last + 1)
        return result


def _padded(low: float, high: float) -> list[float]:
    """Return the range of an axis, which begins at 0 at the lowest if nothing is negative."""
    margin = (high - low or 1) * 0.04
    return [max(0.0, low - margin) if low >= 0 else low - margin, high + margin]


def band_and_line(policy: str, style: Style, stats: CurveStats, digits: int, unit: str = "") -> list[Figure]:
    """Return the traces of a policy: of several seeds the edges of their band, then the mean."""
    common: Figure = {**along(stats.x), "mode": "lines", "connectgaps": True, "meta": style.index, "hoverinfo": "skip"}
    line = {
        **common,
        "y": rounded(stats.mean, digits),
        "name": policy,
        "line": {"color": style.colour, "dash": style.dash, "width": 2.2},
        "hoverinfo": "all",
        "hovertemplate": f"%{{y:.{digits}f}}{unit}",
    }
    if style.symbol:
        marker = {"symbol": style.symbol, "size": 7, "maxdisplayed": SYMBOLS_ON_A_LINE, "color": style.colour}
        line |= {"mode": "lines+markers", "marker": marker}
    if stats.seeds == 1:
        return [line]
    edge: Figure = {"width": 0, "color": style.colour}
    low = {**common, "y": rounded(stats.low, digits), "line": edge}
    filled = {"fill": "tonexty", "fillcolor": faint(style.colour)}
    # "tonexty" fills to the trace before, so low comes first.
    return [low, {**common, "y": rounded(stats.high, digits), "line": edge, **filled}, line]


def _diagonal(x: Floats) -> Figure:
    top, end = min(100.0, float(x[-1])), float(x[-1])
    return _mark([0, top, end], [0, top, top], {"color": "#9a9a9a", "dash": "dot", "width": 1})


def _bound_line(x: Floats, bound: float) -> Figure:
    ends = [min(bound, float(x[-1])), float(x[-1])]
    return _mark(ends, [round(bound, 2)] * 2, {"color": BOUND_COLOUR, "dash": "dashdot", "width": 1.6})


def _mark(x: list[float], y: list[float], line: Figure) -> Figure:
    return {"x": x, "y": y, "mode": "lines", "hoverinfo": "skip", "line": line}


def _bound_mark(bound: float) -> Figure:
    """Return the label of the bound's line, at its right end, above it where nothing is drawn."""
    place: Figure = {"xref": "paper", "x": 1, "xanchor": "right", "y": round(bound, 2), "yanchor": "bottom"}
    text = f"{BOUND_LABEL} {bound:.2f}"
    return place | {"text": text, "showarrow": False, "font": {"color": BOUND_COLOUR, "size": 12}}


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """A training run by evolution."""

    policy: str
    reference: str  # the policy that gains are measured against
    training: tuple[str, ...]
    # `episodes`, `gain`: [G] episodes so far, and percent saved by the mean candidate, by generation
    episodes: Floats
    gain: Floats
    # `checked_episodes`, `checked`: [V] the same for validations of the policy itself
    checked_episodes: Floats
    checked: Floats


def read_learning(folder: Path, policy: str, reference: str, training: tuple[str, ...]) -> LearningCurve:
    metrics = list(_rows(folder / "metrics.csv"))
    at = {row["iteration"]: float(row["steps"]) for row in metrics}
    checks = list(_rows(folder / "validation.csv"))
    return LearningCurve(
        policy,
        reference,
        training,
        np.array(list(at.values())),
        np.array([float(row["gain"]) for row in metrics]),
        np.array([at[row["iteration"]] for row in checks]),
        np.array([float(row["value"]) for row in checks]),
    )


def _rows(file: Path) -> Iterator[dict[str, str]]:
    with open(file, newline="") as lines:
        yield from csv.DictReader(lines)


def learning_figure(curve: LearningCurve) -> Figure:
    search: Figure = {
        "type": "scatter",
        "mode": "lines",
        "x": curve.episodes.tolist(),
        "y": rounded(curve.gain),
        "line": {"color": "#aaaaaa", "width": 1.5},
        "hovertemplate": "%{x} episodes: %{y:.1f} %<extra>mean candidate</extra>",
    }
    checks: Figure = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": curve.checked_episodes.tolist(),
        "y": rounded(curve.checked),
        "line": {"color": styles([curve.policy])[curve.policy].colour, "width": 2},
        "hovertemplate": "%{x} episodes: %{y:.1f} %<extra>validation</extra>",
    }
    low = min(-5.0, float(curve.checked.min(initial=0.0)))
    high = max(float(curve.gain.max(initial=0.0)), float(curve.checked.max(initial=0.0)))
    y_axis = titled("unallocated GPUs saved, %", range=[low, high + 2])
    return figure([search, checks], titled("episodes played"), y_axis)
