"""What is on the nodes of a cluster: the table of `steersman cluster nodes`, and pods by phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from steersman.cluster.model import GPU_MILLI, Node
from steersman.cluster.objects import is_finished, node_from_object, pod_from_object
from steersman.kube.client import Client
from steersman.localcluster.nodes import MANY_PODS, NODES, is_ready
from steersman.workloads.topology import RACK, ZONE

PODS = "/api/v1/pods"


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node and what its pods ask for. `pods` is None where there is no real limit."""

    name: str
    ready: bool
    cpu_milli: int
    cpu_requested_milli: int
    memory_bytes: int
    memory_requested_bytes: int
    pods: int | None
    pods_there: int
    gpus: int
    gpu_model: str
    gpu_requested_milli: int
    zone: str
    rack: str

    @property
    def gpus_requested(self) -> float:
        """Devices that pods ask for, parts of a device as fractions."""
        return self.gpu_requested_milli / GPU_MILLI


async def node_rows(client: Client) -> list[NodeRow]:
    """A row for each node, by name.

    Raises:
        InputError: the cluster has a node or pod that is none of the model.
    """
    nodes = [
        (node_from_object(found, file="the cluster", where=_where("Node", found)), is_ready(found))
        for found in map(msgspec.json.decode, (await client.list(NODES)).items)
    ]
    there: dict[str, list[tuple[int, int, int]]] = {}
    for found in map(msgspec.json.decode, (await client.list(PODS)).items):
        name = found.get("spec", {}).get("nodeName")
        if name and not is_finished(found):
            asked = pod_from_object(found, file="the cluster", where=_where("Pod", found)).requests
            there.setdefault(name, []).append((asked.cpu_milli, asked.memory_bytes, asked.gpu_total_milli))
    return sorted((_row(node, ready, there.get(node.name, ())) for node, ready in nodes), key=lambda row: row.name)


async def pods_by_phase(client: Client) -> Counter[str]:
    """How many pods are in each phase, in all namespaces."""
    listed = (await client.list(PODS)).items
    return Counter(str(msgspec.json.decode(pod).get("status", {}).get("phase", "Unknown")) for pod in listed)


async def ready_nodes(client: Client) -> tuple[int, int]:
    """How many nodes are ready, and how many there are."""
    listed = (await client.list(NODES)).items
    return sum(1 for node in listed if is_ready(msgspec.json.decode(node))), len(listed)


def _row(node: Node, ready: bool, asked: Iterable[tuple[int, int, int]]) -> NodeRow:
    asked = list(asked)
    cpu, memory, gpu = (sum(each[i] for each in asked) for i in range(3))
    return NodeRow(
        name=node.name,
        ready=ready,
        cpu_milli=node.cpu_milli,
        cpu_requested_milli=cpu,
        memory_bytes=node.memory_bytes,
        memory_requested_bytes=memory,
        pods=None if node.pods >= MANY_PODS else node.pods,
        pods_there=len(asked),
        gpus=node.gpu_count,
        gpu_model=node.gpu_model,
        gpu_requested_milli=gpu,
        zone=node.labels.get(ZONE, ""),
        rack=node.labels.get(RACK, ""),
    )


def _where(kind: str, found: dict[str, dict[str, str]]) -> str:
    metadata = found.get("metadata", {})
    return f"{kind} " + "/".join(filter(None, (metadata.get("namespace"), metadata.get("name"))))
