"""Configuration files in Kubernetes' manner: YAML with an `apiVersion` and a `kind`, fields that must be known."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from steersman.errors import InputError

API_VERSION = "steersman.dev/v1alpha1"

T = TypeVar("T")


def read_document(path: Path, kind: str) -> dict[str, Any]:
    """What a file of a kind holds, beside its `apiVersion` and `kind`.

    Raises:
        InputError: it cannot be read, is no YAML, or of another kind.
    """
    try:
        document: Any = msgspec.yaml.decode(path.read_bytes())
    except OSError as error:
        raise InputError(path, "", "", f"cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise InputError(path, "", "", f"is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise InputError(path, "", "", f"is no mapping; apiVersion: {API_VERSION} and kind: {kind} are right")
    for field, wanted in (("apiVersion", API_VERSION), ("kind", kind)):
        if document.pop(field, None) != wanted:
            raise InputError(path, "", field, f"{wanted} is right")
    return document


def convert(content: object, wanted: type[T], source: Path | str, inside: str = "") -> T:
    """Content as a struct. Raises InputError: it is none; the path of the field is below `inside`."""
    try:
        return msgspec.convert(content, wanted)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        field = ".".join(part for part in (inside, place.strip("`.")) if part)
        raise InputError(source, "", field or "file", problem) from None


def check_ranges(ranges: Iterable[tuple[str, float, float, float]], source: Path | str) -> None:
    """Raise InputError: of fields, their values, the least and the most that is right, one is out of range."""
    for field, value, low, high in ranges:
        if not low <= value <= high:
            raise InputError(source, "", field, f"is {value:g}; {low:g} to {high:g} is right")
