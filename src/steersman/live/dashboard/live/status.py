"""What the cache does not keep and the page shows: which nodes are ready, which pods wait since when, and why."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from steersman.cluster.objects.api.pods import PodCondition
from steersman.cluster.objects.fields import node_from_json, pod_from_json, unix_seconds
from steersman.kubernetes.watch import EventType

LONGEST_MESSAGE = 500  # characters of a scheduler's reason that are kept
RESOLUTION_SECONDS = 1.0  # of times in objects


NOT_TRIED = "not tried yet"
NODES_AVAILABLE = re.compile(r"0/\d+ nodes are available: (.*?)(\.?|\. .*)", re.DOTALL)
COUNTED = re.compile(r"\d+ (.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod without a node."""

    scheduler: str  # its scheduler
    since: float  # Unix time at which it was seen first; of those of the first list, their creation
    # `reason`, `message`: of its scheduler's last attempt, "" before the first.
    reason: str = ""
    message: str = ""


def reason_without_counts(pod: WaitingPod) -> str:
    """Return why a pod waits, without the numbers of nodes, by which each attempt would have a reason of its own.

    `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable. preemption: ...` is
    `Insufficient cpu, node(s) were unschedulable`.
    """
    text = pod.message or pod.reason or NOT_TRIED
    if (match := NODES_AVAILABLE.fullmatch(text)) is None:
        return text
    parts = {counted[1] if (counted := COUNTED.fullmatch(part)) else part for part in match[1].split(", ")}
    return ", ".join(sorted(parts))


@dataclass(slots=True)
class WaitingFeed:
    """Handler of pod events that keeps those without a node."""

    bound: Callable[[str, float], None]  # called with the key of a pod that got a node, and the seconds that it waited
    clock: Callable[[], float] = time.time  # Unix time
    pods: dict[str, WaitingPod] = field(default_factory=dict)  # by namespace and name
    version: int = 0  # incremented with every change
    _listed: bool = False

    def keep(self, keys: Set[str]) -> None:
        self._listed = True
        for key in self.pods.keys() - keys:
            self._drop(key)

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        pod = pod_from_json(obj)
        key, created, last = pod.key, pod.metadata.creation_timestamp or "", pod.scheduled_condition
        known = self.pods.get(key)
        if kind == "DELETED" or pod.node:
            self._drop(key)
            if known and kind != "DELETED":
                seen = max(0.0, self.clock() - known.since)
                self.bound(key, _waited(seen, created, last))
            return
        since = known.since if known else self.clock() if self._listed else unix_seconds(created) or time.time()
        waiting = WaitingPod(pod.scheduler, since, last.reason or "", (last.message or "")[:LONGEST_MESSAGE])
        if waiting != known:
            self.pods[key] = waiting
            self.version += 1

    def _drop(self, key: str) -> None:
        if self.pods.pop(key, None) is not None:
            self.version += 1


class ReadinessFeed:
    """Handler of node events that keeps which nodes are not ready; `changed` is called with the name of one."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self.not_ready: set[str] = set()

    def keep(self, keys: Set[str]) -> None:
        self.not_ready &= keys

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        node = node_from_json(obj)
        name = node.metadata.name
        is_broken = kind != "DELETED" and not node.is_ready
        if is_broken != (name in self.not_ready):
            (self.not_ready.add if is_broken else self.not_ready.discard)(name)
            self._changed(name)


def _waited(seen: float, created: str, scheduled: PodCondition) -> float:
    """Return how long a pod waited: as was seen, if the times in its object allow that; else by these.

    They differ after an outage: what happened in it is heard of at its end. Both times in the object are of the API
    server's clock, so ours may be wrong.
    """
    try:
        began, end = (datetime.fromisoformat(each or "") for each in (created, scheduled.last_transition_time))
        recorded = (end - began).total_seconds()
    except (ValueError, TypeError):  # TypeError: one has no time zone
        return seen
    is_known = scheduled.status == "True" and recorded >= 0
    return recorded if is_known and abs(seen - recorded) > RESOLUTION_SECONDS else seen
