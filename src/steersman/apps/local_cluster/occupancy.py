"""Nodes of a cluster by readiness, and pods by phase."""

from __future__ import annotations

from collections import Counter

from steersman.apps.local_cluster.nodes import NODES
from steersman.cluster.objects.api.decoding import node_from_json, valid_pod
from steersman.kubernetes.client import Client

PODS = "/api/v1/pods"


async def pods_by_phase(client: Client) -> Counter[str]:
    """Return the number of pods in each phase, over all namespaces."""
    listed = (await client.list(PODS)).items
    return Counter(valid_pod(pod).status.phase or "Unknown" for pod in listed)


async def ready_nodes(client: Client) -> tuple[int, int]:
    """Return the numbers of ready nodes and of all."""
    listed = (await client.list(NODES)).items
    return sum(1 for node in listed if node_from_json(node).is_ready), len(listed)
