"""Studies: what is finished is not done again, what is asked for is understood, and results become tables."""

import json
from pathlib import Path

import numpy as np
import pytest
from studies import __main__ as command
from studies import common, tables
from studies.clusters import any_cluster, waiting, yesterday
from tests.support.errors import raises

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.core.errors import SteersmanError, UsageError
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Simulator
from steersman.workloads.workload import Workload


@pytest.fixture
def counted(tmp_path):
    """A desk, and how often something was computed there."""
    calls = []

    def compute():
        calls.append(1)
        return {"value": float("nan"), "calls": len(calls)}

    return common.Desk(tmp_path, quick=True, say=lambda _: None), compute


def test_finished_parts_are_kept_until_their_options_change(counted):
    desk, compute = counted
    first = desk.once("part", {"seeds": (1, 2)}, compute)
    assert first == {"value": None, "calls": 1}
    assert desk.once("part", {"seeds": [1, 2]}, compute) == first
    assert desk.once("part", {"seeds": [1, 3]}, compute)["calls"] == 2
    assert desk.once("other", {"seeds": [1, 3]}, compute)["calls"] == 3


def test_interrupted_part_is_repeated(counted):
    desk, compute = counted

    def cut():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        desk.once("part", {}, cut)
    assert desk.once("part", {}, compute)["calls"] == 1


def test_training_is_kept_until_its_policy_is_deleted(tmp_path):
    said = []
    desk = common.Desk(tmp_path, quick=True, say=said.append)
    split = common.Split(("gpushare40",), (), ())
    budget = common.Budget(1, population=4, episodes=1)
    policy, made = common.train(desk, "p", split, budget, 1)
    assert common.train(desk, "p", split, budget, 1) == (policy, made)
    assert said[-1] == "p: is there already"
    content = policy.read_bytes()
    policy.unlink()
    common.train(desk, "p", split, budget, 1)
    assert policy.read_bytes() == content


def test_old_half_is_the_first_half_by_creation_time():
    node = Node("n", 1000, 1 << 30, gpu_count=1)
    pods = tuple(
        Pod(f"p{i}", PodClass(Requests(100, 0, gpu_count=1, gpu_milli=500)), creation_time=t)
        for i, t in enumerate((3, 1, 2, 0))
    )
    old, new = yesterday.halves(Workload("w", (node,), pods))
    assert [pod.name for pod in old.pods] == ["p3", "p1"]
    assert [pod.name for pod in new.pods] == ["p2", "p0"]
    assert yesterday.changed(old, new) == 0.0
    other = Workload("w", (node,), (Pod("p", PodClass(Requests(100, 0, gpu_count=1, gpu_milli=1000))),))
    assert yesterday.changed(old, other) == 1.0
    with raises(SteersmanError):
        yesterday.halves(other)


def test_waits_and_bound_count_arriving_pods_only():
    wait, ones = np.array([9.0, 9.0, 2.0, 0.0, np.nan]), np.ones(5, dtype=np.int64)
    figures = waiting._figures(wait, ones, 0 * ones, 2)
    assert (figures["mean"], figures[waiting.EVERY]) == (1.0, 5.0)
    simulator = Simulator(common.workloads(("default",), quick=True)[0])
    plan = schedule(simulator.workload, "timed", seed=142, ratio=1.0, load=1.1)
    assert plan.warm
    waits = waiting._waits(simulator, plan, resolve("fgd"), 142)
    found = simulator.run("fgd", protocol="timed", seed=142, load=1.1)
    metrics = {metric.name: metric.value for metric in found.metrics}
    assert np.nanmean(waits[plan.warm :]) == pytest.approx(metrics["waiting_time_mean_seconds"])
    assert np.nanmean(waits) == pytest.approx(metrics["waiting_time_mean_with_warm_start_seconds"])


def test_command_lists_its_studies():
    known = ("limits", "timed")
    assert command.parse([], known).names == ["limits", "timed"]
    assert command.parse(["timed", "--only", "limits", "timed"], known).names == ["timed", "limits"]
    with raises(UsageError, "'tmied'"):
        command.parse(["tmied"], known)


def test_quick_results_are_stored_separately():
    study = command.Study("limits")
    assert study.result_file(True) != study.result_file(False)
    assert common.desk("limits", True, print).folder != common.desk("limits", False, print).folder


def test_results_of_other_options_are_ignored(tmp_path, monkeypatch):
    study = command.Study("limits")
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    assert study.kept(False) is None
    made = {"quick": False, "options": study.options(False), "result": {}}
    common.write_json(study.result_file(False), made)
    assert study.kept(False) == made
    common.write_json(study.result_file(False), {**made, "options": {"seeds": [1]}})
    assert study.kept(False) is None
    common.write_json(study.result_file(False), {**made, "quick": True})
    assert study.kept(False) is None


def test_published_results_are_not_from_quick_runs():
    for file in Path(command.RESULTS).glob("*.json"):
        found = json.loads(file.read_text())
        assert (found["study"], found["quick"]) == (file.stem, False)


def test_a_section_shows_the_numbers():
    cluster = {"gpus": 8, "pods": 20, "nodes": 5, "shares": 0.0, "member": "fitted", "rule": "fgd", "seconds": 3.0}
    rules = {name: [80.0, 82.0] for name in any_cluster.RULES}
    values = [
        {**cluster, "name": f"c{i}", "allocation": {**rules, "steersman": [83.0 + i, 84.0], "rules": [81.0, 82.0]}}
        for i in range(2)
    ]
    text = any_cluster.section({**common.plain(any_cluster.options(False)), "values": values})
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    assert rows[0][:4] == ["`steersman`", "2", "83.75", "+2.75"]
    assert rows[1][:4] == ["`rules`", "2", "81.50", "+0.50"]
    assert "Fitted weights were kept 2 times. It took 3 s of processor in the median" in text
    assert "Of the 2.75 points that `steersman` gains on `fgd`, `rules` has 0.50." in text


def test_intervals_of_few_values_use_students_t():
    found = tables.spread([1.0, 2.0, 3.0])
    assert found["mean"] == 2.0
    assert found["high"] - 2.0 == pytest.approx(4.302653 / 3**0.5)
    assert tables.interval(tables.spread([1.0])) == "+1.00"
    assert np.isnan(tables.spread([1.0])["low"])  # a number, with which sections compute


def test_interval_is_clipped_to_the_metric_range():
    kept = tables.spread([96.0, 100.0, 100.0])
    assert tables.interval(kept, sign=False) == "98.67 (92.93 to 104.40)"
    assert tables.interval(kept, sign=False, unit="percent") == "98.67 (92.93 to 100.00)"
    nodes = tables.spread([0.0, 1.0])
    assert tables.interval(nodes, sign=False, unit="nodes") == "0.50 (0.00 to 6.85)"
    assert tables.interval(nodes) == "+0.50 (-5.85 to 6.85)"  # a difference has no limits


def test_inapplicable_numbers_are_dashes():
    one = tables.difference([2.0], [1.0])
    assert tables.interval(one) == "+1.00"
    assert tables.interval(tables.difference([float("nan")], [1.0])) == "–"
    assert tables.number(None) == "–"
    assert tables.seeds_text((3, 4, 5)) == "3-5"
    assert tables.seeds_text((3, 5)) == "3, 5"


@pytest.mark.parametrize(("seconds", "text"), [(40, "40 s"), (600, "10 min"), (5400, "1.5 h")])
def test_durations(seconds, text):
    assert common.duration(seconds) == text
