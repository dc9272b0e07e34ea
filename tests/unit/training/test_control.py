"""A run that is asked to pause, continue, stop and give its policy: by a file in its folder, with the same result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.support.errors import raises

from steersman.core.errors import SteersmanError, UsageError
from steersman.core.folder_lock import LOCK, is_locked, lock_folder
from steersman.policies.features import view
from steersman.policies.files.policy_file import Card, WorkloadResult, read_policy, write_policy
from steersman.training.control.progress import PROGRESS, RunProgress, decode_progress, histogram
from steersman.training.control.requests import (
    LIVE_REQUESTS,
    REQUEST,
    REQUESTS,
    pending_request,
    post_request,
)
from steersman.training.run import TrainingLimits, TrainingProgress, TrainingRun

CARD = Card(
    name="mine", view="gpu", view_version=view("gpu").version, network="linear", objective="allocation", algorithm="dqn"
)
SCORE = WorkloadResult("w", "return", 2.0, "rule", 1.0, 3)


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
        write_policy(path, msgspec.structs.replace(CARD, scores=(SCORE,)), {"w": np.array([self.weight])})


def train(
    folder: Path,
    learner: Walk,
    iterations: int = 12,
    *,
    obeyed: tuple[str, ...] = REQUESTS,
    report: Callable[[TrainingProgress], None] = lambda _: None,
) -> TrainingProgress:
    run = TrainingRun(folder, {"algorithm": "walk"}, TrainingLimits(iterations, validate_every=5), obeyed=obeyed)
    return run.train(learner, lambda: learner.weight, learner.save, lambda progress, _: report(progress), "tensorboard")


def asking(folder: Path, plan: dict[int, str]) -> Callable[[int], None]:
    """Ask for something during iterations."""

    def after(iteration: int) -> None:
        if iteration in plan:
            post_request(folder, plan[iteration])

    return after


def progress(folder: Path) -> RunProgress:
    return decode_progress(folder / PROGRESS, (folder / PROGRESS).read_bytes())


def log(folder: Path) -> list[str]:
    return [line[20:] for line in (folder / "log.txt").read_text().splitlines()]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No TensorBoard, whose import takes seconds."""
    monkeypatch.setattr("steersman.training.tensorboard.summary_writer", lambda: None)
    monkeypatch.setattr("steersman.training.run.POLL_SECONDS", 0.01)


def curves(folder: Path) -> list[list[str]]:
    """Metrics and validations without what the clock decides."""
    files = [(folder / name).read_text() for name in ("metrics.csv", "validation.csv")]
    rows = [line.split(",") for text in files for line in text.splitlines()]
    return [[cell for i, cell in enumerate(row) if i not in (1, 4)] for row in rows]


def test_paused_run_ends_like_an_uninterrupted_one(tmp_path: Path) -> None:
    train(tmp_path / "whole", Walk())
    folder, seen = tmp_path / "paused", list[tuple[int, bool]]()
    learner = Walk(asking(folder, {4: "pause", 9: "pause"}))
    thread = threading.Thread(
        target=train, args=(folder, learner), kwargs={"report": lambda s: seen.append((s.iteration, s.paused))}
    )
    thread.start()
    for iteration in (4, 9):
        until(lambda: (folder / PROGRESS).exists() and progress(folder).state == "paused")
        assert (progress(folder).iteration, learner.done) == (iteration, iteration)
        assert is_locked(folder)
        assert (folder / "checkpoint.safetensors").exists(), "a paused run that is killed loses nothing"
        until(lambda: not pending_request(folder))
        post_request(folder, "continue")
        until(partial(lambda before: learner.done > before, iteration))
    thread.join(60)
    assert {(4, True), (4, False), (9, True)} <= set(seen)
    assert curves(folder) == curves(tmp_path / "whole")
    for name in ("policy.safetensors",):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert (progress(folder).state, is_locked(folder)) == ("done", False)
    assert log(folder)[1:3] == ["by request: pause after iteration 4", "by request: continue after iteration 4"]


