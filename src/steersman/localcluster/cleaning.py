"""Back to zero pods: everything that users' namespaces run is deleted by collection, not pod by pod."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec

from steersman.errors import SteersmanError
from steersman.kube.client import ApiError, Client
from steersman.localcluster.patience import Patience

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
AGAIN_SECONDS = 5.0
POLL_SECONDS = 0.5
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
    before = await _count(client, namespaces)
    for collection in MADE:
        for namespace in namespaces:
            query = {"labelSelector": MANAGED_BY, "propagationPolicy": "Background"}
            await client.delete(collection.format(namespace), query)
    loop = asyncio.get_running_loop()
    patience, again, gone = Patience(PATIENCE_SECONDS), -1.0, False
    while True:
        if loop.time() > again:  # a controller may have made more before it was gone itself
            again = loop.time() + AGAIN_SECONDS
            for namespace in namespaces:
                with suppress(ApiError):  # the server's minute is over: the next one does the rest
                    await client.delete(PODS.format(namespace), {"gracePeriodSeconds": "0"})
        left = await _count(client, namespaces)
        report(before - min(left, before), before)
        if not left and gone:
            return before
        gone = not left  # and still so at the next look: who makes pods anew takes a moment
        if patience.ends(left) and left:
            raise SteersmanError(f"{left} pods are still there or there again{await _owner(client)}")
        await asyncio.sleep(POLL_SECONDS)


async def _count(client: Client, namespaces: list[str]) -> int:
    """How many pods there are, by the server's count: the pods themselves stay there."""
    count = 0
    for namespace in namespaces:
        page = await client.get(PODS.format(namespace), {"limit": "1"})
        count += len(page["items"]) + page["metadata"].get("remainingItemCount", 0)
    return count


async def _owner(client: Client) -> str:
    """Who makes the pods that are left, for an error message."""
    for pod in map(msgspec.json.decode, (await client.list("/api/v1/pods")).items):
        metadata = pod["metadata"]
        if metadata["namespace"] not in SYSTEM_NAMESPACES:
            owners = [f"{owner['kind']} {owner['name']}" for owner in metadata.get("ownerReferences", ())]
            made = f", which {owners[0]} makes; delete that first" if owners else ""
            return f", such as {metadata['namespace']}/{metadata['name']}{made}"
    return ""
