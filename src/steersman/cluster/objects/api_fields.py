"""Fields of v1 Pod and Node that are not modelled, or that the pinned minor of Kubernetes does not have.

What is made of each field is in `data/kubernetes.toml`, an allow-list: a field that is not in it is unknown.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from steersman.cluster.objects.fields import Object

READ, WATCHED, IGNORED, UNMODELLED = "read", "watched", "ignored", "unmodelled"
CLASSES = (READ, WATCHED, IGNORED, UNMODELLED)


@dataclass(frozen=True, slots=True)
class FieldRule:
    """What is made of a field; `type`: whose fields have rules, too, "" for a value or map."""

    use: str
    type: str = ""


@dataclass(slots=True)
class FieldUse:
    """Paths of the fields that an object uses, each once, such as `spec.volumes[].azureDisk`.

    Attributes:
        unmodelled: those that affect placement and are not modelled.
        watched: those that are modelled where the objects that they refer to are watched.
        unknown: those that are not in the API.
    """

    unmodelled: list[str] = field(default_factory=list)
    watched: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class KubernetesTable:
    """The content of `data/kubernetes.toml`.

    Attributes:
        minor: of Kubernetes.
        oldest: minor of Kubernetes that steersman is tested on.
        fields: name of a type -> name of a field -> its rule.
        plugins: default plugin of kube-scheduler -> what is done with it.
    """

    minor: str
    oldest: str
    fields: Mapping[str, Mapping[str, FieldRule]]
    plugins: Mapping[str, str]


@cache
def kubernetes_table() -> KubernetesTable:
    """Return the table."""
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
    """Return a type of which each field is optional, and none is unmodelled or unknown."""
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
