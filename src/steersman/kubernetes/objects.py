"""Fields of API objects that are needed immediately, decoded fast; the rest of a pod is decoded when it is new."""

from __future__ import annotations

from typing import Any

import msgspec

from steersman.cluster.objects.decoding import DEFAULT_SCHEDULER


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    """`metadata` of an object."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class NamedHead(msgspec.Struct, frozen=True):
    """Name of any object."""

    metadata: ObjectMeta

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class PodSpecHead(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of `spec` that say which scheduler places a pod, and its node."""

    node_name: str = ""
    scheduler_name: str = DEFAULT_SCHEDULER


class PodStatusHead(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of `status`: the phase, and the node that a scheduler has nominated."""

    phase: str = ""
    nominated_node_name: str = ""


class PodHead(NamedHead, frozen=True):
    """Fields of a pod that are read of every event."""

    spec: PodSpecHead = PodSpecHead()
    status: PodStatusHead = PodStatusHead()

    @property
    def finished(self) -> bool:
        """Whether the pod has succeeded or failed."""
        return self.status.phase in ("Succeeded", "Failed")


class PodCondition(msgspec.Struct, frozen=True, rename="camel"):
    """Condition of a pod's `status`."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _Conditions(msgspec.Struct, frozen=True):
    conditions: list[PodCondition] | None = None


class _PodConditions(msgspec.Struct, frozen=True):
    status: _Conditions = _Conditions()


def scheduled_condition(raw: msgspec.Raw) -> PodCondition:
    """Return the condition `PodScheduled` of a pod, an empty one before a scheduler has tried it."""
    conditions = _pod_conditions(raw).status.conditions or ()
    return next((each for each in conditions if each.type == "PodScheduled"), PodCondition())


_pod_conditions = msgspec.json.Decoder(_PodConditions).decode
pod_head = msgspec.json.Decoder(PodHead).decode
named_head = msgspec.json.Decoder(NamedHead).decode
whole: Any = msgspec.json.Decoder().decode
