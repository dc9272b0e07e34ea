"""Options that dataclasses elsewhere declare, read from their source: importing them would load torch, or numba.

A class is read as it stands: fields with simple types and literal defaults, explained under `Attributes:` of its
docstring. Every start of the command reads a few such classes; this takes milliseconds, importing them seconds, and
`steersman train --help` also works where torch is not installed.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

SIMPLE = {"int": int, "float": float, "bool": bool, "str": str}
_ATTRIBUTE = re.compile(r" {4}(?P<names>\w+(?:, \w+)*): (?P<text>.*)")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a class of options.

    Attributes:
        name: as in the class.
        type: int, float, bool, str, or a Literal of texts.
        default: its value if nobody says another.
        meaning: what the docstring says about it, with a capital.
    """

    name: str
    type: Any
    default: int | float | bool | str
    meaning: str


def declared(module: str, name: str = "Config") -> tuple[Field, ...]:
    """The fields of class `name` in a module that is not imported; those with other types or defaults are left out.

    Raises:
        LookupError: there is no such module or class.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise LookupError(f"no module {module}")
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            meanings = _meanings(ast.get_docstring(node) or "")
            found = [_field(item, meanings) for item in node.body if isinstance(item, ast.AnnAssign)]
            return tuple(field for field in found if field is not None)
    raise LookupError(f"no class {name} in {module}")


def _field(item: ast.AnnAssign, meanings: dict[str, str]) -> Field | None:
    kind = _type(item.annotation)
    if kind is None or item.value is None or not isinstance(item.target, ast.Name):
        return None
    try:
        default = ast.literal_eval(item.value)
    except ValueError:
        return None
    return Field(item.target.id, kind, default, meanings.get(item.target.id, ""))


def _type(annotation: ast.expr) -> Any:
    """The type that an annotation names, None if it is no simple one."""
    if isinstance(annotation, ast.Name):
        return SIMPLE.get(annotation.id)
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Literal":
        choices = ast.literal_eval(annotation.slice)
        return Literal[choices]
    return None


def _meanings(docstring: str) -> dict[str, str]:
    """Name to text of the section `Attributes:`."""
    found: dict[str, str] = {}
    names: list[str] = []
    inside = False
    for line in docstring.splitlines():
        if not line.startswith(" ") and line.strip():
            inside, names = line.strip() == "Attributes:", []
        elif inside and (match := _ATTRIBUTE.fullmatch(line)):
            names = match["names"].split(", ")
            found |= dict.fromkeys(names, match["text"].strip())
        elif inside and line.strip():
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return {name: text[:1].upper() + text[1:] for name, text in found.items()}
