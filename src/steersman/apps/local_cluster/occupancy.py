"""Occupancy of the nodes of a cluster: the table of `steersman cluster nodes`, and pods by phase."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from steersman.apps.local_cluster.nodes import MANY_PODS, NODES
from steersman.apps.runtime.cluster_use import NodeRow, fetch_snapshot
from steersman.cluster.gpu_units import gpu_milli, held_milli
from steersman.cluster.model import GPU_MILLI
from steersman.cluster.objects.api.decoding import node_from_json, valid_pod
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
    view = await fetch_snapshot(client)
    problems = [
        InputError("the cluster", f"{'Node' if key in view.nodes else 'Pod'} {key}", error.field, error.problem)
        for key, error in view.unreadable.items()
    ]
    return [_row(row) for row in sorted(view.rows(), key=lambda row: row.node.name)], problems


async def pods_by_phase(client: Client) -> Counter[str]:
    """Return the number of pods in each phase, over all namespaces."""
    listed = (await client.list(PODS)).items
    return Counter(valid_pod(pod).status.phase or "Unknown" for pod in listed)


async def ready_nodes(client: Client) -> tuple[int, int]:
    """Return the numbers of ready nodes and of all."""
    listed = (await client.list(NODES)).items
    return sum(1 for node in listed if node_from_json(node).is_ready), len(listed)


def _row(row: NodeRow) -> OccupancyRow:
    node, use = row.node, row.use
    return OccupancyRow(
        name=node.name,
        ready=row.ready,
        cpu_milli=node.cpu_milli,
        cpu_requested_milli=use["cpu"],
        memory_bytes=node.memory_bytes,
        memory_requested_bytes=use["memory"],
        pods=None if node.pods >= MANY_PODS else node.pods,
        pods_there=use["pods"],
        gpus=_without_fraction(gpu_milli(node) / GPU_MILLI),
        gpu_model=node.gpu_model,
        gpu_requested_milli=held_milli(node, use),
        zone=node.labels.get(ZONE, ""),
        rack=node.labels.get(RACK, ""),
    )


def _without_fraction(number: float) -> float:
    """Return a whole number as an integer, so that tables show 8 and not 8.0."""
    return int(number) if number.is_integer() else number
