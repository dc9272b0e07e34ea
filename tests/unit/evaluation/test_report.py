"""The report says what the numbers say, stands alone, and survives whatever a workload is called."""

import base64
import gzip
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.errors import raises
from tests.support.nightly import examples
from tests.support.run_results import EXPERIMENT, figures_in, made_experiment, made_run

import steersman
from steersman.cli.output.tables import kinds_table
from steersman.core.errors import UsageError
from steersman.envs.deployments import DeploymentsOptions
from steersman.evaluation.evaluation import Evaluation
from steersman.evaluation.experiment import Experiment
from steersman.evaluation.report.curves import CurveStats, curve_stats
from steersman.evaluation.report.figures import CELLS, heat_map
from steersman.evaluation.report.headline import Cell, Headline
from steersman.evaluation.report.page import Comparison, templates, write_report
from steersman.evaluation.report.style import styles
from steersman.evaluation.results import is_result
from steersman.evaluation.summary import summarise
from steersman.simulation.pod_kinds import arrived_metric, failed_metric
from steersman.simulation.result import Curve, FinalNodes, Metric, RunResult
from steersman.workloads.generators.deployments import DeploymentSettings
from steersman.workloads.workload import Workload

SIZE_LIMIT_BYTES = 2_000_000
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
    write_report(path, [Comparison(runs, summary, headline, EXPERIMENT)], command="steersman evaluate")
    return headline, path.read_text()


def sentence(runs: Sequence[RunResult], baseline: str = "kube-default") -> str:
    return Headline(runs, summarise(runs, baseline), baseline).sentence()


@pytest.mark.parametrize("name", ["all", "default", "mean", "as it is", "bound", "arrived"])
def test_a_workload_may_have_any_name(tmp_path: Path, name: str) -> None:
    headline, text = report(tmp_path, made_experiment(BETTER, workloads=[name]))
    other, _ = report(tmp_path, made_experiment(BETTER, workloads=["w"]))
    assert headline.sentence() == other.sentence().replace("on w (", f"on {name} (")
    assert f"{name} · 4 nodes · 20 GPUs" in " ".join(" ".join(Page(text).text).split())
    rows = summarise(made_experiment(BETTER, workloads=[name]), "kube-default")
    assert {(row.workload, row.runs) for row in rows} == {(name, len(BETTER["fgd"]))}


def test_names_of_other_rows_are_refused() -> None:
    for policy in ("bound", "as it is", "arrived"):
        with raises(UsageError, policy, "rename it"):
            Experiment((Workload("w", (), ()),), (policy, "fgd"), (1,))
    with raises(UsageError, "all", "rename its file"):
        Experiment((Workload("w", (), ()), Workload("all", (), ())), ("fgd",), (1,))


def test_headline_names_the_best_policy_and_its_gain() -> None:
    said = sentence(made_experiment(BETTER))
    assert said == (
        "fgd is best on default (inflation): 95.42 % of 20 GPUs allocated, 4.55 points [3.93, 5.17] more than "
        "kube-default; it fails as many pods; only 4 paired seeds."
    )
    five = made_experiment({"kube-default": [90.0] * 5, "fgd": [95.0] * 5})
    same = "5.00 points [5.00, 5.00] more than kube-default; it fails as many pods; 5 paired seeds."
    assert sentence(five).endswith(same)


def test_baseline_is_best_where_nothing_beats_it() -> None:
    worse = {"kube-default": BETTER["fgd"], "random": BETTER["kube-default"]}
    assert sentence(made_experiment(worse)).startswith(
        "kube-default is best on default (inflation): 95.42 % of 20 GPUs allocated, 4.55 points [3.93, 5.17] more "
        "than random"
    )


