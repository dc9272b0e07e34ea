"""The screen of comparisons: its numbers are those of `summary.csv`, and of the report where that has none."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from tests.support.dashboard import AskServer, asking
from tests.support.errors import raises

from steersman.core.errors import InputError
from steersman.evaluation.report.headline import Headline
from steersman.evaluation.results import write_evaluation
from steersman.evaluation.summary import SummaryRow, summarise
from steersman.live.dashboard.comparison.evaluation import NO_NODES, EvaluationFolder, Subject
from steersman.live.dashboard.comparison.screen import ComparisonScreen
from steersman.live.dashboard.runs import FoundRun, find_runs
from steersman.simulation.result import Curve, Metric, Protocol, RunResult
from steersman.simulation.run import AS_IT_IS

POLICIES, WORKLOADS, SEEDS = ("fgd", "best-fit", "mine"), ("one", "two"), (1, 2, 3, 4, 5, 6)
METRIC = "gpu_allocation_percent"


def run_of(workload: str, policy: str, seed: int, protocol: Protocol) -> RunResult:
    random = np.random.default_rng([seed, POLICIES.index(policy), WORKLOADS.index(workload)])
    x = np.arange(0.0, 131.0)
    allocated = np.round(np.minimum(x, 90 + POLICIES.index(policy) + random.random(131)), 2)
    measured = {"gpu_allocation_percent": allocated, "gpu_fragmented_of_idle_percent": np.round(x / 10, 2)}
    end = float(allocated[-1])
    metrics = (
        Metric(METRIC, "percent", end),
        Metric("pods_failed", "count", float(random.integers(9))),
        Metric("waiting_time_mean_seconds", "seconds", math.nan),
        Metric("pods_failed_one_gpu", "pods", 10.0 * (policy == "mine") + float(seed % 2)),
        Metric("pods_failed_several_gpus", "pods", 0.0),
        Metric("pods_arrived_one_gpu", "pods", 40.0),
        Metric("pods_arrived_several_gpus", "pods", 3.0),
    )
    return RunResult(workload, policy, seed, protocol, Curve(x, measured), metrics, NO_NODES)


@cache
def runs() -> tuple[RunResult, ...]:
    return tuple(
        run_of(workload, policy, seed, "inflation") for workload in WORKLOADS for policy in POLICIES for seed in SEEDS
    )


def written(folder: Path, of: tuple[RunResult, ...] | None = None, baseline: str = "fgd") -> FoundRun:
    folder.mkdir(parents=True)
    chosen = runs() if of is None else of
    write_evaluation(folder, chosen, summarise(chosen, baseline))
    return find_runs([folder])[0][0]


def same(one: SummaryRow, other: SummaryRow) -> bool:
    """Whether two rows say the same, as far as `summary.csv` has it: nine digits, and neither units nor quartiles."""
    for name in ("workload", "policy", "protocol", "metric", "runs", "baseline"):
        assert getattr(one, name) == getattr(other, name)
    numbers = [(each.mean, *each.interval, each.difference, *each.difference_interval) for each in (one, other)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-8, nan_ok=True)
    return True


def test_the_summary_is_read_and_another_baseline_is_computed_as_evaluate_does(tmp_path: Path) -> None:
    found = EvaluationFolder(written(tmp_path / "run"))
    assert (found.policies, found.baseline) == (POLICIES, "fgd")
    assert [subject.workload for subject in found.subjects] == [*WORKLOADS, "all"]
    for baseline in POLICIES:
        expected = summarise(runs(), baseline)
        for workload in (*WORKLOADS, "all"):
            rows = found.rows(Subject(workload, "inflation"), METRIC, baseline)
            wanted = [row for row in expected if (row.workload, row.metric) == (workload, METRIC)]
            assert all(same(row, other) for row, other in zip(rows, wanted, strict=True))
    assert found.headline(Subject("two", "inflation"), "pods_failed", "fgd") is None


def sentence_of(found: EvaluationFolder, subject: Subject, metric: str, baseline: str) -> str:
    headline = found.headline(subject, metric, baseline)
    assert headline is not None
    return headline.sentence()


def reversed_in_arrivals(run: RunResult) -> RunResult:
    """The run in another protocol, in which the worst policy is the best, and pays for it with other pods."""
    metrics = [replace(each, value=round(100.0 - each.value, 2)) for each in run.metrics]
    return replace(run, protocol="arrivals", metrics=tuple(metrics))


@pytest.mark.parametrize("first", ["inflation", "arrivals"])
@pytest.mark.parametrize("workload", [*WORKLOADS, "all"])
@pytest.mark.parametrize("baseline", POLICIES)
def test_figures_are_those_of_the_chosen_protocol(tmp_path: Path, first: str, workload: str, baseline: str) -> None:
    by_protocol = {"inflation": runs(), "arrivals": tuple(map(reversed_in_arrivals, runs()))}
    protocols = sorted(by_protocol, key=lambda each: each != first)
    (tmp_path / "run").mkdir()
    summary = [row for each in protocols for row in summarise(by_protocol[each], "fgd")]
    # The recorded placement of one protocol is no row of the other.
    recorded = replace(
        summary[0], policy=AS_IT_IS, workload=workload, protocol="arrivals", baseline="", interval_over=""
    )
    write_evaluation(tmp_path / "run", [run for each in protocols for run in by_protocol[each]], [*summary, recorded])
    folder = EvaluationFolder(find_runs([tmp_path / "run"])[0][0])
    for protocol, of_protocol in by_protocol.items():
        chosen = [run for run in of_protocol if workload in ("all", run.workload)]
        expected = Headline(chosen, summarise(chosen, baseline), baseline)
        shown = folder.headline(Subject(workload, of_protocol[0].protocol), METRIC, baseline)
        assert shown is not None
        assert shown.sentence() == expected.sentence()
        assert shown.order(workload) == expected.order(workload)
        assert shown.kinds_sentence() == expected.kinds_sentence()
        for one, other in zip(shown.kind_columns(workload), expected.kind_columns(workload), strict=True):
            assert [one.cells[policy] for policy in POLICIES] == [other.cells[policy] for policy in POLICIES]
        assert (AS_IT_IS in shown.others(workload)) == (protocol == "arrivals")


def test_curves_are_those_of_the_runs(tmp_path: Path) -> None:
    curves = EvaluationFolder(written(tmp_path / "run")).curves(Subject("one", "inflation"))
    assert list(curves) == list(POLICIES)
    (expected, *_) = (run.curve for run in runs() if run.workload == "one")
    assert np.array_equal(curves["fgd"][0].gpu_allocation_percent, expected.gpu_allocation_percent)


def test_other_protocols_have_a_summary_and_no_curves(tmp_path: Path) -> None:
    timed = tuple(replace(run, protocol="timed") for run in runs() if run.workload == "one")
    found = EvaluationFolder(written(tmp_path / "run", timed))
    assert found.subjects == (Subject("one", "timed"),)
    assert found.curves(found.subjects[0]) == {}
    assert sentence_of(found, found.subjects[0], "waiting_time_mean_seconds", "fgd").startswith("No pod was bound")


def given(policy: str, seed: int) -> RunResult:
    """A run on a trace whose arrivals are given, with what each part of it adds to the mean wait."""
    random = np.random.default_rng([POLICIES.index(policy)])
    parts = np.stack([random.random(200) * (1 + POLICIES.index(policy)), np.full(200, 3.0)], axis=1)
    metrics = (
        Metric("waiting_time_mean_seconds", "seconds", float(parts[:, 0].sum() / parts[:, 1].sum())),
        Metric("waiting_time_max_seconds", "seconds", 5.0),
    )
    run = run_of("one", policy, seed, "timed")
    return replace(run, metrics=metrics, is_given=True, parts={"waiting_time_mean_seconds": parts})


def test_another_baseline_has_intervals_on_a_given_trace_too(tmp_path: Path) -> None:
    timed = tuple(given(policy, seed) for policy in POLICIES for seed in (1, 2))
    found = EvaluationFolder(written(tmp_path / "run", timed))
    subject = Subject("one", "timed")
    for baseline in POLICIES:
        expected = summarise(timed, baseline)
        for metric in ("waiting_time_mean_seconds", "waiting_time_max_seconds"):
            wanted = [row for row in expected if row.metric == metric]
            rows = found.rows(subject, metric, baseline)
            assert all(same(row, other) for row, other in zip(rows, wanted, strict=True))
            known = [math.isfinite(row.difference_interval.low) for row in rows if row.policy != baseline]
            assert known == [metric == "waiting_time_mean_seconds"] * 2
        sentence = sentence_of(found, subject, "waiting_time_mean_seconds", baseline)
        assert sentence == Headline(list(timed), expected, baseline).sentence()
        assert "[" in sentence, "with an interval"


async def test_page_shows_several_folders_and_names_them_per_row(tmp_path: Path) -> None:
    first = written(tmp_path / "first")
    second = written(tmp_path / "second", tuple(run for run in runs() if run.workload == "one"), "mine")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "summary.csv").write_text("a,b\n")
    screen = ComparisonScreen([*find_runs([tmp_path / "broken"])[0], first, second])
    async with asking(screen) as ask:
        broken, one, two = (await ask("/api/comparison/folders")).content
        assert ("summary.csv" in broken["problem"], one["baseline"], two["baseline"]) == (True, "fgd", "mine")
        query = f"workload=one&protocol=inflation&metric={METRIC}&baseline=fgd"
        both = f"/api/comparison/metric?folder={one['id']}&folder={two['id']}&{query}"
        found = (await ask(both)).content
        rows = found["workloads"]["one"]
        assert [(row["folder"], row["policy"]) for row in rows] == [
            (f, p) for f in ("first", "second") for p in POLICIES
        ]
        first, second = ([row["difference"] for row in part] for part in (rows[1:3], rows[4:]))
        assert first == pytest.approx(second, rel=1e-8), "read from summary.csv, and computed as that is"
        assert found["metric"] == {"title": "GPU allocated at the end, %", "largerIsBetter": True, "digits": 2}
        assert [each["folder"] for each in found["sentences"]] == ["first", "first", "second", "second"]
        paid = "Under mine pods that request one GPU (0 -> 10 of 40) fail more often than under fgd."
        assert [each["sentence"] for each in found["sentences"][1::2]] == [paid, paid]
        assert [(each["folder"], each["kinds"]) for each in found["kinds"]] == [
            (folder, ["one GPU", "several GPUs"]) for folder in ("first", "second")
        ]
        of_mine = next(row for row in found["kinds"][0]["rows"] if row["name"] == "mine")
        assert (of_mine["cells"], of_mine["notes"][0]) == (["10.5", "0.0"], "+10.0 (+10.0 to +10.0)")
        assert found["kinds"][0]["rows"][-1] == {
            "name": "pods that arrive",
            "cells": ["40.0", "3.0"],
            "notes": ["", ""],
        }
        assert found["versions"] == {each["id"]: each["version"] for each in (one, two)}
        allocation, fragmentation = found["charts"]
        assert (len(allocation["curves"]), len(allocation["x"]), len(fragmentation["curves"])) == (6, 131, 6)
        ends = [run.curve.gpu_allocation_percent[-1] for run in runs()[: len(SEEDS)]]
        assert allocation["curves"][0]["mean"][-1] == pytest.approx(np.mean(ends))
        for wrong, part in (
            (f"/api/comparison/metric?{query}", "folder"),
            (f"/api/comparison/metric?folder=../x&{query}", "../x"),
            (f"/api/comparison/metric?folder={one['id']}&workload=three&protocol=inflation&metric=x", "three"),
            (f"/api/comparison/metric?folder={broken['id']}&{query}", "summary.csv"),
        ):
            assert (await ask(quote(wrong, safe="/?=&"))).is_line(400, part)
        unknown = (await ask(both.replace(METRIC, "nothing"))).content
        assert (unknown["workloads"], unknown["sentences"]) == ({}, [])


DAMAGED = (
    ("summary.csv", "workload,policy\n", "line 1"),
    ("metrics.csv", "one,fgd,1,inflation,m,percent\n", "line 2"),
    ("metrics.csv", "one,fgd,x,inflation,m,percent,1\n", "seed"),
    ("metrics.csv", "one,fgd,²,inflation,m,percent,1\n", "seed"),
    ("results.csv", "one,fgd,²,0,1,1\n", "seed"),
    ("metrics.csv", f"one,fgd,{'9' * 5000},inflation,m,percent,1\n", "seed"),
    ("metrics.csv", "one,fgd,1,sideways,m,percent,1\n", "protocol"),
    ("metrics.csv", "one,fgd,1,inflation,m,percent,many\n", "value"),
    ("results.csv", "one,fgd,1,0,\x00,1\n", "line 2"),
)


def test_damaged_results_name_file_and_place(tmp_path: Path) -> None:
    for number, (file, text, where) in enumerate(DAMAGED):
        run = written(tmp_path / str(number), runs()[:2])
        path = tmp_path / str(number) / file
        header = path.read_text().splitlines()[0]
        path.write_text(text if where == "line 1" else f"{header}\n{text}")
        with raises(InputError, path, where):
            assert EvaluationFolder(run).runs


async def test_folders_with_equal_names_stay_separate(tmp_path: Path) -> None:
    for number, name in enumerate(("x", "y"), start=2):
        written(tmp_path / name / "results", runs()[: number * len(SEEDS)])
    screen = ComparisonScreen(find_runs([tmp_path / "x" / "results", tmp_path / "y" / "results"])[0])
    async with asking(screen) as ask:
        found = (await ask(await path_of_all(ask))).content
        assert [each["folder"] for each in found["sentences"]] == ["x/results", "y/results", "y/results"], (
            "only y has mine, which pays"
        )
        assert len({each["sentence"] for each in found["sentences"]}) == 3
        expected = [("x/results", policy) for policy in POLICIES[:2]] + [("y/results", policy) for policy in POLICIES]
        for those in (found["workloads"]["one"], found["charts"][0]["curves"]):
            assert [(each["folder"], each["policy"]) for each in those] == expected


async def path_of_all(ask: AskServer) -> str:
    """Return the path of the figures of all folders."""
    folders = (await ask("/api/comparison/folders")).content
    chosen = "&".join(f"folder={each['id']}" for each in folders)
    return f"/api/comparison/metric?{chosen}&workload=one&protocol=inflation&metric={METRIC}&baseline=fgd"


async def test_rewritten_folder_is_reloaded(tmp_path: Path) -> None:
    screen = ComparisonScreen([written(tmp_path / "run", runs()[: 2 * len(SEEDS)])])
    async with asking(screen) as ask:
        former = (await ask(path := await path_of_all(ask))).content
        write_evaluation(tmp_path / "run", runs(), summarise(runs(), "mine"))
        (entry,) = (await ask("/api/comparison/folders")).content
        assert (entry["policies"], entry["baseline"]) == (list(POLICIES), "mine")
        newer = (await ask(path)).content
        assert newer["versions"] == {entry["id"]: entry["version"]} != former["versions"]
        assert [row["policy"] for row in newer["workloads"]["one"]] == list(POLICIES)
        assert newer["sentences"] != former["sentences"]
        (tmp_path / "run" / "summary.csv").unlink()
        assert "summary.csv" in (await ask("/api/comparison/folders")).content[0]["problem"]
        assert (await ask(path)).is_line(400, "summary.csv", "is missing")


def test_folder_written_during_reading_is_not_mixed(tmp_path: Path) -> None:
    folder = EvaluationFolder(written(tmp_path / "run", runs()[: 2 * len(SEEDS)]))
    write_evaluation(tmp_path / "run", runs(), summarise(runs(), "mine"))
    with raises(InputError, tmp_path / "run", "written again"):
        assert folder.runs


async def test_folder_with_damaged_runs_does_not_hide_others(tmp_path: Path) -> None:
    bad, good = (written(tmp_path / name, runs()[: 2 * len(SEEDS)]) for name in ("bad", "good"))
    (bad.folder / "metrics.csv").write_text("damaged\n")
    screen = ComparisonScreen([bad, good])
    async with asking(screen) as ask:
        both = await path_of_all(ask)
        found = (await ask(both)).content
        (problem,) = found["problems"]
        assert "bad/metrics.csv" in problem
        assert list(found["versions"]) == [good.id]
        assert {row["folder"] for row in found["workloads"]["one"]} == {"good"}
        assert (await ask(both.replace(f"folder={good.id}&", "").replace(f"&folder={good.id}", ""))).is_line(
            400, "bad/metrics.csv"
        )


async def test_damaged_folder_does_not_hide_others_and_is_reread_when_repaired(tmp_path: Path) -> None:
    bad, good = (written(tmp_path / name, runs()[:2]) for name in ("bad", "good"))
    path = bad.folder / "summary.csv"
    whole = path.read_text()
    screen = ComparisonScreen([bad, good])
    async with asking(screen) as ask:
        for number in ("nan", "inf", "1e400", "²", "-1", "9" * 5000):
            path.write_text(whole.replace(f",{METRIC},2,", f",{METRIC},{number},", 1))
            first, second = (await ask("/api/comparison/folders")).content
            assert "summary.csv, line 2, runs" in first["problem"]
            assert second["problem"] == ""
        path.write_text(whole)
        assert [each["problem"] for each in (await ask("/api/comparison/folders")).content] == ["", ""]
