"""Studies: what is finished is not done again, what is asked for is understood, and results become tables."""

import json
from pathlib import Path

import numpy as np
import pytest
from studies import __main__ as command
from studies import common, tables
from studies.clusters import generalisation, generated, waiting, yesterday
from tests.support.errors import raises

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.core.errors import SteersmanError, UsageError
from steersman.policies.gpu_state.leftover_tables import CPU_PER_MEMORY
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Simulator
from steersman.workloads.generators.clusters import Distribution
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


@pytest.mark.parametrize("name", generalisation.FAMILIES)
def test_a_training_sees_no_cluster_of_a_family_that_is_left_out(name):
    family = generalisation.FAMILIES[name]
    seen = generated.draw(Distribution.TRAINING, 1, 4, (5, 20), keep=family.lacks)
    assert not any(family.contains(workload) for workload in seen)
    every = generated.draw(Distribution.VALIDATION, 1, 30, (5, 60))
    assert 0 < sum(family.contains(workload) for workload in every) < len(every)


def test_training_on_generated_clusters_is_kept_and_honours_options(tmp_path):
    desk = common.Desk(tmp_path, quick=True, say=lambda _: None)
    policy, spent = generated.train(desk, "p", 1)
    again, kept = generated.train(desk, "p", 1)
    assert spent == kept
    assert np.array_equal(policy.weights, again.weights)
    blind, _ = generated.train(desk, "blind", 1, without="rules", memory=False)
    assert blind.rules is None
    assert not np.array_equal(policy.weights, blind.weights)


def test_without_memory_pods_request_none():
    workload = generated.draw(Distribution.VALIDATION, 1, 1, (5, 8))[0]
    assert generated.simulator(workload).learned.leftovers.ratios[CPU_PER_MEMORY] > 0
    assert generated.simulator(workload, memory=False).learned.leftovers.ratios[CPU_PER_MEMORY] == 0


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
    result = {
        **common.plain(generalisation.options(True)),
        "clusters_by": {
            "families": {
                "memory": [True, False, True],
                generalisation.SAME: [True, True, False],
                generalisation.OTHER: [False, False, True],
            },
            "trained": {"all": [[92.0, 50.0, 82.0], [93.0, 50.0, 83.0]], "memory": [[91.0, 50.0, 81.0]] * 2},
            "rules": {"fgd": [90.0, 50.0, 80.0], "best-fit": [92.0, 50.0, 70.0], "gpu-packing": [80.0, 50.0, 80.0]},
        },
        "openb_by": {
            "trained": [[91.0, 82.0], [93.0, 82.0]],
            "fgd": [90.0, 80.0],
            "rules": [91.0, 81.5],
            generalisation.BLIND: [92.0, 82.0],
            "steersman": [95.0, 85.0],
        },
    }
    rows = [line.strip("| ").split(" | ") for line in generalisation.section(result).splitlines() if "|" in line]
    family, other, all_openb = rows[2], rows[4], rows[-1]
    assert family[:4] == ["memory scarcer than CPU", "2", "85.00", "+1.00 (1.00 to 1.00)"]
    assert family[4].startswith("+2.50 (")
    assert family[5].startswith("-1.50 (")
    assert family[6] == "+1.00"
    assert other[3].startswith("+2.50 (")
    assert all_openb[0] == "**all**"
    assert all_openb[2].startswith("+2.00 (")
    assert all_openb[4:] == ["+1.25", "+2.00", "+5.00"]


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