def test_insignificant_gain_is_not_recommended() -> None:
    chance = {"kube-default": [90.0, 91.0, 92.0, 90.0], "fgd": [91.0, 90.0, 92.5, 89.8]}
    said = sentence(made_experiment(chance))
    assert said.startswith("fgd is not shown to differ from kube-default on default (inflation): fgd allocates")
    assert re.search(r"0\.07 points \[−\d\.\d\d, \d\.\d\d\] more than kube-default", said)
    assert "best" not in said
    # Both beat the baseline, but not each other.
    close = {
        "kube-default": [80.0] * 6,
        "fgd": [95.0, 95.1, 95.2, 95.3, 95.4, 95.5],
        "best-fit": [95.5, 95.4, 95.0, 95.3, 95.1, 95.1],
    }
    said = sentence(made_experiment(close))
    assert said.startswith("fgd is not shown to differ from best-fit on default (inflation): fgd allocates 95.25 %")
    assert "15.25 points [" in said
    many = {f"policy-{i}": [90.0, 91.0 + i / 100, 90.5] for i in range(7)}
    said = sentence(made_experiment(many), "policy-0")
    assert said.startswith("policy-6 is not shown to differ from policy-5, policy-4, policy-3 and 3 others on default")


def test_sentence_says_the_best_policy_is_not_shown_to_differ() -> None:
    ends = {"kube-default": [90.0, 91.0, 92.0, 90.0], "gpu-packing": [89.0, 89.9, 91.0, 88.9]}
    said = sentence(made_experiment(ends | {"fgd": [85.0, 100.0, 85.0, 100.0]}))
    assert said.startswith("fgd is not shown to differ from kube-default and gpu-packing on default (inflation): fgd a")


def test_sentence_mentions_failed_pods() -> None:
    def runs(failed: Sequence[float]) -> list[RunResult]:
        by_default = [made_run("kube-default", 42 + i, allocation=90.0 + i / 10, failed=20.0) for i in range(5)]
        return by_default + [made_run("fgd", 42 + i, allocation=95.0, failed=many) for i, many in enumerate(failed)]

    assert sentence(runs([32, 33, 31, 32, 32])).startswith(
        "fgd allocates the most GPUs on default (inflation): 95.00 % of 20 GPUs allocated, "
    )
    assert ", but it fails 12.0 pods [11.1, 12.9] more; 5 paired seeds." in sentence(runs([32, 33, 31, 32, 32]))
    fewer = sentence(runs([8, 9, 7, 8, 8]))
    assert fewer.startswith("fgd is best on default")
    assert "; it fails 12.0 pods [11.1, 12.9] fewer; 5 paired seeds." in fewer
    unclear = sentence(runs([0, 40, 20, 10, 30]))
    assert unclear.startswith("fgd is best")
    assert "no difference shown in the pods that fail" in unclear
    # That others fail fewer is said also where the baseline does not.
    third = [made_run("best-fit", 42 + i, allocation=94.0 + i / 10, failed=2.0) for i in range(5)]
    both = "; it fails 12.0 pods [11.1, 12.9] fewer than kube-default, but it fails 6.0 pods [5.1, 6.9] more than best"
    assert both in sentence([*runs([8, 9, 7, 8, 8]), *third])
    equal = "; it fails as many pods as kube-default, but it fails 18.0 pods [18.0, 18.0] more than best-fit; "
    assert equal in sentence([*runs([20, 20, 20, 20, 20]), *third])
    nothing = "; no difference from kube-default shown in the pods that fail, but it fails "
    assert nothing in sentence([*runs([10, 30, 20, 15, 28]), *third])


