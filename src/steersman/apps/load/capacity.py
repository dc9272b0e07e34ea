"""Capacity of a live cluster for a run's pods, and the part that other pods hold."""

from __future__ import annotations

from dataclasses import dataclass

from steersman.apps.load.objects import RUN
from steersman.apps.runtime.decoding import ALL_PODS, documents, read_nodes, warn_ignored
from steersman.cluster.model import Node
from steersman.cluster.objects.decoding import is_finished, pod_from_object
from steersman.core.errors import InputError, SteersmanError
from steersman.kubernetes.client import Client


@dataclass(frozen=True, slots=True)
class ClusterCapacity:
    """Capacity of the nodes that take pods without tolerations.

    Attributes:
        cpu_milli, memory_bytes, pods: sums over these nodes.
        largest_cpu_milli, largest_memory_bytes: maximum of a single node.
        used: shares of CPU, memory and pods that others' pods hold, 0 to 1.
    """

    cpu_milli: int
    memory_bytes: int
    pods: int
    largest_cpu_milli: int
    largest_memory_bytes: int
    used: tuple[float, float, float]


async def read_capacity(client: Client) -> ClusterCapacity:
    """Read the capacity for pods. Raises SteersmanError: no node takes pods without tolerations."""
    usable = {node.name: node for node in await read_nodes(client) if takes_pods(node)}
    if not usable:
        raise SteersmanError("the cluster has no node that takes pods without tolerations")
    cpu, memory, places = zip(*map(_amounts, usable.values()), strict=True)
    total = sum(cpu), sum(memory), sum(places)
    held, problems = [0, 0, 0], list[InputError]()
    for document in documents(await client.list(ALL_PODS), "Pod"):
        content = document.content
        labels = content["metadata"].get("labels") or {}
        if content.get("spec", {}).get("nodeName") in usable and RUN not in labels and not is_finished(content):
            held[2] += 1
            try:
                where = f"Pod {content['metadata'].get('namespace', '')}/{content['metadata'].get('name', '')}"
                requests = pod_from_object(content, file=document.file, where=where).requests
            except InputError as problem:
                problems.append(problem)
                continue
            held[0] += requests.cpu_milli
            held[1] += requests.memory_bytes
    warn_ignored("requests of pods ignored", problems)
    # Allocatable may be stated as 0.
    shares = [amount / max(of, 1) for amount, of in zip(held, total, strict=True)]
    return ClusterCapacity(*total, max(cpu), max(memory), (shares[0], shares[1], shares[2]))


def takes_pods(node: Node) -> bool:
    """Return whether a node takes pods without tolerations."""
    return not node.unschedulable and all(taint.effect == "PreferNoSchedule" for taint in node.taints)


def _amounts(node: Node) -> tuple[int, int, int]:
    return node.cpu_milli, node.memory_bytes, node.pods
