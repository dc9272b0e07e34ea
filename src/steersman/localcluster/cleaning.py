"""Back to zero pods: everything that users' namespaces run is deleted by collection, not pod by pod."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import msgspec

from steersman.errors import SteersmanError
from steersman.kube.client import ApiError, Client
from steersman.localcluster.patience import StillThereError, until_gone

SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease")
MANAGED_BY = "app.kubernetes.io/managed-by=steersman"
"""The label of what `steersman workload` makes in a cluster."""
MADE = (
    "/apis/apps/v1/namespaces/{}/deployments",
    "/apis/apps/v1/namespaces/{}/replicasets",
    "/apis/batch/v1/namespaces/{}/jobs",
    "/api/v1/namespaces/{}/configmaps",
)
PODS = "/api/v1/namespaces/{}/pods"
PATIENCE_SECONDS = 60.0


async def clean(client: Client, report: Callable[[int, int], None]) -> int:
    """Delete what steersman made and all pods of the users' namespaces, and wait until they are gone; how many pods.

    Args:
        client: of the cluster.
        report: told how many pods of how many are gone.

    Raises:
        SteersmanError: they become no fewer, such as those of somebody else's Deployment.
    """
    listed = map(msgspec.json.decode, (await client.list("/api/v1/namespaces")).items)
    namespaces = [name for found in listed if (name := found["metadata"]["name"]) not in SYSTEM_NAMESPACES]

    async def delete() -> None:
        for collection in MADE:
            for namespace in namespaces:
                query = {"labelSelector": MANAGED_BY, "propagationPolicy": "Background"}
                await client.delete(collection.format(namespace), query)
        for namespace in namespaces:
            with suppress(ApiError):  # the server's minute is over: the next one does the rest
                await client.delete(PODS.format(namespace), {"gracePeriodSeconds": "0"})

    try:
        return await until_gone(delete, lambda: _count(client, namespaces), report, PATIENCE_SECONDS, looks=2)
    except StillThereError as error:
        owner = await _owner(client)
        raise SteersmanError(f"{error.left} pods are still there or there again{owner}") from None


async def _count(client: Client, namespaces: list[str]) -> int:
    """How many pods there are, by the server's count: the pods themselves stay there."""
    count = 0
    for namespace in namespaces:
        page = await client.get(PODS.format(namespace), {"limit": "1"})
        count += len(page["items"]) + page["metadata"].get("remainingItemCount", 0)
    return count


async def _owner(client: Client) -> str:
    """Who makes the pods that are left, or keeps them, for an error message."""
    for pod in map(msgspec.json.decode, (await client.list("/api/v1/pods")).items):
        metadata = pod["metadata"]
        if metadata["namespace"] not in SYSTEM_NAMESPACES:
            owners = [f"{owner['kind']} {owner['name']}" for owner in metadata.get("ownerReferences", ())]
            made = f", which {owners[0]} makes; delete that first" if owners else ""
            if metadata.get("deletionTimestamp") and (kept := metadata.get("finalizers")):
                made = f", whose finalizer {kept[0]} keeps it"
            return f", such as {metadata['namespace']}/{metadata['name']}{made}"
    return ""
