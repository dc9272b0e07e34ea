"""The screen of training runs: what it sends is what is new, and what it asks of runs it asks of those alone."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.dashboard import AskServer, tell
from tests.unit.training.test_control import Walk, log, progress, train, until

from steersman.apps.dashboard.runs.folders import find_runs
from steersman.apps.dashboard.training.runs import seconds_left
from steersman.apps.dashboard.training.screen import TrainingScreen
from steersman.core.folder_lock import is_locked
from steersman.training.control.requests import LIVE_REQUESTS, REQUEST


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steersman.training.tensorboard.summary_writer", lambda: None)
    monkeypatch.setattr("steersman.training.run.POLL_SECONDS", 0.01)


def screen(*folders: Path) -> TrainingScreen:
    return TrainingScreen(folders, [run for run in find_runs(folders)[0] if run.kind == "training"])


@pytest.fixture
def learning(tmp_path: Path) -> Iterator[Path]:
    """A run that learns until its test is over."""
    folder, over = tmp_path / "run", threading.Event()

    def slow(_: int) -> None:
        over.wait(0.01)

    walk = Walk(slow)
    thread = threading.Thread(target=train, args=(folder, walk, sys.maxsize - 1))
    thread.start()
    until(lambda: (folder / "validation.csv").exists() and (folder / "progress.json").exists())
    yield folder
    (folder / REQUEST).write_text("stop\n")
    over.set()
    thread.join(60)
    assert not thread.is_alive()


def test_training_updates_send_new_rows_only(tmp_path: Path) -> None:
    train(tmp_path / "run", Walk(), 12)

    async def story(ask: AskServer) -> None:
        (head,) = (await ask("/api/training/runs")).content
        assert (head["name"], head["algorithm"], head["state"]) == (f"{tmp_path.name}/run", "walk", "done")
        assert (head["progress"]["iteration"], head["progress"]["iterations"], head["problem"]) == (12, 12, "")
        news = (await ask(f"/api/training/news?run={head['id']}")).content
        metrics, validation = (news["tables"][name] for name in ("metrics.csv", "validation.csv"))
        assert metrics["columns"]["iteration"] == list(range(1, 13))
        assert validation["columns"]["iteration"] == [5, 10, 12]
        assert news["log"][-1].endswith(log(tmp_path / "run")[-1])
        assert sum(news["head"]["progress"]["histograms"]["actions"]["counts"]) == 2
        known = f"metrics={metrics['generation']}:10&validation={validation['generation']}:3"
        again = (await ask(f"/api/training/news?run={head['id']}&{known}")).content["tables"]
        assert again["metrics.csv"]["columns"]["iteration"] == [11, 12]
        assert again["metrics.csv"]["first"] == 10
        assert again["validation.csv"]["columns"]["iteration"] == []

    tell([screen(tmp_path)], story)


def test_invalid_requests_fail_in_one_line(tmp_path: Path) -> None:
    train(tmp_path / "run", Walk(), 2)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text('{"algorithm"')
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "run.json").write_text("{}")

    async def story(ask: AskServer) -> None:
        broken, old, head = (await ask("/api/training/runs")).content
        assert "run.json" in broken["problem"]
        assert (old["problem"], old["state"], old["progress"]) == ("", "unknown", None)
        assert (await ask(f"/api/training/news?run={old['id']}")).content["log"] == []
        assert (await ask("/api/training/news?run=../../etc")).is_line(404, "no such run")
        assert (await ask("/api/training/news")).is_line(404, "no such run")
        assert (await ask(f"/api/training/news?run={head['id']}&metrics=1")).is_line(400, "metrics", "'1'")
        (tmp_path / "run" / "metrics.csv").write_text("nonsense\n")
        news = (await ask(f"/api/training/news?run={head['id']}")).content
        (problem,) = news["problems"]
        assert "metrics.csv, line 1" in problem
        assert (news["head"]["state"], "validation.csv" in news["tables"]) == ("done", True)
        (tmp_path / "run" / "progress.json").write_text("[]")
        heads = (await ask("/api/training/runs")).content
        assert "progress.json" in heads[2]["problem"]

    tell([screen(tmp_path)], story)


DEEP = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def link_to_itself(file: Path) -> None:
    file.unlink()
    file.symlink_to(file)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "deep options": lambda run: (run / "run.json").write_bytes(DEEP),
    "deep progress": lambda run: (run / "progress.json").write_bytes(DEEP),
    "progress is not text": lambda run: (run / "progress.json").write_bytes(b'{"state":"\xff"}'),
    "options link to themselves": lambda run: link_to_itself(run / "run.json"),
    "progress links to itself": lambda run: link_to_itself(run / "progress.json"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_run_does_not_hide_others_in_the_list(tmp_path: Path, damage: str) -> None:
    for name in ("bad", "good"):
        train(tmp_path / name, Walk(), 2)
    listed = screen(tmp_path)
    DAMAGE[damage](tmp_path / "bad")

    async def story(ask: AskServer) -> None:
        bad, good = (await ask("/api/training/runs")).content
        assert str(tmp_path / "bad") in bad["problem"]
        assert len(bad["problem"].splitlines()) == 1
        assert (good["problem"], good["state"]) == ("", "done")
        assert (await ask(f"/api/training/news?run={bad['id']}")).content["head"]["problem"] == bad["problem"]

    tell([listed], story)


def test_unreadable_folder_does_not_hide_others_in_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the system's answer is made here."""
    for name in ("bad", "good"):
        train(tmp_path / name, Walk(), 2)
    listed = screen(tmp_path)
    for name in ("stat", "lstat", "open"):
        monkeypatch.setattr(os, name, partial(refusing, getattr(os, name), tmp_path / "bad"))

    async def story(ask: AskServer) -> None:
        bad, good = (await ask("/api/training/runs")).content
        assert "Permission denied" in bad["problem"]
        assert (good["problem"], good["state"]) == ("", "done")
        assert (await ask(f"/api/training/news?run={bad['id']}")).content["head"]["problem"] == bad["problem"]

    tell([listed], story)


