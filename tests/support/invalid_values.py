"""Values where they do not belong: whatever a file holds, it ends in a clear refusal and never in a crash."""

from __future__ import annotations

from typing import Any

STRANGE: list[Any] = [
    None,
    True,
    0,
    -1,
    1 << 70,
    1.5,
    "",
    "x",
    "1Gi",
    [],
    [[]],
    [None],
    {},
    {1: 2},
    {"a": []},
    {None: {}},
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every part of a document, itself first."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in inner for place in places(child, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy of a document with another value at this path."""
    if not path:
        return new
    children = dict(value) if isinstance(value, dict) else list(value)
    children[path[0]] = replaced(children[path[0]], path[1:], new)
    return children
