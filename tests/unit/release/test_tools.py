"""release.tools: an interrupted command kills what it started, and says so in one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from release.tools import ReleaseError, run

CHECKOUT = Path(__file__).parents[3]
BUILDING = """
import sys
from pathlib import Path
from release.tools import exit_status, run
script = "sleep 300 & echo $! >$0.pid; mv $0.pid $0.started; wait"
sys.exit(exit_status(lambda: run(["sh", "-c", script, sys.argv[1]], what="it cannot be built", log=Path("log"))))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_build_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    command, path = [sys.executable, "-c", BUILDING, "build"], {"PYTHONPATH": str(CHECKOUT)}
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=os.environ | path)
    started = tmp_path / "build.started"
    while not started.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(number)
    assert process.communicate(timeout=60) == (None, "error: interrupted\n")
    assert process.returncode == 130
    status = Path("/proc", started.read_text().strip(), "stat")
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":  # it may not be reaped yet
        time.sleep(0.02)


def test_a_failing_build_names_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(ReleaseError, match=f"it cannot be built: no room.*{log}"):
        run(["sh", "-c", "echo no room >&2; exit 3"], what="it cannot be built", log=log)
