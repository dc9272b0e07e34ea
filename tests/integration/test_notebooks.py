"""The tutorials that need no cluster run from start to end; and what runs them notices a failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from tests.support.nightly import by_default
from tests.support.notebooks import TUTORIALS

pytestmark = pytest.mark.integration

NAMES = ("01-quickstart", "04-tuning-with-optuna", "05-your-own", "07-reading-results")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.support.notebooks", *arguments]
    return subprocess.run(command, cwd=TUTORIALS.parents[1], capture_output=True, text=True, timeout=900, check=False)


@pytest.mark.parametrize("name", by_default(["01-quickstart", "07-reading-results"], NAMES))
def test_a_tutorial_runs_from_start_to_end(name: str, tmp_path: Path) -> None:
    done = run(name, "--output", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    cells = nbformat.read(tmp_path / f"{name}.ipynb", nbformat.NO_CONVERT).cells
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 1


def test_failing_tutorial_is_detected(tmp_path: Path) -> None:
    cell = nbformat.v4.new_code_cell("1 / 0")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "wrong.ipynb")
    done = run("wrong", "--input", str(tmp_path))
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stdout
