"""The simulated cluster with telemetry in real time: what nodes use by the pods that a real cluster binds to them.

It is the model of `steersman/Latency-v0` (`core/src/live_model.rs`): what a pod uses, how load changes, how far users
are, and the errors of measurement. Nodes and pods come and go as they do in the cluster.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Node, Pod
from steersman.core.handles import TelemetryModel
from steersman.envs.latency.description import described_settings
from steersman.workloads.generators.latency_settings import (
    CACHE,
    CACHE_MEMORY,
    NODE_FILESYSTEM,
    SYSTEM_CPU,
    WEB,
    WORKER,
    LatencySettings,
    checked,
)
from steersman.workloads.topology import ZONE

MOST_REQUESTED = 1 << 55  # larger amounts (a node without a limit) count as this much, so that sums cannot overflow
STREAMS = 4  # of random numbers


class NodeSample(NamedTuple):
    """What a node's exporters show at a scrape."""

    # `idle_seconds`, `used_seconds`: counters of a CPU that stands for all of the node's
    idle_seconds: float
    used_seconds: float
    # `memory_available`, `memory_total`: bytes
    memory_available: float
    memory_total: float
    # `filesystem_available`, `filesystem_size`: bytes
    filesystem_available: float
    filesystem_size: float
    network_received: float  # counter of bytes
    connections: float  # established TCP connections
    latency: float  # milliseconds to the users, NaN: the probe was lost


class Truth(NamedTuple):
    """The true state now, and what became of placements since the model began; no monitoring knows it."""

    # `empty_nodes`, `used_nodes`: nodes without and with pods
    empty_nodes: float
    used_nodes: float
    cpu_use_deviation_percent: float  # standard deviation over nodes of the share of CPU used
    connections_maximum: float  # established connections of the node that has most
    # `limited_pods`, `soft_limits_kept`, `hard_limits_broken`: pods with limits now, those within the soft limit, and
    # those beyond the hard one
    limited_pods: float
    soft_limits_kept: float
    hard_limits_broken: float
    # `placed`, `placed_limited`: pods bound so far, and those with limits
    placed: float
    placed_limited: float
    placed_within_soft: float  # those of them that were within their soft limit when they were bound
    # `placed_beyond_hard`, `placed_beyond_hard_avoidably`: those beyond the hard limit then, and those of them that
    # some other node could have kept within it
    placed_beyond_hard: float
    placed_beyond_hard_avoidably: float


@dataclass(slots=True)
class _BoundPod:
    """A pod: its Deployment and index there, its node, which may not be known yet; and see `TelemetryModel.bind`."""

    number: int
    owner: str
    index: int
    node: str
    numbers: npt.NDArray[np.int64]
    limits: npt.NDArray[np.float64]


@dataclass(slots=True)
class _ShownCounters:
    """Counters that a node of so many milli-CPU and bytes shows. CPU time is shown with the errors of its samples."""

    at: float
    cpus: float
    memory: float
    cpu: float = 0.0
    idle_seconds: float = 0.0
    used_seconds: float = 0.0


