"""Scheduling queue: pods by priority, then age, as in kube-scheduler.

A pod is in one of three queues. *Active*: tried next. *Backoff*: 1 s after the first failure, twice as long after each
further one, 10 s at most. *Unschedulable*: tried when capacity may have grown, and in any case after 5 minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from steersman.apps.scheduler.hints import VOLUME_GROUP, Group
from steersman.kubernetes.cache.cluster_cache import CachedPod

INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 1.0, 10.0
UNSCHEDULABLE_SECONDS = 300.0
NO_GROUP: Group = (-1, -1, 0)
"""Group of pods that no cluster change will help."""

QueueState = Literal["", "active", "backoff", "unschedulable", "tried"]


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod in the queue.

    Attributes:
        pod: pod of the cache.
        since: when it was first queued, seconds of the clock.
        clock: clock of the queue.
        attempts: failed attempts so far.
        rests_until: end of its backoff.
        message: why it was unschedulable at the last attempt, as in its event.
        told_at: when the message was last computed, seconds of the clock.
        hopeful: whether a cluster change may help it.
        group: group that it is woken with while it is unschedulable.
        place: its queue; "tried" from `pop` on.
        number: number of its last move.
    """

    pod: CachedPod
    since: float
    clock: Callable[[], float] = time.monotonic
    attempts: int = 0
    rests_until: float = 0.0
    message: str = ""
    told_at: float = 0.0
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
    _active: list[tuple[int, float, int, QueuedPod]] = field(default_factory=list)
    _backoff_queue: list[tuple[float, int, QueuedPod]] = field(default_factory=list)
    _unschedulable: dict[str, QueuedPod] = field(default_factory=dict)
    _groups: dict[Group, dict[str, QueuedPod]] = field(default_factory=dict)
    _number: int = 0
    _room_at: float = -1.0
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
        while self._active:
            number, queued = heapq.heappop(self._active)[-2:]
            if queued.place == "active" and queued.number == number:
                self._move(queued, "tried")
                return queued
        return None

    def failed(self, queued: QueuedPod, tried_at: float, *, hopeful: bool = True) -> None:
        """Mark a pod, popped at `tried_at`, unschedulable; if not `hopeful`, no cluster change will help it."""
        if self._room_at >= tried_at:  # capacity was freed while it was tried
            self.requeue_with_backoff(queued)
        elif self._fails(queued):
            self._move(queued, "unschedulable")
            self._unschedulable[queued.pod.key] = queued
            queued.hopeful = hopeful
            self._join(queued)

    def requeue_with_backoff(self, queued: QueuedPod) -> None:
        """Requeue a popped pod that could not be bound, after a backoff."""
        if self._fails(queued):
            self._push_backoff(queued)

    def move_all_to_backoff(self) -> None:
        """Move all unschedulable pods to the backoff queue after a cluster change."""
        self._room_at = self.clock()
        for queued in list(self._unschedulable.values()):
            self._push_backoff(queued)

    @property
    def groups(self) -> Collection[Group]:
        """Return the groups of unschedulable pods."""
        return self._groups.keys() - {NO_GROUP}

    def wake(self, counts: Mapping[Group, int]) -> None:
        """Move so many pods of these groups to the backoff queue, those first that have waited longest."""
        for group, count in counts.items():
            for queued in list(islice(self._groups.get(group, {}).values(), count)):
                self._push_backoff(queued)

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
        self._wakes.clear()
        now = self.clock()
        due = [] if seconds is None else [now + seconds]
        due += [self._backoff_queue[0][0]] if self._backoff_queue else []
        if self._unschedulable:
            oldest = next(iter(self._unschedulable.values()))
            due.append(oldest.rests_until + UNSCHEDULABLE_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wakes.wait(), max(0.0, min(due) - now) if due else None)

    # -----------------------------------------------------------------------------------------------------------------

    def _fails(self, queued: QueuedPod) -> bool:
        """Count a failed attempt; return whether the pod is still in the queue."""
        queued.attempts += 1
        backoff = min(INITIAL_BACKOFF_SECONDS * 2.0 ** (queued.attempts - 1), MAX_BACKOFF_SECONDS)
        queued.rests_until = self.clock() + backoff
        return self._all.get(queued.pod.key) is queued

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
        pod = queued.pod
        group = VOLUME_GROUP if pod.claims else (pod.class_id, pod.labels_id, pod.pod.priority)
        queued.group = group if queued.hopeful else NO_GROUP
        self._groups.setdefault(queued.group, {})[queued.pod.key] = queued

    def _activate(self, queued: QueuedPod) -> None:
        self._move(queued, "active")
        heapq.heappush(self._active, (-queued.pod.pod.priority, queued.since, queued.number, queued))
        self._wakes.set()

    def _push_backoff(self, queued: QueuedPod) -> None:
        self._move(queued, "backoff")
        heapq.heappush(self._backoff_queue, (queued.rests_until, queued.number, queued))
        self._wakes.set()

    def _activate_due(self) -> None:
        """Activate pods whose backoff is over or that were unschedulable for too long."""
        now = self.clock()
        while self._backoff_queue and self._backoff_queue[0][0] <= now:
            _, number, queued = heapq.heappop(self._backoff_queue)
            if queued.place == "backoff" and queued.number == number:
                self._activate(queued)
        while self._unschedulable:
            queued = next(iter(self._unschedulable.values()))
            if queued.rests_until + UNSCHEDULABLE_SECONDS > now:
                break
            self._activate(queued)
