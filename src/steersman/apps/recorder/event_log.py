"""Log, in order, of node changes, pod arrivals, bindings and deletions in a cluster while a scheduler decides."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from steersman.cluster.model import Node, Pod
from steersman.cluster.state import ClusterState
from steersman.kubernetes.cache.cached_pod import CachedPod, Listener


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A node was added or changed, or deleted (None)."""

    name: str
    node: Node | None


@dataclass(frozen=True, slots=True)
class PodEvent:
    """A pod became pending (`node` ""), was bound, or was deleted (`gone`).

    Attributes:
        key: namespace and name.
        pod: the pod without its node.
        node: its node.
        devices: bit mask of the GPU devices that it holds there; None: unknown.
        gone: whether it was deleted or has finished.
    """

    key: str
    pod: Pod
    node: str = ""
    devices: int | None = None
    gone: bool = False


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event with its time, in seconds of any clock."""

    time: float
    event: NodeEvent | PodEvent


class EventLog(Listener):
    """Listener of a cache that logs what happens.

    Args:
        scheduler_name: scheduler whose decisions count.
        on_decision: called with the number of decisions after each.

    Attributes:
        entries: logged events.
        decisions: bindings, by this scheduler, of pods that were pending before.
    """

    def __init__(self, scheduler_name: str, on_decision: Callable[[int], None] = lambda _: None) -> None:
        self.scheduler_name, self._on_decision = scheduler_name, on_decision
        self.entries: list[LoggedEvent] = []
        self.decisions = 0
        self.state: Callable[[], ClusterState] = lambda: ClusterState(())
        self._nodes: dict[int, Node] = {}
        self._waiting: set[str] = set()

    def on_pod_pending(self, pod: CachedPod) -> None:
        """See `kubernetes.cache.cached_pod.Listener`."""
        if pod.key not in self._waiting:
            self._waiting.add(pod.key)
            self._note(PodEvent(pod.key, pod.pod))

    def on_pod_bound(self, pod: CachedPod) -> None:
        """See `kubernetes.cache.cached_pod.Listener`."""
        self._note(PodEvent(pod.key, pod.pod, pod.node, pod.devices))
        if pod.key in self._waiting:
            self._waiting.discard(pod.key)
            if pod.pod.scheduler_name == self.scheduler_name:
                self.decisions += 1
                self._on_decision(self.decisions)

    def on_pod_deleted(self, pod: CachedPod) -> None:
        """See `kubernetes.cache.cached_pod.Listener`."""
        self._waiting.discard(pod.key)
        self._note(PodEvent(pod.key, pod.pod, gone=True))

    def on_node_changed(self, slot: int, *, may_have_grown: bool) -> None:
        """See `kubernetes.cache.cached_pod.Listener`; changes of pods on the node are logged already."""
        before, after = self._nodes.get(slot), self.state().nodes[slot]
        if before == after:
            return
        # Slots of deleted nodes are reused.
        if before is not None and (after is None or after.name != before.name):
            self._note(NodeEvent(before.name, None))
        if after is None:
            self._nodes.pop(slot, None)
        else:
            self._nodes[slot] = after
            self._note(NodeEvent(after.name, after))

    def on_rebuilt(self) -> None:
        """See `kubernetes.cache.cached_pod.Listener`; the nodes are the same, in other slots."""
        self._nodes = {slot: node for slot, node in enumerate(self.state().nodes) if node is not None}

    def _note(self, event: NodeEvent | PodEvent) -> None:
        self.entries.append(LoggedEvent(time.monotonic(), event))