def refusing(call: Callable[..., Any], folder: Path, path: Any, *args: Any, **options: Any) -> Any:
    """Call a function of `os` on a path, unless that is in the folder."""
    if isinstance(path, str | Path) and folder in Path(path).parents:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return call(path, *args, **options)


def test_deleted_run_is_reported_as_missing(tmp_path: Path) -> None:
    train(tmp_path / "run", Walk(), 2)
    listed = screen(tmp_path)

    async def story(ask: AskServer) -> None:
        (head,) = (await ask("/api/training/runs")).content
        assert head["problem"] == ""
        shutil.rmtree(tmp_path / "run")
        (gone,) = (await ask("/api/training/runs")).content
        assert "run.json: is missing" in gone["problem"]
        news = (await ask(f"/api/training/news?run={head['id']}")).content
        assert (news["head"]["problem"], news["tables"]["metrics.csv"]["columns"]) == (gone["problem"], {})

    tell([listed], story)


def test_folder_with_a_non_utf_8_name_is_listed(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"r\xffn")
    train(folder, Walk(), 2)

    async def story(ask: AskServer) -> None:
        (head,) = (await ask("/api/training/runs")).content
        assert (head["name"], head["problem"]) == (f"{tmp_path.name}/r\\udcffn", "")
        (folder / "progress.json").write_text("[]")
        assert "r\\udcffn/progress.json" in (await ask("/api/training/runs")).content[0]["problem"]

    tell([screen(tmp_path)], story)


