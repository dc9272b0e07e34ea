"""Occupancy of the nodes of a cluster: the table of `steersman cluster nodes`, and pods by phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from steersman.apps.local_cluster.nodes import MANY_PODS, NODES, is_ready
from steersman.cluster.gpu_units import gpu_milli, held_milli, requested_units
from steersman.cluster.model import GPU_MILLI, Node, Requests
from steersman.cluster.objects.decoding import is_finished, node_from_object, pod_from_object
from steersman.core.errors import InputError
from steersman.kubernetes.client import Client
from steersman.workloads.topology import RACK, ZONE

PODS = "/api/v1/pods"


@dataclass(frozen=True, slots=True)
class OccupancyRow:
    """A node and the requests of its pods; `pods` is None where there is no real limit."""

    name: str
    ready: bool
    cpu_milli: int
    cpu_requested_milli: int
    memory_bytes: int
    memory_requested_bytes: int
    pods: int | None
    pods_there: int
    gpus: float
    gpu_model: str
    gpu_requested_milli: int
    zone: str
    rack: str

    @property
    def gpus_requested(self) -> float:
        """Devices that pods request, shares as fractions."""
        return self.gpu_requested_milli / GPU_MILLI


async def node_rows(client: Client) -> tuple[list[OccupancyRow], list[InputError]]:
    """Return a row for each node by name, and the problems of objects that make no sense, which count as empty."""
    problems: list[InputError] = []
    nodes = []
    for obj in map(msgspec.json.decode, (await client.list(NODES)).items):
        try:
            node = node_from_object(obj, file="the cluster", where=_where("Node", obj))
        except InputError as problem:
            problems.append(problem)
            node = Node(obj["metadata"]["name"], 0, 0, 0)
        nodes.append((node, is_ready(obj)))
    requests_by_node: dict[str, list[Requests]] = {}
    for obj in map(msgspec.json.decode, (await client.list(PODS)).items):
        name = obj.get("spec", {}).get("nodeName")
        if name and not is_finished(obj):
            try:
                requests = pod_from_object(obj, file="the cluster", where=_where("Pod", obj)).requests
            except InputError as problem:
                problems.append(problem)
                requests = Requests()
            requests_by_node.setdefault(name, []).append(requests)
    rows = (_row(node, ready, requests_by_node.get(node.name, ())) for node, ready in nodes)
    return sorted(rows, key=lambda row: row.name), problems


async def pods_by_phase(client: Client) -> Counter[str]:
    """Return the number of pods in each phase, over all namespaces."""
    listed = (await client.list(PODS)).items
    return Counter(str(msgspec.json.decode(pod).get("status", {}).get("phase", "Unknown")) for pod in listed)


async def ready_nodes(client: Client) -> tuple[int, int]:
    """Return the numbers of ready nodes and of all."""
    listed = (await client.list(NODES)).items
    return sum(1 for node in listed if is_ready(msgspec.json.decode(node))), len(listed)


def _row(node: Node, ready: bool, requests: Sequence[Requests]) -> OccupancyRow:
    units = Counter[str]()
    for each in requests:
        units.update(requested_units(each))
    return OccupancyRow(
        name=node.name,
        ready=ready,
        cpu_milli=node.cpu_milli,
        cpu_requested_milli=sum(each.cpu_milli for each in requests),
        memory_bytes=node.memory_bytes,
        memory_requested_bytes=sum(each.memory_bytes for each in requests),
        pods=None if node.pods >= MANY_PODS else node.pods,
        pods_there=len(requests),
        gpus=_without_fraction(gpu_milli(node) / GPU_MILLI),
        gpu_model=node.gpu_model,
        gpu_requested_milli=held_milli(node, units),
        zone=node.labels.get(ZONE, ""),
        rack=node.labels.get(RACK, ""),
    )


def _without_fraction(number: float) -> float:
    """Return a whole number as an integer, so that tables show 8 and not 8.0."""
    return int(number) if number.is_integer() else number


def _where(kind: str, result: dict[str, dict[str, str]]) -> str:
    metadata = result.get("metadata", {})
    return f"{kind} " + "/".join(filter(None, (metadata.get("namespace"), metadata.get("name"))))
