"""What a scheduler tells: events and the condition of a pod, metrics, logs. Nothing of it holds up a decision."""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from datetime import UTC, datetime

import msgspec
import structlog

from steersman.errors import SteersmanError
from steersman.kube.cache import CachedPod
from steersman.kube.client import STRATEGIC_PATCH, ApiError, Client
from steersman.kube.events import EventRecorder, ObjectReference
from steersman.scheduler.binder import BUSY, CONFLICT, MISSING
from steersman.scheduler.metrics import Metrics
from steersman.scheduler.queue import QueuedPod

CONDITION_WRITERS = 4
CONDITIONS_WAITING = 10_000
TRIES, RETRY_SECONDS = 6, 0.2
"""Of writing a condition; the wait doubles."""

log = structlog.get_logger("scheduler")


class Teller:
    """Tells what a scheduler did.

    Args:
        metrics: counts.
        events: writes events; None: nobody wants any.
        conditions: writes why pods wait into their status, which autoscalers look at; None: likewise.
    """

    def __init__(self, metrics: Metrics, events: EventRecorder | None, conditions: Conditions | None) -> None:
        self.metrics, self.events, self.conditions = metrics, events, conditions

    def decided(self, seconds: float, cpu_seconds: float) -> None:
        """A decision took so long, and so much of a core."""
        self.metrics.decided(seconds, cpu_seconds)

    def scheduled(self, queued: QueuedPod, node: str, seconds: float) -> None:
        """A pod was bound, so long after the decision began."""
        pod, waited = queued.pod, queued.waited()
        self.metrics.attempt("scheduled", seconds)
        self.metrics.bound(waited, queued.attempts + 1)
        log.debug("scheduled", pod=pod.key, node=node, waited=round(waited, 4), attempts=queued.attempts + 1)
        if self.events is not None:
            self.events.record(
                _reference(pod), "Scheduled", f"Successfully assigned {pod.key} to {node}", action="Binding"
            )

    def unschedulable(self, queued: QueuedPod, why: str, seconds: float) -> None:
        """A pod fits nowhere."""
        self.metrics.attempt("unschedulable", seconds)
        if why == queued.message:
            return
        log.info("unschedulable", pod=queued.pod.key, why=why)
        self._complain(queued.pod, why)
        if self.conditions is not None:
            self.conditions.put(queued.pod, why)

    def ignored(self, queued: QueuedPod, what: str) -> None:
        """Something that a pod asks for makes no sense; it is scheduled without that."""
        log.warning("annotation ignored", pod=queued.pod.key, why=what)
        if self.events is not None:
            self.events.record(_reference(queued.pod), "LatencyLimitIgnored", what, "Warning")

    def failed(self, queued: QueuedPod, node: str, why: str, seconds: float) -> None:
        """There was no decision, or it could not be carried out; the pod is tried again."""
        self.metrics.attempt("error", seconds)
        log.warning("not bound", pod=queued.pod.key, node=node, why=why)
        self._complain(queued.pod, why)

    def taken(self, queued: QueuedPod, node: str, why: str) -> None:
        """Another scheduler bound a pod that is ours to place."""
        log.error(
            "another scheduler binds the same pods", pod=queued.pod.key, node=node, why=why,
            mend="run it with --leader-elect, or give one of them another --scheduler-name",
        )  # fmt: skip
        self._complain(queued.pod, f"{why}; two schedulers are responsible for {queued.pod.pod.scheduler_name!r}")

    def node_problem(self, name: str, problem: str) -> None:
        """A node makes no sense, so that it takes no pods; or it does again: then there is no problem, ""."""
        if self.events is None:
            return
        about = ObjectReference("", name, name, "Node")  # the kubelet, too, gives a node's name for its uid
        if problem:
            self.events.record(about, "NodeNotUnderstood", f"steersman places no pods here: {problem}", "Warning")
        else:
            self.events.record(about, "NodeUnderstood", "steersman places pods here again")

    def _complain(self, pod: CachedPod, why: str) -> None:
        if self.events is not None:
            self.events.record(_reference(pod), "FailedScheduling", why, "Warning")


class Conditions:
    """Writes the condition `PodScheduled` of pods that fit nowhere, the newest for each pod.

    Args:
        client: the connection.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._waiting: OrderedDict[str, tuple[CachedPod, str]] = OrderedDict()
        self._wakes = asyncio.Event()

    def put(self, pod: CachedPod, why: str) -> None:
        """Write why a pod waits, some time soon."""
        self._waiting[pod.key] = pod, why
        if len(self._waiting) > CONDITIONS_WAITING:
            self._waiting.popitem(last=False)
        self._wakes.set()

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(CONDITION_WRITERS):
                group.create_task(self._write())

    async def _write(self) -> None:
        while True:
            if not self._waiting:
                self._wakes.clear()
                await self._wakes.wait()
                continue
            _, (pod, why) = self._waiting.popitem(last=False)
            try:
                await self._write_one(pod, why)
            except SteersmanError as error:
                log.warning("condition not written", pod=pod.key, error=str(error))

    async def _write_one(self, pod: CachedPod, why: str) -> None:
        """Write a pod's condition, unless it waits no longer: that is looked at again before every attempt."""
        path = f"/api/v1/namespaces/{pod.pod.namespace}/pods/{pod.pod.name}/status"
        wait = RETRY_SECONDS
        for attempt in range(TRIES):
            if pod.node or pod.deleting:
                return
            try:
                await self.client.request("PATCH", path, body=_condition(pod, why), content_type=STRATEGIC_PATCH)
                return
            except ApiError as error:
                if error.status == MISSING:
                    return
                if error.status not in (CONFLICT, *BUSY) or attempt == TRIES - 1:
                    raise
                await asyncio.sleep(max(error.retry_after, wait) * random.uniform(0.8, 1.2))
                wait *= 2


def _condition(pod: CachedPod, why: str) -> bytes:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": why,
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    # With the uid: the status of another pod that took the name is left alone. With the version: so is that of a pod
    # that was bound meanwhile.
    known = {"uid": pod.uid, **({"resourceVersion": pod.version} if pod.version else {})}
    return msgspec.json.encode({"metadata": known, "status": {"conditions": [condition]}})


def _reference(pod: CachedPod) -> ObjectReference:
    return ObjectReference(pod.pod.namespace, pod.pod.name, pod.uid)
