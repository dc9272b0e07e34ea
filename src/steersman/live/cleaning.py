"""Removing what runs of workloads made, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from steersman.errors import SteersmanError
from steersman.kube.client import ApiError, Client
from steersman.kube.objects import named_head
from steersman.live.objects import CONFIG_MAPS, DEPLOYMENTS, PODS, PRIORITY_CLASSES, REPLICA_SETS, selector
from steersman.live.running import insist
from steersman.localcluster.patience import StillThereError, until_gone

PATIENCE_SECONDS = 300.0
MAKERS = (DEPLOYMENTS, REPLICA_SETS)

Report = Callable[[int, int], None]


async def delete_collection(client: Client, path: str, labels: str, **options: str) -> None:
    """Delete the objects of a collection with these labels."""
    await insist(lambda: client.delete(path, {"labelSelector": labels, **options}))


async def delete_pods(client: Client, namespace: str, labels: str, report: Report) -> int:
    """Delete the Deployments and pods with these labels, and wait until the pods are gone; how many these were.

    Raises:
        SteersmanError: they became no fewer for five minutes.
    """

    async def delete() -> None:
        for collection in MAKERS:
            await delete_collection(client, collection.format(namespace), labels, propagationPolicy="Background")
        await delete_collection(client, PODS.format(namespace), labels, gracePeriodSeconds="0")

    try:
        return await until_gone(delete, lambda: _count(client, namespace, labels), report, PATIENCE_SECONDS)
    except StillThereError as error:
        where = f"namespace {namespace!r}, and no fewer for {PATIENCE_SECONDS:.0f} s"
        raise SteersmanError(f"{error.left} pods are still in {where}") from None


async def clean(client: Client, report: Report) -> int:
    """Remove all that runs made in any namespace; how many pods these were. Raises SteersmanError: see above."""
    labels, namespaces = selector(), set()
    for collection in (CONFIG_MAPS, *MAKERS, PODS):
        namespaces |= await _namespaces(client, collection, labels)
    count = 0
    for namespace in sorted(namespaces):
        count += await delete_pods(client, namespace, labels, report)
        await delete_collection(client, CONFIG_MAPS.format(namespace), labels)
    try:
        await delete_collection(client, PRIORITY_CLASSES, labels)
    except ApiError as error:
        if error.status != 403:  # who may not delete them has not made any
            raise
    return count


async def _count(client: Client, namespace: str, labels: str) -> int:
    listed = await insist(lambda: client.list(PODS.format(namespace), {"labelSelector": labels}))
    return len(listed.items)


async def _namespaces(client: Client, collection: str, labels: str) -> set[str]:
    """The namespaces with objects of a collection that have these labels."""
    everywhere = collection.replace("/namespaces/{}", "")
    listed = await insist(lambda: client.list(everywhere, {"labelSelector": labels}))
    return {named_head(raw).metadata.namespace for raw in listed.items}
