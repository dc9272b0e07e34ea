"""The plots of a report as Plotly figures (dictionaries of data and layout), one colour per policy throughout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.evaluation.report.headline import BOUND_LABEL
from steersman.objectives.fragmentation import CAUSES
from steersman.simulation.result import Curve, FinalNodes, RunResult

Figure = dict[str, Any]
Floats = npt.NDArray[np.float64]

# Okabe and Ito, "Color Universal Design" (2008), without its yellow, which is hard to see on white; then wine and
# indigo of Paul Tol's muted scheme (2021).
POLICY_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#882255",
    "#332288",
)
# Paul Tol's light scheme (2021), for the same policies on a dark page.
DARK_POLICY_COLOURS = (
    "#77aadd",
    "#ee8866",
    "#44bb99",
    "#ffaabb",
    "#eedd88",
    "#99ddff",
    "#bbcc33",
    "#aaaa00",
)
BASELINE_COLOUR = "#333333"
BOUND_COLOUR = "#b2182b"
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("", "circle", "square", "diamond", "triangle-up", "x", "cross")
"""Symbols of policies' lines: repeated colours have other dashes and symbols.

Their number has no common factor with those of colours and dashes, so that 224 policies look different."""
CAUSE_COLOURS = ("#44546a", "#7e8fa6", "#b5651d", "#d9d2c5", "#a89f8d", "#e8b98a")
CAUSE_LABELS = {
    "lack_both": "too little GPU and CPU left",
    "lack_gpu": "too little GPU left",
    "lack_cpu": "too little CPU left",
    "cpu_pod_satisfied": "the pod wants no GPU",
    "cpu_pod_lack_cpu": "the pod wants no GPU, too little CPU left",
    "no_access": "the pod wants another GPU model",
}
# Cividis (Nuñez, Anderton and Renslow 2018) from its light end: idle nodes stand out, also to the colour-blind.
SHARE_COLOURS = ("#ffea46", "#cbba69", "#958f78", "#666970", "#31446b", "#00204d")

SYMBOLS_ON_A_LINE = 9
POINTS = 400  # of a curve, at most; more cannot be seen
CELLS = 3000  # of a heat map, at most
CELLS_PER_ROW = 48
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class CurveStats:
    """A quantity of a policy over the course of its runs: [K] points, mean, smallest and largest over seeds."""

    x: Floats
    mean: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True)
class Style:
    """A policy's style in all plots: repeated colours are distinguished by dash and symbol."""

    index: int
    colour: str
    dash: str
    symbol: str


def styles(policies: Sequence[str], baseline: str) -> dict[str, Style]:
    """Return a style per policy, the baseline's nearly black (on a dark page nearly white)."""
    others = [policy for policy in policies if policy != baseline]
    result = {baseline: Style(policies.index(baseline), BASELINE_COLOUR, DASHES[0], SYMBOLS[0])}
    for position, policy in enumerate(others):
        turn, place = divmod(position, len(POLICY_COLOURS))
        dash, symbol = DASHES[turn % len(DASHES)], SYMBOLS[turn % len(SYMBOLS)]
        result[policy] = Style(policies.index(policy), POLICY_COLOURS[place], dash, symbol)
    return result


def grid(curves: Sequence[Curve]) -> Floats:
    """Return points at which all curves can be compared: their own if equal, else evenly over their common range."""
    first = curves[0].x
    if len(first) <= POINTS and all(np.array_equal(curve.x, first) for curve in curves):
        return first
    return np.linspace(min(curve.x[0] for curve in curves), max(curve.x[-1] for curve in curves), POINTS)


def curve_stats(curves: Sequence[Curve], quantity: str, x: Floats) -> CurveStats:
    """Return statistics of a quantity (see `Curve.values`) at `x`, over the seeds, as long as all of them run."""
    values = np.stack([_at(curve.x, curve.values(quantity), x) for curve in curves])
    values[:, x > min(curve.x[-1] for curve in curves)] = np.nan  # a mean of other seeds would jump there
    known = np.isfinite(values)
    count = known.sum(axis=0)
    with np.errstate(invalid="ignore"):
        mean = np.where(known, values, 0).sum(axis=0) / count
    low = np.where(known, values, np.inf).min(axis=0)
    high = np.where(known, values, -np.inf).max(axis=0)
    return CurveStats(x, mean, np.where(count > 0, low, np.nan), np.where(count > 0, high, np.nan))


