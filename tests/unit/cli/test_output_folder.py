"""Folders of results: locked while a command uses them, and nothing but its own earlier results is written over."""

from __future__ import annotations

from pathlib import Path

import pytest

from steersman.cli.main import main
from steersman.core.folder_lock import using_folder

WORKLOAD = "--workload default-small --protocol arrivals"
COMMANDS = (
    f"evaluate {WORKLOAD} --policy fgd best-fit --seeds 1 --jobs 1 --output out",
    f"simulate {WORKLOAD} --policy fgd --output out",
)

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_is_used_by_one_command_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with using_folder(tmp_path / "out"):
        assert main(command.split()) == 1
        assert "out: is in use by process" in capsys.readouterr().err.splitlines()[-1]
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["run.lock"]
    assert main(command.split()) == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert "run.lock" not in names
    assert main(command.split()) == 0, "its own earlier results"
    assert {path.name for path in (tmp_path / "out").iterdir()} == names


@pytest.mark.parametrize("command", [*COMMANDS, "demo --output out", "advise --workload default-small --output out"])
def test_a_folder_of_other_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "photo.jpg").write_text("")
    assert main(command.split()) == 2
    line = "error: --output out: holds photo.jpg, and no earlier result of this command; name another folder"
    assert capsys.readouterr().err.splitlines() == [line]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["photo.jpg"]
