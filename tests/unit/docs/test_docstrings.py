"""Docstrings name attributes of classes, modules and definitions: all of them exist, and a class name exists once."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.docs.test_places import PACKAGE, assigned, defines

SOURCES = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
DOTTED = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)`")
ENTRY = re.compile(r"^    ([a-z_]\w*(?:, [a-z_]\w*)*): ", re.M)
EXIST_TWICE: set[str] = set()
"""To be empty: the outcome of an agent's decision in `live.scheduler.agent_link`, a running pod in `cluster.state`."""


def modules() -> dict[str, list[ast.Module]]:
    """Every module by each ending of its dotted path: `c`, `b.c` and `a.b.c`; packages likewise."""
    result = defaultdict(list)
    for path, tree in SOURCES.items():
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        for start in range(len(parts)):
            result[".".join(parts[start:])].append(tree)
    return result


DEFINED = [node for tree in SOURCES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
MODULES, CLASSES = modules(), {node.name: node for node in DEFINED}


def members(node: ast.ClassDef) -> set[str] | None:
    """Names of a class's attributes and methods, inherited ones included; None: a base is another package's."""
    names = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute) and is_self(each.value)}
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(each.name)
        names |= assigned(each)
    for base in node.bases:
        name = ast.unparse(base).split("[")[0].rpartition(".")[2]
        if name in ("NamedTuple", "Protocol", "Generic", "Struct", "Enum", "ABC", "Exception", "TypedDict"):
            continue
        ours = CLASSES.get(name) if isinstance(base, ast.Name | ast.Subscript) else None
        inherited = members(ours) if ours is not None and ours is not node else None
        if inherited is None:
            return None
        names |= inherited
    return names


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def documented(tree: ast.Module) -> Iterator[tuple[Documented, str]]:
    """Every definition with a docstring."""
    for node in ast.walk(tree):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield node, text


def is_missing(dotted: str) -> bool:
    """Whether a dotted name leads into a module or class of ours that lacks it; other names are not ours to check."""
    parts = dotted.removeprefix("steersman.").split(".")
    if parts[0] in CLASSES:
        known = members(CLASSES[parts[0]])
        return known is not None and parts[1] not in known
    for length in range(len(parts), 0, -1):
        trees = MODULES.get(".".join(parts[:length]), [])
        if trees and (length > 1 or any(len(part) > 1 and part[0].isupper() for part in parts[1:])):
            return not any(defines(tree, parts[length:]) for tree in trees)
    return ".".join(parts[:-1]) in MODULES and len(parts) > 2


def lacking_attributes(node: ast.ClassDef, text: str) -> set[str]:
    """Entries of the section `Attributes:` that the class lacks."""
    section = re.search(r"^Attributes:\n((?:(?:    .*)?\n?)*)", text, re.M)
    known = members(node)
    if section is None or known is None:
        return set()
    return {name for entry in ENTRY.findall(section[1]) for name in entry.split(", ")} - known


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_names_in_docstrings_exist(path: Path) -> None:
    for node, text in documented(SOURCES[path]):
        assert not {name for name in DOTTED.findall(text) if is_missing(name)}
        if isinstance(node, ast.ClassDef):
            assert not lacking_attributes(node, text), node.name


def test_class_names_are_unique() -> None:
    assert {name for name, count in Counter(node.name for node in DEFINED).items() if count > 1} == EXIST_TWICE


def test_missing_name_is_detected() -> None:
    assert is_missing("decision.decider.no_such_function")
    assert is_missing("MetricStore.no_such_method")
    assert not is_missing("prometheus.store.MetricStore.resolve")
    assert not is_missing("numpy.dot")
    tree = ast.parse(
        'class Point:\n    """A point.\n\n    Attributes:\n        x, y: place.\n        z: height.\n    """\n'
        "    x: int\n    y: int\n"
    )
    [(node, text)] = [each for each in documented(tree) if isinstance(each[0], ast.ClassDef)]
    assert lacking_attributes(node, text) == {"z"}
