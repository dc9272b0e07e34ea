"""Decode objects from JSON or from parsed documents; errors name the path of the field and what would be right."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from steersman.cluster.objects.api.metadata import NodeObject
from steersman.cluster.objects.api.pods import LivePod, PodObject
from steersman.cluster.objects.fields import FieldError, Object, join, kind_of, not_text

T = TypeVar("T")
P = TypeVar("P", bound=PodObject)

_PROBLEM = re.compile(
    r"(?:Object (?:missing required|contains unknown) field `(\w+)`|Expected `(\w+)[^`]*`(?: ([<>]=) ([-\d]+))?).*?"
    r"(?: - at (`key` in )?`\$(.*)`)?"
)
_STEP = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")
_TYPES: dict[str, Any] = {"str": str, "object": dict, "array": list}

_pod_decoder = msgspec.json.Decoder(LivePod)
_node_decoder = msgspec.json.Decoder(NodeObject)


def pod_from_json(raw: bytes | msgspec.Raw) -> LivePod:
    """Return a v1 Pod from JSON. Raises FieldError: it is none; msgspec.DecodeError: it is no JSON."""
    return _decoded(_pod_decoder, raw)


def node_from_json(raw: bytes | msgspec.Raw) -> NodeObject:
    """Return a v1 Node from JSON. Raises FieldError: it is none; msgspec.DecodeError: it is no JSON."""
    return _decoded(_node_decoder, raw)


def converted(obj: Object, kind: type[T], path: str = "") -> T:
    """Return a parsed document, or the part of one at `path`, as an object of this kind. Raises FieldError."""
    try:
        return msgspec.convert({key: part for key, part in obj.items() if part is not None}, kind)
    except msgspec.ValidationError as error:
        raise _field_error(error, obj, path) from None


def valid_pod(raw: bytes | msgspec.Raw) -> LivePod:
    """Return a pod of the API; of an invalid one those fields of `metadata`, `spec` and `status` that are valid."""
    try:
        return pod_from_json(raw)
    except FieldError:
        pod = valid_parts(msgspec.json.decode(raw), LivePod)
    if not pod.metadata.name:
        raise FieldError("metadata.name", "is missing")
    return pod


def valid_parts(obj: Object, kind: type[P]) -> P:
    """Return a pod of a document, or a template of pods; of an invalid one the valid fields, as `valid_pod` does."""
    try:
        return converted(obj, kind)
    except FieldError:
        pass
    valid: dict[str, dict[str, Any]] = {"metadata": {}, "spec": {}, "status": {}}
    for part, fields in valid.items():
        stated = obj.get(part)
        for name, value in stated.items() if isinstance(stated, dict) else ():
            try:
                converted({part: {name: value}}, kind)
            except FieldError:
                continue
            fields[name] = value
    return converted(valid, kind)


def _decoded(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise _field_error(error, msgspec.json.decode(raw), "") from None


def _field_error(error: msgspec.ValidationError, obj: object, path: str) -> FieldError:
    """Return an error of msgspec in the words of our files, with the value that is wrong."""
    found = _PROBLEM.fullmatch(str(error))
    if found is None:
        return FieldError(path, str(error))
    missing, expected, comparison, bound, of_key, place = found.groups()
    value = obj
    for name, index in _STEP.findall(place or ""):
        key = name or _wrong_key(value, index, expected)
        path = f"{path}[{key}]" if isinstance(value, list) else join(path, key)
        value = value[key]  # type: ignore[index]
    if missing:
        return FieldError(join(path, missing), "is missing" if "missing" in str(error) else "is an unknown field")
    if of_key and isinstance(value, dict):
        return FieldError(path, f"has a name that {not_text(next(key for key in value if not isinstance(key, str)))}")
    return FieldError(path, _problem(value, expected, comparison, bound))


def _wrong_key(value: Any, index: str, expected: str) -> Any:
    """Return the index of an entry, or the key of a mapping's first value that is not of the expected type."""
    if index != "...":
        return int(index)
    return next(key for key, each in value.items() if not isinstance(each, _TYPES[expected]))


def _problem(value: object, expected: str, comparison: str, bound: str) -> str:
    match expected:
        case "str":
            return "is missing" if value is None else not_text(value)
        case "object":
            return f"must be a mapping of fields, not {kind_of(value)}"
        case "array":
            return f"must be a list, not {kind_of(value)}"
        case "bool":
            return f"{value!r} is not true or false"
        case _:
            limit = f" of at {'least' if comparison == '>=' else 'most'} {bound}" if comparison else ""
            return f"{value!r} is not a whole number{limit}"
