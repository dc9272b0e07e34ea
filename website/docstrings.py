"""Docstrings of the package as Markdown: sections, signatures and members, read from the sources without importing."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import griffe

SOURCES = Path(__file__).parents[1] / "src"
INHERITED = re.compile(r"^See `\w+`")
"""Docstrings of methods whose base class describes them."""
SHOWN_LENGTH = 88
"""Characters of a signature on one line."""


@cache
def module(path: str) -> griffe.Module:
    """Return a module of the package by its dotted path."""
    file = SOURCES.joinpath(*path.split(".")).with_suffix(".py")
    return griffe.visit(path, filepath=file, code=file.read_text())


def find(path: str) -> griffe.Class | griffe.Function | griffe.Attribute:
    """Return the definition of a dotted path, such as `steersman.api.evaluate`, in whatever module it is."""
    where, _, name = path.rpartition(".")
    found = module(where).members[name]
    if isinstance(found, griffe.Alias):
        return find(found.target_path)
    assert isinstance(found, griffe.Class | griffe.Function | griffe.Attribute), path
    return found


def described(path: str, level: int, name: str = "") -> str:
    """Return the section of a function or class: its signature, its docstring and, of a class, its members.

    Args:
        path: dotted path of the definition.
        level: level of the heading.
        name: as users write it; "": the name alone.
    """
    found = find(path)
    head = f"{'#' * level} {name or found.name}"
    if isinstance(found, griffe.Function):
        return f"{head}\n\n{_signature(found, name)}\n\n{text_of(found.docstring)}"
    parts = [head, f"`{path.rpartition('.')[0]}`", text_of(found.docstring)]
    if isinstance(found, griffe.Class):
        members = [_member(each) for each in found.members.values() if _is_shown(each)]
        parts += [f"```python\n{member}\n```\n\n{text}" for member, text in members]
    return "\n\n".join(parts)


def text_of(docstring: griffe.Docstring | None) -> str:
    """Return a docstring as Markdown: paragraphs, and its sections as tables."""
    parts = list[str]()
    for section in docstring.parse("google", warnings=False) if docstring else ():
        if section.kind is griffe.DocstringSectionKind.text:
            parts.append(str(section.value))
        elif section.kind is griffe.DocstringSectionKind.admonition:
            parts.append(f"**{section.title}**: {section.value.contents}")
        elif section.kind in (griffe.DocstringSectionKind.examples,):
            parts.append("\n".join(f"```python\n{value}\n```" for _, value in section.value))
        else:
            title = {"parameters": "argument", "attributes": "attribute", "raises": "raises"}.get(section.kind.value)
            if title:
                parts.append(table(title, [(_entry(each), each.description) for each in section.value]))
            else:
                parts.append(" ".join(each.description for each in section.value))
    return "\n\n".join(parts)


def entries(path: str) -> dict[str, str]:
    """Return what the section `Attributes` of a class says of each; `address, port: ...` describes both."""
    docstring = find(path).docstring
    result: dict[str, str] = {}
    for section in docstring.parse("google", warnings=False) if docstring else ():
        if section.kind is griffe.DocstringSectionKind.attributes:
            for each in section.value:
                result |= {name.strip(): cell(each.description) for name in each.name.split(",")}
    return result


def table(title: str, rows: list[tuple[str, str]]) -> str:
    """Return a table of names and meanings."""
    lines = [f"| `{name}` | {cell(text)} |" for name, text in rows]
    return "\n".join((f"| {title} | meaning |", "| --- | --- |", *lines))


def cell(text: str) -> str:
    """Return a text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _entry(each: griffe.DocstringNamedElement | griffe.DocstringRaise) -> str:
    return each.name if isinstance(each, griffe.DocstringNamedElement) else str(each.annotation)


def _is_shown(member: griffe.Object | griffe.Alias) -> bool:
    """Whether a member is public and says something of its own."""
    return (
        not member.is_alias
        and not member.name.startswith("_")
        and member.docstring is not None
        and not INHERITED.match(member.docstring.value)
    )


def _member(member: griffe.Object | griffe.Alias) -> tuple[str, str]:
    """Return the signature of a member and its docstring."""
    text = text_of(member.docstring)
    if isinstance(member, griffe.Function):
        return _shown(member, member.name), text
    annotation = f": {member.annotation}" if isinstance(member, griffe.Attribute) and member.annotation else ""
    return f"{member.name}{annotation}", text


def _signature(function: griffe.Function, name: str) -> str:
    return f"```python\n{_shown(function, name or function.name)}\n```"


def _shown(function: griffe.Function, name: str) -> str:
    """Return a signature as ruff would format it."""
    kinds = griffe.ParameterKind
    words, is_after_star = list[str](), False
    for each in function.parameters:
        if each.name in ("self", "cls"):
            continue
        stars = {kinds.var_positional: "*", kinds.var_keyword: "**"}.get(each.kind or kinds.positional_only, "")
        if each.kind is kinds.keyword_only and not is_after_star:
            words.append("*")
        is_after_star |= each.kind in (kinds.keyword_only, kinds.var_positional)
        annotation = f": {_plain(each.annotation)}" if each.annotation else ""
        equals = " = " if annotation else "="
        default = f"{equals}{each.default}" if each.default is not None and not stars else ""
        words.append(f"{stars}{each.name}{annotation}{default}")
    returns = f" -> {_plain(function.returns)}" if function.returns else ""
    line = f"{name}({', '.join(words)}){returns}"
    if len(line) <= SHOWN_LENGTH:
        return line
    return "\n".join((f"{name}(", *(f"    {word}," for word in words), f"){returns}"))


def _plain(annotation: str | griffe.Expr) -> str:
    return ast.unparse(ast.parse(str(annotation), mode="eval"))
