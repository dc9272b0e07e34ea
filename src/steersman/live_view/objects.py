"""The parts of API objects that the view looks at; nothing else of them is decoded."""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec

from steersman.cluster.node_gpus import GPU_MILLI_KEY
from steersman.cluster.objects import GPU_COUNT_KEY


class Meta(TypedDict, total=False):
    """`metadata`."""

    name: str
    namespace: str
    labels: dict[str, str]
    annotations: dict[str, str]


class Container(TypedDict, total=False):
    """What a container asks for."""

    resources: dict[str, Any]
    restartPolicy: str


class PodSpec(TypedDict, total=False):
    """What a pod asks for, of whom, and where it is."""

    nodeName: str
    schedulerName: str
    containers: list[Container]
    initContainers: list[Container]
    overhead: dict[str, Any]
    resources: dict[str, Any]


class PodStatus(TypedDict, total=False):
    """Whether it is over."""

    phase: str


class PodObject(TypedDict, total=False):
    """The part of a v1 Pod that says what it asks for, and where."""

    metadata: Meta
    spec: PodSpec
    status: PodStatus


class Condition(TypedDict, total=False):
    """A condition of a node."""

    type: str
    status: str


class NodeSpec(TypedDict, total=False):
    """Whether it takes pods."""

    unschedulable: bool


class NodeStatus(TypedDict, total=False):
    """What it has, and whether it is well."""

    allocatable: dict[str, Any]
    capacity: dict[str, Any]
    conditions: list[Condition]


class NodeObject(TypedDict, total=False):
    """The part of a v1 Node that says what it has."""

    metadata: Meta
    spec: NodeSpec
    status: NodeStatus


def pod_key(obj: PodObject) -> str:
    """Namespace and name."""
    metadata = obj["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def requests_key(obj: PodObject) -> bytes:
    """The part of a pod that says what it asks for, as JSON: the same for pods that ask for the same."""
    spec, notes = obj.get("spec", {}), obj["metadata"].get("annotations") or {}
    asked = {name: part for name, part in spec.items() if name not in ("nodeName", "schedulerName")}
    annotations = {name: notes[name] for name in (GPU_COUNT_KEY, GPU_MILLI_KEY) if name in notes}
    return msgspec.json.encode({"metadata": {"name": "pod", "annotations": annotations}, "spec": asked})


decode_node = msgspec.json.Decoder(NodeObject).decode
decode_pod = msgspec.json.Decoder(PodObject).decode
