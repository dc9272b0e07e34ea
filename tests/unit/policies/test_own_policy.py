"""A user's policy that misbehaves ends in one line that names it, and never in an impossible result."""

import sys

import numpy as np
import pytest
from tests.support.errors import raises

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.core.errors import SteersmanError, UsageError
from steersman.policies.registry import resolve
from steersman.simulation.run import Simulator
from steersman.workloads.workload import Workload

NODES = (Node("small", 1000, 1 << 30), Node("large", 4000, 1 << 30), Node("tiny", 10, 1 << 30))
PODS = tuple(Pod(f"p{i}", PodClass(Requests(800, 0))) for i in range(4))
WORKLOAD = Workload("w", NODES, PODS)


class Own:
    name = "own"

    def __init__(self, answer):
        self.answer = answer

    def prepare(self, state, profile, seed):
        pass

    def scores(self, state, class_id, feasible):
        return self.answer(state, feasible)


def run(answer):
    return Simulator(WORKLOAD).run(Own(answer), protocol="arrivals", record=True)


def fail(error):
    raise error


def change(state, feasible):
    state.arrays.free[0, 0] = 0
    return np.zeros(len(feasible))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda _, f: np.zeros((len(f), 1)), "scores must have the shape (3,), not (3, 1)"),
        (lambda *_: np.zeros(2), "scores must have the shape (3,), not (2,)"),
        (lambda _, f: np.full(len(f), np.nan), "not a finite number"),
        (lambda _, f: np.full(len(f), -np.inf), "not a finite number"),
        (lambda *_: None, "own"),
        (lambda _, f: ["a"] * len(f), "failed: ValueError"),
        (lambda *_: fail(KeyError("no such\nkey")), "failed: KeyError"),
        (lambda *_: fail(SystemExit(0)), "failed: SystemExit: 0"),
        (change, "failed: ValueError: assignment destination is read-only"),
    ],
)
def test_invalid_scores_fail_in_one_line(answer, message):
    with pytest.raises(SteersmanError) as error:
        run(answer)
    assert message in str(error.value)
    assert "policy 'own'" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_policy_cannot_put_a_pod_where_it_does_not_fit():
    def all_feasible(state, feasible):
        feasible[:] = True
        return -state.arrays.free[:, 0].astype(float)  # `tiny` first

    assert run(all_feasible).placements.node == ["small", "large", "large", "large"]


def test_infeasible_nodes_may_have_any_score():
    result = run(lambda _, f: np.where(f, 0.0, np.nan))
    assert result.placements.outcome == ["bound"] * 4


@pytest.mark.parametrize(
    ("code", "message", "error"),
    [
        ("import sys; sys.exit(3)", "failed: SystemExit: 3", SteersmanError),
        ("def broken(:", "failed: SyntaxError", SteersmanError),
        ("import no_such_thing", "cannot import", UsageError),
        ("class P:\n    name = 5\n    prepare = scores = print", "must be a one-line string, not 5", UsageError),
        ("class P:\n    name = ''\n    prepare = scores = print", "must be a one-line string", UsageError),
        ("class P:\n    name = 'a\\nb'\n    prepare = scores = print", "must be a one-line string", UsageError),
        ("class P:\n    def __init__(self, a): pass", "failed: TypeError", SteersmanError),
    ],
)
def test_unusable_module_fails_in_one_line(tmp_path, monkeypatch, code, message, error):
    name = f"bad_policy_{abs(hash(code))}"
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    with pytest.raises(error) as caught:
        resolve(f"{name}:P")
    assert message in str(caught.value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_colon_alone_names_no_policy():
    with raises(UsageError):
        resolve(":")
