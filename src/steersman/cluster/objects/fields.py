"""Typed access to fields of a Kubernetes object from YAML or JSON; errors name the path and what would be right."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any, TypeVar

import msgspec

from steersman.cluster.objects.api.metadata import NodeObject
from steersman.cluster.objects.api.pods import LivePod, PodObject

T = TypeVar("T")
P = TypeVar("P", bound=PodObject)
Object = Mapping[str, Any]  # a Kubernetes object, or a part of one, from YAML or JSON


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


# Fields of v1 Pod and Node that are not modelled, or that the pinned minor of Kubernetes does not have. What is made of
# each field is in `data/kubernetes.toml`, an allow-list: a field that is not in it is unknown.

READ, WATCHED, IGNORED, UNMODELLED = "read", "watched", "ignored", "unmodelled"
CLASSES = (READ, WATCHED, IGNORED, UNMODELLED)


@dataclass(frozen=True, slots=True)
class FieldRule:
    """What is made of a field; `type`: whose fields have rules, too, "" for a value or map."""

    use: str
    type: str = ""


@dataclass(slots=True)
class FieldUse:
    """Paths of the fields that an object uses, each once, such as `spec.volumes[].azureDisk`."""

    unmodelled: list[str] = field(default_factory=list)  # those that affect placement and are not modelled
    # Those that are modelled where the objects that they refer to are watched
    watched: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # those that are not in the API


@dataclass(frozen=True, slots=True)
class KubernetesTable:
    """The content of `data/kubernetes.toml`."""

    minor: str  # of Kubernetes
    oldest: str  # minor of Kubernetes that steersman is tested on
    fields: Mapping[str, Mapping[str, FieldRule]]  # name of a type -> name of a field -> its rule
    plugins: Mapping[str, str]  # default plugin of kube-scheduler -> what is done with it


@cache
def kubernetes_table() -> KubernetesTable:
    content = tomllib.loads(resources.files("steersman.data").joinpath("kubernetes.toml").read_text("utf-8"))
    fields = {kind: dict(_rules(uses)) for kind, uses in content["fields"].items()}
    return KubernetesTable(content["minor"], content["oldest"], fields, content["plugins"])


def _rules(uses: Mapping[str, str]) -> Iterator[tuple[str, FieldRule]]:
    for use in CLASSES:
        for each in uses.get(use, "").split():
            name, _, kind = each.partition(":")
            yield name, FieldRule(use, kind)


def field_use(obj: Object, kind: str = "Pod") -> FieldUse:
    """Return the fields of an object that are not simply read or ignored; `kind` is Pod (or a template) or Node."""
    found = FieldUse()
    _look(obj, kind, "", kubernetes_table().fields, found)
    return found


def live_field_use(raw: bytes | msgspec.Raw, kind: str) -> FieldUse:
    """Return what `field_use` does of an object's JSON, without the watched fields.

    Most objects have only fields that are read, watched or ignored, of which a typed decoder is soon sure. Decoding the
    JSON again takes 6 µs for a small pod. The typed pod lacks the fields in question, and replicas may differ in them.
    """
    try:
        _strict_decoder(kind).decode(raw)
    except msgspec.ValidationError:
        return field_use(msgspec.json.decode(raw), kind)
    return FieldUse()


@cache
def _strict_decoder(kind: str) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_strict_type(kind))


@cache
def _strict_type(kind: str) -> Any:
    fields = []
    for name, rule in kubernetes_table().fields[kind].items():
        if rule.use != UNMODELLED:
            content: Any = _strict_type(rule.type) if rule.use == READ and rule.type else None
            fields.append((name, msgspec.Raw if content is None else content | list[content] | None, msgspec.Raw()))
    return msgspec.defstruct(kind, fields, forbid_unknown_fields=True)


def _look(obj: Object, kind: str, path: str, table: Mapping[str, Mapping[str, FieldRule]], found: FieldUse) -> None:
    rules = table[kind]
    for name, value in obj.items():
        rule = rules.get(name)
        if rule is not None and (rule.use == IGNORED or (rule.use == READ and not rule.type)):
            continue
        if value in (None, "", [], {}):
            continue
        where = f"{path}.{name}" if path else str(name)
        if rule is None:
            _note(found.unknown, where)
        elif rule.use == UNMODELLED:
            _note(found.unmodelled, where)
        elif rule.use == WATCHED:
            _note(found.watched, where)
        else:
            is_list = isinstance(value, list)
            for each in value if is_list else (value,):
                if isinstance(each, dict):
                    _look(each, rule.type, f"{where}[]" if is_list else where, table, found)


def _note(paths: list[str], path: Any) -> None:
    if path not in paths:
        paths.append(path)


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
