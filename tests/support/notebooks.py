"""Run the tutorials from start to end: `python -m tests.support.notebooks [NAME ...]` writes what they print into them.

Each runs in an empty folder with clusters of its own, so that neither what was there before nor a workbench changes
what it shows. Its outputs name neither times nor folders of this machine.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
CELL_SECONDS = 600
SHOWN_STATE = "~/.local/state/steersman"
"""The folder that `STEERSMAN_STATE_DIR` stands for, as users have it."""


class Claim(NamedTuple):
    """What the prose of a notebook says of its outputs.

    Attributes:
        prose: the words.
        output: a regular expression for the figures, which its groups are.
        holds: whether the words are true of the figures, all of one match.
    """

    prose: str
    output: str
    holds: Callable[..., bool] = lambda *_: True


CLAIMS: dict[str, tuple[Claim, ...]] = {
    "01-quickstart": (
        Claim("Of this cluster's 6,212 GPUs", r"with (6,212) GPUs"),
        Claim("So its gain over `fgd`", r"\nfgd +([\d.]+) % allocated.*\nsteersman +([\d.]+) %", float.__lt__),
    ),
    "02-my-own-cluster": (
        Claim(
            "half of the 48 GPUs are idle", r"GPUs taken: (\d+) before, \d+ after, of (\d+)", lambda a, b: 2 * a == b
        ),
        Claim("All 48 GPUs are taken", r"GPUs taken: \d+ before, (\d+) after, of (\d+)", float.__eq__),
    ),
    "03-an-agent-on-a-live-cluster": (
        Claim(
            "In the other two it stays above 0.9.", r"round [23].* mean reward ([\d.]+)", lambda reward: reward > 0.9
        ),
        Claim(
            "far more even than `random`",
            r"03-live +([\d.]+) [\s\S]*random +([\d.]+) ",
            lambda learned, at_random: 2 * learned < at_random,
        ),
        Claim("*most-even*, which computes the outcome", r"most-even is best on 10 nodes"),
    ),
    "04-tuning-with-optuna": (
        Claim("was pruned after its first validation", r"pruned: (\d+)", lambda pruned: pruned == 1),
        Claim("and the interval is below 0", r"95 % interval ([-\d.]+) to ([-\d.]+)", lambda low, high: low < high < 0),
        Claim("*most-even*, which computes the outcome", r"most-even is best on 5 nodes"),
    ),
    "05-your-own": (
        Claim(
            "which was better than chance above", r"at_random +([\d.]+)\n *least_allocated +([\d.]+)\n\n", float.__lt__
        ),
        Claim("is worse than chance", r"at_random +([\d.]+)\n *least_allocated +([\d.]+)\n *most", float.__gt__),
        Claim("It also fails more pods", r"least-free-gpu +[\d.]+ +\+[\d.]+ +\d+ +[\d.]+ +\+[\d.]+"),
    ),
    "06-objectives-on-telemetry": (
        Claim("over the five clusters it keeps 87 %", r"p0 is best on 12 nodes \(latency\): share [a-z ]+ (87)\.\d+ %"),
        Claim(
            "`p0` broke one hard limit in the five runs", r"p0(?: +[+−\d.]+){4} +([\d.]+) +[\d.]+", lambda of: of == 0.2
        ),
    ),
    "07-reading-results": (
        Claim(
            "for half the width take four times",
            r"10 seeds: .* ([\d.]+) wide\n.* ([\d.]+) wide",
            lambda a, b: b < a / 2,
        ),
        Claim("2.5 points more than kube-default", r"steersman +(96\.1\d) [\s\S]*kube-default +(93\.6[45]) "),
        Claim("at least 64 % of what was possible", r"steersman +closes +(64) %"),
        Claim(
            "fails 25 pods fewer than `fgd`",
            r"fgd \(baseline\) +[\d.]+ +\S+ +\d+ +([\d.]+) [\s\S]*kube-default +[\d.]+ +\S+ +\d+ +([\d.]+) ",
            lambda fgd, default: round(fgd - default) == 25,
        ),
    ),
}
"""By notebook."""


def output_text(notebook: Any) -> str:
    """Return what the cells print and show, without pictures: a line for a row of a table."""
    shown = []
    for output in (output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs):
        data = output.get("data", {})
        table = re.sub(r"<[^>]*>", " ", data.get("text/html", "").replace("<tr>", "\n"))
        shown += [output.get("text", ""), html.unescape(table) or data.get("text/plain", "")]
    return "\n".join(shown)


def find_problems(name: str, notebook: Any) -> list[str]:
    """Return what is wrong with the outputs of a notebook: errors, NaN, what its prose says and they do not show."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    text = output_text(notebook)
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    problems = [f"a cell ends in {each.ename}" for each in outputs if each.output_type == "error"]
    problems += [f"a cell writes to standard error: {each.text}" for each in outputs if each.get("name") == "stderr"]
    problems += [f"no number: {line.strip()}" for line in re.findall(r"(?i)(?<!\S).*\b(?:nan|inf)\b.*", text)]
    for claim in CLAIMS.get(name, ()):
        found = [
            [float(each) if re.fullmatch(r"[-\d.]+", each) else each for each in match.groups()]
            for match in re.finditer(claim.output, text)
        ]
        if claim.prose not in prose:
            problems.append(f"the claim is not in the prose: {claim.prose}")
        if not found or not all(claim.holds(*figures) for figures in found):
            problems.append(f"the outputs do not show: {claim.prose} (found {found})")
    return problems


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
            problem = problem or "; ".join(find_problems(name, notebook))
            print(f"{name}: {problem or 'done'}", flush=True)
            failed |= bool(problem)
            ((options.output or options.input) / f"{name}.ipynb").write_text(text_of(notebook, Path(scratch)))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
