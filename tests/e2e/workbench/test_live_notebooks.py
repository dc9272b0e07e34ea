"""The tutorials that need a control plane or Prometheus run from start to end, and leave no cluster behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from tests.e2e.telemetry import prometheus
from tests.support.notebooks import TUTORIALS

# `make notebooks` runs them as well; each takes minutes, which other end-to-end tests spend on the same commands.
pytestmark = [pytest.mark.e2e, pytest.mark.nightly]

NAMES = ("02-my-own-cluster", "03-an-agent-on-a-live-cluster", "06-objectives-on-telemetry")


@pytest.mark.parametrize("name", NAMES)
def test_a_tutorial_on_a_live_cluster_runs_from_start_to_end(name: str, tmp_path: Path) -> None:
    programs = f"{prometheus.programs()}{os.pathsep}" if "telemetry" in name else ""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.notebooks", name, "--output", str(tmp_path)],
        cwd=TUTORIALS.parents[1],
        env=os.environ | {"PATH": programs + os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cells = nbformat.read(tmp_path / f"{name}.ipynb", nbformat.NO_CONVERT).cells
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 1
