"""`metadata` of every object, and selectors by labels."""

from __future__ import annotations

from typing import Any

import msgspec


class OwnerReference(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `metadata.ownerReferences`."""

    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    """`metadata` that an author may state. Values of annotations are text in the API; in a file quotes may be missing.

    Other fields of it are not checked in a file.
    """

    name: str = ""
    namespace: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, Any] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: str | None = None


class StoredMeta(ObjectMeta, frozen=True, rename="camel"):
    """`metadata` with what the API server adds."""

    uid: str = ""
    resource_version: str = ""
    generation: int = 0


class ManifestObject(msgspec.Struct, frozen=True):
    """Any object of a file."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.metadata.namespace or ''}/{self.metadata.name}"


class NamedObject(ManifestObject, frozen=True):
    """Any object of the API."""

    metadata: StoredMeta = StoredMeta()


named_object = msgspec.json.Decoder(NamedObject).decode


class Condition(msgspec.Struct, frozen=True):
    """An entry of `status.conditions`."""

    type: str | None = None
    status: str | None = None


class LabelSelectorRequirement(msgspec.Struct, frozen=True):
    """An entry of `matchExpressions` or `matchFields`."""

    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    """A metav1.LabelSelector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None


class NodeTerm(msgspec.Struct, frozen=True, rename="camel"):
    """A term of a node selector."""

    match_expressions: list[LabelSelectorRequirement] | None = None
    match_fields: list[LabelSelectorRequirement] | None = None


class NodeSelector(msgspec.Struct, frozen=True, rename="camel"):
    """A node selector: one of its terms must hold."""

    node_selector_terms: list[NodeTerm] | None = None
