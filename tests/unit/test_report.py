"""The report says what the numbers say, stands alone, and survives whatever a workload is called."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from tests.unit.made_runs import made_experiment, made_run

from steersman.evaluation.figures import CELLS, Course, heat_map, styles
from steersman.evaluation.headline import Headline
from steersman.evaluation.output import is_result
from steersman.evaluation.report import write_report
from steersman.evaluation.summary import summarise
from steersman.simulation.result import FinalNodes, Metric, RunResult

SIZE_LIMIT_BYTES = 8_000_000
BETTER = {"kube-default": [90.0, 91.0, 92.0, 90.5], "fgd": [95.0, 95.4, 96.1, 95.2]}


class Page(HTMLParser):
    """What a browser would see: elements with their attributes, visible text, the figures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self._stack: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._stack and self._stack[-1] == tag:
            self._stack.pop()

    def handle_data(self, data: str) -> None:
        if self._stack and self._stack[-1] == "script":
            self.scripts.append(data)
        elif not self._stack:
            self.text.append(data)

    def ids(self, css_class: str) -> set[str]:
        return {str(a["id"]) for _, a in self.elements if a.get("class") == css_class and "id" in a}


def report(folder: Path, runs: Sequence[RunResult], baseline: str = "kube-default") -> tuple[Headline, str]:
    summary = summarise(runs, baseline)
    headline = Headline(runs, summary, baseline)
    path = folder / "report.html"
    write_report(path, runs, summary, headline, command="steersman evaluate", ratio=1.3)
    return headline, path.read_text()


def sentence(runs: Sequence[RunResult], baseline: str = "kube-default") -> str:
    return Headline(runs, summarise(runs, baseline), baseline).sentence()


def test_the_headline_is_the_reduction_of_what_is_left_over() -> None:
    said = sentence(made_experiment(BETTER))
    left, left_by_default = 100 - np.mean(BETTER["fgd"]), 100 - np.mean(BETTER["kube-default"])
    assert said.startswith(
        f"fgd leaves {100 * (1 - left / left_by_default):.1f} % fewer GPUs unallocated than kube-default"
    )
    assert "on default" in said
    assert "95 % interval" in said
    assert said.endswith("only 4 paired seeds.")
    assert sentence(made_experiment({"kube-default": [90.0] * 5, "fgd": [95.0] * 5})).endswith("%, 5 paired seeds.")


def test_the_headline_admits_chance_and_loss() -> None:
    same = {"kube-default": [90.0, 91.0, 92.0, 90.0], "fgd": [91.0, 90.0, 92.5, 89.8]}
    assert sentence(made_experiment(same)).endswith("The difference may be chance.")
    worse = {"kube-default": BETTER["fgd"], "random": BETTER["kube-default"]}
    assert re.match(
        r"random leaves \d+\.\d % more GPUs unallocated than kube-default", sentence(made_experiment(worse))
    )


def test_the_headline_of_one_policy_or_one_seed_claims_no_more_than_it_has() -> None:
    assert sentence(made_experiment({"fgd": [95.0, 96.0]}), "fgd").startswith(
        "fgd allocates 95.50 % of the GPUs on default"
    )
    one = sentence(made_experiment({"kube-default": [90.0], "fgd": [95.0]}))
    assert one == "fgd leaves 50.0 % fewer GPUs unallocated than kube-default on default, only 1 paired seed."


def test_the_headline_of_a_cluster_without_gpus_is_about_cpu() -> None:
    runs = [made_run(policy, seed, gpus=()) for policy in ("kube-default", "fgd") for seed in (1, 2)]
    assert "CPU" in sentence(runs)
    assert "GPU" not in sentence(runs)