def _at(own: Floats, values: Floats, x: Floats) -> Floats:
    """Return values of a curve at `x`: at its own points, else at the last point before."""
    if own is x or np.array_equal(own, x):
        return values
    position = np.searchsorted(own, x, side="right") - 1
    taken = np.asarray(values[np.clip(position, 0, len(own) - 1)], dtype=np.float64)
    return np.where((position < 0) | (x > own[-1]), np.nan, taken)


def lines(
    runs: dict[str, list[RunResult]],
    style: dict[str, Style],
    quantity: str,
    *,
    x_title: str,
    y_title: str,
    window: tuple[float, float] | None = None,
    diagonal: bool = False,
    bound: float = math.nan,
    digits: int = 2,
) -> Figure | None:
    """Return a plot of the mean over seeds of a quantity, a line per policy, with a band from smallest to largest seed.

    Args:
        runs: by policy.
        style: by policy.
        quantity: see `Curve.values`.
        x_title: title of the x axis.
        y_title: title of the y axis.
        window: the part of x to show; the y axis is fitted to it.
        diagonal: whether to draw the line of a scheduler that places everything that arrives.
        bound: the bound to draw, from where that much has arrived; NaN if unknown.
        digits: decimals of the values.

    Returns:
        None if no run has a value.
    """
    data: list[Figure] = []
    x = grid([run.curve for of_policy in runs.values() for run in of_policy])
    shown: list[Floats] = []
    for policy, of_policy in runs.items():
        path = curve_stats([run.curve for run in of_policy], quantity, x)
        inside = np.isfinite(path.mean)
        if window is not None:
            inside &= (x >= window[0]) & (x <= window[1])
        if inside.any():
            shown += [path.low[inside], path.high[inside]]
            first, last = np.flatnonzero(inside)[[0, -1]]
            kept = CurveStats(*(part[first : last + 1] for part in (path.x, path.mean, path.low, path.high)))
            data += _band_and_line(policy, style[policy], kept, digits, band=len(of_policy) > 1)
    if not shown:
        return None
    if diagonal:
        data.insert(0, _diagonal(x))
    low = float(min(map(np.min, shown)))
    high = max(float(max(map(np.max, shown))), 100.0 if diagonal else -math.inf)
    marks: list[Figure] = []
    if math.isfinite(bound):
        data.insert(0, _bound_line(x, bound))
        if window is not None:
            marks.append(_bound_mark(bound))
            high = max(high, bound + 0.06 * (bound - low))  # space for its name
        high = max(high, bound)
    margin = (high - low or 1) * 0.04
    x_axis: Figure = {"title": {"text": x_title}, "range": list(window or (float(x[0]), float(x[-1])))}
    y_axis: Figure = {
        "title": {"text": y_title},
        "range": [max(0.0, low - margin) if low >= 0 else low - margin, high + margin],
    }
    return {"data": data, "layout": layout(x_axis, y_axis, hovermode="x unified", annotations=marks)}


def _band_and_line(policy: str, style: Style, path: CurveStats, digits: int, *, band: bool) -> list[Figure]:
    common: Figure = {**along(path.x), "mode": "lines", "connectgaps": True, "meta": style.index, "hoverinfo": "skip"}
    line = {
        **common,
        "y": rounded(path.mean, digits),
        "name": policy,
        "line": {"color": style.colour, "dash": style.dash, "width": 2.2},
        "hoverinfo": "all",
        "hovertemplate": f"%{{y:.{digits}f}}",
    }
    if style.symbol:
        marker = {"symbol": style.symbol, "size": 7, "maxdisplayed": SYMBOLS_ON_A_LINE, "color": style.colour}
        line |= {"mode": "lines+markers", "marker": marker}
    if not band:
        return [line]
    edge: Figure = {"width": 0, "color": style.colour}
    return [
        {**common, "y": rounded(path.low, digits), "line": edge},
        {**common, "y": rounded(path.high, digits), "line": edge, "fill": "tonexty", "fillcolor": faint(style.colour)},
        line,
    ]


