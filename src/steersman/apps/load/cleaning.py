"""Delete what runs of workloads created, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from steersman.apps.load.objects import CONFIG_MAPS, DEPLOYMENTS, PODS, PRIORITY_CLASSES, REPLICA_SETS, selector
from steersman.apps.local_cluster.stall_timeout import DeletionTimeoutError, until_gone
from steersman.apps.runtime.tasks import retry_transient
from steersman.cluster.objects.api.metadata import named_object
from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import ApiError, Client

PATIENCE_SECONDS = 300.0
MAKERS = (DEPLOYMENTS, REPLICA_SETS)

Report = Callable[[int, int], None]


async def delete_collection(client: Client, path: str, labels: str, **options: str) -> None:
    """Delete the objects of a collection that have these labels."""
    await retry_transient(lambda: client.delete(path, {"labelSelector": labels, **options}))


async def delete_pods(client: Client, namespace: str, labels: str, report: Report) -> int:
    """Delete Deployments and pods with these labels, wait until the pods are gone, and return their number.

    Raises:
        SteersmanError: their number did not fall for five minutes.
    """

    async def delete() -> None:
        for collection in MAKERS:
            await delete_collection(client, collection.format(namespace), labels, propagationPolicy="Background")
        # After their controllers, which would create them again.
        await delete_collection(client, PODS.format(namespace), labels, gracePeriodSeconds="0")

    try:
        return await until_gone(delete, lambda: _count(client, namespace, labels), report, PATIENCE_SECONDS)
    except DeletionTimeoutError as error:
        where = f"namespace {namespace!r}, and no fewer for {PATIENCE_SECONDS:.0f} s"
        raise SteersmanError(f"{error.left} pods are still in {where}") from None


async def clean(client: Client, report: Report) -> int:
    """Delete what runs created in any namespace; return the number of pods. Raises SteersmanError: as `delete_pods`."""
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
        if error.status != 403:  # whoever may not delete them did not create any
            raise
    return count


async def _count(client: Client, namespace: str, labels: str) -> int:
    listed = await retry_transient(lambda: client.list(PODS.format(namespace), {"labelSelector": labels}))
    return len(listed.items)


async def _namespaces(client: Client, collection: str, labels: str) -> set[str]:
    path = collection.replace("/namespaces/{}", "")
    listed = await retry_transient(lambda: client.list(path, {"labelSelector": labels}))
    return {named_object(raw).metadata.namespace or "" for raw in listed.items}
