"""Bars by workload, pods and latency by node, and limits kept: what the plots hold."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.run_results import EXPERIMENT, figures_in, made_run

from steersman.evaluation.report import figures
from steersman.evaluation.report.figures import latency_by_node, pods_over_time, success_lines, workload_bars
from steersman.evaluation.report.headline import Headline
from steersman.evaluation.report.page import Comparison, write_report
from steersman.evaluation.report.style import styles
from steersman.evaluation.summary import summarise
from steersman.simulation.result import LatencyEpisode

STYLE = styles(["fgd", "random"])
NONE = (math.nan, math.nan, math.nan)


def episode(nodes: int, decisions: int, *, limited: bool = True) -> LatencyEpisode:
    rng = np.random.default_rng(1)
    return LatencyEpisode(
        nodes=tuple(f"node-{i}" for i in range(nodes)),
        pods=rng.integers(0, 9, (decisions, nodes)),
        node=rng.integers(0, nodes, decisions),
        latency=rng.uniform(1, 90, decisions) if limited else np.full(decisions, np.nan),
        kept=rng.integers(0, 2, decisions).astype(float) if limited else np.full(decisions, np.nan),
    )


def test_openb_workloads_are_grouped_by_family_and_others_are_not() -> None:
    both = {"fgd": (5.0, 4.0, 6.0), "random": (-3.0, -3.5, -2.5)}
    plot = workload_bars({"gpushare40": both, "default": both, "cpu050": both}, STYLE, "GPU, %", 2)
    assert plot is not None
    assert plot["data"][0]["x"] == [["default", "cpu", "gpushare"], ["default", "cpu050", "gpushare40"]]
    assert [trace["meta"] for trace in plot["data"]] == [0, 1]
    assert plot["layout"]["yaxis"]["rangemode"] == "tozero"  # differences have a zero that means something
    alone = workload_bars({"default": {"fgd": both["fgd"]}, "cpu050": {"fgd": both["fgd"]}}, STYLE, "GPU, %", 2)
    assert alone is not None
    assert [trace["name"] for trace in alone["data"]] == ["fgd"]  # the baseline has no difference
    plain = workload_bars({"monday": both, "tuesday": {**both, "random": NONE}}, STYLE, "GPU, %", 2)
    assert plain is not None
    assert plain["data"][0]["x"] == ["monday", "tuesday"]
    assert plain["data"][1]["y"] == [-3.0, None]
    json.dumps(plain, allow_nan=False)
    assert workload_bars({"monday": {"fgd": NONE, "random": NONE}}, STYLE, "GPU, %", 2) is None


@pytest.mark.parametrize(("nodes", "rows"), [(1, 1), (60, 60), (61, 31), (1000, 59)])
def test_the_heat_map_of_many_nodes_has_few_rows(nodes: int, rows: int) -> None:
    plot = pods_over_time(episode(nodes, 500), np.linspace(0, 3, 500), "time, h", 9)
    (trace,) = plot["data"]
    assert len(trace["z"]) == len(trace["y"]) == rows
    assert all(len(row) == len(trace["x"]) <= figures.MOMENTS for row in trace["z"])
    json.dumps(plot, allow_nan=False)


def test_latency_by_node_is_the_mean_of_the_pods_it_got() -> None:
    of = episode(3, 200)
    plot = latency_by_node({"fgd": of, "random": episode(3, 200, limited=False)}, STYLE)
    assert plot is not None
    for n in range(3):
        assert plot["data"][0]["y"][n] == pytest.approx(of.latency[of.node == n].mean(), abs=0.051)
    assert plot["data"][1]["y"] == [None] * 3
    assert latency_by_node({"fgd": episode(3, 5, limited=False)}, STYLE) is None


def test_success_curves_need_limits_and_have_a_band_over_seeds() -> None:
    runs = [replace(made_run("fgd", seed), latency=episode(3, 50 + seed)) for seed in (1, 2)]
    plot = success_lines({"fgd": runs, "random": [made_run("random", 1)]}, STYLE)
    assert plot is not None
    assert len(plot["data"]) == 3
    assert all(0 <= value <= 100 for trace in plot["data"] for value in trace["y"])
    nothing = [replace(run, latency=episode(3, 20, limited=False)) for run in runs]
    assert success_lines({"fgd": nothing, "random": nothing}, STYLE) is None


def test_limits_kept_are_shown_to_the_end_of_the_longest_episode() -> None:
    runs = [replace(made_run("fgd", seed), latency=episode(3, length)) for seed, length in ((1, 20), (2, 65))]
    plot = success_lines({"fgd": runs}, STYLE)
    assert plot is not None
    low, high, mean = plot["data"]
    assert low["x0"] + low["dx"] * (len(mean["y"]) - 1) == 65
    assert mean["y"][25:] == low["y"][25:] == high["y"][25:]
    assert None not in mean["y"]


def test_a_report_of_several_workloads_has_bars(tmp_path: Path) -> None:
    runs = [
        made_run(policy, seed, allocation=value + seed % 3, workload=workload)
        for workload, value in (("default", 90.0), ("gpushare40", 80.0))
        for policy in ("fgd", "random")
        for seed in (1, 2, 3)
    ]
    summary = summarise(runs, "fgd")
    comparison = Comparison(runs, summary, Headline(runs, summary, "fgd"), EXPERIMENT)
    write_report(tmp_path / "r.html", [comparison], command="x")
    page = (tmp_path / "r.html").read_text()
    assert "openb workloads by family" in page
    assert "workloads-0" in figures_in(page)
