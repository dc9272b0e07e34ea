"""Leader election by a Lease: one of several schedulers decides, the others wait.

As in client-go's `leaderelection`: a lease is expired when its record has not changed for its duration by *our* clock,
whatever times it contains, and every change is refused if another client changed it first. As in kube-scheduler, who
loses the lease ends, so that nothing of what it began goes on.
"""

from __future__ import annotations

import asyncio
import math
import random
import socket
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from steersman.cluster.objects.api.metadata import NamedObject
from steersman.core.errors import SteersmanError, UsageError
from steersman.kubernetes.client import ApiError, Client

ALL_LEASES = "/apis/coordination.k8s.io/v1/leases"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
# The API refuses 0.
RELEASED_SECONDS = 1
APP_LABEL = ("app.kubernetes.io/name", "steersman")  # label by which the leases of our schedulers are found
POLICY_KEY = "steersman.dev/policy"  # annotation of a lease: the policy of its holder
SCHEDULER_KEY = "steersman.dev/scheduler"  # annotation of a lease: `schedulerName` of the pods that its holder places
Spec = dict[str, Any]

log = structlog.get_logger("lease")


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Times in seconds, by default those of kube-scheduler."""

    duration: float = 15.0  # time after the last change until another may take the lease
    renew_deadline: float = 10.0  # the leader stops if it could not renew for so long
    retry: float = 2.0  # interval between attempts
    jitter: float = 1.2  # an attempt to acquire waits up to this share of `retry` longer

    def __post_init__(self) -> None:
        if not self.duration > self.renew_deadline > self.retry * self.jitter > 0:
            raise UsageError(
                f"lease of {self.duration:g} s, renewed within {self.renew_deadline:g} s, tried every {self.retry:g} s"
                f": the first must be above the second, and that above {self.jitter:g} times the third"
            )


class LeaseHolder(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a Lease."""

    holder_identity: str | None = None
    renew_time: datetime | None = None


class HeldLease(NamedObject, frozen=True):
    """A Lease."""

    spec: LeaseHolder = LeaseHolder()


held_lease = msgspec.json.Decoder(HeldLease).decode


class LeaseLostError(SteersmanError):
    """The lease could not be renewed in time, or another process took it."""


def boot_clock() -> float:
    """Return the seconds since the machine was started, with those in which it was suspended where the system says."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def own_identity() -> str:
    """Return a name that no other process has: `hostname_uuid`."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


@dataclass(frozen=True, slots=True)
class Lease:
    """Where a Lease is, and the labels and annotations that its holder puts on it, such as the policy in use."""

    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


