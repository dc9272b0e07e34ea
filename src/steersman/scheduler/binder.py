"""Binds pods through the API, and finds out what became of a binding whose answer was lost."""

from __future__ import annotations

import asyncio
import random
from enum import Enum

import msgspec
import structlog

from steersman.cluster.objects import GPU_INDEX_KEY
from steersman.cluster.state import device_indices
from steersman.errors import SteersmanError
from steersman.kube.cache import CachedPod
from steersman.kube.client import ApiError, Client, UnreachableError
from steersman.kube.objects import pod_head

BUSY = (429, 500, 502, 503, 504)
RETRY_SECONDS = (0.1, 5.0)
TRIES = 6
"""Of a binding that the server is too busy for."""

log = structlog.get_logger("binder")


class Outcome(Enum):
    """What became of a binding."""

    BOUND = "bound"
    LOST = "lost"
    """The pod is gone, or somebody else bound it: the watch will tell."""
    REFUSED = "refused"
    """The server will not bind it to this node; another decision is needed."""


class Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    """`metadata` of a Binding."""

    name: str
    namespace: str
    uid: str
    annotations: dict[str, str] | None = None


class Target(msgspec.Struct, frozen=True, rename="camel"):
    """`target` of a Binding."""

    name: str
    kind: str = "Node"
    api_version: str = "v1"


class Binding(msgspec.Struct, frozen=True, rename="camel"):
    """A core/v1 Binding. The server merges its annotations into the pod's in the same write."""

    metadata: Meta
    target: Target
    kind: str = "Binding"
    api_version: str = "v1"


def binding(pod: CachedPod, node: str, devices: int) -> bytes:
    """The Binding of a pod as JSON. With its uid: another pod that took the name meanwhile is not bound."""
    notes = {GPU_INDEX_KEY: "-".join(map(str, device_indices(devices)))} if devices else None
    model = pod.pod
    return msgspec.json.encode(Binding(Meta(model.name, model.namespace, pod.uid, notes), Target(node)))


class Binder:
    """Binds.

    Args:
        client: the connection.

    Attributes:
        errors: how often the server answered a binding with each HTTP status (0: no answer).
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.errors: dict[int, int] = {}

    async def bind(self, pod: CachedPod, node: str, devices: int) -> tuple[Outcome, str]:
        """Bind a pod; the outcome, and what the server said if it was not bound."""
        path = f"/api/v1/namespaces/{pod.pod.namespace}/pods/{pod.pod.name}"
        body = binding(pod, node, devices)
        wait = RETRY_SECONDS[0]
        for _ in range(TRIES):
            try:
                await self.client.request("POST", f"{path}/binding", body=body)
                return Outcome.BOUND, ""
            except ApiError as error:
                self._count(error.status)
                if error.status not in BUSY:
                    return Outcome.LOST if error.status in (404, 409) else Outcome.REFUSED, str(error)
                said = str(error)
                wait = max(wait, error.retry_after)
            except UnreachableError as error:
                self._count(0)
                log.warning("binding without an answer", pod=pod.key, node=node, error=str(error))
                said = str(error)
            if await self._is_bound(path, pod.uid):
                return Outcome.BOUND, ""
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(2 * wait, RETRY_SECONDS[1])
        return Outcome.REFUSED, said

    async def _is_bound(self, path: str, uid: str) -> bool:
        """Whether the pod has a node or is gone, asked until there is an answer."""
        wait = RETRY_SECONDS[0]
        while True:
            try:
                head = pod_head(await self.client.request("GET", path))
                return bool(head.spec.node_name) or head.metadata.uid != uid
            except ApiError as error:
                if error.status == 404:
                    return True  # the watch will tell
            except SteersmanError:
                pass
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(2 * wait, RETRY_SECONDS[1])

    def _count(self, status: int) -> None:
        self.errors[status] = self.errors.get(status, 0) + 1
