"""Scheduling queue: pods by priority, then age, as in kube-scheduler.

A pod is in one of three queues. *Active*: tried next. *Backoff*: 1 s after the first failure, twice as long after each
further one, 10 s at most, and up to a second more, so that pods of one second are ordered by priority. If the last
attempts of a namespace all failed, other namespaces go first among active pods of equal priority, in most attempts. So
do pods that have not been tried before those that have, except where a cluster change was found to help these.
While no pod is active, those that a cluster change may have helped are tried before their backoff has passed; pods
whose attempt ended with an error always wait for it, in another heap. *Unschedulable*: tried when a cluster change
helps, and in any case after 5 minutes.

With an order other than that of age the active pod that goes next is chosen when it is popped. Then only attempts that
ended with an error have a backoff: the others would let pods overtake that go later by the order, and since all filters
are evaluated before a pod is woken, it is seldom tried in vain.

Source: Kubernetes 1.36, pkg/scheduler/backend/queue (`SchedulerPopFromBackoffQ`, KEP 5142).
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from steersman.cluster.state import ClusterState
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.live.scheduler.ordering import NO_GROUP, Group, PodOrdering, QueuedPod, QueueState
from steersman.orders.order import AGE

INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 1.0, 10.0
MOST_DOUBLINGS = 10
BACKOFF_WINDOW_SECONDS = 1.0  # pods whose backoff ends in the same window are ordered by priority
UNSCHEDULABLE_SECONDS = 300.0
FAILURES, TURN = 16, 8  # failures in a row after which other namespaces go first; their attempts between two of it
RETRIES = ""  # name of the deferred pods that were tried before, of any namespace
LISTED_SECONDS = 2.0  # pods that are at least so old began to wait at their creation, which has whole seconds
FEW = 64  # outdated entries of a heap that are not worth removing

Heap = list[tuple[Any, ...]]  # what orders a pod, the number of its move, and the pod; a later move outdates it


@dataclass(slots=True)
class SchedulingQueue:
    """Queue of pods that wait for a decision."""

    clock: Callable[[], float] = time.monotonic  # seconds
    ordering: PodOrdering | None = None  # who goes next; None: the oldest
    epoch: float = math.nan  # zero of the clock, seconds since 1970; nan: as it is now
    # Unschedulable pods that share no group, by namespace and `CachedPod.follows`, then key
    singles: dict[tuple[str, bool], dict[str, QueuedPod]] = field(default_factory=dict)
    _all: dict[str, QueuedPod] = field(default_factory=dict)
    _active: Heap = field(default_factory=list)
    _deferred: dict[str, Heap] = field(default_factory=dict)
    _failures: Counter[str] = field(default_factory=Counter)
    _popped: int = 0
    _backoff_queue: Heap = field(default_factory=list)
    _error_queue: Heap = field(default_factory=list)
    _unschedulable: dict[str, QueuedPod] = field(default_factory=dict)
    _groups: dict[Group, dict[str, QueuedPod]] = field(default_factory=dict)
    _number: int = 0
    _last_since: float = -math.inf
    _all_moved: int = 0
    _wakes: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        if math.isnan(self.epoch):
            self.epoch = time.time() - self.clock()

    def __len__(self) -> int:
        """Return the number of pods in all queues."""
        return len(self._all)

    @property
    def order_name(self) -> str:
        return AGE.name if self.ordering is None else self.ordering.order.order.name

    @property
    def holds_back(self) -> bool:
        """Whether a pod may keep others from starting."""
        return self.ordering is not None and (self.ordering.order.commits or self.ordering.order.reserves)

    @property
    def unschedulable(self) -> int:
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
            queued = self._all[pod.key] = QueuedPod(pod, self._since(pod), self.clock)
        if self.ordering is not None:
            # Its requests, its priority or its stated run time may have changed.
            self._regroup(queued, self.ordering)
        if queued.place != "active":
            self._activate(queued)

    def _since(self, pod: CachedPod) -> float:
        """Return when a pod began to wait, on the clock.

        Of new pods that come at once the first is oldest. Lists are ordered by name, so listed pods of one second get a
        random order, which is the same after each restart.
        """
        now, since = self.clock(), math.inf if pod.waits_since is None else pod.waits_since - self.epoch
        if now - since >= LISTED_SECONDS:
            return since + zlib.crc32(pod.uid.encode()) / (1 << 32)
        self._last_since = max(now, math.nextafter(self._last_since, math.inf))
        return self._last_since

    def note_success(self, pod: CachedPod) -> None:
        """Restore the turn of a namespace's pods, since one of them got a node."""
        self._failures.pop(pod.pod.namespace, None)
        for entry in self._deferred.pop(pod.pod.namespace, ()):
            heapq.heappush(self._active, entry)

    def remove(self, key: str) -> None:
        queued = self._all.pop(key, None)
        if queued is not None:
            self._move(queued, "")
            if self.ordering is not None:
                self.ordering.leave(queued)
                if self.holds_back:
                    # It may have been the one that others wait for.
                    self._wakes.set()

    def pop(self) -> QueuedPod | None:
        """Return the next pod, if any.

        It stays in the queue until `remove`; `mark_unschedulable`, `wait_for_change` and `requeue_with_backoff` say
        that it waits again.
        """
        self._activate_due()
        if self.ordering is not None:
            chosen = self.ordering.next_pod(self.clock(), len(self._all))
            if chosen is not None:
                self._move(chosen, "tried")
            return chosen
        self._defer()
        heap = next(filter(_has_next, (self._next_active(), self._backoff_queue)), None)
        if heap is None:
            return None
        queued: QueuedPod = heapq.heappop(heap)[-1]
        self._popped += heap is self._active
        self._move(queued, "tried")
        return queued

    def _defer(self) -> None:
        """Defer the active pods at the head of the queue that are of namespaces whose pods keep failing."""
        while _has_next(self._active):
            namespace = self._active[0][-1].pod.pod.namespace
            if self._failures[namespace] < FAILURES:
                return
            heapq.heappush(self._deferred.setdefault(namespace, []), heapq.heappop(self._active))

    def _next_active(self) -> Heap:
        """Return the heap of the active pod that goes next; an empty one if there are no active pods."""
        self._deferred = {name: heap for name, heap in self._deferred.items() if _has_next(heap)}
        if not self._deferred:
            self._popped = 0
            return self._active
        # Of equal priorities the namespace goes first that had the fewest attempts in vain.
        heaps = self._deferred
        deferred = heaps[min(heaps, key=lambda name: (heaps[name][0][0], name == RETRIES, self._failures[name]))]
        if not self._active or deferred[0][0] < self._active[0][0]:
            return deferred
        is_turn = self._popped >= TURN and deferred[0][0] == self._active[0][0]
        self._popped *= not is_turn
        return deferred if is_turn else self._active

    def mark_unschedulable(self, queued: QueuedPod, *, hopeful: bool = True) -> None:
        """Mark a popped pod unschedulable; if not `hopeful`, no cluster change will help it."""
        # `_wait_for_change` gives it a new one.
        popped = queued.number
        self._failures[queued.pod.pod.namespace] += 1
        if self._count_failure(queued):
            self._wait_for_change(queued, hopeful=hopeful)
            if not hopeful:
                self.let_overtake(queued)
            if popped < self._all_moved:  # everything changed while it was tried
                self._push_backoff(queued)

    def let_overtake(self, queued: QueuedPod) -> None:
        """Let other pods overtake one that cannot go next, whatever the order."""
        if self.ordering is not None:
            self.ordering.release(queued)

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
        """Return the groups that unschedulable pods share and a cluster change may help, with a pod of each."""
        return {group: next(iter(pods.values())).pod for group, pods in self._groups.items() if group != NO_GROUP}

    def wake(self, counts: Mapping[Group, int]) -> None:
        """Make so many pods of these groups active, or have them end their backoff first.

        Those are chosen that have waited longest, or that go first by the order, which has no backoff.
        """
        now = self.clock()
        if self.ordering is not None:
            for group, count in counts.items():
                for queued in self.ordering.woken(group, count, now, len(self._all)):
                    self._activate(queued)
            return
        for group, count in counts.items():
            alike = [self._all[group[-1]]] if group[-1] else self._groups.get(group, {}).values()
            for queued in list(islice(alike, count)):
                self._activate(queued, helped=True) if queued.backoff_until <= now else self._push_backoff(queued)

    def retry(self, pods: Iterable[QueuedPod]) -> None:
        """Make pods active that are still unschedulable."""
        for queued in pods:
            if queued.place == "unschedulable":
                self._activate(queued)

    def regroup(self) -> None:
        """Rebuild the groups after pods' classes and labels were renumbered."""
        unschedulable = list(self._unschedulable.values())
        for queued in unschedulable:
            self._renumber(queued)
            self._separate(queued)
        for queued in unschedulable:
            self._join(queued)

    def follow_cluster(self, state: ClusterState) -> None:
        """Order pods by their sizes in the cluster as it is now."""
        if self.ordering is not None and self.ordering.follow_cluster(state):
            for queued in self._all.values():
                self._regroup(queued, self.ordering)

    def note_first_end(self, namespace: str, owner: str) -> None:
        """Order pods by the run times of their owner, of which the first pod has ended."""
        if self.ordering is not None:
            for queued in self.ordering.of_owner(namespace, owner):
                self._regroup(queued, self.ordering)

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
            async with asyncio.timeout(max(0.0, min(due) - now) if due else None):
                await self._wakes.wait()

    # -----------------------------------------------------------------------------------------------------------------

    def _count_failure(self, queued: QueuedPod) -> bool:
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
        before, queued.place = queued.place, place
        self._renumber(queued)
        if before == "unschedulable":
            self._unschedulable.pop(queued.pod.key, None)
            self._separate(queued)
        elif before == "active" and self.ordering is not None:
            self.ordering.active.discard(queued)

    def _renumber(self, queued: QueuedPod) -> None:
        self._number += 1
        queued.number = self._number

    def _join(self, queued: QueuedPod) -> None:
        pod, queued.follows = queued.pod, queued.pod.follows
        key = pod.key if pod.claims or pod.class_id < 0 else ""
        queued.group = (pod.class_id, pod.labels_id, pod.pod.priority, key) if queued.hopeful else NO_GROUP
        index, name = self._index(queued)
        index.setdefault(name, {})[pod.key] = queued
        if self.ordering is not None:
            self.ordering.add_unschedulable(queued)

    def _separate(self, queued: QueuedPod) -> None:
        index, name = self._index(queued)
        del index[name][queued.pod.key]
        if not index[name]:
            del index[name]
        if self.ordering is not None:
            self.ordering.discard_unschedulable(queued)

    def _index(self, queued: QueuedPod) -> tuple[dict[Any, dict[str, QueuedPod]], tuple[str, bool] | Group]:
        name = (queued.pod.pod.namespace, queued.follows)
        return (self.singles, name) if queued.group[-1] else (self._groups, queued.group)

    def _regroup(self, queued: QueuedPod, ordering: PodOrdering) -> None:
        """Give a pod the group of the order that it belongs to now; its place stays."""
        if not ordering.changes_group(queued):
            return
        if queued.place == "active":
            self._renumber(queued)
            ordering.active.discard(queued)
            ordering.join(queued)
            ordering.active.push(queued)
        elif queued.place == "unschedulable":
            self._renumber(queued)
            ordering.discard_unschedulable(queued)
            ordering.join(queued)
            ordering.add_unschedulable(queued)
        else:
            ordering.join(queued)

    def _activate(self, queued: QueuedPod, *, helped: bool = False) -> None:
        self._move(queued, "active")
        if self.ordering is not None:
            self.ordering.active.push(queued)
            self._wakes.set()
            return
        was_tried = (queued.attempts > 0 or queued.pod.refusal != "") and not helped
        heap = self._deferred.setdefault(RETRIES, []) if was_tried else self._active
        heapq.heappush(heap, (-queued.pod.pod.priority, queued.since, queued.number, queued))
        if len(heap) > 2 * len(self._all) + FEW:
            # A replica that does not lead pops nothing, and would keep every pod that ever was.
            heap[:] = filter(_is_current, heap)
            heapq.heapify(heap)
        self._wakes.set()

    def _push_backoff(self, queued: QueuedPod) -> None:
        if self.ordering is not None:
            self._activate(queued)
            return
        self._move(queued, "backoff")
        window_ends = math.ceil(queued.backoff_until / BACKOFF_WINDOW_SECONDS) * BACKOFF_WINDOW_SECONDS
        order = window_ends, -queued.pod.pod.priority, queued.since, queued.number, queued
        heapq.heappush(self._backoff_queue, order)
        self._wakes.set()

    def _activate_due(self) -> None:
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


def _is_current(entry: tuple[Any, ...]) -> bool:
    return bool(entry[-1].place in ("active", "backoff") and entry[-1].number == entry[-2])


def _has_next(heap: Heap) -> bool:
    """Drop outdated entries at the head of a heap; return whether a pod is left."""
    while heap and not _is_current(heap[0]):
        heapq.heappop(heap)
    return bool(heap)
