"""A v1 Node."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from steersman.cluster.objects.api.metadata import Condition, ManifestObject


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
        """Whether it says that it is ready."""
        conditions = (self.status or _NO_STATUS).conditions or ()
        return any(each.type == "Ready" and each.status == "True" for each in conditions)
