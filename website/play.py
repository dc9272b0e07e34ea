"""The page on which openb is played in the browser: the core, openb's lists and the policies in one script."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import shutil
from importlib import resources
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from steersman.policies.heuristics import HEURISTIC_IDS
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.formats import openb
from steersman.workloads.workload import FIRST_SEED

ROOT = Path(__file__).parents[1]
PLAYER = Path(__file__).parent / "player"
CORE = ROOT / "plugin" / "pkg" / "core" / "core.wasm"
LEARNED = "greedy-forecast"
POLICIES = ("kube-default", *HEURISTIC_IDS, "random", LEARNED)
POD_COLUMNS = (*openb.POD_COLUMNS, "gpu_spec")


LINK = "[Play it in your browser](play.md): two policies of your choice fill the 1,213 nodes of openb, or your own."


def page() -> str:
    """Return the page."""
    return (PLAYER / "page.md").read_text()


def with_picture(index: str) -> str:
    """Return the site's first page with pictures of the page before its others (`tests.support.play_picture`)."""
    before, mark, after = index.partition("\n![")
    pictures = (f"[![Play it](assets/play/play-{theme}.png#only-{theme})](play.md)" for theme in ("light", "dark"))
    return f"{before}\n{''.join(pictures)}\n\n{LINK}\n{mark}{after}"


def write_files(folder: Path) -> None:
    """Write what the page loads into a folder."""
    shutil.copytree(PLAYER, folder, ignore=shutil.ignore_patterns("page.md", "worker.js", "jsconfig.json"))
    # In a script, since a page that is opened from a file may not fetch others.
    data = json.dumps({"PLAYED": _data(), "WORKER": (PLAYER / "worker.js").read_text()})
    (folder / "data.js").write_text(f"Object.assign(window, {data});\n")


def _data() -> dict[str, object]:
    """Return the core, openb, Go's random numbers and arrays of `LEARNED`, packed; and how each policy decides."""
    packed = {
        "core": CORE.read_bytes(),
        "nodes": _columns(openb.NODE_FILE, openb.NODE_COLUMNS),
        "pods": _columns(f"{openb.POD_FILE}default", POD_COLUMNS),
        "table": resources.files("steersman.data").joinpath("go_math_rand_607.txt").read_bytes(),
        "learned": _learned(),
    }
    data: dict[str, object] = {
        name: base64.b64encode(gzip.compress(content, mtime=0)).decode() for name, content in packed.items()
    }
    selections = {name: resolve(name).selection for name in POLICIES}
    data["policies"] = {
        name: {
            "node": selection.node,
            "devices": selection.devices,
            "functions": selection.functions,
            "weights": selection.weights,
            "learned": selection.learned is not None,
        }
        for name, selection in selections.items()
    }
    return data


def _columns(stem: str, columns: tuple[str, ...]) -> bytes:
    """Return some columns of a packaged list as CSV."""
    packed = resources.files("steersman.data.openb").joinpath(f"{stem}.csv.gz").read_bytes()
    rows = csv.DictReader(io.StringIO(gzip.decompress(packed).decode()))
    return "\n".join([",".join(columns), *(",".join(row[column] for column in columns) for row in rows)]).encode()


def _learned() -> bytes:
    """Return the arrays that the core reads of `LEARNED` on openb, as a safetensors file; no seed changes them."""
    workload = openb.embedded("default")
    plan = schedule(workload, "inflation", seed=FIRST_SEED, ratio=1.3, load=None)
    execution = Execution(Simulator(workload), plan, resolve(LEARNED), FIRST_SEED, record=False)
    arrays = execution.described.arrays().items()
    return save(
        {name: np.ascontiguousarray(array) for name, array in arrays if name.startswith(("learned.", "leftovers."))}
    )
