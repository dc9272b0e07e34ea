"""Find which unschedulable pods a cluster change helps, like kube-scheduler's queueing hints.

kube-scheduler's plugins look at the changed object and guess; here all filters are evaluated again, which takes
microseconds for a group of equal pods. So a pod is tried again only if it fits now, and other changes cost it nothing.

A pod without rules about other pods, host ports or volumes can be helped only by the changed nodes. The others may be
helped on any node: by a pod that was deleted, a node's label; those with affinity, spread or claims by any change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set

from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.live.scheduler.ordering import Group, QueuedPod

SHARE = 0.05  # share of CPU time that the search for helped pods may take
SEARCH_SECONDS = 0.005  # CPU time of a search after which pods that share no group are left to the next one
MAX_DELAY_SECONDS = 0.1  # maximum delay of a search, whatever its share


class Hints:
    """Collected cluster changes, until the pods that they help are looked for."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._freed: set[int] = set()
        self._claims: set[str] = set()
        self._changed = False
        self._due_at = 0.0
        # By namespace, how many pods that share no group are still to be looked at, and nodes that may help them.
        self._slow: dict[tuple[str, bool], int] = {}
        self._slow_freed: set[int] = set()

    def node_changed(self, slot: int, *, may_have_grown: bool) -> None:
        """Record a changed node, and whether it may take pods that it did not take before."""
        self._changed = True
        if may_have_grown:
            self._freed.add(slot)

    def volumes_changed(self, claim: str) -> None:
        """Record that a claim changed, or another object that claims depend on ("")."""
        self._changed = True
        if claim:
            self._claims.add(claim)

    def forget(self) -> None:
        """Drop all changes."""
        self._freed.clear()
        self._claims.clear()
        self._slow.clear()
        self._slow_freed.clear()
        self._changed = False

    def wait_seconds(self) -> float | None:
        """Return how long to wait before the next search; None: nothing has changed."""
        return max(0.0, self._due_at - self._clock()) if self._changed or self._slow else None

    def helped(
        self,
        groups: Mapping[Group, CachedPod],  # groups of unschedulable pods that share them, with a pod of each
        # The other unschedulable pods, see `SchedulingQueue`; a pod that was looked at becomes the last one
        singles: Mapping[tuple[str, bool], dict[str, QueuedPod]],
        # Number of pods like this one that fit now, given the nodes that may take more than before
        room: Callable[[CachedPod, Set[int]], int],
    ) -> dict[Group, int]:
        """Return how many pods of each group the collected changes help, and forget the changes.

        A pod is tried in any case if one of its claims changed: it may wait for another reason. There may be thousands
        of pods with claims, or without numbers in the state (`PodStore.number_waiting`), so a search looks at some.
        """
        began = time.thread_time()
        freed, claims, self._freed, self._claims = self._freed, self._claims, set(), set()
        self._slow_freed |= freed
        counts = {group: n for group, pod in groups.items() if (freed or pod.follows) and (n := room(pod, freed))}
        if claims:
            waiting = (queued for pods in singles.values() for queued in pods.values())
            counts |= {each.group: 1 for each in waiting if any(claim.key in claims for claim in each.pod.claims)}
        if self._changed:
            self._slow |= {name: len(pods) for name, pods in singles.items() if freed or name[1]}
            self._changed = False
        searched = time.thread_time()
        while self._slow and time.thread_time() - searched < SEARCH_SECONDS:
            name = next(iter(self._slow))
            left, pods = self._slow.pop(name) - 1, singles.get(name)
            if not pods:
                continue
            if left:
                # One pod of each namespace at a time, or thousands of one would keep those of others waiting.
                self._slow[name] = left
            key = next(iter(pods))
            queued = pods[key] = pods.pop(key)
            if count := room(queued.pod, self._slow_freed):
                counts[queued.group] = count
        if not self._slow:
            self._slow_freed.clear()
        # CPU time, not elapsed time: on a busy machine the search is not to be postponed because others ran.
        delay = (time.thread_time() - began) / SHARE
        self._due_at = self._clock() + min(delay, MAX_DELAY_SECONDS)
        return counts
