"""Result files: their columns and bytes, all of them or none, and nothing of the user's overwritten."""

import csv
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp
from tests.support.errors import raises
from tests.support.run_results import POINTS, made_experiment, made_run

from steersman.core.errors import UsageError
from steersman.evaluation import results
from steersman.evaluation.summary import summarise
from steersman.simulation.measures import COURSE
from steersman.simulation.result import Curve, Metric, Placements

ENDS = {"kube-default": [90.0, 91.0, 92.0], "fgd": [95.0, 95.5, 96.5]}


def write(folder: Path, runs: list, baseline: str = "kube-default") -> None:
    with results.staged(folder, results.EVALUATION_FILES) as stage:
        results.write_evaluation(stage, runs, summarise(runs, baseline))


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_results_have_a_row_per_percent_of_arrivals(tmp_path: Path) -> None:
    write(tmp_path / "out", made_experiment(ENDS))
    rows = rows_of(tmp_path / "out" / "results.csv")
    assert len(rows) == 2 * 3 * POINTS
    assert [row["arrived_percent"] for row in rows[:POINTS]] == [str(x) for x in range(131)]
    lines = (tmp_path / "out" / "results.csv").read_text().splitlines()
    measured = "gpu_allocation_percent,gpu_fragmented_of_idle_percent"
    assert lines[0] == f"workload,policy,seed,arrived_percent,{measured}"
    assert lines[POINTS] == "default,kube-default,42,130,90.00,99.00"


def test_results_of_other_protocols_have_no_rows(tmp_path: Path) -> None:
    write(tmp_path / "out", made_experiment(ENDS, protocol="arrivals"))
    assert (tmp_path / "out" / "results.csv").read_text().count("\n") == 1
    assert rows_of(tmp_path / "out" / "metrics.csv")[0]["protocol"] == "arrivals"


def test_summary_pairs_by_seed(tmp_path: Path) -> None:
    write(tmp_path / "out", made_experiment(ENDS))
    rows = rows_of(tmp_path / "out" / "summary.csv")
    assert list(rows[0]) == list(results.SUMMARY_COLUMNS)
    (baseline,) = [r for r in rows if (r["policy"], r["metric"]) == ("kube-default", "gpu_allocation_percent")]
    (fgd,) = [r for r in rows if (r["policy"], r["metric"]) == ("fgd", "gpu_allocation_percent")]
    assert (baseline["mean"], baseline["baseline"], baseline["difference"]) == ("91", "", "")
    assert (fgd["runs"], fgd["baseline"]) == ("3", "kube-default")
    assert float(fgd["difference"]) == pytest.approx((5 + 4.5 + 4.5) / 3)
    theirs = ttest_1samp([5, 4.5, 4.5], 0.0).confidence_interval(0.95)
    assert float(fgd["difference_ci_low"]) == pytest.approx(theirs.low)
    assert float(fgd["difference_ci_high"]) == pytest.approx(theirs.high)


def test_interval_is_clipped_to_the_range_of_the_metric() -> None:
    ends = {"kube-default": [99.0, 90.0, 100.0], "fgd": [98.0, 99.5, 99.9]}
    runs = [
        made_run(policy, 42 + i, allocation=each, failed=float(i))
        for policy, of_policy in ends.items()
        for i, each in enumerate(of_policy)
    ]
    rows = {(row.policy, row.metric): row for row in summarise(runs, "kube-default")}
    assert rows["fgd", "gpu_allocation_percent"].interval.high == 100
    assert rows["fgd", "gpu_allocation_percent"].interval.low > 95
    assert rows["fgd", "gpu_allocation_percent"].difference_interval.high > 10
    assert rows["fgd", "pods_failed"].interval == pytest.approx((0, 1 + 4.302653 / 3**0.5))