def test_a_stopped_run_ends_as_if_its_limits_were_reached(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    standing = train(folder, Walk(asking(folder, {7: "stop"})))
    whole = tmp_path / "whole"
    train(whole, Walk(), 7)
    assert (standing.iteration, progress(folder).state) == (7, "done")
    assert curves(folder) == curves(whole)
    assert (folder / "policy.safetensors").read_bytes() == (whole / "policy.safetensors").read_bytes()
    assert log(folder)[-1].startswith("done after 7 iterations")


def test_a_paused_run_can_be_stopped(tmp_path: Path) -> None:
    learner = Walk(asking(tmp_path, {3: "pause"}))
    thread = threading.Thread(target=train, args=(tmp_path, learner))
    thread.start()
    until(lambda: (tmp_path / PROGRESS).exists() and progress(tmp_path).state == "paused")
    until(lambda: not (tmp_path / REQUEST).exists())
    post_request(tmp_path, "stop")
    thread.join(60)
    assert learner.done == 3
    assert [row[0] for row in curves(tmp_path)] == ["iteration", "1", "2", "3", "iteration", "3"]


def test_requested_checkpoint_writes_the_current_policy_without_scores(tmp_path: Path) -> None:
    learner = Walk(asking(tmp_path, {3: "checkpoint"}))
    weights: list[float] = []
    train(tmp_path, learner, report=lambda _: weights.append(learner.weight))
    card, arrays = read_policy(tmp_path / "policy-000003.safetensors")
    assert arrays["w"].tolist() == [weights[2]]
    assert card.scores == ()
    assert not list(tmp_path.glob(".*"))
    assert "by request: the current policy is in policy-000003.safetensors" in log(tmp_path)
    train(tmp_path / "whole", Walk())
    assert curves(tmp_path) == curves(tmp_path / "whole")


def test_refused_request_is_reported(tmp_path: Path) -> None:
    learner = Walk(asking(tmp_path, {3: "pause"}))
    train(tmp_path, learner, obeyed=LIVE_REQUESTS)
    assert "request 'pause' is none of stop, checkpoint, and is left out" in log(tmp_path)
    assert not (tmp_path / REQUEST).exists()

    def by_hand(iteration: int) -> None:
        if iteration == 3:
            (tmp_path / "other" / REQUEST).write_text("dance\n")
        if iteration == 5:
            (tmp_path / "other" / REQUEST).write_text("sto")  # not complete yet

    train(tmp_path / "other", Walk(by_hand))
    assert [line for line in log(tmp_path / "other") if "request" in line] == [
        "request 'dance' is none of pause, continue, stop, checkpoint, and is left out"
    ]


def test_requests_are_exclusive_and_need_a_running_training(tmp_path: Path) -> None:
    with raises(UsageError, "dance"):
        post_request(tmp_path, "dance")
    with raises(SteersmanError, tmp_path):
        post_request(tmp_path, "pause")

    def twice(iteration: int) -> None:
        if iteration == 2:
            post_request(tmp_path, "checkpoint")
            with raises(SteersmanError, REQUEST):
                post_request(tmp_path, "stop")

    assert train(tmp_path, Walk(twice)).iteration == 12


def test_symlink_is_neither_read_nor_written(tmp_path: Path) -> None:
    folder, target = tmp_path / "run", tmp_path / "elsewhere"
    target.write_text("stop\n")

    def link(iteration: int) -> None:
        if iteration == 2:
            (folder / REQUEST).symlink_to(target)
            with raises(SteersmanError, REQUEST):
                post_request(folder, "pause")

    assert train(folder, Walk(link)).iteration == 12
    assert target.read_text() == "stop\n"


def test_stale_request_of_an_ended_run_is_discarded(tmp_path: Path) -> None:
    (tmp_path / REQUEST).write_text("stop\n")
    assert train(tmp_path, Walk()).iteration == 12


def test_error_and_kill_of_a_training_are_detected(tmp_path: Path) -> None:
    def fail(iteration: int) -> None:
        if iteration == 3:
            raise SteersmanError("diverged")

    with raises(SteersmanError, "diverged"):
        train(tmp_path, Walk(fail))
    assert (progress(tmp_path).state, progress(tmp_path).iteration) == ("stopped", 2)
    code = f"""
import time
from pathlib import Path
from steersman.core.folder_lock import lock_folder
with lock_folder(Path({str(tmp_path)!r})):
    print("here", flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        assert is_locked(tmp_path)
        process.kill()
        process.wait(60)
    assert not is_locked(tmp_path)


def test_lock_that_is_a_pipe_or_symlink_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / LOCK).symlink_to(tmp_path / "other" / LOCK)
    with lock_folder(tmp_path / "other"):
        assert is_locked(tmp_path / "other")
        assert not is_locked(tmp_path)
    (tmp_path / LOCK).unlink()
    os.mkfifo(tmp_path / LOCK)
    answers = list[bool]()
    asker = threading.Thread(target=lambda: answers.append(is_locked(tmp_path)), daemon=True)
    asker.start()
    asker.join(20)
    waits = asker.is_alive()
    with open(tmp_path / LOCK, "r+b", buffering=0):  # a writer, for which it may wait
        asker.join(20)
    assert (waits, answers) == (False, [False])


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_request_must_be_a_regular_file(tmp_path: Path, kind: str) -> None:
    (tmp_path / "text").write_text("stop\n")
    make = {"folder": Path.mkdir, "pipe": os.mkfifo, "link": lambda path: path.symlink_to(tmp_path / "text")}[kind]
    make(tmp_path / REQUEST)
    assert pending_request(tmp_path) == ""


def test_histograms() -> None:
    whole = histogram(np.array([0, 2, 2, 5]))
    assert (whole.edges, whole.counts) == ([0, 1, 2, 3, 4, 5, 6], [1, 0, 2, 0, 0, 1])
    wide = histogram(np.arange(1000))
    assert (len(wide.counts), sum(wide.counts), wide.edges[0]) == (40, 1000, 0)
    assert sum(histogram(np.array([0.1, np.nan, 0.3, np.inf])).counts) == 2
    assert histogram(np.array([np.nan])).counts == [0]
    assert sum(histogram(np.full(5, 7.0)).counts) == 5


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
