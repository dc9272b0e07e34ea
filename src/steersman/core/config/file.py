"""Configuration files in the style of Kubernetes: YAML with `apiVersion` and `kind`; unknown fields are errors."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from steersman.core.errors import InputError

API_VERSION = "steersman.dev/v1alpha1"

T = TypeVar("T")


def read_document(path: Path, kind: str) -> dict[str, Any]:
    try:
        document: Any = msgspec.yaml.decode(path.read_bytes())
    except OSError as error:
        raise InputError(path, "", "", f"cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise InputError(path, "", "", f"is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise InputError(path, "", "", f"is not a mapping; expected apiVersion: {API_VERSION} and kind: {kind}")
    for field, expected in (("apiVersion", API_VERSION), ("kind", kind)):
        if document.pop(field, None) != expected:
            raise InputError(path, "", field, f"expected {expected}")
    return document


def convert(content: object, kind: type[T], source: Path | str, inside: str = "") -> T:
    """Convert content to a struct. Raises InputError: it does not match; the path of the field is below `inside`."""
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        field = ".".join(part for part in (inside, place.strip("`.")) if part)
        raise InputError(source, "", field or "file", problem) from None


def check_ranges(ranges: Iterable[tuple[str, float, float, float]], source: Path | str) -> None:
    """Check (field, value, least, most) tuples. Raises InputError: a value is out of range."""
    for field, value, low, high in ranges:
        if not low <= value <= high:
            raise InputError(source, "", field, f"is {value:g}; expected {low:g} to {high:g}")