def test_the_headline_of_pods_without_gpus_is_about_cpu_though_the_cluster_has_some(tmp_path: Path) -> None:
    runs = [
        made_run(policy, seed, allocation=0.0, cpu=cpu, protocol="arrivals")
        for policy, cpu in (("kube-default", 60.0), ("fgd", 70.0))
        for seed in range(5)
    ]
    headline, text = report(tmp_path, runs)
    assert headline.sentence().startswith("fgd leaves 25.0 % less CPU unallocated than kube-default")
    page = Page(text)
    assert "CPU allocated at the end, %" in page.text
    assert "CPU unallocated" in page.text
    assert not {"w0-causes", "w0-fragmentation"} & page.ids("plot")
    assert "GPU fragmentation, % of idle GPU" not in page.text


def test_the_headline_of_equal_outcomes_says_so() -> None:
    same = [90.0, 91.0, 92.0, 90.5, 90.0]
    said = sentence(made_experiment({"kube-default": same, "fgd": same}))
    assert said == (
        "fgd and kube-default leave the same share of the GPUs unallocated on default: no difference, 5 paired seeds."
    )
    close = sentence(made_experiment({"kube-default": same, "fgd": [value + 0.001 for value in same]}))
    assert close.startswith("fgd leaves less than 0.1 % fewer GPUs")


def timed(waits: dict[str, Sequence[float]]) -> list[RunResult]:
    return [
        made_run(policy, 42 + i, protocol="timed", metrics=[Metric("waiting_time_mean_seconds", "seconds", wait)])
        for policy, of_policy in waits.items()
        for i, wait in enumerate(of_policy)
    ]


def test_the_headline_of_the_timed_protocol_is_about_waiting(tmp_path: Path) -> None:
    said = sentence(timed({"kube-default": [100.0, 120.0], "fgd": [50.0, 60.0]}))
    assert said.startswith("fgd lets pods wait 50.0 % less than kube-default")
    assert sentence(timed({"kube-default": [0.0, 0.0], "fgd": [0.0, 0.0]})).startswith("No pod has to wait")
    nan = float("nan")
    none = timed({"kube-default": [nan, nan], "fgd": [nan, nan]})
    assert sentence(none) == "No pod was bound under any policy on default, only 2 seeds."
    assert sentence(timed({"kube-default": [nan], "fgd": [3.0]})).startswith("Pods wait 3.0 s in the mean under fgd")
    both = [*none, *(replace(run, workload="other") for run in timed({"kube-default": [1.0, 2.0], "fgd": [1.0, 2.0]}))]
    assert "nan" not in sentence(both)
    assert "on one of them no pod was bound" in sentence(both)
    _, text = report(tmp_path, none)
    assert not [piece for piece in Page(text).text if re.search(r"\b(nan|None|undefined)\b", piece)]
    _, text = report(tmp_path, timed({"kube-default": [100.0, 120.0], "fgd": [50.0, 60.0]}))
    page = Page(text)
    assert "w0-waits" in page.ids("plot")
    assert "Pods that wait for room." in page.text


def test_the_report_holds_table_and_plots_in_one_file(tmp_path: Path) -> None:
    headline, text = report(tmp_path, made_experiment(BETTER))
    assert is_result(tmp_path / "report.html")
    page = Page(text)
    figures = json.loads(next(s for s in page.scripts if s.startswith("{")))
    assert set(figures) == page.ids("plot")
    assert {"w0-course", "w0-end", "w0-causes", "w0-nodes-0", "w0-nodes-1", "w0-balance"} <= set(figures)
    assert headline.sentence() in page.text
    for cell in ("95.42", "+4.55", "baseline", "steersman evaluate"):
        assert any(cell in piece for piece in page.text), cell
    assert len(text.encode()) < SIZE_LIMIT_BYTES


