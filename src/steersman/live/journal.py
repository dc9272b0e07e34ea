"""What happened in a cluster while somebody scheduled it, in order: nodes and pods that came and went, and bindings."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from steersman.cluster.model import Node, Pod
from steersman.cluster.state import ClusterState
from steersman.kube.cache import CachedPod, Listener


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A node came or changed, or went (None)."""

    name: str
    node: Node | None


@dataclass(frozen=True, slots=True)
class PodEvent:
    """A pod came and waits (`node` ""), was bound, or went (`gone`).

    Attributes:
        key: namespace and name.
        pod: the model, without its node.
        node: where it is.
        devices: the GPU devices that it holds there as a bit mask; None: not known.
        gone: whether it was deleted or has finished.
    """

    key: str
    pod: Pod
    node: str = ""
    devices: int | None = None
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """An event and its time, in seconds of any clock."""

    time: float
    event: NodeEvent | PodEvent


class Journal(Listener):
    """Listens to a cache and writes down what happens.

    Args:
        scheduler_name: whose decisions count.
        on_decision: told how many there are, after each.
        clock: seconds.

    Attributes:
        entries: what happened.
        decisions: bindings of pods that were seen waiting, by this scheduler.
    """

    def __init__(
        self,
        scheduler_name: str,
        on_decision: Callable[[int], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.scheduler_name, self.clock, self._on_decision = scheduler_name, clock, on_decision
        self.entries: list[Entry] = []
        self.decisions = 0
        self.state: Callable[[], ClusterState] = lambda: ClusterState(())
        self._nodes: dict[int, Node] = {}
        self._waiting: set[str] = set()

    def pod_waits(self, pod: CachedPod) -> None:
        """See `kube.cache.Listener`."""
        if pod.key not in self._waiting:
            self._waiting.add(pod.key)
            self._note(PodEvent(pod.key, pod.pod))

    def pod_bound(self, pod: CachedPod) -> None:
        """See `kube.cache.Listener`."""
        self._note(PodEvent(pod.key, pod.pod, pod.node, pod.devices))
        if pod.key in self._waiting:
            self._waiting.discard(pod.key)
            if pod.pod.scheduler_name == self.scheduler_name:
                self.decisions += 1
                self._on_decision(self.decisions)

    def pod_gone(self, pod: CachedPod) -> None:
        """See `kube.cache.Listener`."""
        self._waiting.discard(pod.key)
        self._note(PodEvent(pod.key, pod.pod, gone=True))

    def node_changed(self, slot: int, *, more: bool) -> None:
        """See `kube.cache.Listener`: that pods on it changed is known."""
        before, after = self._nodes.get(slot), self.state().nodes[slot]
        if before == after:
            return
        if before is not None and (after is None or after.name != before.name):
            self._note(NodeEvent(before.name, None))
        if after is None:
            self._nodes.pop(slot, None)
        else:
            self._nodes[slot] = after
            self._note(NodeEvent(after.name, after))

    def rebuilt(self) -> None:
        """See `kube.cache.Listener`: the nodes are the same, in other slots."""
        self._nodes = {slot: node for slot, node in enumerate(self.state().nodes) if node is not None}

    def _note(self, event: NodeEvent | PodEvent) -> None:
        self.entries.append(Entry(self.clock(), event))
