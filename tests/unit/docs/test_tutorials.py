"""The tutorials as they are committed: short, run from top to bottom, by the public API, and listed."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

TUTORIALS = Path(__file__).parents[3] / "docs" / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))
DOCUMENTED = re.findall(r"\bsteersman(?:\.\w+)*\b", (TUTORIALS.parent / "reference" / "python.md").read_text())
PUBLIC = {
    *DOCUMENTED,
    "steersman.envs",
    "steersman.objectives.summary",
}
"""Modules that the page of the API or a how-to names."""
MOST_BYTES, MOST_WORDS = 300_000, 1_500
notebook_of = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda file: file.stem)


def cells(notebook: Path, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(notebook.read_text())["cells"]
    return [each for each in found if each["cell_type"] == kind]


def test_page_lists_the_seven_tutorials() -> None:
    page = (TUTORIALS / "README.md").read_text()
    assert len(NOTEBOOKS) == 7
    assert re.findall(r"\]\((0\d-[\w-]+\.ipynb)\)", page) == [file.name for file in NOTEBOOKS]


@notebook_of
def test_tutorial_is_short(notebook: Path) -> None:
    assert notebook.stat().st_size < MOST_BYTES
    words = sum(len("".join(cell["source"]).split()) for cell in cells(notebook, "markdown"))
    assert words < MOST_WORDS, "ten minutes"


@notebook_of
def test_outputs_come_from_one_run_and_name_no_local_folder(notebook: Path) -> None:
    code = cells(notebook, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), "make notebooks"
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    texts = [text for output in outputs for text in (output.get("text", ""), output.get("data", {}).get("text/plain"))]
    assert not re.search(r"/(root|home|tmp|work)/", "".join(map("".join, filter(None, texts))))


@notebook_of
def test_tutorial_uses_only_the_public_api(notebook: Path) -> None:
    for cell in cells(notebook, "code"):
        source = "".join(cell["source"])
        if source.startswith("%%"):
            continue
        tree = ast.parse(source)
        imported = {each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
        imported |= {name.name for each in ast.walk(tree) if isinstance(each, ast.Import) for name in each.names}
        assert {name for name in imported if name and name.startswith("steersman")} <= PUBLIC
        assert not [
            each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute) and re.match("_[^_]", each.attr)
        ]


@notebook_of
def test_tutorial_links_resolve(notebook: Path) -> None:
    text = "".join("".join(cell["source"]) for cell in cells(notebook, "markdown"))
    links = [each.partition("#")[0] for each in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in each]
    assert not [each for each in links if not (TUTORIALS / each).exists()]
