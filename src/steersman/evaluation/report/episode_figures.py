"""Plots of generated clusters and of several workloads: bars by family, pods and latency by node, limits kept."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from steersman.evaluation.report.figures import SHARE_COLOURS, Figure, Style, faint, layout, rounded
from steersman.simulation.result import LatencyEpisode, RunResult

Floats = npt.NDArray[np.float64]

FAMILIES = ("default", "cpu", "gpushare", "gpuspec", "multigpu")
"""Families of openb workloads, whose names are a family's and a number (Weng et al., USENIX ATC 2023)."""
_PREFIX = "openb_pod_list_"
_NUMBERED = re.compile(rf"(?:{_PREFIX})?([a-z]+?)\d*")

WINDOW = 30
"""Decisions over which the share of kept limits is taken, as in Matranga's thesis."""
MOMENTS = 200  # of a heat map over time, at most
MOST_NODES = 60  # with bars or rows of their own


def family_of(workload: str) -> str:
    """Return the openb family of a workload by its name; "" if it is of none."""
    match = _NUMBERED.fullmatch(workload)
    return match[1] if match and match[1] in FAMILIES else ""


def workload_bars(
    values: Mapping[str, Mapping[str, tuple[float, float, float]]],
    style: Mapping[str, Style],
    y_title: str,
    digits: int,
) -> Figure | None:
    """Return grouped bars of differences from 0: a group per workload, a bar per policy; openb workloads by family.

    Args:
        values: workload -> policy -> difference, low, high; NaN for none.
        style: by policy.
        y_title: title of the y axis.
        digits: decimals.
    """
    if not any(math.isfinite(mean) for of in values.values() for mean, _, _ in of.values()):
        return None
    families = {workload: family_of(workload) for workload in values}
    order = sorted(values, key=lambda name: FAMILIES.index(families[name]) if families[name] else len(FAMILIES))
    x: object = order
    if any(families.values()):
        x = [[families[name] or "other" for name in order], [name.removeprefix(_PREFIX) for name in order]]
    data = []
    for policy, look in style.items():
        if not any(policy in of for of in values.values()):
            continue  # the baseline
        mean, lower, upper = (np.array([values[name][policy][i] for name in order]) for i in range(3))
        below, above = np.nan_to_num(mean - lower), np.nan_to_num(upper - mean)
        data.append(
            {
                "type": "bar",
                "x": x,
                "y": rounded(mean, digits),
                "name": policy,
                "meta": look.index,
                "marker": {"color": look.colour},
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": rounded(above, digits),
                    "arrayminus": rounded(below, digits),
                    "color": "#444444",
                    "thickness": 1,
                    "width": 2,
                },
                "hovertemplate": f"{policy}: %{{y:+.{digits}f}}<extra>%{{x}}</extra>",
            }
        )
    axis: Figure = {"title": {"text": y_title}, "rangemode": "tozero"}
    plot = layout({"showgrid": False}, axis, barmode="group", bargap=0.25)
    return {"data": data, "layout": plot}


def pods_over_time(episode: LatencyEpisode, time: Floats, x_title: str, most: int) -> Figure:
    """Return the pods on each node over time as a heat map: a row per node, of many the mean of neighbours.

    Args:
        episode: its decisions.
        time: [D] of its decisions.
        x_title: title of the time axis.
        most: the most pods of a node in all plots, so that they have one scale.
    """
    chosen = np.unique(np.linspace(0, len(time) - 1, min(MOMENTS, len(time))).astype(np.int64))
    merged = math.ceil(len(episode.nodes) / MOST_NODES)
    rows = [episode.pods[chosen, i : i + merged].mean(axis=1) for i in range(0, len(episode.nodes), merged)]
    steps = len(SHARE_COLOURS) - 1
    trace: Figure = {
        "type": "heatmap",
        "x": rounded(time[chosen], 3),
        "y": list(episode.nodes[::merged]),
        "z": [rounded(row, 1) for row in rows],
        "zmin": 0,
        "zmax": most,
        "colorscale": [[i / steps, shade] for i, shade in enumerate(SHARE_COLOURS)],
        "colorbar": {"thickness": 10, "title": {"text": "pods"}},
        "hovertemplate": "%{y}: %{z} pods<extra></extra>",
    }
    y_axis: Figure = {"autorange": "reversed", "automargin": True, "showgrid": False, "type": "category"}
    plot = layout({"title": {"text": x_title}, "showgrid": False}, y_axis)
    return {"data": [trace], "layout": plot | {"height": 90 + 16 * len(rows)}}


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
                "marker": {"color": style[policy].colour},
                "customdata": count[: len(names)].tolist(),
                "hovertemplate": f"{policy}: %{{y}} ms, %{{customdata}} pods<extra>%{{x}}</extra>",
            }
        )
    if not any(value is not None for trace in data for value in trace["y"]):
        return None
    plot = layout(
        {"showgrid": False}, {"title": {"text": "latency to users, ms"}, "rangemode": "tozero"}, barmode="group"
    )
    return {"data": data, "layout": plot}


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
    np.divide(100.0 * (sums[count] - sums[first]), count - first, out=rate, where=count > 0)
    return rate


def success_lines(runs: Mapping[str, Sequence[RunResult]], style: Mapping[str, Style]) -> Figure | None:
    """Return the success rate over decisions: the mean over seeds, a band from the smallest to the largest."""
    data: list[Figure] = []
    for policy, of_policy in runs.items():
        rates = [success_rate(run.latency.kept) for run in of_policy if run.latency is not None]
        if not rates:
            continue
        shortest = min(map(len, rates))
        values = np.stack([rate[:shortest] for rate in rates])
        known = np.isfinite(values).all(axis=0)
        if not known.any():
            continue
        x = np.flatnonzero(known) + 1.0
        values = values[:, known]
        look = style[policy]
        common: Figure = {"x": x.tolist(), "mode": "lines", "meta": look.index, "hoverinfo": "skip"}
        edge: Figure = {"width": 0, "color": look.colour}
        if len(values) > 1:
            data.append({**common, "y": rounded(values.min(axis=0)), "line": edge})
            band = {"fill": "tonexty", "fillcolor": faint(look.colour)}
            data.append({**common, "y": rounded(values.max(axis=0)), "line": edge, **band})
        line = {"color": look.colour, "dash": look.dash, "width": 2.2}
        hover = {"hoverinfo": "all", "hovertemplate": "%{y:.1f} %"}
        data.append({**common, "y": rounded(values.mean(axis=0)), "name": policy, "line": line, **hover})
    if not data:
        return None
    y_axis: Figure = {"title": {"text": f"soft limits kept, % of {WINDOW} decisions"}, "range": [0, 102]}
    return {"data": data, "layout": layout({"title": {"text": "decisions"}}, y_axis, hovermode="x unified")}
