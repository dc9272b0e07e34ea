"""Parts of API objects that the dashboard reads; nothing else is decoded."""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec

from steersman.cluster.objects.decoding import GPU_COUNT_KEY
from steersman.cluster.objects.node_gpus import GPU_MILLI_KEY


class ViewedMeta(TypedDict, total=False):
    """`metadata` of an object."""

    name: str
    namespace: str
    labels: dict[str, str]
    annotations: dict[str, str]


class Container(TypedDict, total=False):
    """Requests of a container."""

    name: str
    resources: dict[str, Any]
    restartPolicy: str


class PodSpec(TypedDict, total=False):
    """Requests, scheduler and node of a pod."""

    nodeName: str
    schedulerName: str
    containers: list[Container]
    initContainers: list[Container]
    overhead: dict[str, Any]
    resources: dict[str, Any]


class Condition(TypedDict, total=False):
    """Condition of a node or pod."""

    type: str
    status: str
    reason: str


class ContainerStatus(TypedDict, total=False):
    """What the kubelet has granted to a container."""

    name: str
    resources: dict[str, Any] | None
    allocatedResources: dict[str, Any]


class PodStatus(TypedDict, total=False):
    """Phase of a pod, and what the kubelet has granted to it."""

    phase: str
    conditions: list[Condition] | None
    containerStatuses: list[ContainerStatus] | None
    initContainerStatuses: list[ContainerStatus] | None
    resources: dict[str, Any] | None
    allocatedResources: dict[str, Any]


class PodObject(TypedDict, total=False):
    """A v1 Pod."""

    metadata: ViewedMeta
    spec: PodSpec
    status: PodStatus


class NodeSpec(TypedDict, total=False):
    """Whether a node takes pods."""

    unschedulable: bool


class NodeStatus(TypedDict, total=False):
    """Capacity and conditions of a node."""

    allocatable: dict[str, Any]
    capacity: dict[str, Any]
    conditions: list[Condition]


class NodeObject(TypedDict, total=False):
    """A v1 Node."""

    metadata: ViewedMeta
    spec: NodeSpec
    status: NodeStatus


def pod_key(obj: PodObject) -> str:
    """Return namespace and name."""
    metadata = obj["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def requests_key(obj: PodObject) -> bytes:
    """Return the part of a pod that determines its requests, as JSON; equal for pods with equal requests."""
    spec, notes = obj.get("spec", {}), obj["metadata"].get("annotations") or {}
    trimmed = {name: part for name, part in spec.items() if name not in ("nodeName", "schedulerName")}
    annotations = {name: notes[name] for name in (GPU_COUNT_KEY, GPU_MILLI_KEY) if name in notes}
    status = {name: part for name, part in obj.get("status", {}).items() if name not in ("phase", "conditions")}
    status["conditions"] = [
        each for each in obj.get("status", {}).get("conditions") or () if each.get("type") == "PodResizePending"
    ]
    metadata = {"name": "pod", "annotations": annotations}
    return msgspec.json.encode({"metadata": metadata, "spec": trimmed, "status": status})


decode_node = msgspec.json.Decoder(NodeObject).decode
decode_pod = msgspec.json.Decoder(PodObject).decode
