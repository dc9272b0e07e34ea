"""The pods that wait for a decision: by priority, then age; those that fit nowhere rest until something changed.

As in kube-scheduler, a pod is in one of three places. *Active*: to be tried next. *Resting after a failure* (backoff):
1 s after the first, twice as long after each further one, 10 s at most. *Unschedulable*: tried when there may be more
room than before, and in any case after 5 minutes.
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

from steersman.kube.cache import CachedPod
from steersman.scheduler.hints import VOLUME_GROUP, Group

FIRST_REST_SECONDS, LONGEST_REST_SECONDS = 1.0, 10.0
UNSCHEDULABLE_SECONDS = 300.0
NO_GROUP: Group = (-1, -1, 0)
"""Of pods that no room will help."""

Place = Literal["", "active", "backoff", "unschedulable", "tried"]


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod in the queue.

    Attributes:
        pod: from the cache.
        since: when it was first queued, in seconds of the clock.
        clock: of the queue.
        attempts: failed ones so far.
        rests_until: not tried before.
        message: why it fitted nowhere when it was last tried, as was said in its event.
        told_at: when that was, or when it was last found to be said still, in seconds of the clock.
        hopeful: whether more room may help it.
        group: of pods that it is woken with while it is unschedulable.
        place: where it is; "tried" from `pop` on.
        number: of its last move.
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
    place: Place = ""
    number: int = 0

    def waited(self) -> float:
        """Seconds since it was first queued."""
        return self.clock() - self.since


@dataclass(slots=True)
class SchedulingQueue:
    """The queue.

    Args:
        clock: monotonic seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _all: dict[str, QueuedPod] = field(default_factory=dict)
    _active: list[tuple[int, float, int, QueuedPod]] = field(default_factory=list)
    _resting: list[tuple[float, int, QueuedPod]] = field(default_factory=list)
    _unschedulable: dict[str, QueuedPod] = field(default_factory=dict)
    _groups: dict[Group, dict[str, QueuedPod]] = field(default_factory=dict)
    _number: int = 0
    _room_at: float = -1.0
    _wakes: asyncio.Event = field(default_factory=asyncio.Event)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def unschedulable(self) -> int:
        """How many pods fit nowhere."""
        return len(self._unschedulable)

    def counts(self) -> dict[str, int]:
        """How many pods are `active`, in `backoff`, `unschedulable`."""
        places = Counter(queued.place for queued in self._all.values())
        return {place: places[place] for place in ("active", "backoff", "unschedulable")}

    def add(self, pod: CachedPod) -> None:
        """A pod waits for a node: new, or changed, so that it is tried at once."""
        queued = self._all.get(pod.key)
        if queued is None or queued.pod is not pod:
            self.remove(pod.key)
            queued = self._all[pod.key] = QueuedPod(pod, self.clock(), self.clock)
        if queued.place != "active":
            self._activate(queued)

    def remove(self, key: str) -> None:
        """A pod is gone, or bound."""
        queued = self._all.pop(key, None)
        if queued is not None:
            self._move(queued, "")

    def pop(self) -> QueuedPod | None:
        """The pod to try next, if any; it stays known until `remove`, `failed` or `rest`."""
        self._activate_due()
        while self._active:
            number, queued = heapq.heappop(self._active)[-2:]
            if queued.place == "active" and queued.number == number:
                self._move(queued, "tried")
                return queued
        return None

    def failed(self, queued: QueuedPod, tried_at: float, *, hopeful: bool = True) -> None:
        """A pod that was popped at `tried_at` fits nowhere; if not `hopeful`, no room will help it."""
        if self._room_at >= tried_at:  # something came free while it was tried
            self.rest(queued)
        elif self._fails(queued):
            self._move(queued, "unschedulable")
            self._unschedulable[queued.pod.key] = queued
            queued.hopeful = hopeful
            self._join(queued)

    def rest(self, queued: QueuedPod) -> None:
        """A popped pod could not be bound: it is tried again after a rest."""
        if self._fails(queued):
            self._push_resting(queued)

    def room(self) -> None:
        """There may be more room than before: everything unschedulable is to be tried again."""
        self._room_at = self.clock()
        for queued in list(self._unschedulable.values()):
            self._push_resting(queued)

    @property
    def groups(self) -> Collection[Group]:
        """The groups of the pods that fit nowhere."""
        return self._groups.keys() - {NO_GROUP}

    def wake(self, counts: Mapping[Group, int]) -> None:
        """Have so many pods of these groups tried again, those first that have waited longest."""
        for group, count in counts.items():
            for queued in list(islice(self._groups.get(group, {}).values(), count)):
                self._push_resting(queued)

    def regroup(self) -> None:
        """Follow that pods' classes and labels have other numbers."""
        self._groups.clear()
        for queued in self._unschedulable.values():
            self._join(queued)

    def nudge(self) -> None:
        """End a `wait`."""
        self._wakes.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until a pod may be ready to be tried, or for so long."""
        self._wakes.clear()
        now = self.clock()
        due = [] if seconds is None else [now + seconds]
        due += [self._resting[0][0]] if self._resting else []
        if self._unschedulable:
            oldest = next(iter(self._unschedulable.values()))
            due.append(oldest.rests_until + UNSCHEDULABLE_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wakes.wait(), max(0.0, min(due) - now) if due else None)

    # -----------------------------------------------------------------------------------------------------------------

    def _fails(self, queued: QueuedPod) -> bool:
        """Count a failed attempt; whether the pod is still in the queue."""
        queued.attempts += 1
        rest = min(FIRST_REST_SECONDS * 2.0 ** (queued.attempts - 1), LONGEST_REST_SECONDS)
        queued.rests_until = self.clock() + rest
        return self._all.get(queued.pod.key) is queued

    def _move(self, queued: QueuedPod, place: Place) -> None:
        """Into another place; heaps drop what is no longer in theirs when they come to it."""
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

    def _push_resting(self, queued: QueuedPod) -> None:
        self._move(queued, "backoff")
        heapq.heappush(self._resting, (queued.rests_until, queued.number, queued))
        self._wakes.set()

    def _activate_due(self) -> None:
        """Activate what has rested, and what was unschedulable for too long."""
        now = self.clock()
        while self._resting and self._resting[0][0] <= now:
            _, number, queued = heapq.heappop(self._resting)
            if queued.place == "backoff" and queued.number == number:
                self._activate(queued)
        while self._unschedulable:
            queued = next(iter(self._unschedulable.values()))
            if queued.rests_until + UNSCHEDULABLE_SECONDS > now:
                break
            self._activate(queued)
