"""The folder of a training run: it is used by one process, resumes from its checkpoint, and nothing in it is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.errors import raises

from steersman.core.errors import SteersmanError
from steersman.policies.features import view
from steersman.policies.policy_file import Card, write_policy
from steersman.training.run import TrainingLimits, TrainingProgress, TrainingRun

CARD = Card(
    name="mine", view="gpu", view_version=view("gpu").version, network="linear", objective="allocation", algorithm="dqn"
)


class Walk:
    """A learner whose weight is a random walk; `after` is called after each iteration."""

    def __init__(self, after: Callable[[int], None] = lambda _: None) -> None:
        self.random, self.weight, self.done, self._after = np.random.default_rng(1), 0.0, 0, after

    def iterate(self) -> dict[str, Any]:
        self.done += 1
        self.weight += float(self.random.normal())
        self._after(self.done)
        return {"reward": self.weight, "steps": float(self.done), "actions": np.array([self.done % 3, 0])}

    def state_dict(self) -> dict[str, Any]:
        return {"weight": self.weight, "done": self.done, "random": json.dumps(self.random.bit_generator.state)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weight, self.done = state["weight"], state["done"]
        self.random.bit_generator.state = json.loads(state["random"])

    def save(self, path: Path) -> None:
        write_policy(path, CARD, {"w": np.array([self.weight])})


def train(folder: Path, learner: Walk, iterations: int = 12) -> TrainingProgress:
    run = TrainingRun(folder, {"algorithm": "walk"}, TrainingLimits(iterations, validate_every=5))
    return run.train(learner, lambda: learner.weight, learner.save)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No TensorBoard, whose import takes seconds."""
    monkeypatch.setattr("steersman.training.run.summary_writer", lambda: None)


def curves(folder: Path) -> list[list[str]]:
    """Metrics and validations without what the clock decides."""
    files = [(folder / name).read_text() for name in ("metrics.csv", "validation.csv")]
    rows = [line.split(",") for text in files for line in text.splitlines()]
    return [[cell for i, cell in enumerate(row) if i not in (1, 4)] for row in rows]


def rows_of(file: Path) -> list[str]:
    return [line.split(",")[0] for line in file.read_text().splitlines()]


def test_second_process_leaves_a_locked_run_folder_alone(tmp_path: Path) -> None:
    def start_another(iteration: int) -> None:
        if iteration in (2, 7):  # before and after the first checkpoint
            before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
            with raises(SteersmanError, tmp_path, "in use by process", str(os.getpid())):
                other = TrainingRun(tmp_path, {"algorithm": "walk"}, TrainingLimits(12), resume=iteration == 7)
                other.train(Walk(), None, Walk().save)
            assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before

    assert train(tmp_path, Walk(start_another)).iteration == 12


def killed(folder: Path, iteration: int) -> None:
    """Train until an iteration in which the process is killed, as far as its files show."""

    def fail(done: int) -> None:
        if done == iteration:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(folder, Walk(fail))


def test_run_that_ended_before_its_first_checkpoint_starts_again_and_keeps_its_files(tmp_path: Path) -> None:
    killed(tmp_path, 4)
    with raises(SteersmanError, tmp_path, "--resume"):
        TrainingRun(tmp_path, {}, TrainingLimits(), resume=True)
    assert train(tmp_path, Walk()).iteration == 12
    assert rows_of(tmp_path / "metrics.csv.1") == ["iteration", "1", "2", "3"]
    assert json.loads((tmp_path / "run.json.1").read_text()) == {"algorithm": "walk"}
    assert len(rows_of(tmp_path / "metrics.csv")) == 13


def test_rows_after_the_checkpoint_are_kept_in_a_copy(tmp_path: Path) -> None:
    killed(tmp_path, 9)
    for name in ("run.json", "policy.safetensors"):
        (tmp_path / name).unlink()  # the checkpoint alone is enough
    learner = Walk()
    run = TrainingRun(tmp_path, {"algorithm": "walk"}, TrainingLimits(12, validate_every=5), resume=True)
    assert run.train(learner, lambda: learner.weight, learner.save).iteration == 12
    assert rows_of(tmp_path / "metrics.csv.1") == ["iteration", *map(str, range(1, 9))]
    train(tmp_path / "whole", Walk())
    assert curves(tmp_path) == curves(tmp_path / "whole")
    assert json.loads((tmp_path / "run.json").read_text()) == {"algorithm": "walk"}


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "policy.safetensors"])
def test_new_run_does_not_replace_another(tmp_path: Path, name: str) -> None:
    train(tmp_path, Walk())
    for other in {"checkpoint.safetensors", "policy.safetensors", "metrics.csv"} - {name}:
        (tmp_path / other).unlink()
    with raises(SteersmanError, tmp_path, "name another folder"):
        TrainingRun(tmp_path, {"algorithm": "walk"}, TrainingLimits())


def test_log_says_why_a_run_stopped(tmp_path: Path) -> None:
    def fail(iteration: int) -> None:
        if iteration == 8:
            raise SteersmanError("diverged")

    with raises(SteersmanError, "diverged", "of iteration 5", tmp_path / "policy.safetensors"):
        train(tmp_path, Walk(fail))
    assert (tmp_path / "log.txt").read_text().splitlines()[-1].endswith(" stopped: diverged")
