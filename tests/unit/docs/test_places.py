"""CONTRIBUTING.md and docs/explanation name modules, classes, functions and files: all of them exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "steersman"
PACKAGES = tuple(sorted(path.name for path in PACKAGE.iterdir() if path.is_dir()))
PAGES = (ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))


def exists(dotted: str) -> bool:
    """Whether a module of the package, or a definition or attribute in one, has this dotted name."""
    parts = dotted.removeprefix("steersman.").split(".")
    for length in range(len(parts), 0, -1):
        path = PACKAGE.joinpath(*parts[:length])
        file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
        if file.exists():
            return defines(ast.parse(file.read_text()), parts[length:])
    return False


def defines(tree: ast.AST, names: list[str]) -> bool:
    """Whether a syntax tree defines a name, and names in it."""
    if not names:
        return True
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == names[0]:
            return defines(node, names[1:])
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == names[0] for target in targets):
            return len(names) == 1
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_places_that_are_named_exist(page: Path) -> None:
    spans = re.findall(r"`([^`\n]+)`", page.read_text())
    roots = "|".join(PACKAGES)
    dotted = {each for each in spans if re.fullmatch(rf"(steersman\.)?({roots})(\.\w+)+", each)}
    assert not {each for each in dotted if not exists(each)}
    files = {
        each for each in spans if re.fullmatch(r"(src|tests|plugin|deploy|docs|benchmarks|studies)(/[\w.-]+)+/?", each)
    }
    assert not {each for each in files if not (ROOT / each).exists()}


def test_a_name_that_is_gone_is_noticed() -> None:
    assert exists("agents.dqn.DQN._td_target")
    assert not exists("agents.dqn.DQN.no_such_method")
    assert not exists("agents.no_such_module")