@settings(max_examples=examples(60))
@given(st.data())
def test_best_policy_differs_significantly_from_every_other(data: st.DataObject) -> None:
    seeds = data.draw(st.integers(1, 7), "seeds")
    protocol = data.draw(st.sampled_from(["inflation", "arrivals", "timed"]), "protocol")
    # Few values, so that ties, equal policies and intervals without width come up; NaN: no pod was bound.
    values = st.sampled_from([0.0, 40.0, 40.0001, 41.0, 45.0, 90.0] + ([float("nan")] if protocol == "timed" else []))
    names = ["a", "b", "c", "d"][: data.draw(st.integers(1, 4), "policies")]
    ends = {name: data.draw(st.lists(values, min_size=seeds, max_size=seeds), name) for name in names}
    failed = {name: data.draw(st.sampled_from([0.0, 5.0, 9.0]), f"failed by {name}") for name in names}
    runs = [
        made_run(
            name,
            i,
            allocation=end if protocol != "timed" else 50.0,
            protocol=protocol,
            failed=failed[name],
            metrics=[Metric("waiting_time_mean_seconds", "seconds", end)] if protocol == "timed" else (),
        )
        for name, of_policy in ends.items()
        for i, end in enumerate(of_policy)
    ]
    headline = Headline(runs, summarise(runs, "a"), "a")
    said = headline.sentence()
    assert not re.search(r"\b(nan|None|inf)\b|\[[^\]]*–", said), said
    claims = re.match(r"([a-d]) (is best|allocates the most|lets pods wait the least) ", said)
    if claims is None:
        return
    best = claims[1]
    sign = -1 if protocol == "timed" else 1
    for other in set(names) - {best}:
        pairs = np.array(ends[best]) - np.array(ends[other])
        if np.isfinite(headline.means("default")[other]):
            assert seeds > 1
            assert sign * np.nanmean(pairs) > 0, other
            low, high = headline.difference("default", headline.primary, best, other).interval
            assert low > 0 or high < 0
    if protocol != "timed" and claims[2] == "is best":
        assert failed[best] <= min(failed.values())


def test_headline_of_one_policy_or_seed_claims_no_difference() -> None:
    alone = sentence(made_experiment({"fgd": [95.0, 96.0]}), "fgd")
    assert alone.startswith("fgd allocates 95.50 % of the GPUs on default (inflation)")
    one = sentence(made_experiment({"kube-default": [90.0], "fgd": [95.0]}))
    assert one == (
        "One seed cannot show a difference: on default (inflation), fgd allocates 95.00 % of 20 GPUs, 5.00 points more "
        "than kube-default."
    )


def test_the_headline_of_a_cluster_without_gpus_is_about_cpu() -> None:
    runs = [made_run(policy, seed, gpus=()) for policy in ("kube-default", "fgd") for seed in (1, 2)]
    assert "CPU" in sentence(runs)
    assert "GPU" not in sentence(runs)


def test_headline_of_pods_without_gpus_is_about_cpu_in_a_gpu_cluster(tmp_path: Path) -> None:
    runs = [
        made_run(policy, seed, allocation=0.0, cpu=cpu, protocol="arrivals")
        for policy, cpu in (("kube-default", 60.0), ("fgd", 70.0))
        for seed in range(5)
    ]
    headline, text = report(tmp_path, runs)
    assert headline.sentence().startswith(
        "fgd is best on default (arrivals): 70.00 % of the CPU allocated, 10.00 points [10.00, 10.00] more than"
    )
    page = Page(text)
    assert "CPU allocated at the end, %" in page.text
    assert "CPU unallocated" in page.text
    assert not {"w0-causes", "w0-fragmentation"} & page.ids("plot")
    assert "GPU fragmentation: idle GPU" not in page.text


def test_headline_reports_equal_outcomes() -> None:
    same = [90.0, 91.0, 92.0, 90.5, 90.0]
    said = sentence(made_experiment({"kube-default": same, "fgd": same}))
    assert said == (
        "kube-default and fgd do equally well on default (inflation): kube-default allocates 90.70 % of 20 GPUs, "
        "as much as fgd; it fails as many pods; 5 paired seeds."
    )
    close = sentence(made_experiment({"kube-default": same, "fgd": [value + 0.001 for value in same]}))
    assert "less than 0.01 points [0.00, 0.00] more than kube-default" in close
    equal_in_the_mean = sentence(made_experiment({"kube-default": [90.0, 91.0], "fgd": [91.0, 90.0]}))
    assert equal_in_the_mean.startswith("kube-default is not shown to differ from fgd on default (inflation): ")


def timed(waits: dict[str, Sequence[float]], failed: float = 0.0) -> list[RunResult]:
    def run(policy: str, seed: int, wait: float) -> RunResult:
        metrics = [Metric("waiting_time_mean_seconds", "seconds", wait)]
        return made_run(policy, seed, protocol="timed", failed=failed, metrics=metrics)

    return [run(policy, 42 + i, wait) for policy, of_policy in waits.items() for i, wait in enumerate(of_policy)]


