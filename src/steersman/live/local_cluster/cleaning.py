"""Delete everything that users' namespaces run, by collection and not pod by pod."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import ApiError, Client, UnreachableError

AGAIN_SECONDS = 5.0
POLL_SECONDS = 0.25
SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease")
MANAGED_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "steersman"
MANAGED_BY = f"{MANAGED_LABEL}={MANAGER}"  # label selector of what `steersman workload` creates
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
"""Collections of controllers, owners of owners first."""
PODS = "/api/v1/namespaces/{}/pods"
PATIENCE_SECONDS = 60.0


class StallTimeout:
    """Timeout since the last progress."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._fewest = math.inf
        self._since = time.monotonic()

    def ends(self, left: int) -> bool:
        """Return whether the timeout has passed since `left`, the amount that is left, last reached a new minimum."""
        if left < self._fewest:
            self._fewest, self._since = left, time.monotonic()
        return time.monotonic() > self._since + self.seconds


class DeletionTimeoutError(SteersmanError):
    """Deleted objects do not go away."""

    def __init__(self, left: int) -> None:
        self.left = left
        super().__init__(f"{left} are still there or there again")


async def until_gone(
    delete: Callable[[], Awaitable[None]],  # called repeatedly: a controller may have created more after the first time
    count: Callable[[], Awaitable[int]],  # returns how much is left
    report: Callable[[int, int], None],  # called with how much is gone, and of how much
    seconds: float,  # timeout since the last progress
    looks: int = 1,  # number of consecutive counts that must be zero, where a controller may create objects again
) -> int:
    """Delete until nothing is left, and return how much there was.

    Raises:
        DeletionTimeoutError: there was no progress for longer.
    """
    before, empty = await count(), 0
    patience, passed = StallTimeout(seconds), asyncio.Event()
    deleting = asyncio.create_task(_delete_repeatedly(delete, passed))  # a collection of thousands takes a minute
    try:
        with suppress(TimeoutError):  # wait for a short pass, report on a long one
            async with asyncio.timeout(POLL_SECONDS):
                await passed.wait()
        while True:
            if deleting.done():
                # It never ends by itself, so this raises its error.
                deleting.result()
            left = await count()
            report(before - min(left, before), before)
            empty = empty + 1 if passed.is_set() and not left else 0
            if empty == looks:
                return before
            # `ends` first, since it also records progress.
            if patience.ends(left) and left:
                raise DeletionTimeoutError(left)
            await asyncio.sleep(POLL_SECONDS)
    finally:
        deleting.cancel()
        await asyncio.gather(deleting, return_exceptions=True)


async def _delete_repeatedly(delete: Callable[[], Awaitable[None]], passed: asyncio.Event) -> None:
    """Delete every few seconds until cancelled; `passed` is set when the first pass is over."""
    while True:
        await delete()
        passed.set()
        await asyncio.sleep(AGAIN_SECONDS)


async def clean(client: Client, report: Callable[[int, int], None], *, owners: bool = False) -> int:
    """Delete what steersman created and all pods of users' namespaces, and return the number of pods."""
    listed = map(msgspec.json.decode, (await client.list("/api/v1/namespaces")).items)
    namespaces = [name for namespace in listed if (name := namespace["metadata"]["name"]) not in SYSTEM_NAMESPACES]
    if not owners and (foreign_owners := await _foreign_owners(client)):
        what = f"{len(foreign_owners)} controllers" if len(foreign_owners) > 1 else "a controller"
        raise SteersmanError(
            f"nothing was deleted: {what} would recreate pods, such as {foreign_owners[0]}; --owners deletes them, too"
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
    except DeletionTimeoutError as error:
        owner = await _owner(client)
        raise SteersmanError(f"{error.left} pods are still there or there again{owner}") from None


async def _delete(client: Client, collection: str, query: dict[str, str]) -> None:
    """Delete a collection until the server's or our timeout; the rest is deleted by the next call.

    Whether the server answers at all and makes progress is noticed by the caller's counts.

    Raises:
        ApiError: the API server forbids it.
    """
    try:
        await client.delete(collection, query)
    except UnreachableError:
        pass
    except ApiError as error:
        if error.status in (401, 403):
            raise


async def _foreign_owners(client: Client) -> list[str]:
    """Return the outermost controllers of users' namespaces that want pods and that steersman did not create."""
    result = []
    for collection in OWNERS:
        path = collection.replace("/namespaces/{}", "")
        kind = path.rpartition("/")[2].removesuffix("s")
        for each in map(msgspec.json.decode, (await client.list(path)).items):
            metadata = each["metadata"]
            if metadata["namespace"] not in SYSTEM_NAMESPACES and _makes_pods(each):
                result.append(f"{kind} {metadata['namespace']}/{metadata['name']}")
    return result


def _makes_pods(controller: Mapping[str, Any]) -> bool:
    """Return whether a controller creates pods: it has no owner, is not scaled to zero, and is no ended Job."""
    metadata = controller["metadata"]
    if metadata.get("ownerReferences") or (metadata.get("labels") or {}).get(MANAGED_LABEL) == MANAGER:
        return False
    ended = any(
        condition["type"] in ("Complete", "Failed") and condition["status"] == "True"
        for condition in controller.get("status", {}).get("conditions") or ()
    )
    return not ended and controller.get("spec", {}).get("replicas", 1) != 0


async def _count(client: Client, namespaces: list[str]) -> int:
    count = 0
    for namespace in namespaces:
        page = await client.get(PODS.format(namespace), {"limit": "1"})
        count += len(page["items"]) + page["metadata"].get("remainingItemCount", 0)
    return count


async def _owner(client: Client) -> str:
    """Return which controller creates the remaining pods, or what keeps them, for an error message."""
    for pod in map(msgspec.json.decode, (await client.list("/api/v1/pods")).items):
        metadata = pod["metadata"]
        if metadata["namespace"] not in SYSTEM_NAMESPACES:
            owners = [f"{owner['kind']} {owner['name']}" for owner in metadata.get("ownerReferences", ())]
            reason = f", which {owners[0]} makes; delete that first" if owners else ""
            if metadata.get("deletionTimestamp") and (kept := metadata.get("finalizers")):
                reason = f", whose finalizer {kept[0]} keeps it"
            return f", such as {metadata['namespace']}/{metadata['name']}{reason}"
    return ""
