"""What the package itself imports by name does not let files of the current folder stand for modules."""

import sys
from pathlib import Path

import pytest

from steersman.core.extensions import import_object


def test_current_folder_is_searched_for_user_modules_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine_alone.py").write_text("MADE = 7\n")
    import_object("format", "steersman.workloads.formats.lists:OpenbCsv")
    assert str(tmp_path) not in sys.path
    assert import_object("policy", "mine_alone:MADE") == 7
    assert str(tmp_path) in sys.path