def test_pods_that_fail_are_shown_where_others_wait() -> None:
    waits, runs = (timed({"kube-default": [0.0, 0.0], "fgd": [0.0, 0.0]}, failed) for failed in (0.0, 3.0))
    assert sentence(runs).startswith("No pod that fits has to wait under any policy")
    for some, shown in ((runs, True), (waits, False)):
        headline = Headline(some, summarise(some, "kube-default"), "kube-default")
        titles = [column.title for column in headline.columns(headline.workload)]
        assert ("Pods failed" in titles) == shown


def test_the_headline_of_the_timed_protocol_is_about_waiting(tmp_path: Path) -> None:
    said = sentence(timed({"kube-default": [100.0, 110.0, 120.0], "fgd": [50.0, 55.0, 60.0]}))
    assert said.startswith(
        "fgd is best on default (timed): pods wait 55.0 s on average, 55.0 s [42.6, 67.4] less than under kube-default"
    )
    assert sentence(timed({"kube-default": [0.0, 0.0], "fgd": [0.0, 0.0]})).startswith("No pod has to wait")
    nan = float("nan")
    none = timed({"kube-default": [nan, nan], "fgd": [nan, nan]})
    assert sentence(none) == "No pod was bound under any policy on default (timed), only 2 seeds."
    assert sentence(timed({"kube-default": [nan], "fgd": [3.0]})).startswith("Pods wait 3.0 s on average under fgd")
    both = [*none, *(replace(run, workload="other") for run in timed({"kube-default": [1.0, 2.0], "fgd": [1.0, 2.0]}))]
    assert "nan" not in sentence(both)
    assert "on one of them no pod was bound" in sentence(both)
    _, text = report(tmp_path, none)
    assert not [piece for piece in Page(text).text if re.search(r"\b(nan|None|undefined)\b", piece)]
    _, text = report(tmp_path, timed({"kube-default": [100.0, 110.0, 120.0], "fgd": [50.0, 55.0, 60.0]}))
    page = Page(text)
    assert "w0-waits" in page.ids("plot")
    assert "Pods that wait for room." in page.text


def test_waits_are_shown_by_kind_of_pod(tmp_path: Path) -> None:
    """Kinds of which no pod was bound have no bars, and the unit suits the longest mean."""
    metrics = tuple(f"waiting_time_mean_{kind}seconds" for kind in ("", "one_gpu_", "several_gpus_"))

    def waiting(policy: str, seed: int, *waits: float) -> RunResult:
        values = [Metric(name, "seconds", wait) for name, wait in zip(metrics, waits, strict=True)]
        return made_run(policy, seed, protocol="timed", metrics=values)

    hours = {"kube-default": 4, "fgd": 2}
    runs = [waiting(policy, seed, *[3600.0 * wait] * 3) for policy, wait in hours.items() for seed in (42, 43)]
    plot = figures_in(report(tmp_path, runs)[1])["w0-by-kind"]
    assert plot["layout"]["yaxis"]["title"]["text"] == "mean wait, h"
    bars = {trace["name"]: (trace["x"], trace["y"]) for trace in plot["data"]}
    kinds = ["one GPU", "several GPUs"]
    assert bars == {"kube-default": (kinds, [4.0, 4.0]), "fgd": (kinds, [2.0, 2.0])}
    assert "type" not in plot["layout"]["yaxis"]
    uneven = [waiting("kube-default", 42, 3600.0, 10.0, 86400.0)]
    assert figures_in(report(tmp_path, uneven)[1])["w0-by-kind"]["layout"]["yaxis"]["type"] == "log"
    assert "w0-by-kind" not in figures_in(report(tmp_path, timed({"kube-default": [1.0, 2.0]}))[1])


def kinds(policy: str, seed: int, failed: dict[str, float], arrived: dict[str, float]) -> RunResult:
    """A run with pods by kind."""
    counts = {failed_metric(kind): count for kind, count in failed.items()}
    counts |= {arrived_metric(kind): count for kind, count in arrived.items()}
    return made_run(
        policy,
        seed,
        allocation=90.0 + seed % 2 + 5 * (policy == "fgd"),
        metrics=[Metric(name, "pods", count) for name, count in counts.items()],
    )


