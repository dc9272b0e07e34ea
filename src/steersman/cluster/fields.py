"""Typed look-ups in a Kubernetes object read from YAML or JSON, with the path of the field in every complaint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Object = Mapping[str, Any]
"""A Kubernetes object, or a part of one, as YAML or JSON give it."""


class FieldError(ValueError):
    """A field has a value that Kubernetes would refuse: its path, and what is wrong and would be right."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")


def join(path: str, key: str) -> str:
    """The path of `key` below `path`; keys with a dot or a slash are bracketed as kubectl's JSONPath does."""
    if "." in key or "/" in key:
        return f"{path}['{key}']"
    return f"{path}.{key}" if path else key


def mapping(parent: Object, key: str, path: str) -> Object:
    """A mapping; missing and null are an empty one, as in Kubernetes."""
    value = parent.get(key)
    if value is None:
        return {}
    return _checked(value, join(path, key))


def items(parent: Object, key: str, path: str) -> Iterator[tuple[Object, str]]:
    """The mappings of a list, each with its path; missing and null are an empty list."""
    for i, value in enumerate(sequence(parent, key, path)):
        where = f"{join(path, key)}[{i}]"
        yield _checked(value, where), where


def sequence(parent: Object, key: str, path: str) -> Sequence[Any]:
    """A list; missing and null are an empty one."""
    value = parent.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise FieldError(join(path, key), f"must be a list, not {kind_of(value)}")
    return value


def text(parent: Object, key: str, path: str, default: str = "") -> str:
    """A string; missing and null are `default`."""
    value = parent.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise FieldError(join(path, key), not_text(value))
    return value


def required_text(parent: Object, key: str, path: str) -> str:
    """A string that must be there and not empty."""
    value = text(parent, key, path)
    if not value:
        raise FieldError(join(path, key), "is missing")
    return value


def name(parent: Object, key: str, path: str) -> str:
    """A name that must be there; one with line breaks or the like would garble every table and message."""
    value = required_text(parent, key, path)
    if not value.isprintable():
        raise FieldError(join(path, key), f"{value!r} has a character that cannot be printed")
    return value


def texts(parent: Object, key: str, path: str) -> tuple[str, ...]:
    """A list of strings."""
    values = sequence(parent, key, path)
    for i, value in enumerate(values):
        if not isinstance(value, str):
            raise FieldError(f"{join(path, key)}[{i}]", not_text(value))
    return tuple(values)


def text_map(parent: Object, key: str, path: str) -> dict[str, str]:
    """A mapping of strings, such as labels."""
    found = mapping(parent, key, path)
    for name, value in found.items():
        if not isinstance(value, str):
            raise FieldError(join(join(path, key), name), not_text(value))
    return dict(found)


def integer(parent: Object, key: str, path: str, low: int, high: int, default: int) -> int:
    """A whole number from `low` to `high`; missing and null are `default`."""
    value = parent.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise FieldError(join(path, key), f"{value!r} is not a whole number from {low} to {high}")
    return value


def boolean(parent: Object, key: str, path: str) -> bool:
    """True or false; missing and null are false."""
    value = parent.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise FieldError(join(path, key), f"{value!r} is not true or false")
    return value


def choice(parent: Object, key: str, path: str, allowed: Sequence[str], default: str = "") -> str:
    """One of the `allowed` strings; missing, null and empty are `default` where there is one."""
    value = text(parent, key, path) or default
    if value not in allowed:
        raise FieldError(join(path, key), f"{value!r} is unknown; one of {', '.join(allowed)} is right")
    return value


def _checked(value: object, path: str) -> Object:
    """The value if it is a mapping with names for keys. YAML also has numbers, true and null for keys."""
    if not isinstance(value, dict):
        raise FieldError(path, f"must be a mapping of fields, not {kind_of(value)}")
    for key in value:
        if not isinstance(key, str):
            raise FieldError(path, f"has a name that {not_text(key)}")
    return value


def not_text(value: object) -> str:
    """The complaint about a value that must be a string: YAML reads an unquoted 8 or yes as something else."""
    return f"must be text, not {kind_of(value)}; put it in quotes"


def kind_of(value: object) -> str:
    """What a value is, in YAML's words."""
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), f"the number {value}" if isinstance(value, int | float) else type(value).__name__)
