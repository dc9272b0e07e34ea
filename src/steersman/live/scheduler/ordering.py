"""The order of a live queue: who goes next among its pods, and who among those that a change helps.

Pods that are alike for the order are a group, in which the oldest goes first. Each choice compares the oldest pods of
the groups by their scores at that moment, so that it costs as much as there are groups, not pods.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from steersman.cluster.state import ClusterState
from steersman.core.interface import HEAD
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.orders.live_order import LiveOrder, cluster_size
from steersman.orders.order import recurring_owner

FIRST_ROWS = 4
BACKFILL_DEPTH = 100  # pods of a group that are tried after a change where a reservation may refuse some of them
SPARE_ENTRIES = 8  # outdated entries that a group may have beside as many as it has pods


Group = tuple[int, int, int, str]
"""Class, labels and priority of pods, and the key of one with claims, which are its own, or without numbers.

What fits one of them fits all, and higher priorities are tried first.
"""
NO_GROUP: Group = (-2, -2, 0, "")  # group of pods that no cluster change will help
QueueState = Literal["", "active", "backoff", "unschedulable", "tried"]


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod in the queue."""

    pod: CachedPod  # pod of the cache
    since: float  # when it began to wait, seconds of the clock
    clock: Callable[[], float] = time.monotonic  # clock of the queue
    attempts: int = 0  # failed attempts so far
    backoff_until: float = 0.0  # end of its backoff
    unschedulable_since: float = 0.0  # when it was last found unschedulable
    message: str = ""  # why it was unschedulable at the last attempt, as in its event
    reported_at: float = 0.0  # when the message was last computed, seconds of the clock
    hopeful: bool = True  # whether a cluster change may help it
    # `group`, `follows`: group that it is woken with, and `CachedPod.follows`, when it was last found unschedulable.
    group: Group = NO_GROUP
    follows: bool = False
    place: QueueState = ""  # its queue; "tried" from `pop` on
    number: int = 0  # number of its last move
    order_group: int = -1  # group of pods that are alike for the order, -1: none
    order_owner: tuple[str, str] | None = None  # namespace and owner whose first pod that ends changes that group
    # When it was to start by the earliest of its reservations, on the clock; inf: it has had none
    promised: float = math.inf
    reserved_node: str = ""  # node of its last reservation, "": it has had none

    def waited(self) -> float:
        """Seconds since it began to wait."""
        return max(self.clock() - self.since, 0.0)


@dataclass(slots=True)
class GroupPods:
    """Pods of a group: a heap by age, in which entries of pods that were moved are outdated, and the number of pods."""

    heap: list[tuple[float, int, QueuedPod]] = field(default_factory=list)
    count: int = 0

    def first(self) -> tuple[float, int, QueuedPod]:
        """Return the entry of the oldest pod, of at least one."""
        while (entry := self.heap[0])[2].number != entry[1]:
            heapq.heappop(self.heap)
        return entry

    def tidy(self) -> None:
        if len(self.heap) > 2 * self.count + SPARE_ENTRIES:
            self.heap = [entry for entry in self.heap if entry[2].number == entry[1]]
            heapq.heapify(self.heap)


class OrderedPods:
    """Pods in one place of a queue, by group."""

    def __init__(self, order: LiveOrder) -> None:
        self._order = order  # numbers the groups and compares them
        self._pods: dict[int, GroupPods] = {}
        self._rows: dict[int, int] = {}
        self._heads = np.zeros(FIRST_ROWS, dtype=HEAD)  # of their rows

    def __len__(self) -> int:
        return len(self._rows)

    def push(self, queued: QueuedPod) -> None:
        """Add a pod, after its last move was numbered."""
        group = queued.order_group
        pods = self._pods.get(group)
        if pods is None:
            pods = self._pods[group] = GroupPods()
            self._add_row(group)
        heapq.heappush(pods.heap, (queued.since, queued.number, queued))
        pods.count += 1
        self._note_first(group)

    def discard(self, queued: QueuedPod) -> None:
        """Remove a pod of this place, after its next move was numbered."""
        group = queued.order_group
        pods = self._pods[group]
        pods.count -= 1
        if not pods.count:
            del self._pods[group]
            self._remove_row(group)
            return
        pods.tidy()
        self._note_first(group)

    def first(self, now: float, waiting: int) -> QueuedPod | None:
        """Return the pod that goes next, if any; `waiting` pods wait in all places."""
        if not self._rows:
            return None
        # Most places of unschedulable pods have one group, and they may be thousands.
        row = self._order.first(self._heads, len(self._rows), now, waiting) if len(self._rows) > 1 else 0
        return self._pods[int(self._heads["group"][row])].first()[2]

    # -----------------------------------------------------------------------------------------------------------------

    def _note_first(self, group: int) -> None:
        since, number, _ = self._pods[group].first()
        self._heads[self._rows[group]] = group, since, number, 0.0

    def _add_row(self, group: int) -> None:
        row = len(self._rows)
        if row == len(self._heads):
            self._heads = np.concatenate([self._heads, np.zeros_like(self._heads)])
        self._rows[group] = row

    def _remove_row(self, group: int) -> None:
        row, last = self._rows.pop(group), len(self._rows)
        if row != last:
            self._heads[row] = self._heads[last]
            self._rows[int(self._heads["group"][row])] = row


