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
from steersman.kube.objects import PodHead, pod_head

TOO_MANY, CONFLICT, MISSING = 429, 409, 404
BUSY = (TOO_MANY, 500, 502, 503, 504)
RETRY_SECONDS = (0.1, 5.0)
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


def binding(pod: CachedPod, node: str, devices: int) -> Binding:
    """Return the Binding of a pod. With its uid: another pod that took the name meanwhile is not bound.

    It names the devices of a pod that asks for them by annotations. Those of a device plugin the kubelet chooses.
    """
    model = pod.pod
    is_ours = devices and model.requests.gpu_resource not in PLUGIN_GPUS
    notes = {GPU_INDEX_KEY: "-".join(map(str, device_indices(devices)))} if is_ours else None
    return Binding(Meta(model.name, model.namespace, pod.uid, notes), Target(node))


def is_bound_so(pod: PodHead, wanted: Binding) -> bool:
    """Return whether a pod is bound as wanted, to the node and with the devices."""
    there = pod.metadata.annotations or {}
    return pod.spec.node_name == wanted.target.name and (wanted.metadata.annotations or {}).items() <= there.items()


class Binder:
    """Binds.

    Args:
        client: the connection.
        objection: asked right before each attempt: what speaks against binding to this node now, "" for nothing.

    Attributes:
        errors: how often the server answered a binding with each HTTP status (0: no answer).
        taken: how often another scheduler had bound the pod.
    """

    def __init__(self, client: Client, objection: Callable[[str], str] = lambda _: "") -> None:
        self.client, self.objection = client, objection
        self.errors: dict[int, int] = {}
        self.taken = 0

    async def bind(self, pod: CachedPod, node: str, devices: int) -> tuple[Outcome, str]:
        """Bind a pod; the outcome, and what the server said if it was not bound."""
        path = f"/api/v1/namespaces/{pod.pod.namespace}/pods/{pod.pod.name}"
        wanted = binding(pod, node, devices)
        body, wait = msgspec.json.encode(wanted), RETRY_SECONDS[0]
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
            if status != TOO_MANY:
                found = await self._look(path, pod.uid)
                if found is None:
                    return Outcome.LOST, said
                # A conflict may be with an attempt of our own whose answer was lost, or that the server made twice.
                # Where it is as we want it, its room must stay taken: the watch may tell much later.
                if is_bound_so(found, wanted):
                    return Outcome.BOUND, said
                if found.spec.node_name:
                    self.taken += 1
                    return Outcome.TAKEN, f"another scheduler has bound it to {found.spec.node_name}"
            if status == CONFLICT:
                return Outcome.LOST, said
            await asyncio.sleep(max(asked, wait) * random.uniform(1.0, 1.5))
            wait = min(2 * wait, RETRY_SECONDS[1])
        return Outcome.REFUSED, said

    async def _look(self, path: str, uid: str) -> PodHead | None:
        """Return a pod, asked for until there is an answer; None: there is no such pod."""
        wait = RETRY_SECONDS[0]
        while True:
            try:
                head = pod_head(await self.client.request("GET", path))
                return head if head.metadata.uid == uid else None
            except ApiError as error:
                if error.status == MISSING:
                    return None
            except (SteersmanError, msgspec.MsgspecError):
                pass
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(2 * wait, RETRY_SECONDS[1])

    def _count(self, status: int) -> None:
        self.errors[status] = self.errors.get(status, 0) + 1