def _diagonal(x: Floats) -> Figure:
    top = min(100.0, float(x[-1]))
    return {
        "x": [0, top, float(x[-1])],
        "y": [0, top, top],
        "mode": "lines",
        "hoverinfo": "skip",
        "line": {"color": "#9a9a9a", "dash": "dot", "width": 1},
    }


def _bound_line(x: Floats, bound: float) -> Figure:
    return {
        "x": [min(bound, float(x[-1])), float(x[-1])],
        "y": [round(bound, 2)] * 2,
        "mode": "lines",
        "hoverinfo": "skip",
        "line": {"color": BOUND_COLOUR, "dash": "dashdot", "width": 1.6},
    }


def _bound_mark(bound: float) -> Figure:
    """Return the label of the bound's line, at its right end, above it where nothing is drawn."""
    place: Figure = {"xref": "paper", "x": 1, "xanchor": "right", "y": round(bound, 2), "yanchor": "bottom"}
    text = f"{BOUND_LABEL} {bound:.2f}"
    return place | {"text": text, "showarrow": False, "font": {"color": BOUND_COLOUR, "size": 12}}


def causes_in_short(runs: dict[str, list[RunResult]], *, at_end: bool) -> Figure | None:
    """Return stacked bars of the fragmented share of all GPUs by cause, a bar per policy, at the end or as a mean."""
    ends = {policy: _causes(of_policy, at_end=at_end) for policy, of_policy in runs.items()}
    if not any(np.isfinite(end).any() for end in ends.values()):
        return None
    policies = list(ends)
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "x": rounded(np.array([ends[policy][cause] for policy in policies])),
            "y": policies,
            "name": CAUSE_LABELS[name],
            "marker": {"color": CAUSE_COLOURS[cause], "line": {"color": "#ffffff", "width": 0.5}},
            "hovertemplate": f"%{{y}}: %{{x:.2f}} % of all GPUs<br>{CAUSE_LABELS[name]}<extra></extra>",
        }
        for cause, name in enumerate(CAUSES)
    ]
    y_axis: Figure = {"autorange": "reversed", "automargin": True, "showgrid": False}
    figure = layout({"title": {"text": "fragmented GPU, % of all GPUs"}, "rangemode": "tozero"}, y_axis)
    return {"data": data, "layout": figure | {"barmode": "stack", "height": 90 + 34 * len(policies), "bargap": 0.35}}


def _causes(runs: Sequence[RunResult], *, at_end: bool) -> Floats:
    """Return [6] means over seeds."""
    values = []
    for run in runs:
        causes = run.curve.fragmentation_by_cause_percent
        known = causes[np.isfinite(causes).all(axis=1)]
        if not len(known):
            known = np.full((1, len(CAUSES)), np.nan)
        values.append(known[-1] if at_end else known.mean(axis=0))
    return np.asarray(np.mean(values, axis=0), dtype=np.float64)


def causes_over_run(runs: dict[str, list[RunResult]], x_title: str) -> dict[str, Figure]:
    """Return stacked areas of the same over the course of the runs, a figure per policy, all on one scale."""
    x = grid([run.curve for of_policy in runs.values() for run in of_policy])
    paths: dict[str, Floats] = {}
    for policy, of_policy in runs.items():
        per_run = [_areas(run.curve, x) for run in of_policy]
        mean = np.mean(per_run, axis=0)
        if np.isfinite(mean).any():
            paths[policy] = mean
    top = max((float(np.nanmax(path.sum(axis=0))) for path in paths.values()), default=0.0) * 1.05 or 1.0
    figures = {}
    for policy, path in paths.items():
        known = np.isfinite(path).all(axis=0)
        data = [
            {
                **along(x[known]),
                "y": rounded(path[cause][known]),
                "mode": "lines",
                "line": {"width": 0},
                "stackgroup": "causes",
                "fillcolor": CAUSE_COLOURS[cause],
                "name": CAUSE_LABELS[name],
                "hovertemplate": "%{y:.2f}",
            }
            for cause, name in enumerate(CAUSES)
        ]
        y_axis: Figure = {"title": {"text": "% of all GPUs"}, "range": [0, top]}
        plot = layout({"title": {"text": x_title}}, y_axis, hovermode="x unified")
        figures[policy] = {"data": data, "layout": plot | {"height": 230}}
    return figures


