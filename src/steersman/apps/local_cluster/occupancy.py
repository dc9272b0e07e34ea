"""Occupancy of the nodes of a cluster: the table of `steersman cluster nodes`, and pods by phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from steersman.apps.local_cluster.nodes import MANY_PODS, NODES
from steersman.cluster.gpu_units import gpu_milli, held_milli, requested_units
from steersman.cluster.model import GPU_MILLI, Node, Requests
from steersman.cluster.objects.api.decoding import node_from_json, valid_pod
from steersman.cluster.objects.decoding import decode_node, decode_pod
from steersman.cluster.objects.fields import FieldError
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
    for listed_node in map(node_from_json, (await client.list(NODES)).items):
        name = listed_node.metadata.name
        try:
            node = decode_node(listed_node)
        except FieldError as error:
            problems.append(InputError("the cluster", f"Node {name}", error.field, error.problem))
            node = Node(name, 0, 0, 0)
        nodes.append((node, listed_node.is_ready))
    requests_by_node: dict[str, list[Requests]] = {}
    for pod in map(valid_pod, (await client.list(PODS)).items):
        if pod.node and not pod.finished:
            try:
                requests = decode_pod(pod).requests
            except FieldError as error:
                problems.append(InputError("the cluster", f"Pod {pod.key}", error.field, error.problem))
                requests = Requests()
            requests_by_node.setdefault(pod.node, []).append(requests)
    rows = (_row(node, ready, requests_by_node.get(node.name, ())) for node, ready in nodes)
    return sorted(rows, key=lambda row: row.name), problems


async def pods_by_phase(client: Client) -> Counter[str]:
    """Return the number of pods in each phase, over all namespaces."""
    listed = (await client.list(PODS)).items
    return Counter(valid_pod(pod).status.phase or "Unknown" for pod in listed)


async def ready_nodes(client: Client) -> tuple[int, int]:
    """Return the numbers of ready nodes and of all."""
    listed = (await client.list(NODES)).items
    return sum(1 for node in listed if node_from_json(node).is_ready), len(listed)


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