def test_who_pays_is_told_and_shown(tmp_path: Path) -> None:
    arrived = {"cpu_only": 5.0, "gpu_share": 0.0, "one_gpu": 40.0, "several_gpus": 10.0}
    runs = [
        kinds(policy, 42 + i, {"cpu_only": 1.0, "gpu_share": 0.0, "one_gpu": one + i, "several_gpus": several}, arrived)
        for policy, one, several in (("kube-default", 3.0, 8.0), ("fgd", 13.0, 2.0))
        for i in range(3)
    ]
    headline, text = report(tmp_path, runs)
    said = (
        "Under fgd pods that request one GPU (4 -> 14 of 40) fail more often, and pods that request several GPUs "
        "(8 -> 2 of 10) fail less often than under kube-default."
    )
    assert headline.kinds_sentence() == said
    assert said in Page(text).text
    columns = {each.title: each for each in headline.kind_columns("default")}
    assert list(columns) == ["no GPU", "one GPU", "several GPUs"], "no pod with a share of a GPU arrives"
    assert columns["one GPU"].cells["fgd"] == Cell("14.0", "+10.0 (+10.0 to +10.0)")
    assert columns["one GPU"].cells["arrived"].text == "40.0"
    plot = figures_in(text)["w0-by-kind"]
    bars = {trace["name"]: (trace["x"], trace["y"]) for trace in plot["data"]}
    assert bars["fgd"] == (["no GPU", "one GPU", "several GPUs"], [20.0, 35.0, 20.0])
    table = kinds_table(headline, 80)
    assert table is not None
    assert [str(column.header) for column in table.columns] == ["Policy", "no GPU", "one GPU", "several GPUs"]
    wide = kinds_table(headline, 200)
    assert wide is not None
    assert len(wide.columns) == 7
    names = ("kube-default", "kube-default", "fgd", "fgd")
    same = [kinds(policy, 42 + i % 2, {"one_gpu": 1.0}, {"one_gpu": 4.0}) for i, policy in enumerate(names)]
    headline, text = report(tmp_path, same)
    assert (headline.kinds_sentence(), headline.kind_columns("default")) == ("", []), "there is but one kind"


def test_report_is_one_file_with_table_and_plots(tmp_path: Path) -> None:
    headline, text = report(tmp_path, made_experiment(BETTER))
    assert is_result(tmp_path / "report.html")
    page = Page(text)
    figures = figures_in(text)
    assert set(figures) == page.ids("plot")
    assert {"w0-whole", "w0-end", "w0-causes", "w0-nodes-0", "w0-nodes-1", "w0-balance"} <= set(figures)
    assert headline.sentence() in page.text
    for cell in ("95.42", "+4.55", "baseline", "steersman evaluate"):
        assert any(cell in piece for piece in page.text), cell
    assert len(text.encode()) < SIZE_LIMIT_BYTES


def test_titles_of_axes_are_no_longer_than_the_axes(tmp_path: Path) -> None:
    long = "a-policy-whose-name-is-much-longer-than-the-axis-of-any-plot-of-a-report"
    _, text = report(tmp_path, made_experiment({long: [90.0, 91.0], "fgd": [95.0, 96.0]}), baseline=long)
    titles = []
    for plot in figures_in(text).values():
        layout = plot["layout"]
        for name, pixels in (("xaxis", 340), ("yaxis", layout["height"])):
            title = layout[name].get("title", {}).get("text", "")
            assert all(len(line) * 8.6 <= pixels - 40 for line in title.split("<br>")), title
            titles.append(title)
    assert any(long in title.replace("<br>", "") for title in titles)
    assert "arrived GPU demand, % of all GPUs" in titles
    assert not [each for _, attributes in Page(text).elements for each in attributes.values() if "<br>" in str(each)]


def test_a_report_needs_no_package_for_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    _, text = report(tmp_path, made_experiment(BETTER))
    assert 'id="plotly"' in text


