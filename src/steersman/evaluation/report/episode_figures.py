"""Plots of generated clusters and of several workloads: bars by family, pods and latency by node, limits kept."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from steersman.evaluation.report.curves import band_and_line, stats_over_seeds
from steersman.evaluation.report.style import Figure, Floats, Style, error_bars, figure, heat_colours, rounded, titled
from steersman.simulation.result import LatencyEpisode, RunResult

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
        mean, low, high = np.array([values[name][policy] for name in order]).T
        data.append(
            {
                "type": "bar",
                "x": x,
                "y": rounded(mean, digits),
                "name": policy,
                "meta": look.index,
                "marker": {"color": look.colour},
                "error_y": error_bars(mean, low, high, digits),
                "hovertemplate": f"{policy}: %{{y:+.{digits}f}}<extra>%{{x}}</extra>",
            }
        )
    return figure(data, {"showgrid": False}, titled(y_title, rangemode="tozero"), barmode="group", bargap=0.25)


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
        **heat_colours(0, most),
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
                "marker": {"color": style[policy].colour},
                "customdata": count[: len(names)].tolist(),
                "hovertemplate": f"{policy}: %{{y}} ms, %{{customdata}} pods<extra>%{{x}}</extra>",
            }
        )
    if not any(value is not None for trace in data for value in trace["y"]):
        return None
    y_axis = titled("latency to users, ms", rangemode="tozero")
    return figure(data, {"showgrid": False}, y_axis, barmode="group")


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
