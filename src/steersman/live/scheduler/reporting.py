"""Report what the scheduler does: events, the condition of pods, metrics, logs. No report delays a decision."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec
import structlog

from steersman.cluster.objects.api.pods import UNSCHEDULABLE
from steersman.core.errors import SteersmanError
from steersman.core.event_loop import Backoff
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.kubernetes.client import BUSY, CONFLICT, MISSING, STRATEGIC_PATCH, ApiError, Client, UnreachableError
from steersman.kubernetes.events import BUSY_POLL_SECONDS, EventRecorder, ObjectReference
from steersman.live.scheduler.metrics import SchedulerMetrics
from steersman.live.scheduler.ordering import QueuedPod

CONDITION_WRITERS = 4
CONDITIONS_WAITING = 10_000
TRIES, RETRY_SECONDS = 6, (0.25, 8.0)  # attempts to write a condition; the wait between them doubles

log = structlog.get_logger("scheduler")


class StatusReporter:
    """Reporter of a scheduler's results.

    Args:
        conditions: writer of pods' conditions, which autoscalers read.
        bound: called for each bound pod.
    """

    def __init__(
        self, metrics: SchedulerMetrics, events: EventRecorder, conditions: Conditions, bound: Callable[[], None]
    ) -> None:
        self.metrics, self.events, self.conditions, self._bound = metrics, events, conditions, bound

    def decided(self, seconds: float, cpu_seconds: float) -> None:
        """Report the duration of a decision and its CPU time."""
        self.metrics.decided(seconds, cpu_seconds)

    def scheduled(self, queued: QueuedPod, node: str, seconds: float) -> None:
        """Report a bound pod and the time since its decision began."""
        self._bound()
        pod, waited = queued.pod, queued.waited()
        self.metrics.attempt("scheduled", seconds)
        self.metrics.bound(waited, queued.attempts + 1)
        log.debug("scheduled", pod=pod.key, node=node, waited=round(waited, 4), attempts=queued.attempts + 1)
        self.events.record(_reference(pod), "Scheduled", f"Successfully assigned {pod.key} to {node}", action="Binding")

    def unschedulable(self, queued: QueuedPod, why: str, seconds: float) -> None:
        self.metrics.attempt("unschedulable", seconds)
        if why == queued.message:
            return
        log.info("unschedulable", pod=queued.pod.key, why=why)
        self._complain(queued.pod, why)
        self.conditions.put(queued.pod, why)

    def ignored(self, queued: QueuedPod, reason: str, problems: Sequence[str]) -> None:
        """Report annotations without which a pod is scheduled: they make no sense, or nothing follows them live."""
        what = "; ".join(problems)
        log.warning("annotation ignored", pod=queued.pod.key, why=what)
        self.events.record(_reference(queued.pod), reason, what, "Warning")

    def failed(self, queued: QueuedPod, node: str, why: str, seconds: float) -> None:
        """Report a decision or binding that failed; the pod is tried again."""
        self.metrics.attempt("error", seconds)
        log.warning("not bound", pod=queued.pod.key, node=node, why=why)
        self._complain(queued.pod, why)

    def taken(self, queued: QueuedPod, node: str, why: str) -> None:
        """Report a pod of ours that another scheduler bound."""
        log.error(
            "another scheduler binds the same pods", pod=queued.pod.key, node=node, why=why,
            mend="run it with --leader-elect, or give one of them another --scheduler-name",
        )  # fmt: skip
        self._complain(queued.pod, f"{why}; two schedulers are responsible for {queued.pod.pod.scheduler_name!r}")

    def on_node_problem(self, name: str, problem: str) -> None:
        """Report a node that takes no pods since its object makes no sense, or that its object is valid again ("")."""
        about = ObjectReference("", name, name, "Node")  # like the kubelet, which sets a node's name as its uid
        if problem:
            self.events.record(about, "NodeNotUnderstood", f"steersman places no pods here: {problem}", "Warning")
        else:
            self.events.record(about, "NodeUnderstood", "steersman places pods here again")

    def _complain(self, pod: CachedPod, why: str) -> None:
        self.events.record(_reference(pod), "FailedScheduling", why, "Warning")


class Conditions:
    """Writer of the condition `PodScheduled` of unschedulable pods, the newest for each.

    Args:
        busy: while it returns True one condition is written at a time, since bindings come first.
    """

    def __init__(self, client: Client, busy: Callable[[], bool]) -> None:
        self.client, self._busy = client, busy
        self._waiting: OrderedDict[str, tuple[CachedPod, str]] = OrderedDict()
        self._wakes = asyncio.Event()

    def put(self, pod: CachedPod, why: str) -> None:
        """Queue the reason why a pod waits for writing."""
        self._waiting[pod.key] = pod, why
        # Bounded, since a server that does not answer must not fill memory.
        if len(self._waiting) > CONDITIONS_WAITING:
            self._waiting.popitem(last=False)
        self._wakes.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for writer in range(CONDITION_WRITERS):
                group.create_task(self._write(yields=writer > 0))

    async def _write(self, *, yields: bool) -> None:
        while True:
            if yields and self._busy():
                await asyncio.sleep(BUSY_POLL_SECONDS)
            elif not self._waiting:
                self._wakes.clear()
                await self._wakes.wait()
            else:
                _, (pod, why) = self._waiting.popitem(last=False)
                try:
                    await self._write_one(pod, why)
                except SteersmanError as error:
                    log.warning("condition not written", pod=pod.key, error=str(error))

    async def _write_one(self, pod: CachedPod, why: str) -> None:
        """Write a pod's condition, unless the pod no longer waits, which is checked before every attempt."""
        path = f"/api/v1/namespaces/{pod.pod.namespace}/pods/{pod.pod.name}/status"
        backoff = Backoff(*RETRY_SECONDS)
        for attempt in range(TRIES):
            # A condition that says Unschedulable must not follow the binding.
            if pod.node or pod.deleting:
                return
            try:
                # Built for each attempt: after a conflict the watch gives the pod its new version.
                await self.client.request("PATCH", path, body=_condition(pod, why), content_type=STRATEGIC_PATCH)
                return
            except UnreachableError:
                if attempt == TRIES - 1:
                    raise
                await backoff.wait()
            except ApiError as error:
                if error.status == MISSING:
                    return
                if error.status not in (CONFLICT, *BUSY) or attempt == TRIES - 1:
                    raise
                await backoff.wait(error.retry_after)


def _condition(pod: CachedPod, why: str) -> bytes:
    # The status has been False since the pod began to wait; after a restart that is read again (`cluster_cache`).
    waits_since = datetime.now(UTC) if pod.waits_since is None else datetime.fromtimestamp(pod.waits_since, UTC)
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": UNSCHEDULABLE,
        "message": why,
        "lastTransitionTime": waits_since.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    # The uid protects another pod of the same name, the version a pod that was bound meanwhile.
    known = {"uid": pod.uid, **({"resourceVersion": pod.version} if pod.version else {})}
    return msgspec.json.encode({"metadata": known, "status": {"conditions": [condition]}})


def _reference(pod: CachedPod) -> ObjectReference:
    return ObjectReference(pod.pod.namespace, pod.pod.name, pod.uid)