def test_report_loads_nothing_from_the_network(tmp_path: Path) -> None:
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
    (packed,) = re.findall(r'<script type="application/gzip" id="plotly">(.*?)</script>', text)
    assert b"plotly.js (cartesian - minified) v" in gzip.decompress(base64.b64decode(packed))[:200]


def test_names_are_escaped_in_the_page(tmp_path: Path) -> None:
    name = "</script><b>&\"'"
    runs = [made_run(policy, seed, workload=name) for policy in ("kube-default", "<i>fgd") for seed in (1, 2)]
    _, text = report(tmp_path, runs)
    page = Page(text)
    assert not [tag for tag, _ in page.elements if tag in ("b", "i")]
    assert "<i>fgd" in page.text
    assert figures_in(text)


def test_workloads_can_be_selected_and_compared(tmp_path: Path) -> None:
    headline, text = report(tmp_path, made_experiment(BETTER, workloads=["one", "two", "three"]))
    page = Page(text)
    assert headline.sentence().find("on average over 3 workloads") > 0
    assert [a["data-workload"] for tag, a in page.elements if tag == "section"] == ["one", "two", "three"]
    assert len([tag for tag, _ in page.elements if tag == "option"]) == 3


def test_lines_of_many_policies_look_different_in_legends() -> None:
    macros: Any = templates().get_template("macros.html.j2").module
    many = styles([f"policy-{i}" for i in range(200)])
    assert len({str(macros.sample(style)) for style in many.values()}) == 200


def test_every_plot_has_an_accessible_name(tmp_path: Path) -> None:
    _, text = report(tmp_path, made_experiment(BETTER, workloads=["one", "two"]))
    plots = [attributes for _, attributes in Page(text).elements if attributes.get("class") == "plot"]
    names = [str(each.get("aria-label")) for each in plots]
    assert all(each.get("role") == "img" for each in plots)
    assert len(set(names)) == len(names) == len(figures_in(text))
    assert "fgd: nodes at the end, 1 nodes full, 2 partly used, 1 empty (one, inflation)" in names
    whole = [name for name in names if name.startswith("GPU allocated, %. The whole run.")]
    assert any(name.endswith("(two, inflation)") for name in whole)


def test_report_combines_two_protocols(tmp_path: Path) -> None:
    comparisons = []
    for protocol in ("inflation", "arrivals"):
        runs = made_experiment(BETTER, protocol=protocol)
        summary = summarise(runs, "kube-default")
        comparisons.append(Comparison(runs, summary, Headline(runs, summary, "kube-default"), EXPERIMENT))
    write_report(tmp_path / "report.html", comparisons, command="steersman evaluate", reason="no times")
    text = (tmp_path / "report.html").read_text()
    page = Page(text)
    shown = [(a["data-workload"], a["data-protocol"]) for tag, a in page.elements if tag == "section"]
    assert shown == [("default", "inflation"), ("default", "arrivals")]
    assert [tag for tag, a in page.elements if a.get("class") == "claim"] == ["h1", "h2"]
    for each in comparisons:
        assert each.headline.sentence() in page.text
    assert {"default (inflation)", "default (arrivals)", "By the data: no times."} <= set(page.text)
    assert {"w0-end", "w1-end"} <= set(figures_in(text))


def test_report_of_many_policies_stays_below_the_size_limit(tmp_path: Path) -> None:
    ends = {f"policy-{i}": [90.0 + i / 7, 91.0 + i / 9] for i in range(14)}
    runs = made_experiment(ends, workloads=[f"w{i}" for i in range(4)])
    random = np.random.default_rng(1)
    noisy = []
    for run in runs:
        values = np.round(run.curve.gpu_allocation_percent + random.uniform(0, 1, len(run.curve.x)), 2)
        fragmentation = np.round(random.uniform(0, 99, len(run.curve.x)), 2)
        noise = {"gpu_allocation_percent": values, "gpu_fragmented_of_idle_percent": fragmentation}
        curve = replace(run.curve, measured=run.curve.measured | noise)
        noisy.append(replace(run, curve=curve, final_nodes=nodes(1213) if run.seed == 42 else run.final_nodes))
    _, text = report(tmp_path, noisy, "policy-0")
    assert len(text.encode()) < SIZE_LIMIT_BYTES


