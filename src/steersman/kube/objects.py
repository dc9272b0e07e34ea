"""What is needed of API objects at once, decoded fast; the rest of a pod is decoded when it is new."""

from __future__ import annotations

from typing import Any

import msgspec

from steersman.cluster.objects import DEFAULT_SCHEDULER


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    """`metadata`."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class NamedHead(msgspec.Struct, frozen=True):
    """Any object: what it is called."""

    metadata: ObjectMeta

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class PodSpecHead(msgspec.Struct, frozen=True, rename="camel"):
    """The part of `spec` that says who places a pod, and where it is."""

    node_name: str = ""
    scheduler_name: str = DEFAULT_SCHEDULER


class PodStatusHead(msgspec.Struct, frozen=True, rename="camel"):
    """The part of `status` that says whether it is over, and the node that a scheduler has nominated for it."""

    phase: str = ""
    nominated_node_name: str = ""


class PodHead(NamedHead, frozen=True):
    """A pod at a glance."""

    spec: PodSpecHead = PodSpecHead()
    status: PodStatusHead = PodStatusHead()

    @property
    def finished(self) -> bool:
        """Whether it has run to its end."""
        return self.status.phase in ("Succeeded", "Failed")


pod_head = msgspec.json.Decoder(PodHead).decode
named_head = msgspec.json.Decoder(NamedHead).decode
whole: Any = msgspec.json.Decoder().decode