def test_the_report_asks_nothing_of_the_network(tmp_path: Path) -> None:
    _, text = report(tmp_path, made_experiment(BETTER, workloads=["one", "two"]))
    page = Page(text)
    assert not [tag for tag, _ in page.elements if tag in ("link", "img", "iframe", "object", "base")]
    loading = ("src", "href", "srcset", "action", "poster", "data")
    assert not [a for _, attributes in page.elements for a in attributes if a in loading]
    (security,) = [a for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert str(security["content"]).startswith("default-src 'none'")
    assert "http" not in str(security["content"])
    css = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in css
    assert "@import" not in css
    assert text.count("plotly.js v") == 1


def test_names_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    name = "</script><b>&\"'"
    runs = [made_run(policy, seed, workload=name) for policy in ("kube-default", "<i>fgd") for seed in (1, 2)]
    _, text = report(tmp_path, runs)
    page = Page(text)
    assert not [tag for tag, _ in page.elements if tag in ("b", "i")]
    assert "<i>fgd" in page.text
    json.loads(next(s for s in page.scripts if s.startswith("{")))


def test_several_workloads_are_chosen_from_and_compared(tmp_path: Path) -> None:
    headline, text = report(tmp_path, made_experiment(BETTER, workloads=["one", "two", "three"]))
    page = Page(text)
    assert headline.sentence().find("on average over 3 workloads") > 0
    assert [a["data-workload"] for tag, a in page.elements if tag == "section"] == ["one", "two", "three"]
    assert len([tag for tag, _ in page.elements if tag == "option"]) == 3


def test_the_same_runs_give_the_same_report(tmp_path: Path) -> None:
    assert report(tmp_path, made_experiment(BETTER))[1] == report(tmp_path, made_experiment(BETTER))[1]


def test_a_policy_has_one_colour_and_no_two_policies_look_alike() -> None:
    names = [f"policy-{i}" for i in range(20)]
    found = styles(names, "policy-3")
    assert len({(style.colour, style.dash) for style in found.values()}) == 20
    assert sorted(style.index for style in found.values()) == list(range(20))


def nodes(count: int, used: float = 0.5) -> FinalNodes:
    share = np.full(count, used)
    models = tuple("T4" if i % 3 else "V100" for i in range(count))
    names = tuple(f"node-{i}" for i in range(count))
    return FinalNodes(names, models, np.full(count, 8), share, share, share)


def cells(rows: list[list[float | None]]) -> list[float]:
    return [cell for row in rows for cell in row if cell is not None]


def test_the_heat_map_has_a_cell_for_every_node() -> None:
    heat = heat_map(nodes(100), names=True)
    trace = heat.figure["data"][0]
    assert cells(trace["z"]) == [50.0] * 100
    assert sorted(name for row in trace["text"] for name in row if name) == sorted(nodes(100).names)
    assert heat.figure["layout"]["yaxis"]["ticktext"] == ["T4", "V100"]
    assert (heat.full, heat.partly, heat.empty) == (0, 100, 0)


def test_the_heat_map_of_a_huge_cluster_stays_small() -> None:
    heat = heat_map(nodes(100_000, used=1.0), names=True)
    assert len(cells(heat.figure["data"][0]["z"])) <= CELLS + 2
    assert heat.full == 100_000


def test_bands_reach_from_the_smallest_to_the_largest() -> None:
    from steersman.evaluation.figures import course

    runs = made_experiment({"fgd": [90.0, 94.0]})
    path: Course = course([run.curve for run in runs], "gpu_allocation_percent", runs[0].curve.x)
    assert (path.low[-1], path.mean[-1], path.high[-1]) == (90.0, 92.0, 94.0)


@pytest.mark.parametrize(
    ("protocol", "said"), [("inflation", "rounds to 130 %"), ("arrivals", "after the last arrival")]
)
def test_the_report_says_what_allocated_means(tmp_path: Path, protocol: str, said: str) -> None:
    _, text = report(tmp_path, made_experiment(BETTER, protocol=protocol))
    assert any(said in piece for piece in Page(text).text)


@pytest.mark.parametrize("protocol", ["inflation", "arrivals", "timed"])
def test_values_that_do_not_apply_leave_no_plot_and_no_nan(tmp_path: Path, protocol: str) -> None:
    runs = [made_run(policy, seed, gpus=(), protocol=protocol) for policy in ("kube-default", "fgd") for seed in (1, 2)]
    _, text = report(tmp_path, runs)
    page = Page(text)
    assert "w0-fragmentation" not in page.ids("plot")
    assert not [piece for piece in page.text if "nan" in piece]