def nodes(count: int, used: float = 0.5) -> FinalNodes:
    share = np.full(count, used)
    models = tuple("T4" if i % 3 else "V100" for i in range(count))
    names = tuple(f"node-{i}" for i in range(count))
    return FinalNodes(names, models, np.full(count, 8), share, share)


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


def test_mean_curve_reaches_the_end_of_the_longest_seed() -> None:
    whole = made_run().curve
    shorter = Curve(whole.x[:100], {"gpu_allocation_percent": whole.gpu_allocation_percent[:100]})
    path = curve_stats([whole, shorter], "gpu_allocation_percent", whole.x)
    for values in (path.mean, path.low, path.high):
        assert values[100:].tolist() == whole.gpu_allocation_percent[100:].tolist()


def test_the_difference_is_the_first_column_of_the_table(tmp_path: Path) -> None:
    page = report(tmp_path, timed({"kube-default": (80.0, 90.0), "fgd": (70.0, 85.0)}))[1]
    titles = re.findall(r'<th scope="col">([^<]*)</th>', page)
    assert titles[:3] == ["Policy", "Difference from kube-default, s", "Mean wait, s"]


def test_bands_span_minimum_to_maximum() -> None:
    runs = made_experiment({"fgd": [90.0, 94.0]})
    path: CurveStats = curve_stats([run.curve for run in runs], "gpu_allocation_percent", runs[0].curve.x)
    assert (path.low[-1], path.mean[-1], path.high[-1]) == (90.0, 92.0, 94.0)


@pytest.mark.parametrize(("protocol", "said"), [("inflation", "rounds to 130 %"), ("arrivals", "after the last ")])
def test_the_report_says_what_allocated_means(tmp_path: Path, protocol: str, said: str) -> None:
    _, text = report(tmp_path, made_experiment(BETTER, protocol=protocol))
    assert any(said in piece for piece in Page(text).text)


@pytest.mark.parametrize("protocol", ["inflation", "arrivals", "timed"])
def test_inapplicable_values_produce_no_plot_and_no_nan(tmp_path: Path, protocol: str) -> None:
    runs = [made_run(policy, seed, gpus=(), protocol=protocol) for policy in ("kube-default", "fgd") for seed in (1, 2)]
    _, text = report(tmp_path, runs)
    page = Page(text)
    assert "w0-fragmentation" not in page.ids("plot")
    assert not [piece for piece in page.text if "nan" in piece]


def method(folder: Path, evaluation: Evaluation) -> str:
    evaluation.write(folder)
    text = (folder / "report.html").read_text()
    return text[text.index("How this was measured") :]


def test_the_report_says_which_load_was_offered(tmp_path: Path) -> None:
    workload = steersman.load_workload("default-small")
    policies = ["fgd", "best-fit"]
    loaded = steersman.evaluate(workload, policies, seeds=1, protocol="timed", load=0.07)
    text = method(tmp_path / "loaded", loaded)
    assert "<dt>Load</dt><dd>0.07</dd>" in text
    assert "ask for 7 % of the cluster" in text
    assert "at the times of the workload" not in text
    assert "Command" not in text  # there is none
    pods = tuple(replace(pod, deletion_time=None) for pod in workload.pods[:50])
    mean = steersman.evaluate(replace(workload, pods=pods), policies, seeds=1, protocol="timed", mean_duration=60)
    text = method(tmp_path / "mean", mean)
    assert "Pods arrive and leave at the times of the workload" in text
    assert "<dt>Mean duration</dt><dd>60 s of pods" in text
    assert "<dt>Load</dt>" not in text


def test_the_report_says_what_the_seeds_generated(tmp_path: Path) -> None:
    options = DeploymentsOptions(nodes=4, settings=DeploymentSettings(min_replicas=3))
    text = method(tmp_path / "out", steersman.evaluate(options, ["least-allocated", "random"], seeds=1))
    assert "DeploymentsOptions(nodes=4, settings=DeploymentSettings(min_replicas=3)); the rest as" in text
