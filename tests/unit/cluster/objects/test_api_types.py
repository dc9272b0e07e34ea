"""The types of Pods and Nodes have no field that the table of fields does not know as read."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from steersman.cluster.objects.api.metadata import NodeObject
from steersman.cluster.objects.api.pods import LivePod
from steersman.cluster.objects.fields import READ, UNMODELLED, WATCHED, kubernetes_table

REPORTED = {"resourceClaims", "schedulingGroup", "conditions", "lastTransitionTime"}
"""Fields that are read to report a pod or node, or of files alone, and do not decide where live pods go."""


def fields(kind: type[msgspec.Struct]) -> Iterator[tuple[str, type[msgspec.Struct] | None]]:
    """Names of a type's fields, each with the type of its content where that has fields, too."""
    hints = typing.get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        types = (each for each in parts(hints[field.name]) if isinstance(each, type))
        inner = [each for each in types if issubclass(each, msgspec.Struct)]
        yield field.encode_name, inner[0] if inner else None


def parts(hint: Any) -> Iterator[Any]:
    yield hint
    for each in typing.get_args(hint):
        yield from parts(each)


@pytest.mark.parametrize(("kind", "of"), [("Pod", LivePod), ("Node", NodeObject)])
def test_every_field_that_is_decoded_is_in_the_table(kind: str, of: type[msgspec.Struct]) -> None:
    table, open_types = kubernetes_table().fields, [(kind, of)]
    while open_types:
        name, current = open_types.pop()
        for field, inner in fields(current):
            rule = table[name].get(field)
            assert rule is not None, (name, field)
            assert rule.use in (READ, WATCHED) or field in REPORTED, (name, field, rule.use)
            if inner is not None and rule.use == READ and rule.type:
                open_types.append((rule.type, inner))
    assert table["PodSpec"]["resourceClaims"].use == UNMODELLED
