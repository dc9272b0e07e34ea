"""Pages name modules, classes, functions, files, metrics, commands and targets of make: all of them exist."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
from tests.support.pages import PAGES

from steersman.cli import main as cli

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "steersman"
PACKAGES = tuple(sorted(path.name for path in PACKAGE.iterdir() if path.is_dir()))
TREE = typer.main.get_command(cli.app)
FOLDERS = "src|tests|plugin|deploy|docs|benchmarks|studies|examples|controlplane|requirements"
page_of = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


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
        if names[0] in assigned(node):
            return len(names) == 1
    return False


def assigned(node: ast.AST) -> set[str]:
    """Names that a statement assigns."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}


@cache
def metrics() -> frozenset[str]:
    """Names of exported metrics; in the module of the simulated cluster its prefix with each text."""
    result = set[str]()
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        texts = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        prefixes = [node.value for node in tree.body if isinstance(node, ast.Assign) and assigned(node) == {"PREFIX"}]
        for prefix in prefixes:
            if isinstance(prefix, ast.Constant):
                result |= {f"{prefix.value}_{text.removeprefix('_')}" for text in texts}
        result |= {text for text in texts if text.startswith("steersman_")}
    for path in (ROOT / "plugin").rglob("*.go"):
        result |= set(re.findall(r'Name: "(steersman_\w+)"', path.read_text()))
    return frozenset(result)


def is_metric(name: str) -> bool:
    """Whether a metric of this name is exported, of which a client may have made the suffix."""
    return bool({name, re.sub("_(total|bucket|sum|count)$", "", name)} & metrics())


@cache
def make_targets() -> frozenset[str]:
    """Targets of the Makefile."""
    return frozenset(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))


def problem_of(words: list[str]) -> str:
    """What is wrong with the words of a call of steersman: an unknown command or option; "" if nothing is."""
    command: Any = TREE
    while (commands := getattr(command, "commands", None)) and words and re.fullmatch("[a-z]+", words[0]):
        name = words.pop(0)
        if name not in commands:
            return f"no command {name!r}"
        command = commands[name]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    return " ".join(sorted(options - known - {"--help", "--help-all"}))


def calls(text: str) -> list[list[str]]:
    """Calls of steersman between backticks, of which all is not said: words after its name."""
    spans = re.findall(r"`steersman ([a-z][^`\n]*)`", text)
    return [shlex.split(re.sub(r"[<>|].*|[\[\]]|\.\.\.", "", each), comments=True) for each in spans]


@page_of
def test_named_modules_files_and_links_exist(page: Path) -> None:
    text = page.read_text()
    spans = re.findall(r"`([^`\n]+)`", text)
    roots = "|".join(PACKAGES)
    dotted = {each for each in spans if re.fullmatch(rf"(steersman\.)?({roots})(\.\w+)+", each)}
    assert not {each for each in dotted if not exists(each)}
    files = {each for each in spans if re.fullmatch(rf"({FOLDERS})(/[\w.-]+)+/?", each)}
    assert not {each for each in files if not (ROOT / each).exists()}
    links = {each.partition("#")[0] for each in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in each}
    assert not {each for each in links if not (page.parent / each).exists()}


@page_of
def test_named_metrics_exist(page: Path) -> None:
    named = set(re.findall(r"\b(steersman_[a-z_]+[a-z])\b(?!\()", page.read_text()))
    assert not {each for each in named if not is_metric(each)}


@page_of
def test_named_commands_and_targets_exist(page: Path) -> None:
    text = page.read_text()
    assert not {problem for words in calls(text) if (problem := problem_of(words))}
    targets = {word for call in re.findall(r"`make ([a-z][a-z0-9 -]*)", text) for word in call.split()}
    assert not targets - make_targets()


def test_stale_name_is_detected() -> None:
    assert exists("agents.dqn.DQN._td_target")
    assert not exists("agents.dqn.DQN.no_such_method")
    assert not exists("agents.no_such_module")
    assert is_metric("steersman_service_neutral_total")
    assert is_metric("steersman_plugin_decision_duration_seconds")
    assert not is_metric("steersman_plugin_telemetry_age_seconds")
    assert calls("a `steersman fit policy`\n    steersman is code") == [["fit", "policy"]]
    assert problem_of(["evaluate", "--cluster"]) == ""
    assert problem_of(["policy", "bake"]) == "no command 'bake'"
    assert problem_of(["evaluate", "--clusters"]) == "--clusters"
