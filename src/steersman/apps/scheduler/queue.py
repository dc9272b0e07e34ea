"""Scheduling queue: pods by priority, then age, as in kube-scheduler.

A pod is in one of three queues. *Active*: tried next. *Backoff*: 1 s after the first failure, twice as long after each
further one, 10 s at most, and up to a second more, so that pods of one second are ordered by priority. While no pod is
active, those that a cluster change may have helped are tried before their backoff has passed; pods whose attempt ended
with an error always wait for it, in a heap of their own. *Unschedulable*: tried when a cluster change helps, and in any
case after 5 minutes.

Source: Kubernetes 1.36, pkg/scheduler/backend/queue (`SchedulerPopFromBackoffQ`, KEP 5142).
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from steersman.apps.scheduler.hints import Group, group_of
from steersman.kubernetes.cache.cached_pod import CachedPod

INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 1.0, 10.0
MOST_DOUBLINGS = 10
BACKOFF_WINDOW_SECONDS = 1.0
"""Pods whose backoff ends in the same window are ordered by priority."""
UNSCHEDULABLE_SECONDS = 300.0
NO_GROUP: Group = (-2, -2, 0, "")
"""Group of pods that no cluster change will help."""

Heap = list[tuple[Any, ...]]
"""What orders a pod, the number of its move and the pod; an entry is outdated once the pod was moved again."""
QueueState = Literal["", "active", "backoff", "unschedulable", "tried"]


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod in the queue.

    Attributes:
        pod: pod of the cache.
        since: when it was first queued, seconds of the clock.
        clock: clock of the queue.
        attempts: failed attempts so far.
        backoff_until: end of its backoff.
        unschedulable_since: when it was last found unschedulable.
        message: why it was unschedulable at the last attempt, as in its event.
        reported_at: when the message was last computed, seconds of the clock.
        hopeful: whether a cluster change may help it.
        group: group that it is woken with while it is unschedulable.
        place: its queue; "tried" from `pop` on.
        number: number of its last move.
    """

    pod: CachedPod
    since: float
    clock: Callable[[], float] = time.monotonic
    attempts: int = 0
    backoff_until: float = 0.0
    unschedulable_since: float = 0.0
    message: str = ""
    reported_at: float = 0.0
    hopeful: bool = True
    group: Group = NO_GROUP
    place: QueueState = ""
    number: int = 0

    def waited(self) -> float:
        """Seconds since it was first queued."""
        return self.clock() - self.since


