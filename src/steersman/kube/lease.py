"""Leader election by a Lease: of several schedulers one decides, and the others wait until it is gone.

As client-go's `leaderelection` does it: a lease is expired when its record has not changed for its duration by *our*
clock, whatever the times in it say, and every change is refused if somebody else changed it first.
"""

from __future__ import annotations

import asyncio
import math
import random
import socket
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from steersman.errors import SteersmanError, UsageError
from steersman.kube.client import ApiError, Client

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
RELEASED_SECONDS = 1
"""Duration of a lease that nobody holds."""
APP_LABEL = ("app.kubernetes.io/name", "steersman")
"""The label by which the leases of our schedulers are found."""
POLICY_KEY = "steersman/policy"
"""Annotation of a lease: the policy by which its holder decides."""
Spec = dict[str, Any]
"""`spec` of a Lease."""

log = structlog.get_logger("lease")


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds, by default those of kube-scheduler.

    Attributes:
        duration: others wait so long after the last change before they take the lease.
        renew_deadline: the leader stops if it could not renew for so long.
        retry: between two attempts.
        jitter: an attempt to acquire waits up to this share of `retry` longer.
    """

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0
    jitter: float = 1.2

    def __post_init__(self) -> None:
        if not self.duration > self.renew_deadline > self.retry * self.jitter > 0:
            raise UsageError(
                f"lease of {self.duration:g} s, renewed within {self.renew_deadline:g} s, tried every {self.retry:g} s"
                f": the first must be above the second, and that above {self.jitter:g} times the third"
            )


def own_identity() -> str:
    """A name that no other process has: `hostname_uuid`."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElection:
    """Leads for as long as it holds a lease.

    It leads only if its clock says that it renewed within the deadline: whoever decides asks `is_leader` right before.

    Args:
        client: the connection.
        namespace, name: of the Lease, which is created if it is not there.
        identity: who we are; unique.
        times: of the lease.
        labels, annotations: put on the Lease by its holder, such as the policy that decides.
        on_change: told when this begins (true) or ceases (false) to lead.
        clock: seconds that never go back. Not the event loop's time, which may stand still while a callback runs.

    Attributes:
        holder: who held the lease when it was last seen, "" for nobody.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        *,
        identity: str = "",
        times: LeaseTimes | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        on_change: Callable[[bool], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client, self.namespace, self.name = client, namespace, name
        self.identity, self.times = identity or own_identity(), times or LeaseTimes()
        self.labels, self.annotations = dict(labels or {}), dict(annotations or {})
        self.holder = ""
        self._on_change, self._clock = on_change, clock
        self._collection = LEASES.format(namespace)
        self._until = -1.0
        self._spec: Spec = {}
        self._changed_at = 0.0
        self._reached = self._told = False

    @property
    def is_leader(self) -> bool:
        """Whether we may decide now: the lease is ours, and was renewed within the deadline."""
        return self._clock() < self._until

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the lease, run `lead()` while it is ours, and wait again when it is lost; until `lead()` ends.

        Args:
            lead: runs as a task, which is cancelled at once when the lease is lost or could not be renewed in time,
                and when this is cancelled. When it has ended the lease is released for the next, if it is still ours.

        Raises:
            ApiError: we may not use leases there, or there is no such namespace.
            Exception: what `lead()` raises.
        """
        while True:
            while not await self._attempt():
                await asyncio.sleep(self.times.retry * (1 + random.random() * self.times.jitter))
            if await self._lead(lead):
                return

    async def _lead(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Whether `lead()` ended by itself. It has ended when this returns, however that comes."""
        self._tell(True)
        task = asyncio.create_task(lead())
        lost = False
        try:
            await self._keep(task)
            lost = not task.done()
            if lost:
                log.error("leadership lost", lease=self.name, holder=self.holder)
                self._tell(False)
        finally:
            task.cancel()
            await asyncio.wait({task})
            if self.is_leader:
                await self._release()
            self._until = -1.0
            self._tell(False)
            failure = None if task.cancelled() else task.exception()
        if failure is not None:
            raise failure
        return not lost

    async def _keep(self, task: asyncio.Task[None]) -> None:
        """Renew until the task has ended or the lease is lost."""
        while not task.done() and (left := self._until - self._clock()) > 0:
            await asyncio.wait({task}, timeout=min(self.times.retry, left))
            if not task.done() and self.is_leader:
                await self._attempt()

    async def _attempt(self) -> bool:
        """Try once to take the lease or to renew it; whether that went well."""
        patience = self.times.renew_deadline / 2
        if self.is_leader:
            patience = min(patience, self._until - self._clock())
        try:
            async with asyncio.timeout(patience):
                return await self._take()
        except TimeoutError:
            self._warn(f"no answer in {patience:.1f} s")
        except ApiError as error:
            if error.status in (401, 403, 404) and not self._reached:
                raise
            if error.status != 409:  # somebody else was faster
                self._warn(str(error))
        except SteersmanError as error:
            self._warn(str(error))
        return False

    async def _take(self) -> bool:
        lease = await self._read()
        started = self._clock()
        if lease is None:
            metadata = {"name": self.name, "namespace": self.namespace}
            fresh = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
            lease = await self.client.create(self._collection, self._held(fresh))
        elif self.holder not in ("", self.identity) and not self._expired():
            self._until = -1.0
            return False
        else:
            lease = await self.client.replace(f"{self._collection}/{self.name}", self._held(lease))
        self._observe(lease["spec"])
        # Counted from before the request: whoever waits for the lease saw the change later than that.
        self._until = started + self.times.renew_deadline
        return True

    async def _read(self) -> dict[str, Any] | None:
        """The lease, None if there is none."""
        try:
            lease: dict[str, Any] = await self.client.get(f"{self._collection}/{self.name}")
        except ApiError as error:
            if error.status != 404:
                raise
            return None
        self._reached = True
        self._observe(lease.get("spec") or {})
        return lease

    def _observe(self, spec: Spec) -> None:
        self._reached = True
        if spec != self._spec:
            self._spec, self._changed_at = spec, self._clock()
        holder = spec.get("holderIdentity") or ""
        if holder != self.holder:
            log.info("leader changed", lease=self.name, leader=holder or "nobody", we=self.identity)
            self.holder = holder

    def _expired(self) -> bool:
        duration = self._spec.get("leaseDurationSeconds") or self.times.duration
        return self._clock() >= self._changed_at + duration

    def _held(self, lease: dict[str, Any]) -> dict[str, Any]:
        """The lease as it is to be: ours, renewed now."""
        spec, now = lease.get("spec") or {}, micro_time(time.time())
        if spec.get("holderIdentity") != self.identity:
            transitions = (spec.get("leaseTransitions") or 0) + 1 if spec else 0
            spec = {**spec, "holderIdentity": self.identity, "acquireTime": now, "leaseTransitions": transitions}
        spec = {**spec, "leaseDurationSeconds": math.ceil(self.times.duration), "renewTime": now}
        metadata = dict(lease["metadata"])
        for key, own in (("labels", self.labels), ("annotations", self.annotations)):
            if own:
                metadata[key] = {**(metadata.get(key) or {}), **own}
        return {**lease, "metadata": metadata, "spec": spec}

    async def _release(self) -> None:
        """Say that nobody holds the lease, if nobody else has taken it. If that fails it expires by itself."""
        try:
            async with asyncio.timeout(self.times.renew_deadline / 2):
                lease = await self._read()
                if lease is None or self.holder != self.identity:
                    return
                now = micro_time(time.time())
                nobody = {"holderIdentity": "", "leaseDurationSeconds": RELEASED_SECONDS}
                lease["spec"] = {**lease["spec"], **nobody, "acquireTime": now, "renewTime": now}
                await self.client.replace(f"{self._collection}/{self.name}", lease)
                log.info("lease released", lease=self.name)
        except (SteersmanError, TimeoutError) as error:
            self._warn(f"not released: {error}")

    def _tell(self, leads: bool) -> None:
        if leads != self._told:
            self._told = leads
            if self._on_change is not None:
                self._on_change(leads)

    def _warn(self, problem: str) -> None:
        log.warning("lease not reached", lease=self.name, error=problem, leading=self.is_leader)


def micro_time(seconds: float) -> str:
    """A time since the epoch as Kubernetes writes a MicroTime."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
