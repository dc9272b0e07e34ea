"""A formula is the same in steersman, in Python and in Go: the same scores to the last bit, so the same decisions."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.support.formula_forms import ask_go, decisions, random_formula, write_forms

from steersman.policies.formulas.formula import Formula, FormulaTerm, read_formula
from steersman.policies.formulas.go_form import go_file
from steersman.policies.formulas.python_form import python_module

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")


def compare(folder: Path, seed: int, count: int) -> int:
    """Compare the forms of a random formula in random decisions; return how many distinct scores there were."""
    random = np.random.default_rng(seed)
    write_forms(random_formula(random), folder)
    asked = list(decisions(folder, count, random))
    assert len(asked) == count
    for each, go in zip(asked, ask_go(folder, asked), strict=True):
        assert each.text.tolist() == each.python.tolist() == go["Scores"], each.question
        # Go lists them in the order of the choice.
        assert each.devices == list(map(sorted, go["Devices"])), each.question
    return len({score for each in asked for score in each.text.tolist()})


@needs_go
@pytest.mark.parametrize("seed", [1, 2])
def test_all_forms_decide_alike(tmp_path: Path, seed: int) -> None:
    assert compare(tmp_path, seed, 500) > 1000


@needs_go
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10, 20))
def test_all_forms_decide_alike_in_100_000_decisions(tmp_path: Path, seed: int) -> None:
    assert compare(tmp_path, seed, 10_000) > 10_000


@needs_go
@pytest.mark.parametrize("terms", [0, 1, 6])
def test_go_file_compiles_on_its_own_and_is_formatted(tmp_path: Path, terms: int) -> None:
    write_forms(random_formula(np.random.default_rng(terms), terms), tmp_path)
    for command in (["gofmt", "-l", "rule"], ["go", "vet", "./rule"]):
        done = subprocess.run(command, cwd=tmp_path / "go", capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("seed", range(20))
def test_a_text_is_read_as_the_same_formula(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    formula = random_formula(random, int(random.integers(0, 7)))
    file = tmp_path / "rule.txt"
    file.write_text(formula.text(), encoding="utf-8")
    found = read_formula(file)
    assert found.terms == formula.terms
    # Constants that no term reads are left out.
    assert found.text() == formula.text()


def test_a_formula_of_the_largest_export_has_at_most_30_lines() -> None:
    """Five terms of each kind: the text without comments, and the functions that score."""
    names = ("whole_change", "short", "dead", "waste_change", "claimed")
    terms = tuple(FormulaTerm(-1.23, name) for name in names)
    formula = Formula((terms,) * 4, 12_000.0, 4e6, (220, 500, 1000), {"T4": 0.1, "V100": 0.2}, ("Why.",))
    lines = [line.partition("#")[0].strip() for line in formula.text().splitlines()]
    assert len([line for line in lines if line]) <= 30
    python = python_module(formula, "rule")
    assert len(python[python.index("def score(") :].split("\n\n")[0].splitlines()) <= 30
    go = go_file(formula)
    assert len(go[go.index("func Score(") : go.index("\n}\n", go.index("func Score("))].splitlines()) + 1 <= 30
    # All of it on two screens.
    assert max(len(text.splitlines()) for text in (formula.text(), python, go)) <= 160
