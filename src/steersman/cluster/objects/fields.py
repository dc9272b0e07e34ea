"""Typed access to fields of a Kubernetes object from YAML or JSON, with the path of the field in every error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

T = TypeVar("T")
Object = Mapping[str, Any]
"""A Kubernetes object, or a part of one, from YAML or JSON."""


class FieldError(ValueError):
    """A field has a value that Kubernetes would refuse: its path, the problem, and what would be right."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}" if field else problem)


def join(path: str, key: str) -> str:
    """Return the path of `key` below `path`; keys with a dot or a slash are bracketed as in kubectl's JSONPath."""
    if "." in key or "/" in key:
        return f"{path}['{key}']"
    return f"{path}.{key}" if path else key


def mapping(parent: Object, key: str, path: str) -> Object:
    """Return a mapping; missing and null are an empty one, as in Kubernetes."""
    value = parent.get(key)
    if value is None:
        return {}
    return _checked(value, join(path, key))


def items(parent: Object, key: str, path: str) -> Iterator[tuple[Object, str]]:
    """Yield the mappings of a list, each with its path; missing and null are an empty list."""
    for i, value in enumerate(sequence(parent, key, path)):
        where = f"{join(path, key)}[{i}]"
        yield _checked(value, where), where


def indexed(entries: Sequence[T] | None, path: str) -> Iterator[tuple[T, str]]:
    """Yield the entries of a list, each with its path; null is an empty list."""
    for i, entry in enumerate(entries or ()):
        yield entry, f"{path}[{i}]"


def one_of(value: str | None, allowed: Sequence[str], path: str, default: str = "") -> str:
    """Return one of the `allowed` strings; null and empty are `default`. Raises FieldError."""
    value = value or default
    if value not in allowed:
        raise FieldError(path, f"{value!r} is unknown; expected one of {', '.join(allowed)}")
    return value


def required(value: str | None, path: str) -> str:
    """Return a string that must not be null or empty. Raises FieldError."""
    if not value:
        raise FieldError(path, "is missing")
    return value


def printable(value: str | None, path: str) -> str:
    """Return a required name, without characters such as line breaks that would garble tables and messages."""
    if not required(value, path).isprintable():
        raise FieldError(path, f"{value!r} has a character that cannot be printed")
    return value or ""


def sequence(parent: Object, key: str, path: str) -> Sequence[Any]:
    """Return a list; missing and null are an empty one."""
    value = parent.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise FieldError(join(path, key), f"must be a list, not {kind_of(value)}")
    return value


def text(parent: Object, key: str, path: str, default: str = "") -> str:
    """Return a string; missing and null are `default`."""
    value = parent.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise FieldError(join(path, key), not_text(value))
    return value


def required_text(parent: Object, key: str, path: str) -> str:
    """Return a string that must not be missing or empty."""
    return required(text(parent, key, path), join(path, key))


def integer(parent: Object, key: str, path: str, low: int, high: int, default: int) -> int:
    """Return an integer from `low` to `high`; missing and null are `default`."""
    value = parent.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise FieldError(join(path, key), f"{value!r} is not a whole number from {low} to {high}")
    return value


def boolean(parent: Object, key: str, path: str) -> bool:
    """Return true or false; missing and null are false."""
    value = parent.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise FieldError(join(path, key), f"{value!r} is not true or false")
    return value


def choice(parent: Object, key: str, path: str, allowed: Sequence[str], default: str = "") -> str:
    """Return one of the `allowed` strings; missing, null and empty are `default` where there is one."""
    return one_of(text(parent, key, path), allowed, join(path, key), default)


def unix_seconds(stamp: object) -> float | None:
    """Return a time of the API in seconds since 1970, None if it is missing or invalid."""
    try:
        moment = datetime.fromisoformat(stamp) if isinstance(stamp, str) else None
        return None if moment is None or moment.tzinfo is None else moment.timestamp()
    except (ValueError, OverflowError):
        return None


def _checked(value: object, path: str) -> Object:
    """Return the value if it is a mapping with strings as keys; YAML also has numbers, true and null as keys."""
    if not isinstance(value, dict):
        raise FieldError(path, f"must be a mapping of fields, not {kind_of(value)}")
    for key in value:
        if not isinstance(key, str):
            raise FieldError(path, f"has a name that {not_text(key)}")
    return value


def not_text(value: object) -> str:
    """Return the problem of a value that must be a string: YAML reads an unquoted 8 or yes as something else."""
    return f"must be text, not {kind_of(value)}; put it in quotes"


def kind_of(value: object) -> str:
    """Return the type of a value in YAML's words."""
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), f"the number {value}" if isinstance(value, int | float) else type(value).__name__)