class LeaderElection:
    """Leader election of one process.

    It leads only if its clock says that it renewed within the deadline: callers check `is_leader` right before they
    act.
    """

    def __init__(
        self,
        client: Client,
        lease: Lease,  # the Lease, which is created if it does not exist
        *,
        identity: str = "",
        times: LeaseTimes | None = None,
        # Called with True when this starts to lead, with False when it stops
        on_change: Callable[[bool], None] | None = None,
        # Returns, when `lead()` has ended, whether nothing of what it began goes on. If it is false the lease is not
        # released, so that the next leader knows (`succeeds`).
        may_release: Callable[[], bool] = lambda: True,
        # Returns whether `lead()` is alive; without it the lease is lost, so that others can take it
        may_renew: Callable[[], bool] = lambda: True,
        # Monotonic clock, seconds, that counts the time in which the machine is suspended; not the event loop's,
        # which may stand still while a callback runs
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self.client, self.namespace, self.name = client, lease.namespace, lease.name
        self.identity, self.times = identity or own_identity(), times or LeaseTimes()
        self.labels, self.annotations = dict(lease.labels), dict(lease.annotations)
        # `holder`: last known holder, "" for none
        # `succeeds`: whether the lease was taken from a holder that had not released it, and may not know that it
        # lost it
        self.holder, self.succeeds = "", False
        self._on_change, self._may_release, self._may_renew, self._clock = on_change, may_release, may_renew, clock
        self._collection = LEASES.format(lease.namespace)
        self._until = -1.0
        self._spec: Spec = {}
        self._changed_at = 0.0
        self._reached = self._reported = False

    @property
    def is_leader(self) -> bool:
        """Whether we may decide now: the lease is ours, and was renewed within the deadline."""
        return self._clock() < self._until

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Acquire the lease, and run `lead()` while it is ours.

        Args:
            lead: runs as a task, which is cancelled at once when the lease is lost or could not be renewed in time, and
                when this is cancelled. When it has ended the lease is released, if it is still ours.
        """
        while not await self._try_acquire_or_renew():
            await asyncio.sleep(self.times.retry * (1 + random.random() * self.times.jitter))
        self._report_leader(True)
        task = asyncio.create_task(lead())
        lost = False
        try:
            await self._renew(task)
            lost = not task.done()
            if lost:
                log.error("leadership lost", lease=self.name, holder=self.holder)
                self._report_leader(False)
        finally:
            task.cancel()
            # Not `await task`, which would raise its error before the lease is released.
            await asyncio.wait({task})
            # Released only after `lead()` has ended: the next leader may decide at once.
            if self.is_leader and self._may_release():
                await self._release()
            self._until = -1.0
            self._report_leader(False)
            failure = None if task.cancelled() else task.exception()
        if failure is not None:
            raise failure
        if lost:
            is_taken = self.holder not in ("", self.identity)
            why = f"{self.holder} holds it now" if is_taken else f"not renewed for {self.times.renew_deadline:g} s"
            raise LeaseLostError(f"lease {self.namespace}/{self.name} was lost: {why}")

    async def _renew(self, task: asyncio.Task[None]) -> None:
        while not task.done() and (left := self._until - self._clock()) > 0:
            # Not beyond the deadline, at which the leader must stop even if a renewal would be due later.
            await asyncio.wait({task}, timeout=min(self.times.retry, left))
            if not task.done() and self.is_leader and self._may_renew():
                await self._try_acquire_or_renew()

    async def _try_acquire_or_renew(self) -> bool:
        # As client-go (NewFromKubeconfig): a request that hangs leaves time for another within the deadline.
        patience = self.times.renew_deadline / 2
        if self.is_leader:
            patience = min(patience, self._until - self._clock())
        try:
            async with asyncio.timeout(patience):
                return await self._acquire_or_renew()
        except TimeoutError:
            self._warn(f"no answer in {patience:.1f} s")
        except ApiError as error:
            # Before the first answer it is a wrong setup, which waiting does not mend; later, a server that restarts.
            if error.status in (401, 403, 404) and not self._reached:
                raise
            if error.status != 409:  # another process was faster
                self._warn(str(error))
        except SteersmanError as error:
            self._warn(str(error))
        return False

    async def _acquire_or_renew(self) -> bool:
        """Create or replace the lease unless another process holds it, and return whether it is ours."""
        lease = await self._read()
        started = self._clock()
        # A renewal keeps what the acquisition found.
        if self.holder != self.identity:
            self.succeeds = self.holder != ""
        if lease is None:
            metadata = {"name": self.name, "namespace": self.namespace}
            fresh = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
            lease = await self.client.create(self._collection, self._with_holder(fresh))
        elif self.holder not in ("", self.identity) and not self._expired():
            self._until = -1.0
            return False
        else:
            lease = await self.client.replace(f"{self._collection}/{self.name}", self._with_holder(lease))
        self._observe(lease["spec"])
        # Counted from before the request, since others see the change later than that.
        self._until = started + self.times.renew_deadline
        return True

    async def _read(self) -> dict[str, Any] | None:
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
        # From when we saw the change, since the clocks of two machines differ.
        return self._clock() >= self._changed_at + duration

    def _with_holder(self, lease: dict[str, Any]) -> dict[str, Any]:
        spec, now = lease.get("spec") or {}, micro_time(time.time())
        if spec.get("holderIdentity") != self.identity:
            transitions = (spec.get("leaseTransitions") or 0) + 1 if spec else 0
            spec = {**spec, "holderIdentity": self.identity, "acquireTime": now, "leaseTransitions": transitions}
        # The API has whole seconds; rounded up, others wait longer rather than too short.
        spec = {**spec, "leaseDurationSeconds": math.ceil(self.times.duration), "renewTime": now}
        metadata = dict(lease["metadata"])
        for key, own in (("labels", self.labels), ("annotations", self.annotations)):
            if own:
                metadata[key] = {**(metadata.get(key) or {}), **own}
        return {**lease, "metadata": metadata, "spec": spec}

    async def _release(self) -> None:
        """Release the lease, unless another process has taken it. If that fails it expires by itself."""
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

    def _report_leader(self, leads: bool) -> None:
        if leads != self._reported:
            self._reported = leads
            if self._on_change is not None:
                self._on_change(leads)

    def _warn(self, problem: str) -> None:
        log.warning("lease not reached", lease=self.name, error=problem, leading=self.is_leader)


def micro_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
