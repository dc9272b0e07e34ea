"""The tutorials as they are committed: short, run from top to bottom, by the public API, and listed."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from tests.support.notebooks import CLAIMS, find_problems

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
    assert not find_problems(notebook.stem, nbformat.read(notebook, nbformat.NO_CONVERT))
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


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("interval -0.84 to -0.16", "interval nan to nan", "no number: 04-tuned - least-allocated"),
        ("interval -0.84 to -0.16", "interval -0.84 to 0.16", "do not show: and the interval is below 0"),
        ("most-even is best on 5", "04-tuned is best on 5", "do not show: *most-even*"),
        (
            "and the interval is below 0",
            "and the interval is narrow",
            "the claim is not in the prose: and the interval",
        ),
        ("-0.50 points", "-inf points", "no number"),
    ],
)
def test_outputs_that_contradict_the_prose_are_problems(before: str, after: str, problem: str) -> None:
    text = (TUTORIALS / "04-tuning-with-optuna.ipynb").read_text()
    interval = re.search(r"interval -[\d.]+ to -[\d.]+", text)
    assert interval is not None
    changed = nbformat.reads(text.replace(interval[0], "interval -0.84 to -0.16").replace(before, after), 4)
    assert any(problem in each for each in find_problems("04-tuning-with-optuna", changed))


def test_claims_are_checked_of_every_tutorial() -> None:
    assert list(CLAIMS) == [file.stem for file in NOTEBOOKS]