@dataclass(slots=True)
class SchedulingQueue:
    """Queue of pods that wait for a decision.

    Args:
        clock: monotonic clock, seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _all: dict[str, QueuedPod] = field(default_factory=dict)
    _active: Heap = field(default_factory=list)
    _backoff_queue: Heap = field(default_factory=list)
    _error_queue: Heap = field(default_factory=list)
    _unschedulable: dict[str, QueuedPod] = field(default_factory=dict)
    _groups: dict[Group, dict[str, QueuedPod]] = field(default_factory=dict)
    _number: int = 0
    _all_moved: int = 0
    _wakes: asyncio.Event = field(default_factory=asyncio.Event)

    def __len__(self) -> int:
        """Return the number of pods in all queues."""
        return len(self._all)

    @property
    def unschedulable(self) -> int:
        """Number of unschedulable pods."""
        return len(self._unschedulable)

    def counts(self) -> dict[str, int]:
        """Return the number of pods that are `active`, in `backoff` and `unschedulable`."""
        places = Counter(queued.place for queued in self._all.values())
        return {place: places[place] for place in ("active", "backoff", "unschedulable")}

    def add(self, pod: CachedPod) -> None:
        """Add a new or changed pod to the active queue."""
        queued = self._all.get(pod.key)
        # A pod that was deleted and created again is another object, which begins without a backoff.
        if queued is None or queued.pod is not pod:
            self.remove(pod.key)
            queued = self._all[pod.key] = QueuedPod(pod, self.clock(), self.clock)
        if queued.place != "active":
            self._activate(queued)

    def remove(self, key: str) -> None:
        """Remove a bound or deleted pod."""
        queued = self._all.pop(key, None)
        if queued is not None:
            self._move(queued, "")

    def pop(self) -> QueuedPod | None:
        """Return the next pod, if any; it stays known until `remove`, `failed` or `requeue_with_backoff`."""
        self._activate_due()
        for heap in (self._active, self._backoff_queue):
            while heap:
                queued: QueuedPod
                number, queued = heapq.heappop(heap)[-2:]
                if queued.place in ("active", "backoff") and queued.number == number:
                    self._move(queued, "tried")
                    return queued
        return None

    def mark_unschedulable(self, queued: QueuedPod, *, hopeful: bool = True) -> None:
        """Mark a popped pod unschedulable; if not `hopeful`, no cluster change will help it."""
        # `_wait_for_change` gives it a new one.
        popped = queued.number
        if self._count_failure(queued):
            self._wait_for_change(queued, hopeful=hopeful)
            if popped < self._all_moved:  # everything changed while it was tried
                self._push_backoff(queued)

    def wait_for_change(self, queued: QueuedPod) -> None:
        """Have a popped pod wait for a cluster change that helps it; its attempt does not count."""
        if self._all.get(queued.pod.key) is queued:
            self._wait_for_change(queued)

    def requeue_with_backoff(self, queued: QueuedPod) -> None:
        """Requeue a popped pod whose attempt ended with an error, after a backoff."""
        if self._count_failure(queued):
            self._move(queued, "backoff")
            heapq.heappush(self._error_queue, (queued.backoff_until, queued.number, queued))
            self._wakes.set()

    def move_all_to_backoff(self) -> None:
        """Move all unschedulable pods to the backoff queue, after the state was rebuilt."""
        # Pods that are being tried now have a lower number.
        self._all_moved = self._number + 1
        for queued in list(self._unschedulable.values()):
            self._push_backoff(queued)

    def groups(self) -> dict[Group, CachedPod]:
        """Return the groups of unschedulable pods that a cluster change may help, with a pod of each."""
        return {group: next(iter(pods.values())).pod for group, pods in self._groups.items() if group != NO_GROUP}

    def wake(self, counts: Mapping[Group, int]) -> None:
        """Make so many pods of these groups active, those first that have waited longest, or after their backoff."""
        now = self.clock()
        for group, count in counts.items():
            for queued in list(islice(self._groups.get(group, {}).values(), count)):
                self._activate(queued) if queued.backoff_until <= now else self._push_backoff(queued)

    def regroup(self) -> None:
        """Rebuild the groups after pods' classes and labels were renumbered."""
        self._groups.clear()
        for queued in self._unschedulable.values():
            self._join(queued)

    def nudge(self) -> None:
        """End a `wait`."""
        self._wakes.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until a pod may be ready to be tried, or for so many seconds."""
        # There is no await before the wait below, so a wake in between cannot get lost.
        self._wakes.clear()
        now = self.clock()
        due = [] if seconds is None else [now + seconds]
        due += [heap[0][0] for heap in (self._backoff_queue, self._error_queue) if heap]
        if self._unschedulable:
            oldest = next(iter(self._unschedulable.values()))
            due.append(oldest.unschedulable_since + UNSCHEDULABLE_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wakes.wait(), max(0.0, min(due) - now) if due else None)

    # -----------------------------------------------------------------------------------------------------------------

    def _count_failure(self, queued: QueuedPod) -> bool:
        """Count a failed attempt; return whether the pod is still in the queue."""
        queued.attempts += 1
        # The exponent is bounded, since a pod that waits for days has thousands of attempts and a float overflows.
        doubled = INITIAL_BACKOFF_SECONDS * 2.0 ** min(queued.attempts - 1, MOST_DOUBLINGS)
        backoff = min(doubled, MAX_BACKOFF_SECONDS)
        queued.backoff_until = self.clock() + backoff
        return self._all.get(queued.pod.key) is queued

    def _wait_for_change(self, queued: QueuedPod, *, hopeful: bool = True) -> None:
        self._move(queued, "unschedulable")
        self._unschedulable[queued.pod.key] = queued
        queued.unschedulable_since, queued.hopeful = self.clock(), hopeful
        self._join(queued)

    def _move(self, queued: QueuedPod, place: QueueState) -> None:
        """Move a pod to another queue; heaps drop outdated entries when they reach them."""
        if queued.place == "unschedulable":
            self._unschedulable.pop(queued.pod.key, None)
            alike = self._groups[queued.group]
            del alike[queued.pod.key]
            if not alike:
                del self._groups[queued.group]
        self._number += 1
        queued.place, queued.number = place, self._number

    def _join(self, queued: QueuedPod) -> None:
        queued.group = group_of(queued.pod) if queued.hopeful else NO_GROUP
        self._groups.setdefault(queued.group, {})[queued.pod.key] = queued

    def _activate(self, queued: QueuedPod) -> None:
        self._move(queued, "active")
        heapq.heappush(self._active, (-queued.pod.pod.priority, queued.since, queued.number, queued))
        self._wakes.set()

    def _push_backoff(self, queued: QueuedPod) -> None:
        self._move(queued, "backoff")
        window_ends = math.ceil(queued.backoff_until / BACKOFF_WINDOW_SECONDS) * BACKOFF_WINDOW_SECONDS
        order = window_ends, -queued.pod.pod.priority, queued.since, queued.number, queued
        heapq.heappush(self._backoff_queue, order)
        self._wakes.set()

    def _activate_due(self) -> None:
        """Activate pods whose backoff is over or that were unschedulable for too long."""
        now = self.clock()
        for heap in (self._backoff_queue, self._error_queue):
            while heap and heap[0][0] <= now:
                number, queued = heapq.heappop(heap)[-2:]
                if queued.place == "backoff" and queued.number == number:
                    self._activate(queued)
        while self._unschedulable:
            queued = next(iter(self._unschedulable.values()))
            if queued.unschedulable_since + UNSCHEDULABLE_SECONDS > now:
                break
            self._activate(queued)
