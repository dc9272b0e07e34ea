"""Scripts that call the Python API: worker processes run them again, and know what they define and register."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

HEAD = """
import numpy as np
import steersman
print("the script runs", flush=True)
"""
POLICY = """
class Last:
    name = "last"
    def prepare(self, state, profile, seed):
        pass
    def scores(self, state, class_id, feasible):
        return np.arange(len(feasible), dtype=float)
"""
REGISTER = "steersman.register_policy('mine', Last)\n"
GUARD = "if __name__ == '__main__':\n    "
WORKLOAD = "steersman.load_workload('default-small')"
EVALUATE = f"print(steersman.evaluate({WORKLOAD}, {{}}, seeds=2, protocol='inflation', {{}}))\n"
AGAIN = "the script runs\n"


def run(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(HEAD + script)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "script.py"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "script",
    [
        EVALUATE.format("['kube-default', 'fgd']", "bound=True"),
        POLICY + EVALUATE.format("[Last(), 'fgd']", "jobs=2"),
        POLICY + REGISTER + EVALUATE.format("['mine', 'fgd']", "jobs=2"),
    ],
    ids=["bound", "object", "registered"],
)
def test_worker_processes_know_definitions_of_a_script(tmp_path: Path, script: str) -> None:
    *head, call = script.splitlines(keepends=True)
    done = run(tmp_path, "".join(head) + GUARD + call)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(AGAIN) > 1


@pytest.mark.parametrize("options", ["jobs=2", "bound=True"])
def test_missing_main_guard_is_reported(tmp_path: Path, options: str) -> None:
    done = run(tmp_path, EVALUATE.format("['kube-default', 'fgd']", options))
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1, "that of the script itself"
    assert 'under `if __name__ == "__main__":`' in done.stderr.splitlines()[-1]