def test_page_controls_the_training(learning: Path) -> None:
    async def story(ask: AskServer) -> None:
        (head,) = (await ask("/api/training/runs")).content
        assert head["state"] == "learning"

        async def request(what: str) -> dict[str, object]:
            until(lambda: not (learning / REQUEST).exists())
            asked = (await ask("/api/training/request", {"run": head["id"], "request": what})).content
            until(lambda: not (learning / REQUEST).exists())
            assert isinstance(asked, dict)
            return asked

        await request("pause")
        until(lambda: progress(learning).state == "paused")
        assert (await ask("/api/training/runs")).content[0]["state"] == "paused"
        await request("checkpoint")
        await request("continue")
        until(lambda: progress(learning).state == "learning")
        (taken,) = learning.glob("policy-*.safetensors")
        assert taken.stem == f"policy-{progress(learning).iteration:06d}" or taken.exists()
        await request("stop")
        until(lambda: not is_locked(learning))
        assert progress(learning).state == "done"
        refused = await ask("/api/training/request", {"run": head["id"], "request": "pause"})
        assert refused.is_line(409, "no process trains")

    tell([screen(learning)], story)


def test_control_requests_need_same_origin_and_token(learning: Path) -> None:
    async def story(ask: AskServer) -> None:
        (head,) = (await ask("/api/training/runs")).content
        good = {"run": head["id"], "request": "stop"}
        for headers, status in (
            ({"Authorization": ""}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": ""}, 403),
            ({"Host": "evil.example"}, 403),
            ({"Content-Type": "text/plain"}, 403),
        ):
            assert (await ask("/api/training/request", good, **headers)).is_line(status), headers
        for body, status in (
            ({"run": head["id"], "request": "dance"}, 400),
            ({"run": "../other", "request": "stop"}, 404),
            ({"run": head["id"]}, 400),
            ({**good, "folder": "/etc"}, 400),
            ([], 400),
            ({**good, "request": "x" * 2_000}, 400),
        ):
            assert (await ask("/api/training/request", body)).is_line(status), body
        assert not (learning / REQUEST).exists()
        assert progress(learning).state == "learning"

    tell([screen(learning)], story)


def test_folder_replaced_by_a_link_is_not_written_to(tmp_path: Path) -> None:
    train(tmp_path / "desk" / "run", Walk(), 2)
    train(tmp_path / "other", Walk(), 2)
    listed = screen(tmp_path / "desk")
    (tmp_path / "desk" / "run").rename(tmp_path / "gone")
    (tmp_path / "desk" / "run").symlink_to(tmp_path / "other")

    async def story(ask: AskServer) -> None:
        (head,) = (await ask("/api/training/runs")).content
        assert "link" in head["problem"]
        posted = {"run": head["id"], "request": "stop"}
        assert (await ask("/api/training/request", posted)).is_line(409, "link")
        assert not (tmp_path / "other" / REQUEST).exists()

    tell([listed], story)


def test_new_runs_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steersman.apps.dashboard.training.screen.LOOK_EVERY_SECONDS", -1.0)
    train(tmp_path / "trial-000", Walk(), 2)

    async def story(ask: AskServer) -> None:
        assert len((await ask("/api/training/runs")).content) == 1
        train(tmp_path / "trial-001", Walk(), 2)
        assert len((await ask("/api/training/runs")).content) == 2

    tell([screen(tmp_path)], story)


def test_remaining_time_is_estimated(tmp_path: Path) -> None:
    train(tmp_path, Walk(), 2, obeyed=LIVE_REQUESTS)
    there = progress(tmp_path)
    assert there.requests == LIVE_REQUESTS
    there.iteration, there.iterations, there.seconds, there.minutes = 10, 40, 20.0, None
    assert seconds_left(there) == 60
    there.minutes = 0.5
    assert seconds_left(there) == 10
    there.minutes, there.iterations = None, None
    assert seconds_left(there) is None


def test_torch_is_not_imported() -> None:
    """The dashboard starts at once: neither it nor the control of runs waits for PyTorch."""
    code = (
        "import sys, steersman.apps.dashboard.training.screen, steersman.apps.dashboard.comparison.screen, "
        "steersman.apps.dashboard.simulation.screen; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=300, check=False).returncode == 0