def _areas(curve: Curve, x: Floats) -> Floats:
    return np.stack([_at(curve.x, column, x) for column in curve.fragmentation_by_cause_percent.T])


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The nodes at the end of a run: the figure, and numbers of full, partly used and empty nodes."""

    figure: Figure
    full: int
    partly: int
    empty: int


def heat_map(nodes: FinalNodes, *, names: bool, gpu: bool = True) -> HeatMap:
    """Return a cell per node, shaded by the used share of its GPUs (or CPU if it has none), grouped by GPU model.

    Within a group the fullest node comes first. Beyond 3,000 nodes a cell is the mean of neighbours.

    Args:
        nodes: at the end of a run.
        names: whether hovering over a cell shows the node's name.
        gpu: False shades every node by its CPU.
    """
    has_gpu = nodes.gpu_count > 0
    share = np.nan_to_num(np.where(has_gpu & gpu, nodes.gpu_used_share, nodes.cpu_used_share))  # NaN: it has neither
    group = np.array([model if gpu else "no GPU" for model, gpu in zip(nodes.gpu_model, has_gpu, strict=True)])
    group[(group == "") & has_gpu] = "GPU"
    merged = math.ceil(len(share) / CELLS)
    rows: list[list[float | None]] = []
    texts: list[list[str]] = []
    ticks: list[float] = []
    labels: list[str] = []
    for label in sorted(set(group.tolist())):
        members = np.flatnonzero(group == label)
        members = members[np.argsort(-share[members], kind="stable")]
        if rows:
            rows.append([None] * CELLS_PER_ROW)
            texts.append([])
        start = len(rows)
        cells = [members[i : i + merged] for i in range(0, len(members), merged)]
        for i in range(0, len(cells), CELLS_PER_ROW):
            part = cells[i : i + CELLS_PER_ROW]
            padding = CELLS_PER_ROW - len(part)
            rows.append([*(round(float(np.mean(share[cell])) * 100, 1) for cell in part), *[None] * padding])
            texts.append([nodes.names[cell[0]] for cell in part])
        ticks.append((start + len(rows) - 1) / 2)
        labels.append(label if has_gpu.any() else "")
    return HeatMap(
        _heat_figure(rows, texts if names and merged == 1 else [], ticks, labels),
        full=int((share >= 1 - 1e-9).sum()),
        partly=int(((share > 0) & (share < 1 - 1e-9)).sum()),
        empty=int((share <= 0).sum()),
    )


def _heat_figure(
    rows: list[list[float | None]], texts: list[list[str]], ticks: list[float], labels: list[str]
) -> Figure:
    steps = len(SHARE_COLOURS) - 1
    trace: Figure = {
        "type": "heatmap",
        "z": rows,
        "zmin": 0,
        "zmax": 100,
        "xgap": 0.6,
        "ygap": 0.6,
        "hoverongaps": False,
        "showscale": False,
        "colorscale": [[i / steps, shade] for i, shade in enumerate(SHARE_COLOURS)],
        "hovertemplate": "%{z} % used<extra></extra>",
    }
    if texts:
        trace |= {"text": texts, "hovertemplate": "%{text}: %{z} % used<extra></extra>"}
    x_axis: Figure = {"visible": False, "fixedrange": True}
    y_axis: Figure = {
        "autorange": "reversed",
        "tickvals": ticks,
        "ticktext": labels,
        "showgrid": False,
        "zeroline": False,
        "automargin": True,
        "fixedrange": True,
    }
    plot = layout(x_axis, y_axis) | {"height": 24 + 7 * len(rows), "margin": {"l": 60, "r": 4, "t": 4, "b": 8}}
    return {"data": [trace], "layout": plot}


def bars(
    values: dict[str, tuple[float, float, float]], style: dict[str, Style], y_title: str, digits: int = 1
) -> Figure | None:
    """Return a bar per policy, in its colour, with its interval: (mean, low, high), NaN for none."""
    known = {policy: value for policy, value in values.items() if math.isfinite(value[0])}
    if not known:
        return None
    low = [mean - low if math.isfinite(low) else 0.0 for mean, low, _ in known.values()]
    high = [high - mean if math.isfinite(high) else 0.0 for mean, _, high in known.values()]
    trace: Figure = {
        "type": "bar",
        "x": list(known),
        "y": rounded(np.array([mean for mean, _, _ in known.values()]), digits + 1),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": rounded(np.array(high), digits + 1),
            "arrayminus": rounded(np.array(low), digits + 1),
            "color": "#444444",
            "thickness": 1.2,
        },
        "marker": {"color": [style[policy].colour for policy in known]},
        "hovertemplate": f"%{{x}}: %{{y:.{digits}f}}<extra></extra>",
    }
    return {"data": [trace], "layout": layout({"showgrid": False}, {"title": {"text": y_title}, "rangemode": "tozero"})}


def layout(x_axis: Figure, y_axis: Figure, **more: Any) -> Figure:
    """Return the common layout of all plots: no frame, faint grid, space for the axes only."""
    axis: Figure = {"gridcolor": "#e7e7e7", "zerolinecolor": "#cfcfcf", "linecolor": "#bbbbbb", "automargin": True}
    return {
        "height": 360,
        "margin": {"l": 56, "r": 12, "t": 10, "b": 46},
        "font": {"family": FONT, "size": 13, "color": "#222222"},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "showlegend": False,
        "hoverlabel": {"bgcolor": "#ffffff"},
        "xaxis": axis | x_axis,
        "yaxis": axis | y_axis,
        **more,
    }


def dark_colours() -> dict[str, str]:
    """Return the colours of a dark page by those of a report, as CSS writes them; others stay."""
    pairs = dict(zip(POLICY_COLOURS, DARK_POLICY_COLOURS, strict=True)) | {
        BASELINE_COLOUR: "#e4e7eb",
        BOUND_COLOUR: "#ff7b86",
        "#ffffff": "#14181f",  # paper
        "#222222": "#e4e7eb",  # text
        "#e7e7e7": "#2b333f",  # grid
        "#cfcfcf": "#46505f",  # zero line
        "#bbbbbb": "#5a6575",  # axes
        "#444444": "#c9ced6",  # error bars
        # Nodes in use stay the darker part of the scale, and lighter than the page.
        "#31446b": "#4a5c86",
        "#00204d": "#2c4470",
        "#44546a": "#5d7290",
        "#d9d2c5": "#8f8a7e",
        "#a89f8d": "#6b665b",
    }
    return pairs | {faint(light): faint(dark) for light, dark in pairs.items()}


def faint(hexadecimal: str) -> str:
    """Return a colour at 14 % opacity."""
    red, green, blue = (int(hexadecimal[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.14)"


def along(x: Floats) -> Figure:
    """Return the x of a trace; evenly spaced points as start and step, which is a third of the file."""
    steps = np.diff(x)
    if len(steps) and np.ptp(steps) <= 1e-9 * abs(steps[0]):
        return {"x0": float(x[0]), "dx": float(steps[0])}
    return {"x": rounded(x)}


def rounded(values: Floats, digits: int = 2) -> list[float | None]:
    """Return numbers for JSON: that many decimals, null for NaN."""
    return [round(value, digits) if math.isfinite(value) else None for value in values.tolist()]
