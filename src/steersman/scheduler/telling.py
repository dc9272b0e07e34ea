"""What a scheduler tells: events and the condition of a pod, metrics, logs. Nothing of it holds up a decision."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import UTC, datetime

import msgspec
import structlog

from steersman.errors import SteersmanError
from steersman.kube.cache import CachedPod
from steersman.kube.client import STRATEGIC_PATCH, ApiError, Client
from steersman.kube.events import EventRecorder, PodReference
from steersman.scheduler.metrics import Metrics
from steersman.scheduler.queue import QueuedPod

CONDITION_WRITERS = 4
CONDITIONS_WAITING = 10_000

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
            if pod.node or pod.deleting:
                continue
            path = f"/api/v1/namespaces/{pod.pod.namespace}/pods/{pod.pod.name}/status"
            try:
                await self.client.patch(path, _condition(pod, why), STRATEGIC_PATCH)
            except ApiError as error:
                if error.status != 404:
                    log.warning("condition not written", pod=pod.key, error=str(error))
            except SteersmanError as error:
                log.warning("condition not written", pod=pod.key, error=str(error))


def _condition(pod: CachedPod, why: str) -> bytes:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": why,
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    # With the uid: the status of another pod that took the name is left alone.
    return msgspec.json.encode({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}})


def _reference(pod: CachedPod) -> PodReference:
    return PodReference(pod.pod.namespace, pod.pod.name, pod.uid)
