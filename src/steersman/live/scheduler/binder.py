"""Bind pods through the API, and look up bindings whose answer was lost.

A binding carries the version of the pod that it was decided for. So the server refuses it once the pod was changed,
which is how a new leader makes sure that no late binding of the last one succeeds (`live.scheduler.takeover`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import msgspec
import structlog

from steersman.cluster.model import PLUGIN_GPUS
from steersman.cluster.objects.api.pods import LivePod
from steersman.cluster.objects.fields import FieldError, pod_from_json
from steersman.cluster.objects.gpus import GPU_INDEX_KEY
from steersman.cluster.state import device_indices
from steersman.core.errors import SteersmanError
from steersman.core.event_loop import Backoff
from steersman.kubernetes.cache.cached_pod import CachedPod, has_changed
from steersman.kubernetes.client import (
    BUSY,
    CONFLICT,
    MISSING,
    TOO_MANY,
    ApiError,
    Client,
    GuardedBody,
    UnreachableError,
)

RETRY_SECONDS = (0.2, 8.0)
TRIES = 6  # attempts of a binding while the server is busy or does not answer

log = structlog.get_logger("binder")


class BindOutcome(Enum):
    """Outcome of a binding."""

    BOUND = "bound"
    LOST = "lost"
    """The pod or node is gone, the lease was lost, or the server found a conflict (409) and the pod is still unbound.

    The pod is tried again without an event.
    """
    TAKEN = "taken"  # another scheduler bound the pod: two schedulers have one name
    REFUSED = "refused"  # the server refuses this node, or was busy or silent in all attempts; decide again


class BindingMeta(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """`metadata` of a Binding."""

    name: str
    namespace: str
    uid: str
    annotations: dict[str, str] | None = None
    resource_version: str = ""


class BindingTarget(msgspec.Struct, frozen=True, rename="camel"):
    """`target` of a Binding."""

    name: str
    kind: str = "Node"
    api_version: str = "v1"


class Binding(msgspec.Struct, frozen=True, rename="camel"):
    """A core/v1 Binding. The server merges its annotations into the pod's in the same write."""

    metadata: BindingMeta
    target: BindingTarget
    kind: str = "Binding"
    api_version: str = "v1"


def binding(pod: CachedPod, node: str, devices: int, version: str = "") -> Binding:
    """Return the Binding of a pod. It has the pod's uid and version, so that no other form of it is bound.

    Devices are named for pods that request GPUs by annotations; those of a device plugin are chosen by the kubelet.
    """
    model = pod.pod
    is_ours = devices and model.requests.gpu_resource not in PLUGIN_GPUS
    notes = {GPU_INDEX_KEY: "-".join(map(str, device_indices(devices)))} if is_ours else None
    return Binding(BindingMeta(model.name, model.namespace, pod.uid, notes, version), BindingTarget(node))


def is_bound_so(pod: LivePod, binding: Binding) -> bool:
    """Return whether a pod is bound to the node and with the devices of a Binding."""
    present = pod.metadata.annotations or {}
    return pod.node == binding.target.name and (binding.metadata.annotations or {}).items() <= present.items()


class Binder:
    """Client that binds pods.

    Args:
        objection: returns why a pod must not be bound to this node now, "" for nothing. It is asked before each
            attempt, and again when the connection is there, right before the binding is sent.
    """

    def __init__(self, client: Client, objection: Callable[[str], str] = lambda _: "") -> None:
        self.client, self.objection = client, objection
        self.errors: dict[int, int] = {}  # number of answers to bindings by HTTP status (0: no answer)
        self.taken = 0  # number of pods that another scheduler had bound, be it to the same node

    async def bind(self, pod: CachedPod, node: str, devices: int) -> tuple[BindOutcome, str]:
        """Bind a pod, and return the outcome with the server's message if it was not bound."""
        path = f"/api/v1/namespaces/{pod.pod.namespace}/pods/{pod.pod.name}"
        version, backoff, may_be_ours = pod.version, Backoff(*RETRY_SECONDS), False
        for _ in range(TRIES):
            requested = binding(pod, node, devices, version)
            if objection := self.objection(node):
                return BindOutcome.LOST, objection
            retry_after, status = 0.0, 0
            try:
                await self._send(f"{path}/binding", requested)
                return BindOutcome.BOUND, ""
            except ApiError as error:
                message, status, retry_after = str(error), error.status, error.retry_after
            except UnreachableError as error:
                message = str(error)
                log.warning("binding without an answer", pod=pod.key, node=node, error=message)
            self._count(status)
            # Any other status is a definite refusal; repeating the request would give the same answer.
            if status not in (0, CONFLICT, *BUSY):
                return BindOutcome.LOST if status == MISSING else BindOutcome.REFUSED, message
            # The server did not process a request that it answered with 429, so the binding cannot exist.
            if status != TOO_MANY:
                pod_now = await self._get_pod(path, pod.uid)
                if pod_now is None:
                    return BindOutcome.LOST, message
                # The conflict may be with our own attempt whose answer was lost. If the pod is bound as requested its
                # resources stay reserved, whoever bound it: the watch may report it much later.
                may_be_ours |= status != CONFLICT
                if is_bound_so(pod_now, requested):
                    self.taken += not may_be_ours
                    return BindOutcome.BOUND, message
                if pod_now.node:
                    self.taken += 1
                    return BindOutcome.TAKEN, f"another scheduler has bound it to {pod_now.node}"
                version = pod_now.metadata.resource_version
                if status == CONFLICT:
                    # With the same version the conflict is about something else, and the same request would fail again.
                    if has_changed(pod, pod_now) or version == requested.metadata.resource_version:
                        return BindOutcome.LOST, message
                    continue  # only its status changed, such as by our own condition
            await backoff.wait(retry_after)
        return BindOutcome.REFUSED, message

    async def _send(self, path: str, requested: Binding) -> None:
        """Send a binding unless there is an objection by the time that the connection is there."""

        def check() -> None:
            if objection := self.objection(requested.target.name):
                # aiohttp turns this into a connection error; `bind` returns the objection at its next attempt.
                raise RuntimeError(objection)

        await self.client.request("POST", path, body=GuardedBody(msgspec.json.encode(requested), check))

    async def _get_pod(self, path: str, uid: str) -> LivePod | None:
        backoff = Backoff(*RETRY_SECONDS)
        # Without a limit: until the outcome is known the pod must stay assumed, or its resources could be given away.
        while True:
            try:
                head = pod_from_json(await self.client.request("GET", path))
                # Another uid is a new pod of the same name: ours was deleted.
                return head if head.metadata.uid == uid else None
            except ApiError as error:
                if error.status == MISSING:
                    return None
            except (SteersmanError, msgspec.MsgspecError, FieldError):
                pass
            await backoff.wait()

    def _count(self, status: int) -> None:
        self.errors[status] = self.errors.get(status, 0) + 1