def test_several_workloads_have_a_mean_over_all() -> None:
    runs = made_experiment({"a": [90.0, 92.0]}, workloads=["one"])
    runs += made_experiment({"a": [80.0, 84.0]}, workloads=["two"])
    rows = [row for row in summarise(runs, "a") if row.metric == "gpu_allocation_percent"]
    assert [(row.workload, row.mean, row.runs) for row in rows] == [("one", 91, 2), ("two", 82, 2), ("all", 86.5, 4)]


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    write(tmp_path / "out", made_experiment({"kube-default": [90.0], "fgd": [95.0]}))
    for row in rows_of(tmp_path / "out" / "summary.csv"):
        assert row["ci_low"] == row["ci_high"] == row["difference_ci_low"] == ""
    assert "nan" not in (tmp_path / "out" / "summary.csv").read_text().lower()


def test_inapplicable_value_is_an_empty_cell(tmp_path: Path) -> None:
    write(tmp_path / "out", [made_run(gpus=())], baseline="fgd")
    rows = rows_of(tmp_path / "out" / "metrics.csv")
    assert {row["metric"]: row["value"] for row in rows} == {
        "gpu_allocation_percent": "",
        "cpu_allocation_percent": "80",
        "pods_failed": "12",
    }


NO_NUMBERS = [(math.nan, ""), (math.inf, "")]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (-0.0, "0"), (1e6, "1000000"), (95.39, "95.39"), (1 / 3, "0.333333333"), *NO_NUMBERS],
)
def test_numbers_are_written_with_the_shortest_exact_digits(value: float, text: str) -> None:
    assert results.number(value) == text


def test_run_writes_placements_and_timeline(tmp_path: Path) -> None:
    placements = Placements(
        time=np.array([0.0, 1.5]),
        pod=["web, the first", "gpu"],
        node=["node-1", ""],
        devices=["0-3", ""],
        outcome=["bound", "failed"],
        reason=["", "0/4 nodes are available: 4 Insufficient gpu."],
    )
    with results.staged(tmp_path / "run") as stage:
        run = made_run(placements=placements, metrics=[Metric("nodes_used", "nodes", 4)])
        pair = np.array([1.0, 2.5])
        timeline = Curve(pair, dict.fromkeys(COURSE, pair))
        results.write_run(stage, replace(run, timeline=timeline))
    assert (tmp_path / "run" / "placements.csv").read_text() == (
        "event,time,pod,node,devices,outcome,reason\n"
        '0,0,"web, the first",node-1,0-3,bound,\n'
        "1,1.5,gpu,,,failed,0/4 nodes are available: 4 Insufficient gpu.\n"
    )
    timeline = rows_of(tmp_path / "run" / "timeline.csv")
    assert [row["event"] for row in timeline] == ["0", "1"]
    assert (timeline[1]["arrived_percent"], timeline[1]["gpu_allocation_percent"]) == ("2.5", "2.5")
    assert timeline[1]["gpu_fragmented_no_access_percent"] == timeline[1]["pods_failed"] == "2.5"


def fail_half_way(folder: Path) -> None:
    with results.staged(folder) as stage:
        (stage / "results.csv").write_text("half")
        raise RuntimeError


