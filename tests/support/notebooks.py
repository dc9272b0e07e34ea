"""Run the tutorials from start to end: `python -m tests.support.notebooks [NAME ...]` writes what they print into them.

Each runs in an empty folder with clusters of its own, so that neither what was there before nor a workbench changes
what it shows. Its outputs name neither times nor folders of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
CELL_SECONDS = 600
SHOWN_STATE = "~/.local/state/steersman"
"""The folder that `STEERSMAN_STATE_DIR` stands for, as users have it."""


def execute(notebook: Path, folder: Path) -> tuple[Any, str]:
    """Run a notebook in a folder; return it with its outputs, and the error that ended it, "" if none did."""
    state = folder / "state"
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {
        "PATH": programs,
        "STEERSMAN_STATE_DIR": str(state),
        "JUPYTER_RUNTIME_DIR": str(folder / "jupyter"),
        "IPYTHONDIR": str(folder / "ipython"),
    }
    os.environ.update(environment)  # the client's own connection files, too
    place = folder / "tutorials"
    place.mkdir()
    read = nbformat.read(notebook, nbformat.NO_CONVERT)
    client = NotebookClient(
        read,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(place)}},
    )
    problem = ""
    try:
        client.execute(env=environment)
    except CellExecutionError as error:
        problem = str(error)
    finally:
        for cluster in state.glob("clusters/*/"):
            down = [sys.executable, "-m", "steersman", "cluster", "down", "--name", cluster.name]
            subprocess.run(down, env=environment, check=True, capture_output=True, timeout=120)
    read.metadata["language_info"] = {"name": "python"}
    return read, problem


def text_of(notebook: Any, folder: Path) -> str:
    """Return a notebook's file; folders of its run are shown as users have them."""
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=False)
    return text.replace(str(folder / "state"), SHOWN_STATE).replace(str(folder / "tutorials"), "docs/tutorials") + "\n"


def main() -> int:
    """Run notebooks and write them; the exit status is 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="notebooks, such as 01-quickstart; default: all")
    parser.add_argument("--input", type=Path, default=TUTORIALS, help="their folder")
    parser.add_argument("--output", type=Path, help="folder of the results; default: that of the notebooks")
    options = parser.parse_args()
    failed = False
    for name in options.names or sorted(file.stem for file in options.input.glob("*.ipynb")):
        with tempfile.TemporaryDirectory(prefix="steersman-notebook-") as scratch:
            notebook, problem = execute(options.input / f"{name}.ipynb", Path(scratch))
            print(f"{name}: {problem or 'done'}", flush=True)
            failed |= bool(problem)
            ((options.output or options.input) / f"{name}.ipynb").write_text(text_of(notebook, Path(scratch)))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
