"""docs/reference/features.md: its commands are commands of the command line, and each is run by a test of its row."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from steersman.agents.registry import find_algorithm
from steersman.cli import main as cli
from steersman.evaluation.criteria import parse_objectives
from steersman.live.http_policy.scheme import register_http_policies
from steersman.objectives.registry import split_limit
from steersman.policies.networks import find_network
from steersman.policies.registry import resolve as find_policy

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "features.md"
COMMAND = re.compile(r"`(?:[A-Z_]+=\S+ )?steersman ([^`]+)`")
TEST = re.compile(r'\]\(([^) ]+) "(\w+)"\)')
BUILT_IN: dict[str, Callable[[str], object]] = {
    "--algorithm": find_algorithm,
    "--network": find_network,
    "--objective": lambda text: parse_objectives([split_limit(text)[0]]),
    "--policy": find_policy,
}
"""Options whose values are names that are not part of the command line's declaration."""


@dataclass(frozen=True)
class Row:
    """What a row says: commands without the program's name, and tests by file and name."""

    here: str
    commands: tuple[tuple[str, ...], ...]
    tests: tuple[tuple[Path, str], ...]


def rows() -> Iterator[Row]:
    for line in PAGE.read_text().splitlines():
        if line.startswith("| ") and not line.startswith(("| there", "| ---")):
            _, here, tests = line.strip("| ").split(" | ")
            commands = tuple(tuple(shlex.split(text)) for text in COMMAND.findall(here))
            named = tuple(((PAGE.parent / file).resolve(), name) for file, name in TEST.findall(tests))
            yield Row(here, commands, named)


ROWS = tuple(rows())
every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.here[:40])


register_http_policies()
TREE = typer.main.get_command(cli.app)  # making it takes a twentieth of a second


def command_of(words: tuple[str, ...]) -> tuple[Any, list[str], list[str]]:
    """Return a command of the tree, its words, and its arguments."""
    command: Any = TREE
    count = 0
    while count < len(words) and words[count] in getattr(command, "commands", {}):
        command = command.commands[words[count]]
        count += 1
    return command, list(words[:count]), list(words[count:])


def is_of_the_reader(name: str) -> bool:
    """Whether a policy or objective is a file or a module that a reader of the page makes."""
    return name.endswith((".safetensors", ".yaml", ".txt")) or name.startswith("my_")


def parse(words: tuple[str, ...]) -> None:
    """Parse a command as the command line does, without running it. Raises typer's exceptions, SteersmanError."""
    command, path, arguments = command_of(words)
    if arguments == ["-h"]:
        return
    assert not (hasattr(command, "commands") and arguments and arguments[0][0] != "-"), f"no command {arguments[0]}"
    command.make_context(" ".join(path), arguments)
    option = ""
    for argument in arguments:
        option = argument if argument.startswith("--") else option
        if option != argument and option in BUILT_IN and not is_of_the_reader(argument):
            BUILT_IN[option](argument)


Definitions = dict[str, tuple[ast.AST, Any]]
"""Name -> definition, and the definitions of the module that it is in."""


@cache
def module(file: Path) -> Definitions:
    """Return what a module of tests defines, what it imports from others, and fixtures of the folders above."""
    result: Definitions = {}
    for folder in file.parents:
        if folder.is_relative_to(ROOT / "tests") and (above := folder / "conftest.py") != file:
            result = (module(above) if above.exists() else {}) | result
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            other = ROOT.joinpath(*str(node.module).split(".")).with_suffix(".py")
            there = module(other) if other.exists() else {}
            result |= {each.asname or each.name: there[each.name] for each in node.names if each.name in there}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            result[node.name] = node, result
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                result |= {part.id: (node, result) for part in ast.walk(target) if isinstance(part, ast.Name)}
    return result


def words_of(definition: ast.AST, known: Definitions) -> set[str]:
    """Return the words in the texts of a definition and of all that it uses, docstrings left out."""
    words, seen, waiting = set[str](), set[int](), [(definition, known)]
    while waiting:
        node, names = waiting.pop()
        if id(node) in seen or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        seen.add(id(node))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words |= {word.partition("=")[0] if word.startswith("--") else word for word in node.value.split()}
        name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
        if name in names:
            waiting.append(names[name])
        waiting += [(child, names) for child in ast.iter_child_nodes(node)]
    return words


def is_run_by(words: tuple[str, ...], file: Path, name: str) -> bool:
    """Whether the words and long options of a command are among the texts of a test."""
    _, path, arguments = command_of(words)
    options = {argument for argument in arguments if argument.startswith("--")}
    return {*path, *options} <= words_of(*module(file)[name])


@every_row
def test_a_row_names_tests_that_exist(row: Row) -> None:
    assert row.tests
    for file, name in row.tests:
        if file.suffix == ".go":
            assert f"\nfunc {name}(t *testing.T) {{\n" in file.read_text(), name
        else:
            assert isinstance(module(file)[name][0], ast.FunctionDef), name
            assert name.startswith("test_")


@every_row
def test_commands_are_those_of_the_command_line(row: Row) -> None:
    assert "`--" not in row.here, "an option is shown with its command"
    for words in row.commands:
        parse(words)


@every_row
def test_every_command_is_run_by_a_test_of_its_row(row: Row) -> None:
    tests = [(file, name) for file, name in row.tests if file.suffix == ".py"]
    assert not [words for words in row.commands if not any(is_run_by(words, *test) for test in tests)]


def test_faulty_row_is_detected() -> None:
    for wrong in ("cluster nodes ad", "top --twice", "train --output o --protocol sideways"):
        with pytest.raises((typer.TyperException, AssertionError)):
            parse(tuple(wrong.split()))
    used: Definitions = {"g": (ast.parse('h = ["top"]'), {})}
    assert words_of(ast.parse('"""run"""\nf(a="x --y=z")\ng'), used) == {"x", "--y", "top"}
    here = (Path(__file__), "test_faulty_row_is_detected")
    assert is_run_by(("top", "--once"), *here)
    assert not is_run_by(("top", "-" + "-sort", "cpu"), *here)
