"""What is used of a live cluster, from two lists or watches: requests on each node, waiting pods, recent bindings."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

import msgspec

from steersman.cluster.gpu_units import gpu_milli, held_milli, requested_units
from steersman.cluster.model import GPU_MILLI, UNLIMITED, Node
from steersman.cluster.objects.api.metadata import NodeObject
from steersman.cluster.objects.api.pods import PodObject
from steersman.cluster.objects.decoding import decode_node, decode_requests
from steersman.cluster.objects.device_offers import DeviceOffers
from steersman.cluster.objects.fields import FieldError, node_from_json, valid_pod
from steersman.kubernetes.client import Client
from steersman.kubernetes.watch import EventType, object_key
from steersman.live.runtime.listing import list_device_offers

RATE_SECONDS = 5.0  # window of the mean rate of bindings


@dataclass(frozen=True, slots=True)
class PodUse:
    """A pod: its node ("" while it waits), its scheduler, and what it adds to the node's use, see `NodeRow.use`."""

    node: str
    scheduler: str
    use: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node, whether it is ready, and the sums of its pods' requests."""

    node: Node
    ready: bool
    # `cpu` in milli, `memory` in bytes, the number of `pods`, and milli units by name (`requested_units`)
    use: Counter[str]

    @property
    def state(self) -> str:
        """What keeps pods off the node, "" for nothing."""
        return "cordoned" if self.ready and self.node.unschedulable else "" if self.ready else "not ready"

    def fraction(self, column: str) -> float:
        """Return requested / allocatable of `cpu`, `memory`, `pods` or `gpu`; 0 without a limit or capacity."""
        used, capacity = self.amounts(column)
        return used / capacity if capacity else 0.0

    def amounts(self, column: str) -> tuple[float, float]:
        """Return requested and allocatable cores, GiB, pods or devices; 0 allocatable pods where there is no limit."""
        node, use = self.node, self.use
        match column:
            case "cpu":
                return use["cpu"] / 1000, node.cpu_milli / 1000
            case "memory":
                return use["memory"] / (1 << 30), node.memory_bytes / (1 << 30)
            case "pods":
                return use["pods"], 0 if node.pods >= UNLIMITED else node.pods
            case _:
                return held_milli(node, use) / GPU_MILLI, gpu_milli(node) / GPU_MILLI


class BindingRate:
    """Mean rate of bindings over the last seconds, from their number as it grows."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def of(self, now: float, bound: int) -> float:
        """Return the bindings per second; to be called regularly with the time and all bindings so far."""
        self._samples.append((now, bound))
        # One sample older than the window stays, from which the rate is measured.
        while len(self._samples) > 2 and self._samples[1][0] <= now - RATE_SECONDS:
            self._samples.popleft()
        since, before = self._samples[0]
        return (bound - before) / (now - since) if now > since else 0.0


@dataclass(slots=True)
class ClusterUse:
    """State of a cluster for display."""

    offers: DeviceOffers = field(default_factory=DeviceOffers)  # what nodes offer by DRA
    version: int = 0  # incremented with every change
    bound: int = 0  # bindings of pods that were seen waiting
    # Nodes and pods that make no sense, with the reason: they are counted, but without capacity or requests
    unreadable: dict[str, FieldError] = field(default_factory=dict)
    nodes: dict[str, tuple[Node, bool]] = field(default_factory=dict)  # nodes by name, and whether they are ready
    pods: dict[str, PodUse] = field(default_factory=dict)  # unfinished pods by namespace and name
    _uses: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _waiting: Counter[str] = field(default_factory=Counter)
    _rate: BindingRate = field(default_factory=BindingRate)

    def rows(self) -> list[NodeRow]:
        """Return a row for each node, unordered."""
        return [NodeRow(node, ready, self._uses[name]) for name, (node, ready) in self.nodes.items()]

    def waiting(self) -> Mapping[str, int]:
        """Return the number of pods without a node, by scheduler."""
        return {name: count for name, count in sorted(self._waiting.items()) if count}

    def rate(self, now: float) -> float:
        """Return the bindings per second over the last seconds; to be called regularly."""
        return self._rate.of(now, self.bound)

    def put_node(self, obj: NodeObject) -> None:
        name = obj.metadata.name
        try:
            node = self.offers.node(decode_node(obj))
            self.unreadable.pop(name, None)
        except FieldError as error:
            node = Node(name, 0, 0, 0)
            self.unreadable[name] = error
        self.nodes[name] = node, obj.is_ready
        self.version += 1

    def drop_node(self, name: str) -> None:
        self.unreadable.pop(name, None)
        self.nodes.pop(name, None)
        self.version += 1

    def put_pod(self, obj: PodObject) -> None:
        if obj.finished:
            self.drop_pod(obj.key)
            return
        key, pod = obj.key, self._decoded(obj)
        before = self.pods.get(key)
        if pod == before:
            return
        if before is not None:
            # Pods that were bound when they were first seen are not counted: when is not known.
            self.bound += not before.node and bool(pod.node)
            self._count(before, -1)
        self.pods[key] = pod
        self._count(pod, 1)

    def drop_pod(self, key: str) -> None:
        self.unreadable.pop(key, None)
        if (before := self.pods.pop(key, None)) is not None:
            self._count(before, -1)

    def _count(self, pod: PodUse, sign: int) -> None:
        if pod.node:
            use = self._uses[pod.node]
            for name, amount in pod.use.items():
                use[name] += sign * amount
        else:
            self._waiting[pod.scheduler] += sign
        self.version += 1

    def _decoded(self, obj: PodObject) -> PodUse:
        try:
            requests = self.offers.renamed(decode_requests(obj))
        except FieldError as error:
            self.unreadable[obj.key] = error
            return PodUse(obj.node, obj.scheduler, {"pods": 1})
        self.unreadable.pop(obj.key, None)
        use = {"cpu": requests.cpu_milli, "memory": requests.memory_bytes, "pods": 1} | requested_units(requests)
        return PodUse(obj.node, obj.scheduler, use)

    def node_problems(self) -> dict[str, str]:
        """Return nodes that get no pods since they make no sense, with the reason."""
        return {name: str(self.unreadable[name]) for name in sorted(self.unreadable.keys() & self.nodes.keys())}


class ObjectHandler:
    """Handler of the events of nodes or pods."""

    def __init__(
        self, kept: Mapping[str, object], put: Callable[[msgspec.Raw], None], drop: Callable[[str], None]
    ) -> None:
        self._kept, self._put, self._drop = kept, put, drop

    def keep(self, keys: Set[str]) -> None:
        """Keep these objects alone, after a list."""
        for key in self._kept.keys() - keys:
            self._drop(key)

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        if kind == "DELETED":
            self._drop(object_key(obj))
        else:
            self._put(obj)


def handlers(view: ClusterUse) -> dict[str, ObjectHandler]:
    """Return the handlers that keep a view up to date, by the path of their collection."""
    return {
        "/api/v1/nodes": ObjectHandler(view.nodes, lambda raw: view.put_node(node_from_json(raw)), view.drop_node),
        "/api/v1/pods": ObjectHandler(view.pods, lambda raw: view.put_pod(valid_pod(raw)), view.drop_pod),
    }


async def fetch_snapshot(client: Client) -> ClusterUse:
    """Return a view of the cluster as it is now.

    Raises:
        ApiError: nodes or pods may not be listed.
        UnreachableError: the API server does not answer.
    """
    view = ClusterUse(await list_device_offers(client))
    for path, handler in handlers(view).items():
        async for page in client.pages(path):
            for raw in page.items:
                handler.change("ADDED", raw)
    return view
