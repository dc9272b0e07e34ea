"""`metadata` of every object, selectors by labels, and v1 Node."""

from __future__ import annotations

from typing import Annotated, Any

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


class NodeTaint(msgspec.Struct, frozen=True):
    """An entry of `spec.taints`."""

    key: str | None = None
    value: str | None = None
    effect: str | None = None


class NodeSpec(msgspec.Struct, frozen=True):
    """`spec` of a Node."""

    taints: list[NodeTaint] | None = None
    unschedulable: bool | None = None


class NodeImage(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `status.images`."""

    names: list[str] | None = None
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | None = None


class NodeAddress(msgspec.Struct, frozen=True):
    """An entry of `status.addresses`."""

    address: str | None = None


class NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    """`status` of a Node."""

    allocatable: dict[str, Any] | None = None
    capacity: dict[str, Any] | None = None
    images: list[NodeImage] | None = None
    addresses: list[NodeAddress] | None = None
    declared_features: list[str] | None = None
    conditions: list[Condition] | None = None


_NO_SPEC, _NO_STATUS = NodeSpec(), NodeStatus()


class NodeObject(ManifestObject, frozen=True):
    """A v1 Node."""

    spec: NodeSpec | None = None
    status: NodeStatus | None = None

    @property
    def is_ready(self) -> bool:
        conditions = (self.status or _NO_STATUS).conditions or ()
        return any(each.type == "Ready" and each.status == "True" for each in conditions)
