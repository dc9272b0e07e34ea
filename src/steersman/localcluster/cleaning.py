"""Back to zero pods: everything that users' namespaces run is deleted by collection, not pod by pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from steersman.errors import SteersmanError
from steersman.kube.client import ApiError, Client, UnreachableError
from steersman.localcluster.patience import StillThereError, until_gone

SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease")
MANAGED_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "steersman"
MANAGED_BY = f"{MANAGED_LABEL}={MANAGER}"
"""The label of what `steersman workload` makes in a cluster."""
MADE = (
    "/apis/apps/v1/namespaces/{}/deployments",
    "/apis/apps/v1/namespaces/{}/replicasets",
    "/apis/batch/v1/namespaces/{}/jobs",
    "/api/v1/namespaces/{}/configmaps",
)
OWNERS = (
    "/apis/batch/v1/namespaces/{}/cronjobs",
    "/apis/batch/v1/namespaces/{}/jobs",
    "/apis/apps/v1/namespaces/{}/deployments",
    "/apis/apps/v1/namespaces/{}/statefulsets",
    "/apis/apps/v1/namespaces/{}/daemonsets",
    "/apis/apps/v1/namespaces/{}/replicasets",
    "/api/v1/namespaces/{}/replicationcontrollers",
)
"""What makes pods anew, owners of owners first."""
PODS = "/api/v1/namespaces/{}/pods"
PATIENCE_SECONDS = 60.0


async def clean(client: Client, report: Callable[[int, int], None], *, owners: bool = False) -> int:
    """Delete what steersman made and all pods of the users' namespaces, and wait until they are gone; how many pods.

    Args:
        client: of the cluster.
        report: told how many pods of how many are gone.
        owners: whether controllers that steersman did not make are deleted, too.

    Raises:
        SteersmanError: there are such controllers and they are to stay (nothing is deleted then), or pods become no
            fewer.
    """
    listed = map(msgspec.json.decode, (await client.list("/api/v1/namespaces")).items)
    namespaces = [name for found in listed if (name := found["metadata"]["name"]) not in SYSTEM_NAMESPACES]
    if not owners and (found := await _foreign_owners(client)):
        what = f"{len(found)} controllers" if len(found) > 1 else "a controller"
        raise SteersmanError(
            f"nothing was deleted: {what} would make pods anew, such as {found[0]}; --owners deletes them, too"
        )

    async def delete() -> None:
        for collection in OWNERS if owners else ():
            for namespace in namespaces:
                await _delete(client, collection.format(namespace), {"propagationPolicy": "Background"})
        for collection in MADE:
            for namespace in namespaces:
                query = {"labelSelector": MANAGED_BY, "propagationPolicy": "Background"}
                await _delete(client, collection.format(namespace), query)
        for namespace in namespaces:
            await _delete(client, PODS.format(namespace), {"gracePeriodSeconds": "0"})

    try:
        return await until_gone(delete, lambda: _count(client, namespaces), report, PATIENCE_SECONDS, looks=2)
    except StillThereError as error:
        owner = await _owner(client)
        raise SteersmanError(f"{error.left} pods are still there or there again{owner}") from None


async def _delete(client: Client, collection: str, query: dict[str, str]) -> None:
    """Delete a collection as far as the server gets before it, or we, lose patience; the rest is for the next time.

    Whether the server is there at all, and gets on, is seen by who counts what is left.

    Raises:
        ApiError: it never will, for want of rights.
    """
    try:
        await client.delete(collection, query)
    except UnreachableError:
        pass
    except ApiError as error:
        if error.status in (401, 403):
            raise


async def _foreign_owners(client: Client) -> list[str]:
    """The controllers of the users' namespaces that steersman did not make and that want pods, outermost only."""
    found = []
    for collection in OWNERS:
        path = collection.replace("/namespaces/{}", "")
        kind = path.rpartition("/")[2].removesuffix("s")
        for each in map(msgspec.json.decode, (await client.list(path)).items):
            metadata = each["metadata"]
            if metadata["namespace"] not in SYSTEM_NAMESPACES and _makes_pods(each):
                found.append(f"{kind} {metadata['namespace']}/{metadata['name']}")
    return found


def _makes_pods(controller: Mapping[str, Any]) -> bool:
    """Whether a controller of somebody's makes pods: not one that is owned or scaled to zero, and no ended Job."""
    metadata = controller["metadata"]
    if metadata.get("ownerReferences") or (metadata.get("labels") or {}).get(MANAGED_LABEL) == MANAGER:
        return False
    ended = any(
        condition["type"] in ("Complete", "Failed") and condition["status"] == "True"
        for condition in controller.get("status", {}).get("conditions") or ()
    )
    return not ended and controller.get("spec", {}).get("replicas", 1) != 0


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
