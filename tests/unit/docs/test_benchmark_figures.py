"""Figures of pages that cite benchmarks/results.json are those of the file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steersman.core.statistics import mean, mean_interval

ROOT = Path(__file__).parents[3]
RESULTS: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results.json").read_text())


def median(benchmark: str) -> str:
    return f"{RESULTS[benchmark]['ratio_median']:.2f}"


def of_heterogeneous(figure: str) -> np.ndarray:
    """Return [draw] what `steersman` has more than `fgd`."""
    draws = [RESULTS["heterogeneous"][f"draw-{seed}"] for seed in RESULTS["heterogeneous"]["seeds"]]
    return np.array([draw["steersman"][figure] - draw["fgd"][figure] for draw in draws], dtype=np.float64)


def live_figures() -> list[str]:
    gpus, pods = of_heterogeneous("gpus_in_use"), of_heterogeneous("pods_bound")
    (low, high), (fewest, most) = mean_interval(gpus), mean_interval(pods)
    return [f"{mean(gpus):.1f}", f"{low:.0f}", f"{high:.0f}", f"{-mean(pods):.0f}", f"{fewest:.0f}", f"{most:.0f}"]


def extender_figures() -> list[str]:
    ratios = RESULTS["extender-rate"]["ratios"]
    return [median("extender-rate"), f"{min(ratios):.2f}", f"{max(ratios):.2f}"]


def growth_figures() -> list[str]:
    growth = RESULTS["growth"]
    least, most = (growth[f"microseconds_per_decision_{nodes}_nodes"] for nodes in (1000, 100000))
    return [f"{RESULTS['fgd-run']['rescoring_all_nodes_over_score_table']:.0f}", f"{most / least:.1f}"]


CITED: list[tuple[str, str, Callable[[], list[str]]]] = [
    ("docs/how-to/operate.md", r"it binds (\S+) of the pods per second of plain", lambda: [median("plugin-native")]),
    (
        "docs/how-to/operate.md",
        r"With a service it is (\S+), with an open breaker (\S+)\.",
        lambda: [median("plugin-service"), median("plugin-breaker")],
    ),
    (
        "docs/how-to/operate.md",
        r"ours (\S+) of that \(medians of seven pairs; of the extender (\S+) to (\S+)\)",
        extender_figures,
    ),
    (
        "docs/explanation/decisions/policies.md",
        r"takes (\S+) times as long at 1,213 nodes; a decision at 100,000 nodes costs (\S+) times",
        growth_figures,
    ),
    (
        "docs/explanation/limits.md",
        r"(\S+) of 640 GPUs more were in use than under `fgd` \(95 % interval (\S+) to (\S+)\), "
        r"with (\S+) pods fewer bound \((\S+) to (\S+)\)",
        live_figures,
    ),
]


@pytest.mark.parametrize(("page", "sentence", "figures"), CITED)
def test_cited_figures_are_those_of_the_file(page: str, sentence: str, figures: Callable[[], list[str]]) -> None:
    text = " ".join((ROOT / page).read_text().split())
    (found,) = re.finditer(sentence, text)
    assert list(found.groups()) == figures()


def test_a_rule_decided_every_draw_of_the_live_cluster() -> None:
    """docs/explanation/limits.md says so of the draws that it names."""
    draws = [RESULTS["heterogeneous"][f"draw-{seed}"] for seed in RESULTS["heterogeneous"]["seeds"]]
    assert len(draws) == 3
    assert {decider for draw in draws for decider in draw["steersman"]["deciders"]} <= {"fgd", "best-fit"}


def size_rows() -> list[str]:
    """The rows of the table of sizes: the scheduler by policy and nodes, then the score service by nodes."""
    rows = []
    for name, found in RESULTS["scaling"].items():
        policy, nodes = re.fullmatch(r"(\S+), (\d+) nodes", name).groups()
        figures = [
            f"{int(nodes):,}",
            f"`schedule --policy {policy}`",
            f"{found['peak_memory_mb']:,}",
            f"{found['cpu_seconds_until_20_s_after_ready']:g}",
            f"{found['seconds_until_ready']:g}",
            f"{found['cores_at_20_pods_per_second']:g}",
            f"{found['decision_ms_mean']:g}",
            f"{found['bound_after_ms_p50']:g}, {found['bound_after_ms_p99']:g}",
        ]
        rows.append((int(nodes), policy, f"| {' | '.join(figures)} |"))
    return [row for _, _, row in sorted(rows)]


def service_rows() -> list[str]:
    found = RESULTS["service-latency"]
    rows = []
    for nodes in (1_000, 5_000):
        of = {
            name: found[f"nodes_{nodes}_{name}"] for name in ("memory_gb", "cpu_ms_per_request", "ms_median", "ms_p99")
        }
        waits = f"{of['ms_median']:g}, {of['ms_p99']:g}"
        rows.append(f"| {nodes:,} | {1000 * of['memory_gb']:,.0f} | {of['cpu_ms_per_request']:g} | {waits} |")
    return rows


@pytest.mark.parametrize("rows", [size_rows, service_rows])
def test_table_of_sizes_has_the_measured_figures(rows: Callable[[], list[str]]) -> None:
    page = (ROOT / "docs" / "how-to" / "sizes.md").read_text().splitlines()
    missing = [row for row in rows() if row not in page]
    assert not missing, "\n".join(missing)
