"""Plots of workloads and of generated clusters: bars, heat maps, fragmentation by cause, limits of latency kept."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steersman.evaluation.report.curves import at_points, band_and_line, grid, mean_of_known, stats_over_seeds
from steersman.evaluation.report.style import (
    CAUSE_COLOURS,
    SYMBOLS,
    Figure,
    Floats,
    Style,
    along,
    figure,
    heat_colours,
    rounded,
    titled,
)
from steersman.simulation.measures import BY_CAUSE
from steersman.simulation.result import Curve, FinalNodes, LatencyEpisode, RunResult

CELLS = 3000  # of a heat map, at most
CELLS_PER_ROW = 48  # at most
LEAST_ROW, MOST_ROW = 7, 24  # pixels: heights of a row
LOGARITHMIC_FROM = 30  # ratio of the highest to the lowest bar from which on their scale is logarithmic


def causes_in_short(runs: Mapping[str, Sequence[RunResult]], *, at_end: bool) -> Figure | None:
    """Return stacked bars of the fragmented share of all GPUs by cause, a bar per policy, at the end or as a mean."""
    shares = np.array([_causes(of_policy, at_end=at_end) for of_policy in runs.values()])
    if not np.isfinite(shares).any():
        return None
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "x": rounded(shares[:, cause]),
            "y": list(runs),
            "name": label,
            "marker": {"color": colour, "line": {"color": "#ffffff", "width": 0.5}},
            "hovertemplate": f"%{{y}}: %{{x:.2f}} % of all GPUs<br>{label}<extra></extra>",
        }
        for cause, (label, colour) in enumerate(CAUSE_COLOURS.items())
    ]
    x_axis = titled("fragmented GPU, % of all GPUs", rangemode="tozero")
    y_axis: Figure = {"autorange": "reversed", "showgrid": False}
    return figure(data, x_axis, y_axis, height=90 + 34 * len(runs), barmode="stack", bargap=0.35)


def _causes(runs: Sequence[RunResult], *, at_end: bool) -> Floats:
    values = []
    for run in runs:
        causes = np.stack([run.curve.values(name) for name in BY_CAUSE], axis=1)
        known = causes[np.isfinite(causes).all(axis=1)]
        if not len(known):
            known = np.full((1, len(BY_CAUSE)), np.nan)
        values.append(known[-1] if at_end else known.mean(axis=0))
    return np.asarray(np.mean(values, axis=0), dtype=np.float64)


def causes_over_run(runs: Mapping[str, Sequence[RunResult]], x_title: str) -> dict[str, Figure]:
    x = grid([run.curve for of_policy in runs.values() for run in of_policy])
    means = {
        policy: mean_of_known(np.stack([_areas(run.curve, x) for run in of_policy]))
        for policy, of_policy in runs.items()
    }
    known = {policy: mean for policy, mean in means.items() if np.isfinite(mean).any()}
    top = max((float(np.nanmax(mean.sum(axis=0))) for mean in known.values()), default=0.0) * 1.05 or 1.0
    x_axis, y_axis = titled(x_title), titled("% of all GPUs", range=[0, top])
    return {
        policy: figure(_stacked(x, mean), x_axis, y_axis, height=230, hovermode="x unified")
        for policy, mean in known.items()
    }


def _areas(curve: Curve, x: Floats) -> Floats:
    return np.stack([at_points(curve.x, curve.values(name), x) for name in BY_CAUSE])


def _stacked(x: Floats, causes: Floats) -> list[Figure]:
    known = np.isfinite(causes).all(axis=0)
    return [
        {
            **along(x[known]),
            "y": rounded(causes[cause][known]),
            "mode": "lines",
            "line": {"width": 0},
            "stackgroup": "causes",
            "fillcolor": colour,
            "name": label,
            "hovertemplate": "%{y:.2f}",
        }
        for cause, (label, colour) in enumerate(CAUSE_COLOURS.items())
    ]


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
        gpu: False shades every node by its CPU.
    """
    has_gpu = nodes.gpu_count > 0
    share = np.nan_to_num(np.where(has_gpu & gpu, nodes.gpu_used_share, nodes.cpu_used_share))  # NaN: it has neither
    group = np.where(has_gpu, [model or "GPU" for model in nodes.gpu_model], "no GPU")
    merged = math.ceil(len(share) / CELLS)
    cells: list[list[np.ndarray[Any, Any]]] = []  # by row the nodes of each cell
    ticks: dict[float, str] = {}
    labels, counts = np.unique(group, return_counts=True)
    largest = math.ceil(counts.max() / merged)
    per_row = math.ceil(largest / math.ceil(largest / CELLS_PER_ROW))  # rows of the largest group that are full
    for label in labels.tolist():
        members = np.flatnonzero(group == label)
        members = members[np.argsort(-share[members], kind="stable")]
        gap: list[list[Any]] = [[]] if cells else []
        added = _chunks(_chunks(members, merged), per_row)
        ticks[len(cells) + len(gap) + (len(added) - 1) / 2] = label if has_gpu.any() else ""
        cells += [*gap, *added]
    texts = [[nodes.names[cell[0]] for cell in row] for row in cells] if names and merged == 1 else []
    rows = [[round(float(np.mean(share[cell])) * 100, 1) for cell in row] for row in cells]
    full, empty = int((share >= 1 - 1e-9).sum()), int((share <= 0).sum())
    return HeatMap(_heat_figure(rows, per_row, texts, ticks), full, len(share) - full - empty, empty)