class PodOrdering:
    """Who goes next in a queue."""

    def __init__(self, order: LiveOrder, clock: Callable[[], float] = time.monotonic) -> None:
        self.order, self._clock = order, clock
        self.active = OrderedPods(order)  # pods that are tried next
        self._unschedulable: dict[Group, OrderedPods] = {}
        # Of an order that commits: by priority the pod that goes next, until it is bound or deleted.
        self._heads: dict[int, QueuedPod] = {}
        self._is_vacant = True  # one of them is gone
        # Of an order that ages: by priority all pods, the oldest first.
        self._ages: dict[int, dict[str, QueuedPod]] = {}
        # Pods that no change will help: they do not block others.
        self._released: set[str] = set()
        # Pods whose group changes once a pod of their owner has ended.
        self._by_owner: dict[tuple[str, str], dict[str, QueuedPod]] = {}

    def join(self, queued: QueuedPod) -> None:
        """Give a new or changed pod, which is in no place, its group."""
        self._leave_group(queued)
        pod = queued.pod.pod
        if self.order.ages:
            # One that was known keeps its place.
            self._ages.setdefault(pod.priority, {}).setdefault(queued.pod.key, queued)
        queued.order_group, waits_for_owner = self.order.join(pod)
        if waits_for_owner:
            queued.order_owner = pod.namespace, recurring_owner(pod.owner)
            self._by_owner.setdefault(queued.order_owner, {})[queued.pod.key] = queued

    def changes_group(self, queued: QueuedPod) -> bool:
        """Return whether a pod belongs to another group than it is in."""
        if queued.order_group < 0:
            return True
        group, _ = self.order.join(queued.pod.pod)
        self.order.leave(group)
        return group != queued.order_group

    def leave(self, queued: QueuedPod) -> None:
        """Forget a pod, which is in no place."""
        self._leave_group(queued)
        self._released.discard(queued.pod.key)
        for pods in self._ages.values():
            pods.pop(queued.pod.key, None)

    def _leave_group(self, queued: QueuedPod) -> None:
        if queued.order_group < 0:
            return
        self.order.leave(queued.order_group)
        queued.order_group = -1
        if queued.order_owner is not None:
            alike = self._by_owner[queued.order_owner]
            del alike[queued.pod.key]
            if not alike:
                del self._by_owner[queued.order_owner]
            queued.order_owner = None

    def of_owner(self, namespace: str, owner: str) -> list[QueuedPod]:
        """Return the pods that join another group now that the first pod of their owner has ended."""
        return list(self._by_owner.get((namespace, recurring_owner(owner)), {}).values())

    def add_unschedulable(self, queued: QueuedPod) -> None:
        """Add a pod that waits for a change which helps its group of `hints`."""
        pods = self._unschedulable.get(queued.group)
        if pods is None:
            pods = self._unschedulable[queued.group] = OrderedPods(self.order)
        pods.push(queued)

    def discard_unschedulable(self, queued: QueuedPod) -> None:
        """Remove a pod that waits for no change any more, after its next move was numbered."""
        pods = self._unschedulable[queued.group]
        pods.discard(queued)
        if not len(pods):
            del self._unschedulable[queued.group]

    def woken(self, group: Group, count: int, now: float, waiting: int) -> Iterator[QueuedPod]:
        """Yield at most so many pods of a group of `hints`, each of which must be moved before the next is asked for.

        More where a reservation may keep the first ones from starting, but not the next.

        The pod that was chosen to go next comes first, the others in order.
        """
        if self.order.reserves and (not self.order.ages or self._overdue() is not None):
            count = max(count, BACKFILL_DEPTH)
        for head in [*self._heads.values()]:
            if count and head.place == "unschedulable" and head.group == group:
                count -= 1
                yield head
        while count and (pods := self._unschedulable.get(group)) is not None:
            queued = pods.first(now, waiting)
            assert queued is not None
            count -= 1
            yield queued

    def next_pod(self, now: float, waiting: int) -> QueuedPod | None:
        """Return the active pod that goes next; None if there is none, or if it must not overtake another."""
        queued = self.active.first(now, waiting)
        if queued is None:
            return None
        if self.order.commits:
            head = self._choose_head(queued, now, waiting)
            if head.place == "active":
                queued = head
            elif self.order.is_strict:
                return None
        self._released.discard(queued.pod.key)
        return queued

    def _choose_head(self, queued: QueuedPod, now: float, waiting: int) -> QueuedPod:
        """Return the pod that no other pod may overtake or delay. `queued` is the first active pod."""
        # What was tried before has started, or waits.
        for priority, chosen in list(self._heads.items()):
            if chosen.place in ("", "tried") or chosen.pod.pod.priority != priority:
                del self._heads[priority]
                self._is_vacant = True
        head = self.blocking_head()
        if self._is_vacant or head is None or head.pod.pod.priority < queued.pod.pod.priority:
            first = self._first_waiting(queued, now, waiting)
            if head is None or head.pod.pod.priority < first.pod.pod.priority:
                head = self._heads[first.pod.pod.priority] = first
            self._is_vacant = False
        return head

    def _first_waiting(self, queued: QueuedPod, now: float, waiting: int) -> QueuedPod:
        """Return the pod that goes next, of the first active one and those that wait for a change which helps them."""
        found = [queued]
        for group, pods in self._unschedulable.items():
            first = None if group == NO_GROUP else pods.first(now, waiting)
            if first is not None and first.pod.key not in self._released:
                found.append(first)
        heads = np.array([(each.order_group, each.since, each.number, 0.0) for each in found], dtype=HEAD)
        return found[self.order.first(heads, len(found), now, waiting)]

    def blocking_head(self) -> QueuedPod | None:
        """Return the pod that nobody may delay, and that is neither being tried, nor bound, nor deleted.

        It is the chosen one of the highest priority; where everybody may overtake, the oldest pod of the highest
        priority of which one has waited for too long.
        """
        if self.order.ages:
            return self._overdue()
        waiting = (item for item in self._heads.items() if item[1].place not in ("", "tried"))
        return max(waiting, key=lambda item: item[0], default=(0, None))[1]

    def may_delay(self, queued: QueuedPod, head: QueuedPod) -> bool:
        """Return whether a pod that is being tried may delay the one that nobody else may delay."""
        if queued is head or queued.pod.pod.priority > head.pod.pod.priority:
            return True
        # While it is tried it is not the blocking head, though it may be the oldest.
        return self.order.ages and queued.pod.pod.priority == head.pod.pod.priority and queued.since <= head.since

    def release(self, queued: QueuedPod) -> None:
        """Let others overtake a pod that no change will help."""
        self._released.add(queued.pod.key)
        for priority, head in list(self._heads.items()):
            if head is queued:
                del self._heads[priority]
                self._is_vacant = True

    def _overdue(self) -> QueuedPod | None:
        for priority in sorted(self._ages, reverse=True):
            for key, queued in self._ages[priority].items():
                if queued.place not in ("", "tried") and key not in self._released:
                    if self._clock() - queued.since > self.order.order.ageing:
                        return queued
                    break
        return None

    def follow_cluster(self, state: ClusterState) -> bool:
        """Take the size of the cluster over; return whether it changed, so that all pods must join again."""
        size = cluster_size(state, self.order.size)
        if size is self.order.size:
            return False
        self.order.resize(size)
        return True
