"""What the image of `deploy/Containerfile` compiles is in the program."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import steersman

CONTAINERFILE = Path(__file__).parents[3] / "deploy" / "Containerfile"


def test_image_has_this_version() -> None:
    assert f"steersman:{steersman.__version__}" in CONTAINERFILE.read_text()


def test_image_compiles_kernels_with_existing_functions() -> None:
    text = CONTAINERFILE.read_text().replace("\\\n", "")
    (program,) = re.findall(r'python -c "([^"]+)"', text)
    tree = ast.parse(program.strip())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert imports
    for node in imports:
        module = importlib.import_module(str(node.module))
        assert all(hasattr(module, name.name) for name in node.names)