def _chunks(values: Any, size: int) -> list[Any]:
    return [values[i : i + size] for i in range(0, len(values), size)]


def _heat_figure(rows: list[list[float]], per_row: int, texts: list[list[str]], ticks: dict[float, str]) -> Figure:
    trace: Figure = {
        **heat_colours(100),
        "z": [[*row, *[None] * (per_row - len(row))] for row in rows],
        "xgap": 0.6,
        "ygap": 0.6,
        "hoverongaps": False,
        "showscale": False,
        "hovertemplate": f"{'%{text}: ' if texts else ''}%{{z}} % used<extra></extra>",
    }
    trace |= {"text": texts} if texts else {}
    x_axis: Figure = {"visible": False, "fixedrange": True}
    y_axis: Figure = {
        "autorange": "reversed",
        "tickvals": list(ticks),
        "ticktext": list(ticks.values()),
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
    }
    margin = {"l": 60, "r": 4, "t": 4, "b": 8}
    row = min(max(LEAST_ROW * CELLS_PER_ROW // per_row, LEAST_ROW), MOST_ROW)
    return figure([trace], x_axis, y_axis, height=24 + row * len(rows), margin=margin)


def bars(
    values: Mapping[str, tuple[float, float, float]], style: Mapping[str, Style], y_title: str, digits: int = 1
) -> Figure | None:
    """Return a bar per policy, in its colour, with its interval: (mean, low, high), NaN for none."""
    known = {policy: value for policy, value in values.items() if math.isfinite(value[0])}
    if not known:
        return None
    marker = {
        "color": [style[policy].colour for policy in known],
        "pattern": {"shape": [SYMBOLS[style[policy].symbol] for policy in known]},
    }
    hover = f"%{{x}}: %{{y:.{digits}f}}<extra></extra>"
    trace = _bars(list(known), list(known.values()), digits + 1, marker=marker, hovertemplate=hover)
    return figure([trace], {"showgrid": False}, titled(y_title, rangemode="tozero"))


def _bars(x: object, values: Sequence[tuple[float, float, float]], digits: int, **more: object) -> Figure:
    """Return bars with their intervals: (mean, low, high) each, NaN for none."""
    mean, low, high = np.array(values).T
    error: Figure = {"type": "data", "symmetric": False, "color": "#444444", "thickness": 1.2, "width": 2}
    error["array"] = rounded(np.nan_to_num(high - mean), digits)
    error["arrayminus"] = rounded(np.nan_to_num(mean - low), digits)
    return {"type": "bar", "x": x, "y": rounded(mean, digits), "error_y": error, **more}


def grouped_bars(
    values: Mapping[str, Sequence[tuple[float, float, float]]],  # by policy [G] tuples (mean, low, high), NaN for none
    groups: Sequence[str],  # [G] titles
    style: Mapping[str, Style],
    y_title: str,
) -> Figure | None:
    """Return for each of G groups a bar per policy with its interval, without groups in which nothing is known."""
    known = [g for g in range(len(groups)) if any(math.isfinite(each[g][0]) for each in values.values())]
    if not known:
        return None
    traces = [
        _bars([groups[g] for g in known], [of_policy[g] for g in known], 3, name=policy, marker=style[policy].marker)
        | {"hovertemplate": f"{policy}, %{{x}}: %{{y:.1f}}<extra></extra>"}
        for policy, of_policy in values.items()
    ]
    y_axis = titled(y_title, rangemode="tozero")
    heights = [height for trace in traces for height in trace["y"] if height and height > 0]
    if heights and max(heights) > LOGARITHMIC_FROM * min(heights):
        # On a linear scale the lower bars would not be seen.
        y_axis = titled(y_title, type="log", dtick=1)
    return figure(traces, {"showgrid": False}, y_axis, **_grouped(len(traces)))


def _grouped(policies: int) -> Figure:
    """Return the layout of groups of bars, with space for a legend below: two policies on a line."""
    legend = {"orientation": "h", "y": -0.18}
    return {"barmode": "group", "showlegend": True, "legend": legend, "height": 340 + 10 * policies}


FAMILIES = ("default", "cpu", "gpushare", "gpuspec", "multigpu")
"""Families of openb workloads, whose names are a family's and a number (Weng et al., USENIX ATC 2023)."""
_PREFIX = "openb_pod_list_"
_NUMBERED = re.compile(rf"(?:{_PREFIX})?([a-z]+?)\d*")

WINDOW = 30  # decisions over which the share of kept limits is taken, as in Matranga's thesis
MOMENTS = 200  # of a heat map over time, at most
MOST_NODES = 60  # with bars or rows of their own


def family_of(workload: str) -> str:
    """Return the openb family of a workload by its name; "" if it is of none."""
    match = _NUMBERED.fullmatch(workload)
    return match[1] if match and match[1] in FAMILIES else ""


def workload_bars(
    # Workload -> policy -> difference, low, high; NaN for none
    values: Mapping[str, Mapping[str, tuple[float, float, float]]],
    style: Mapping[str, Style],
    y_title: str,
    digits: int,
) -> Figure | None:
    """Return grouped bars of differences from 0: a group per workload, a bar per policy; openb workloads by family."""
    if not any(math.isfinite(mean) for of in values.values() for mean, _, _ in of.values()):
        return None
    families = {workload: family_of(workload) for workload in values}
    order = sorted(values, key=lambda name: FAMILIES.index(families[name]) if families[name] else len(FAMILIES))
    x: object = order
    if any(families.values()):
        x = [[families[name] or "other" for name in order], [name.removeprefix(_PREFIX) for name in order]]
    data = [
        _bars(x, [values[name][policy] for name in order], digits, name=policy, meta=look.index, marker=look.marker)
        | {"hovertemplate": f"{policy}: %{{y:+.{digits}f}}<extra>%{{x}}</extra>"}
        for policy, look in style.items()
        if any(policy in of for of in values.values())  # not the baseline
    ]
    return figure(data, {"showgrid": False}, titled(y_title, rangemode="tozero"), bargap=0.25, **_grouped(len(data)))


def pods_over_time(episode: LatencyEpisode, time: Floats, x_title: str, most: int) -> Figure:
    """Return the pods on each node over time as a heat map: a row per node, of many the mean of neighbours.

    Args:
        time: [D] of its decisions.
        most: the most pods of a node in all plots, so that they have one scale.
    """
    chosen = np.unique(np.linspace(0, len(time) - 1, min(MOMENTS, len(time))).astype(np.int64))
    merged = math.ceil(len(episode.nodes) / MOST_NODES)
    rows = [episode.pods[chosen, i : i + merged].mean(axis=1) for i in range(0, len(episode.nodes), merged)]
    trace: Figure = {
        **heat_colours(most),
        "x": rounded(time[chosen], 3),
        "y": list(episode.nodes[::merged]),
        "z": [rounded(row, 1) for row in rows],
        "colorbar": {"thickness": 10, "title": {"text": "pods"}},
        "hovertemplate": "%{y}: %{z} pods<extra></extra>",
    }
    y_axis: Figure = {"autorange": "reversed", "showgrid": False, "type": "category"}
    return figure([trace], titled(x_title, showgrid=False), y_axis, height=90 + 16 * len(rows))


def latency_by_node(episodes: Mapping[str, LatencyEpisode], style: Mapping[str, Style]) -> Figure | None:
    """Return the mean latency of the pods that each node got, a bar per policy; None without pods with users."""
    names = next(iter(episodes.values())).nodes[:MOST_NODES]
    data = []
    for policy, episode in episodes.items():
        known = np.isfinite(episode.latency)
        count = np.bincount(episode.node[known], minlength=len(episode.nodes))
        total = np.bincount(episode.node[known], weights=episode.latency[known], minlength=len(episode.nodes))
        mean = np.full(len(episode.nodes), np.nan)
        np.divide(total, count, out=mean, where=count > 0)
        data.append(
            {
                "type": "bar",
                "x": list(names),
                "y": rounded(mean[: len(names)], 1),
                "name": policy,
                "meta": style[policy].index,
                "marker": style[policy].marker,
                "customdata": count[: len(names)].tolist(),
                "hovertemplate": f"{policy}: %{{y}} ms, %{{customdata}} pods<extra>%{{x}}</extra>",
            }
        )
    if not any(value is not None for trace in data for value in trace["y"]):
        return None
    y_axis = titled("latency to users, ms", rangemode="tozero")
    return figure(data, {"showgrid": False}, y_axis, **_grouped(len(data)))


def success_rate(kept: Floats) -> Floats:
    """Return [D] the share of the last `WINDOW` decisions about pods with limits that kept the soft one, in percent.

    Args:
        kept: [D] 0 or 1; NaN for pods without limits, which change nothing. NaN before the first with limits.
    """
    known = np.isfinite(kept)
    sums = np.concatenate([[0.0], np.cumsum(kept[known])])
    count = np.cumsum(known)  # decisions with limits up to each one
    first = np.maximum(count - WINDOW, 0)
    rate = np.full(len(kept), np.nan)
    # sums[count]: kept ones among the first `count` decisions with limits.
    np.divide(100.0 * (sums[count] - sums[first]), count - first, out=rate, where=count > 0)
    return rate


def success_lines(runs: Mapping[str, Sequence[RunResult]], style: Mapping[str, Style]) -> Figure | None:
    """Return the success rate over decisions: the mean over seeds, a band from the smallest to the largest."""
    data: list[Figure] = []
    for policy, of_policy in runs.items():
        rates = [success_rate(run.latency.kept) for run in of_policy if run.latency is not None]
        if not rates:
            continue
        # Of the seeds that have not ended, once all have had a pod with limits.
        values: Floats = np.full((len(rates), max(map(len, rates))), np.nan)
        for i, rate in enumerate(rates):
            values[i, : len(rate)] = rate
        first = max(int(np.argmax(np.isfinite(rate))) if np.isfinite(rate).any() else len(rate) for rate in rates)
        values = values[:, first:]
        if values.shape[1]:
            decisions = np.arange(first + 1.0, first + 1.0 + values.shape[1], dtype=np.float64)
            data += band_and_line(policy, style[policy], stats_over_seeds(decisions, values), 1, " %")
    if not data:
        return None
    y_axis = titled(f"soft limits kept, % of {WINDOW} decisions", range=[0, 102])
    return figure(data, titled("decisions"), y_axis, hovermode="x unified")
