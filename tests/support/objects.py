"""Nodes of parsed documents."""

from __future__ import annotations

from typing import Any

from steersman.cluster.model import Node
from steersman.cluster.objects.api.metadata import NodeObject
from steersman.cluster.objects.decoding import decode_node
from steersman.cluster.objects.fields import FieldError, converted
from steersman.core.errors import InputError


def node_from_object(obj: dict[str, Any], *, file: str = "", where: str = "") -> Node:
    """Return a v1 Node of a parsed document. Raises InputError: a field is invalid."""
    try:
        return decode_node(converted(obj, NodeObject))
    except FieldError as error:
        raise InputError(file, where, error.field, error.problem) from None
