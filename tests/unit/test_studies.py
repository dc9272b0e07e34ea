"""Studies: what is finished is not done again, what is asked for is understood, and results become tables."""

import json
from pathlib import Path

import pytest
from studies import __main__ as command
from studies import common, generalisation, tables

from steersman.errors import UsageError


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


def test_a_part_that_was_cut_off_is_done_again(counted):
    desk, compute = counted

    def cut():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        desk.once("part", {}, cut)
    assert desk.once("part", {}, compute)["calls"] == 1


def test_a_training_is_kept_until_its_policy_is_gone(tmp_path):
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


def test_a_family_is_left_out_of_training_and_validation():
    split = common.Split(("default", "cpu050", "multigpu20"), ("cpu100", "gpuspec20"), ("cpu072",))
    assert split.without("cpu") == common.Split(
        ("default", "multigpu20"), ("gpuspec20",), ("cpu050", "cpu072", "cpu100")
    )


def test_the_command_knows_its_studies():
    known = ("limits", "timed")
    assert command.parse([], known).names == ["limits", "timed"]
    assert command.parse(["timed", "--only", "limits", "timed"], known).names == ["timed", "limits"]
    with pytest.raises(UsageError, match="no study 'tmied'; there are limits, timed"):
        command.parse(["tmied"], known)


def test_quick_results_and_real_ones_are_apart():
    study = command.Study("limits")
    assert study.result_file(True) != study.result_file(False)
    assert common.desk("limits", True, print).folder != common.desk("limits", False, print).folder


def test_results_of_other_options_do_not_count(tmp_path, monkeypatch):
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


def test_real_results_are_not_those_of_quick_runs():
    for file in Path(command.RESULTS).glob("*.json"):
        found = json.loads(file.read_text())
        assert (found["study"], found["quick"]) == (file.stem, False)


def test_a_section_shows_the_numbers():
    values = {
        "cpu050": {"fgd": [90.0, 92.0, 91.0], "unseen": [91.0, 94.0, 92.0], "steersman": [93.0, 94.0, 93.0]},
        "cpu100": {"fgd": [80.0, 82.0, 81.0], "unseen": [81.0, 84.0, 82.0], "steersman": [83.0, 84.0, 83.0]},
    }
    comparison = {w: generalisation.compare(by) for w, by in tables.with_mean(values).items()}
    result = common.plain({**generalisation.options(True), "families": {"cpu": {"comparison": comparison}}})
    rows = [line.split(" | ") for line in generalisation.section(result).splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows[2:]] == ["| cpu050", "| cpu100", "| **all of cpu**"]
    assert [row[1:3] for row in rows[2:]] == [["91.00", "92.33"], ["81.00", "82.33"], ["86.00", "87.33"]]
    assert all(row[3].startswith("+1.33 (1.00 to ") for row in rows[2:])


def test_numbers_that_do_not_apply_are_dashes():
    one = common.plain(tables.difference([2.0], [1.0]))
    assert tables.interval(one) == "+1.00"
    assert tables.interval(common.plain(tables.difference([float("nan")], [1.0]))) == "–"
    assert tables.number(None) == "–"
    assert tables.seeds_text((3, 4, 5)) == "3-5"
    assert tables.seeds_text((3, 5)) == "3, 5"


@pytest.mark.parametrize(("seconds", "text"), [(40, "40 s"), (600, "10 min"), (5400, "1.5 h")])
def test_durations(seconds, text):
    assert common.duration(seconds) == text
