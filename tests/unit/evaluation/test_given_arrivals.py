"""Arrivals that the workload gives: seeds only rank equal nodes, so intervals are over blocks of the trace."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import steersman
from steersman.cluster.model import GPU_MILLI, Node, Pod, PodClass, Requests
from steersman.evaluation.evaluation import Evaluation
from steersman.evaluation.summary import SEEDS, TRACE_BLOCKS
from steersman.live.dashboard.comparison.evaluation import EvaluationFolder, Subject
from steersman.live.dashboard.runs import FoundRun
from steersman.workloads.workload import Workload

POLICIES = ("least-allocated", "fgd")


@pytest.fixture(scope="module")
def trace() -> Workload:
    """A cluster in which whole-node pods wait for long if small ones are spread."""
    random = np.random.default_rng(3)
    nodes = tuple(Node(f"n{i}", 64_000, 512 << 30, gpu_count=8, gpu_model="A100") for i in range(4))
    pods, now = [], 0.0
    for i in range(2400):
        now += random.exponential(65)
        gpus = int(random.choice([1, 1, 1, 2, 8]))
        request = Requests(1000 * gpus, gpus << 30, gpu_count=gpus, gpu_milli=GPU_MILLI)
        ends = now + random.exponential(500)
        pods.append(Pod(f"p{i}", PodClass(request), creation_time=now, deletion_time=ends))
    return Workload("trace", nodes, tuple(pods))


def rows_of(evaluation: Evaluation) -> dict[tuple[str, str], object]:
    return {(row.policy, row.metric): row for row in evaluation.summary}


def test_timed_intervals_are_over_blocks_for_any_number_of_seeds(trace: Workload, tmp_path: Path) -> None:
    one, four = (steersman.evaluate(trace, POLICIES, seeds=n, protocol="timed") for n in (1, 4))
    rows = rows_of(one)
    wait = rows["fgd", "waiting_time_mean_seconds"]
    assert wait.interval_over == TRACE_BLOCKS
    assert wait.interval.low < wait.mean < wait.interval.high
    assert wait.difference_interval.low < wait.difference < wait.difference_interval.high
    assert wait.interval.high - wait.interval.low > 0.05 * wait.mean  # not the spread of seeds that change nothing
    assert rows["fgd", "gpu_allocation_over_time_percent"].interval_over == TRACE_BLOCKS
    for unknown in ("waiting_time_p99_seconds", "waiting_time_max_seconds", "gpu_allocation_percent"):
        assert rows["fgd", unknown].interval_over == ""
        assert np.isnan(rows["fgd", unknown].interval).all()
    more = rows_of(four)["fgd", "waiting_time_mean_seconds"]
    assert more.interval.high - more.interval.low == pytest.approx(wait.interval.high - wait.interval.low, rel=0.5)
    sentence = one.comparisons[0].headline.sentence()
    assert sentence.endswith("intervals over 20 blocks of this stretch alone.")
    assert "seed" not in sentence
    one.write(tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "over 20 moving blocks of this stretch alone" in page
    assert "Künsch 1989" in page
    assert "95 % interval" not in page
    assert '<th scope="col">Policy</th><th scope="col">Difference from ' in page
    waits = ("Median wait, s", "99 % wait at most, s", "Mean wait of pods with several GPUs, s")
    for title in (*waits, "Mean bounded slowdown (10 s)"):
        assert f"<td>{title}</td>" in page
    with (tmp_path / "out" / "summary.csv").open() as file:
        written = {(row["policy"], row["metric"]): row for row in csv.DictReader(file)}
    assert written["fgd", "waiting_time_mean_seconds"]["interval_over"] == "blocks"
    assert written["fgd", "waiting_time_max_seconds"]["ci_low"] == ""
    assert "interval_over" in one.summary_frame().columns


def test_arrivals_have_no_interval(trace: Workload, tmp_path: Path) -> None:
    pods = tuple(replace(pod, creation_time=None, deletion_time=None) for pod in trace.pods[:60])
    evaluation = steersman.evaluate(replace(trace, pods=pods), POLICIES, seeds=4, protocol="arrivals")
    assert all(np.isnan((*row.interval, *row.difference_interval)).all() for row in evaluation.summary)
    headline = evaluation.comparisons[0].headline
    assert headline.sentence().startswith("Arrivals given once have no interval: on trace (arrivals), ")
    assert "[" not in headline.sentence()
    cells = [cell for column in headline.columns("trace") for cell in column.cells.values()]
    assert not any(" to " in cell.note for cell in cells)
    evaluation.write(tmp_path / "out")
    assert "there is no interval" in (tmp_path / "out" / "report.html").read_text()


def test_generated_arrivals_have_intervals_over_seeds(trace: Workload) -> None:
    evaluation = steersman.evaluate(trace, POLICIES, seeds=3, protocol="timed", load=0.9)
    assert {row.interval_over for row in evaluation.summary} == {SEEDS}
    assert evaluation.comparisons[0].headline.sentence().endswith("only 3 paired seeds.")


def test_the_comparison_screen_shows_the_same(trace: Workload, tmp_path: Path) -> None:
    evaluation = steersman.evaluate(trace, POLICIES, seeds=2, protocol="timed")
    evaluation.write(tmp_path / "out")
    folder = EvaluationFolder(FoundRun("evaluation", tmp_path / "out", tmp_path, "out"))
    subject = Subject("trace", "timed")
    metric = "waiting_time_mean_seconds"
    baseline = evaluation.comparisons[0].headline.baseline
    shown = folder.rows(subject, metric, baseline)
    assert {row.interval_over for row in shown} == {TRACE_BLOCKS}
    headline = folder.headline(subject, metric, baseline)
    assert headline is not None
    assert headline.sentence() == evaluation.comparisons[0].headline.sentence()
    assert headline.kinds_sentence() == evaluation.comparisons[0].headline.kinds_sentence()
    # From another baseline it is computed of the parts in `parts.csv`, not of seeds.
    other = next(policy for policy in POLICIES if policy != baseline)
    (compared,) = (row for row in folder.rows(subject, metric, other) if row.policy == baseline)
    (expected,) = (row for row in shown if row.policy == other)
    low, high = expected.difference_interval
    assert compared.difference_interval == pytest.approx((-high, -low), rel=1e-6)
