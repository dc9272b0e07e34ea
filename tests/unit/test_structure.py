"""The structure of the code: what import-linter has no contract for."""

from __future__ import annotations

import ast
import functools
import importlib
import pickle
import re
from dataclasses import MISSING
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

import steersman

SOURCES = Path(steersman.__file__).parent
CONSTANT = r"(?:[A-Za-z_]\w*\.)*[A-Z][A-Z_]+"
IDENTITY = re.compile(rf"\bis (?:not )?{CONSTANT}\b")


def test_imports_have_no_cycles() -> None:
    graph = grimp.build_graph("steersman")  # imports for types alone count, too
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()


def identity_with_constants(path: Path) -> list[str]:
    """The comparisons by `is` with a constant that unpickling makes a second time."""
    tree = ast.parse(path.read_text("utf-8"))
    module_name = ".".join(("steersman", *path.relative_to(SOURCES).with_suffix("").parts))
    names = dict(vars(importlib.import_module(module_name)))
    for statement in ast.walk(tree):
        if isinstance(statement, ast.ImportFrom) and statement.module != "__future__":  # also those in functions
            module = importlib.import_module(str(statement.module))
            names |= {each.asname or each.name: getattr(module, each.name, None) for each in statement.names}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(isinstance(each, ast.Is | ast.IsNot) for each in node.ops):
            for name in map(ast.unparse, (node.left, *node.comparators)):
                root, *attributes = name.split(".")
                if not re.fullmatch(CONSTANT, name) or root not in names:
                    continue
                value = functools.reduce(getattr, attributes, names[root])
                if value is not MISSING and pickle.loads(pickle.dumps(value)) is not value:
                    found.append(f"{path.relative_to(SOURCES)}:{node.lineno}: {ast.unparse(node)}")
    return found


def test_identity_of_constants_survives_pickling() -> None:
    """What a worker process was sent are other objects than the constants of that process."""
    by_identity = [path for path in sorted(SOURCES.rglob("*.py")) if IDENTITY.search(path.read_text("utf-8"))]
    assert len(by_identity) > 10
    assert not [text for path in by_identity for text in identity_with_constants(path)]
