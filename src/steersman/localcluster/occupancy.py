"""What is on the nodes of a cluster: the table of `steersman cluster nodes`, and pods by phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from steersman.cluster.model import GPU_MILLI, Node, Requests
from steersman.cluster.objects import is_finished, node_from_object, pod_from_object
from steersman.errors import InputError
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


async def node_rows(client: Client) -> tuple[list[NodeRow], list[InputError]]:
    """A row for each node, by name; and what is none of the model: such a node has, such a pod asks for, nothing."""
    problems: list[InputError] = []
    nodes = []
    for found in map(msgspec.json.decode, (await client.list(NODES)).items):
        try:
            node = node_from_object(found, file="the cluster", where=_where("Node", found))
        except InputError as problem:
            problems.append(problem)
            node = Node(found["metadata"]["name"], 0, 0, 0)
        nodes.append((node, is_ready(found)))
    there: dict[str, list[tuple[int, int, int]]] = {}
    for found in map(msgspec.json.decode, (await client.list(PODS)).items):
        name = found.get("spec", {}).get("nodeName")
        if name and not is_finished(found):
            try:
                asked = pod_from_object(found, file="the cluster", where=_where("Pod", found)).requests
            except InputError as problem:
                problems.append(problem)
                asked = Requests()
            there.setdefault(name, []).append((asked.cpu_milli, asked.memory_bytes, asked.gpu_total_milli))
    rows = (_row(node, ready, there.get(node.name, ())) for node, ready in nodes)
    return sorted(rows, key=lambda row: row.name), problems


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
        gpus=node.gpu_total,
        gpu_model=node.gpu_model,
        gpu_requested_milli=gpu,
        zone=node.labels.get(ZONE, ""),
        rack=node.labels.get(RACK, ""),
    )


def _where(kind: str, found: dict[str, dict[str, str]]) -> str:
    metadata = found.get("metadata", {})
    return f"{kind} " + "/".join(filter(None, (metadata.get("namespace"), metadata.get("name"))))