def test_failure_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        fail_half_way(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_failure_keeps_former_results(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("former")
    with pytest.raises(RuntimeError):
        fail_half_way(tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("results.csv", "former")]


def test_former_results_are_replaced_entirely(tmp_path: Path) -> None:
    header = ",".join(results.RESULTS_COLUMNS)
    for name in ("results.csv", "results.partial.csv"):
        (tmp_path / name).write_text(f"{header}\nformer\n")
    (tmp_path / "report.html").write_text(f"<html>{results.REPORT_MARK}")
    results.check_output(tmp_path, results.EVALUATION_FILES)
    write(tmp_path, made_experiment(ENDS))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.csv", "results.csv", "summary.csv"]
    assert "former" not in (tmp_path / "results.csv").read_text()


def test_partial_results_keep_former_ones(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("former")
    with results.staged(tmp_path) as stage:
        results.write_partial(stage, [made_run()])
    assert (tmp_path / "results.csv").read_text() == "former"
    assert len(rows_of(tmp_path / "results.partial.csv")) == POINTS


def test_new_files_have_default_permissions(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    write(tmp_path / "out", made_experiment(ENDS))
    assert (tmp_path / "out").stat().st_mode == plain.stat().st_mode


@pytest.mark.parametrize("files", [results.EVALUATION_FILES, results.RUN_FILES, results.DEMO_FILES])
@pytest.mark.parametrize("name", ["thesis.tex", ".gitignore", "placements.txt", "run/summary.csv"])
def test_folder_with_nothing_but_other_files_is_rejected(tmp_path: Path, files: Sequence[str], name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine\n")
    with raises(UsageError, f"--output {tmp_path}: holds {name.partition('/')[0]}", "name another folder"):
        results.check_output(tmp_path, files)


def test_lock_and_unfinished_files_are_no_other_files(tmp_path: Path) -> None:
    (tmp_path / ".steersman-x").mkdir()
    (tmp_path / "run.lock").write_text("process 7\n")
    results.check_output(tmp_path, results.EVALUATION_FILES)


def test_other_files_of_a_folder_with_results_are_kept(tmp_path: Path) -> None:
    write(tmp_path, made_experiment(ENDS))
    for name in ("thesis.tex", "placements.csv"):  # the second has a name of ours, but not of this command
        (tmp_path / name).write_text("mine\n")
    (tmp_path / "logs").mkdir()
    results.check_output(tmp_path, results.EVALUATION_FILES)
    write(tmp_path, made_experiment(ENDS))
    assert (tmp_path / "summary.csv").exists()
    assert (tmp_path / "thesis.tex").read_text() == (tmp_path / "placements.csv").read_text() == "mine\n"


def test_output_below_a_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with raises(UsageError):
        results.check_output(tmp_path / "thesis.tex" / "out", results.EVALUATION_FILES)


@pytest.mark.parametrize("name", results.EVALUATION_FILES)
def test_user_file_with_a_result_name_is_not_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious\n")
    with raises(UsageError, name):
        results.check_output(tmp_path, results.EVALUATION_FILES)
    with results.staged(tmp_path, results.EVALUATION_FILES):
        pass  # should it appear during the run: it is not removed either
    assert (tmp_path / name).read_text() == "precious\n"


@pytest.mark.parametrize("protocol", ["inflation", "timed"])
def test_former_results_of_every_protocol_are_recognised(tmp_path: Path, protocol: str) -> None:
    run = made_run(protocol=protocol)
    results.write_evaluation(tmp_path, [run], summarise([run], "fgd"))
    results.write_partial(tmp_path, [run])
    results.check_output(tmp_path, results.EVALUATION_FILES)
    folder = tmp_path / "run"
    folder.mkdir()
    results.write_run(folder, run)
    results.check_output(folder, results.RUN_FILES)


def test_command_keeps_results_of_other_commands(tmp_path: Path) -> None:
    write(tmp_path, made_experiment(ENDS))
    with raises(UsageError):
        results.check_output(tmp_path, results.RUN_FILES)


def test_unwritable_output_is_rejected_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "results.csv").mkdir()
    for folder in (tmp_path, tmp_path / ("x" * 300), tmp_path / "new" / ("x" * 300)):
        with raises(UsageError, "--output"):
            results.check_output(folder, results.EVALUATION_FILES)
    results.check_output(tmp_path / ("x" * 250), results.EVALUATION_FILES)
    write(tmp_path / ("x" * 250), made_experiment(ENDS))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.csv", "x" * 250]


def test_output_folder_is_created_with_the_results(tmp_path: Path) -> None:
    results.check_output(tmp_path / "new" / "out", results.EVALUATION_FILES)
    assert list(tmp_path.iterdir()) == []


def test_relative_path_creates_no_extra_folder(tmp_path: Path) -> None:
    results.check_output(tmp_path / "new" / ".." / "out", results.EVALUATION_FILES)
    write(tmp_path / "new" / ".." / "out", made_experiment(ENDS))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
