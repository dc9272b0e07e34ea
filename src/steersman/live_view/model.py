"""A cluster as two watches tell of it: what pods ask for on each node, how many wait, how many were bound lately."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from steersman.cluster.model import GPU_MILLI, UNLIMITED, Node, Requests
from steersman.cluster.objects import DEFAULT_SCHEDULER, is_finished, node_from_object, pod_from_object
from steersman.errors import InputError
from steersman.live_view.objects import NodeObject, PodObject, pod_key, requests_key

RATE_SECONDS = 5.0
"""Binds a second are a mean over so long."""
REQUESTS_KEPT = 8192


@dataclass(slots=True)
class Use:
    """What the pods of a node ask for: milli-CPU, bytes, milli of a device."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpu_milli: int = 0
    pods: int = 0

    def add(self, pod: PodUse, sign: int) -> None:
        """A pod came (1) or went (-1)."""
        self.cpu_milli += sign * pod.cpu_milli
        self.memory_bytes += sign * pod.memory_bytes
        self.gpu_milli += sign * pod.gpu_milli
        self.pods += sign


@dataclass(frozen=True, slots=True)
class PodUse:
    """What a pod asks for, of whom, and where it is ("" while it waits)."""

    node: str
    scheduler: str
    cpu_milli: int = 0
    memory_bytes: int = 0
    gpu_milli: int = 0


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node, its condition and its pods' requests."""

    node: Node
    ready: bool
    use: Use

    @property
    def state(self) -> str:
        """What keeps pods off it, "" for nothing."""
        return "cordoned" if self.ready and self.node.unschedulable else "" if self.ready else "not ready"

    def fraction(self, column: str) -> float:
        """Requested of allocatable, 0 where there is no limit or nothing. Columns: `cpu`, `memory`, `pods`, `gpu`."""
        used, there = self.amounts(column)
        return used / there if there else 0.0

    def amounts(self, column: str) -> tuple[float, float]:
        """Requested and allocatable: cores, GiB, pods or devices; 0 allocatable pods where there is no limit."""
        node, use = self.node, self.use
        match column:
            case "cpu":
                return use.cpu_milli / 1000, node.cpu_milli / 1000
            case "memory":
                return use.memory_bytes / (1 << 30), node.memory_bytes / (1 << 30)
            case "pods":
                return use.pods, 0 if node.pods >= UNLIMITED else node.pods
            case _:
                return use.gpu_milli / GPU_MILLI, node.gpu_total


@dataclass(slots=True)
class ClusterView:
    """What is known of a cluster.

    Attributes:
        version: grows with every change.
        bound: how many pods that we saw waiting were bound.
        unreadable: nodes and pods that are none of the model, and why: they are counted, but not what they have or ask
            for.
    """

    version: int = 0
    bound: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)
    _nodes: dict[str, tuple[Node, bool]] = field(default_factory=dict)
    _pods: dict[str, PodUse] = field(default_factory=dict)
    _uses: defaultdict[str, Use] = field(default_factory=lambda: defaultdict(Use))
    _waiting: Counter[str] = field(default_factory=Counter)
    _samples: deque[tuple[float, int]] = field(default_factory=deque)

    def rows(self) -> list[NodeRow]:
        """A row for each node, in no order."""
        return [NodeRow(node, ready, self._uses[name]) for name, (node, ready) in self._nodes.items()]

    def waiting(self) -> Mapping[str, int]:
        """Pods that have no node, by the scheduler that they ask for."""
        return {name: count for name, count in sorted(self._waiting.items()) if count}

    def counts(self) -> tuple[int, int]:
        """How many nodes there are, and pods that are not finished."""
        return len(self._nodes), len(self._pods)

    def rate(self, now: float) -> float:
        """Binds a second, over the last seconds; to be asked now and then."""
        self._samples.append((now, self.bound))
        while len(self._samples) > 2 and self._samples[1][0] <= now - RATE_SECONDS:
            self._samples.popleft()
        since, before = self._samples[0]
        return (self.bound - before) / (now - since) if now > since else 0.0

    def put_node(self, obj: NodeObject) -> None:
        """A node is new or another."""
        name = obj["metadata"]["name"]
        try:
            node = node_from_object(obj)
            self.unreadable.pop(name, None)
        except InputError as error:
            node = Node(name, 0, 0, 0)
            self.unreadable[name] = str(error)
        conditions = obj.get("status", {}).get("conditions") or ()
        ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
        self._nodes[name] = node, ready
        self.version += 1

    def drop_node(self, name: str) -> None:
        """A node is gone."""
        self.unreadable.pop(name, None)
        self._nodes.pop(name, None)
        self.version += 1

    def put_pod(self, obj: PodObject) -> None:
        """A pod is new or another."""
        if is_finished(obj):
            self.drop_pod(pod_key(obj))
            return
        key, pod = pod_key(obj), self._decoded(obj)
        before = self._pods.get(key)
        if pod == before:
            return
        if before is not None:
            self.bound += not before.node and bool(pod.node)
            self._count(before, -1)
        self._pods[key] = pod
        self._count(pod, 1)

    def drop_pod(self, key: str) -> None:
        """A pod is gone, or has run to its end."""
        self.unreadable.pop(key, None)
        if (before := self._pods.pop(key, None)) is not None:
            self._count(before, -1)

    def _count(self, pod: PodUse, sign: int) -> None:
        if pod.node:
            self._uses[pod.node].add(pod, sign)
        else:
            self._waiting[pod.scheduler] += sign
        self.version += 1

    def _decoded(self, obj: PodObject) -> PodUse:
        spec = obj.get("spec", {})
        where = spec.get("nodeName") or "", spec.get("schedulerName") or DEFAULT_SCHEDULER
        try:
            asked = _requests(requests_key(obj))
        except InputError as error:
            self.unreadable[pod_key(obj)] = str(error)
            return PodUse(*where)
        self.unreadable.pop(pod_key(obj), None)
        return PodUse(*where, asked.cpu_milli, asked.memory_bytes, asked.gpu_total_milli)

    def node_problems(self) -> dict[str, str]:
        """Nodes that steersman gives no pods, since they are none of the model, and why."""
        return {name: self.unreadable[name] for name in sorted(self.unreadable.keys() & self._nodes.keys())}

    def nodes_known(self) -> set[str]:
        """Names of all nodes."""
        return set(self._nodes)

    def pods_known(self) -> set[str]:
        """Namespace and name of all pods that are not finished."""
        return set(self._pods)


@lru_cache(REQUESTS_KEPT)
def _requests(key: bytes) -> Requests:
    """What a pod asks for. Most pods ask for the same as others do, and working it out takes longer than the rest."""
    return pod_from_object(msgspec.json.decode(key)).requests
