"""An interrupted `train` names the command that continues it, and that command needs no other option."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from steersman.cli.main import main
from steersman.core.stored_command import COMMAND
from steersman.training.run import CHECKPOINT, POLICY

pytestmark = pytest.mark.integration

CLUSTER = ["--protocol", "deployments", "--node-count", "4", "--seed", "7"]
SHORT = ["--iterations", "4", "--validate-every", "2", "--population", "4"]


def train(*words: str) -> int:
    return main(["train", *words])


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run of two of four iterations, which began in another working directory."""
    (tmp_path / "begun").mkdir()
    monkeypatch.chdir(tmp_path / "begun")
    (tmp_path / "begun" / "mine.json").write_text('{"step": 0.05}')
    run = ["--iterations", "2", *SHORT[2:], "--options", "mine.json", "--output", "run"]
    assert train(*CLUSTER, *run) == 0
    monkeypatch.chdir(tmp_path)
    return tmp_path / "begun" / "run"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_names_the_command_that_continues_it(number: signal.Signals, tmp_path: Path) -> None:
    endless = ["--iterations", "1000000", *SHORT[2:], "--output", "a run"]
    command = [sys.executable, "-m", "steersman", "train", *CLUSTER, *endless]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "a run" / CHECKPOINT).exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        try:
            said = process.communicate(timeout=300)[1]
        finally:
            process.kill()
    assert process.returncode == 128 + number
    last = said.splitlines()[-1]
    assert last == "interrupted; to continue: steersman train --output 'a run' --resume"
    words = shlex.split(last.partition(": ")[2])[1:]
    again = [sys.executable, "-m", "steersman", *words, "--iterations", "1"]
    result = subprocess.run(again, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=True)
    assert "policy.safetensors" in result.stdout


def test_run_continues_by_its_folder_alone_to_the_same_policy(stopped: Path, tmp_path: Path) -> None:
    assert train("--output", str(stopped), "--resume", "--iterations", "4") == 0
    options = ["--options", str(tmp_path / "begun" / "mine.json")]
    assert train(*CLUSTER, *SHORT, *options, "--name", "run", "--output", str(tmp_path / "whole")) == 0
    assert (stopped / POLICY).read_bytes() == (tmp_path / "whole" / POLICY).read_bytes()


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["--seed", "8"], "--seed"),
        (["--protocol", "latency"], "--protocol"),
        (["--objective", "balance"], "--objective"),
        (["--population", "6", "--seed", "7"], "--population"),
    ],
)
def test_option_that_contradicts_the_run_is_named(
    words: list[str], flag: str, stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (stopped / CHECKPOINT).read_bytes()
    assert train("--output", str(stopped), "--resume", *words) == 2
    expected = f"error: {flag} is not that of the run in {stopped}; leave it out, or name a new folder without --resume"
    assert capsys.readouterr().err.splitlines()[-1] == expected
    assert (stopped / CHECKPOINT).read_bytes() == before


def test_same_options_may_be_given_again(stopped: Path) -> None:
    assert train("--output", str(stopped), "--resume", *CLUSTER, *SHORT) == 0


def test_damaged_command_is_named(stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (stopped / COMMAND).write_text(json.dumps({"words": 3}))
    assert train("--output", str(stopped), "--resume") == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"error: {stopped / COMMAND}: is damaged; remove it")


def test_refused_run_leaves_the_command_of_the_first(stopped: Path) -> None:
    before = (stopped / COMMAND).read_bytes()
    assert train("--protocol", "deployments", "--node-count", "9", "--output", str(stopped)) == 1
    assert (stopped / COMMAND).read_bytes() == before


def test_run_that_was_killed_before_its_first_checkpoint_begins_again(stopped: Path) -> None:
    policy = (stopped / POLICY).read_bytes()
    for name in (CHECKPOINT, POLICY):
        (stopped / name).unlink()
    assert train("--output", str(stopped), "--resume") == 0
    assert (stopped / POLICY).read_bytes() == policy


@pytest.mark.parametrize("command", ["train", "tune", "evaluate"])
def test_folder_without_a_command_is_named(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--output", str(tmp_path / "none"), "--resume", "--jobs", "1"]) == 2
    said = f"error: --resume: there is no {tmp_path / 'none' / COMMAND} to continue by; give all options again, or "
    assert capsys.readouterr().err == f"{said}leave out --resume to start\n"
    assert not (tmp_path / "none").exists()
