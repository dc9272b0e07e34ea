"""Binds pods through the API, and finds out what became of a binding whose answer was lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from enum import Enum

import msgspec
import structlog

from steersman.cluster.gpu_resources import PLUGIN_GPUS
from steersman.cluster.objects import GPU_INDEX_KEY
from steersman.cluster.state import device_indices
from steersman.errors import SteersmanError
from steersman.kube.cache import CachedPod
from steersman.kube.client import ApiError, Client, UnreachableError
from steersman.kube.objects import pod_head

TOO_MANY, CONFLICT, MISSING = 429, 409, 404
BUSY = (TOO_MANY, 500, 502, 503, 504)
RETRY_SECONDS = (0.1, 5.0)
GONE = "/"
"""Of a pod that is no more: no node is called so."""
TRIES = 6
"""Of a binding that the server is too busy for."""

log = structlog.get_logger("binder")


class Outcome(Enum):
    """What became of a binding."""

    BOUND = "bound"
    LOST = "lost"
    """What was decided upon is no more: the pod or the node is gone, or we lead no longer."""
    TAKEN = "taken"
    """Somebody else bound the pod: two schedulers answer to one name."""
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
    """The Binding of a pod as JSON. With its uid: another pod that took the name meanwhile is not bound.

    It names the devices of a pod that asks for them by annotations. Those of a device plugin the kubelet chooses.
    """
    model = pod.pod
    is_ours = devices and model.requests.gpu_resource not in PLUGIN_GPUS
    notes = {GPU_INDEX_KEY: "-".join(map(str, device_indices(devices)))} if is_ours else None
    return msgspec.json.encode(Binding(Meta(model.name, model.namespace, pod.uid, notes), Target(node)))


class Binder:
    """Binds.

    Args:
        client: the connection.
        objection: asked right before each attempt: what speaks against binding to this node now, "" for nothing.
        elected: nobody else is to bind these pods while we do, for a lease is held. A server that tried twice itself
            may then answer that a pod is bound already, which is a success.

    Attributes:
        errors: how often the server answered a binding with each HTTP status (0: no answer).
        taken: how often another scheduler had bound the pod.
    """

    def __init__(
        self, client: Client, objection: Callable[[str], str] = lambda _: "", *, elected: bool = False
    ) -> None:
        self.client, self.objection, self.elected = client, objection, elected
        self.errors: dict[int, int] = {}
        self.taken = 0

    async def bind(self, pod: CachedPod, node: str, devices: int) -> tuple[Outcome, str]:
        """Bind a pod; the outcome, and what the server said if it was not bound."""
        path = f"/api/v1/namespaces/{pod.pod.namespace}/pods/{pod.pod.name}"
        body = binding(pod, node, devices)
        wait, open_attempts = RETRY_SECONDS[0], 0
        for _ in range(TRIES):
            if objection := self.objection(node):
                return Outcome.LOST, objection
            asked, status = 0.0, 0
            try:
                await self.client.request("POST", f"{path}/binding", body=body)
                return Outcome.BOUND, ""
            except ApiError as error:
                said, status, asked = str(error), error.status, error.retry_after
            except UnreachableError as error:
                said = str(error)
                log.warning("binding without an answer", pod=pod.key, node=node, error=said)
            self._count(status)
            if status not in (0, CONFLICT, *BUSY):
                return Outcome.LOST if status == MISSING else Outcome.REFUSED, said
            open_attempts += status not in (CONFLICT, TOO_MANY)
            if status != TOO_MANY and (found := await self._look(path, pod.uid)) is not None:
                if found == GONE:
                    return Outcome.LOST, said
                # A conflict may be with an attempt of our own whose answer was lost.
                if (open_attempts or self.elected) and found == node:
                    return Outcome.BOUND, said
                self.taken += 1
                return Outcome.TAKEN, f"another scheduler has bound it to {found}"
            if status == CONFLICT:
                return Outcome.LOST, said
            await asyncio.sleep(max(asked, wait) * random.uniform(1.0, 1.5))
            wait = min(2 * wait, RETRY_SECONDS[1])
        return Outcome.REFUSED, said

    async def _look(self, path: str, uid: str) -> str | None:
        """Return the node of a pod, asked until there is an answer; `GONE`: there is no such pod; None: it waits."""
        wait = RETRY_SECONDS[0]
        while True:
            try:
                head = pod_head(await self.client.request("GET", path))
                return GONE if head.metadata.uid != uid else head.spec.node_name or None
            except ApiError as error:
                if error.status == MISSING:
                    return GONE
            except (SteersmanError, msgspec.MsgspecError):
                pass
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(2 * wait, RETRY_SECONDS[1])

    def _count(self, status: int) -> None:
        self.errors[status] = self.errors.get(status, 0) + 1