class LiveModel:
    """Nodes and pods of a real cluster, and what they would use.

    What a pod uses follows from the seed and the name of its Deployment alone, so that it is the same whatever node a
    scheduler chooses. Nodes, pods and what arrives are the cluster's affair, not the settings'.
    """

    def __init__(self, settings: LatencySettings | None = None, seed: int = 0) -> None:
        self.settings = checked((settings or LatencySettings())._replace(warmup=0.0))
        self.seed = seed
        self._nodes: dict[str, _ShownCounters] = {}
        self._zones: dict[str, int] = {}
        self._pods: dict[str, _BoundPod] = {}
        self._indices: defaultdict[str, set[int]] = defaultdict(set)
        self._numbers = count()
        seeds = np.array([_digest(seed, "stream", str(i)) for i in range(STREAMS)], dtype=np.uint64)
        self._model = TelemetryModel(described_settings(self.settings) | {"model.seeds": seeds.view(np.int64)})

    @property
    def node_names(self) -> list[str]:
        return list(self._nodes)

    def put_node(self, node: Node, time: float) -> None:
        """Add a node, or change its capacity. Pods that are on it already begin to run."""
        # Shares of CPU are divided by it.
        amounts = [max(node.cpu_milli, 1), node.memory_bytes, node.pods]
        capacity = np.minimum(np.array(amounts, dtype=np.int64), MOST_REQUESTED)
        cpus, memory, _ = capacity.astype(np.float64).tolist()
        if node.name in self._nodes:
            self._model.change_node(self._row(node.name), capacity, time)
            self._nodes[node.name] = replace(self._nodes[node.name], cpus=cpus, memory=memory)
            return
        low, high = SYSTEM_CPU
        system = low + (high - low) * _share(_digest(self.seed, "node", node.name))
        self._model.add_node(capacity, self._zone(node), system, time)
        self._nodes[node.name] = _ShownCounters(at=time, cpus=cpus, memory=memory)
        for pod in self._pods.values():
            if pod.node == node.name:
                self._run(pod, time)

    def remove_node(self, name: str, time: float) -> None:
        """Remove a node, if it is there. Its pods run no more."""
        if name in self._nodes:
            # Pods stay in `_pods`: a node of that name that comes back has them again.
            self._model.remove_node(self._row(name), time)
            del self._nodes[name]

    def bind(self, key: str, pod: Pod, owner: str, node: str, time: float) -> None:
        """Bind a pod to a node, unless it is bound already; until there is a node of that name the pod uses nothing.

        `owner` is the name of its Deployment, with its namespace.
        """
        if key in self._pods:
            return
        taken = self._indices[owner]
        # The lowest free index: a pod that replaces another uses the same.
        index = next(i for i in range(len(taken) + 1) if i not in taken)
        taken.add(index)
        seeds = [_digest(self.seed, "pod", owner, *more) for more in ((), (str(index),))]
        requests, limits = pod.requests, pod.latency
        amounts = [min(requests.cpu_milli, MOST_REQUESTED), min(requests.memory_bytes, MOST_REQUESTED)]
        numbers = np.array([*amounts, kind_of(pod), limits.limited, *seeds], dtype=np.uint64).view(np.int64)
        limits_ms = np.array([limits.soft, limits.hard], dtype=np.float64)
        bound = self._pods[key] = _BoundPod(next(self._numbers), owner, index, node, numbers, limits_ms)
        if node in self._nodes:
            self._run(bound, time)

    def unbind(self, key: str, time: float) -> None:
        bound = self._pods.pop(key, None)
        if bound is not None:
            self._model.unbind(bound.number, time)
            self._indices[bound.owner].discard(bound.index)
            if not self._indices[bound.owner]:
                del self._indices[bound.owner]

    def scrape(self, name: str, time: float) -> NodeSample | None:
        """Scrape a node. None: it cannot be reached, or there is none of that name."""
        if name not in self._nodes or (sample := self._model.scrape(self._row(name), time)) is None:
            return None
        counted, error, memory_available, filesystem_used, network, connections, latency = sample.tolist()
        shown = self._nodes[name]
        passed = time - shown.at
        used = min((counted - shown.cpu) / shown.cpus * error, passed)
        self._nodes[name] = shown = replace(
            shown,
            at=time,
            cpu=counted,
            idle_seconds=shown.idle_seconds + (passed - used),  # a counter: rounding must not lower it
            used_seconds=shown.used_seconds + used,
        )
        return NodeSample(
            idle_seconds=shown.idle_seconds,
            used_seconds=shown.used_seconds,
            memory_available=memory_available,
            memory_total=shown.memory,
            filesystem_available=NODE_FILESYSTEM * (1.0 - filesystem_used / 100.0),
            filesystem_size=float(NODE_FILESYSTEM),
            network_received=network,
            connections=connections,
            latency=latency,
        )

    def truth(self, time: float) -> Truth:
        return Truth(*self._model.truth(time).tolist())

    # -----------------------------------------------------------------------------------------------------------------

    def _row(self, name: str) -> int:
        return self.node_names.index(name)

    def _run(self, pod: _BoundPod, time: float) -> None:
        self._model.bind(pod.number, self._row(pod.node), pod.numbers, pod.limits, time)

    def _zone(self, node: Node) -> int:
        """Return a zone by the node's label, in the order in which they come; without a label the next one in turn."""
        label = node.labels.get(ZONE) or f"node {node.name}"
        return self._zones.setdefault(label, len(self._zones)) % self.settings.zones


def kind_of(pod: Pod) -> int:
    """Return the kind of application that a pod counts as: without limits a worker, with much memory a cache."""
    if not pod.latency.limited:
        return WORKER
    return CACHE if pod.requests.memory_bytes >= CACHE_MEMORY else WEB


def _digest(seed: int, *parts: str) -> int:
    text = "\0".join((str(seed), *parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _share(bits: int) -> float:
    return float((bits >> 11) * 2.0**-53)
