"""The simulated cluster with telemetry in real time: what nodes use by the pods that a real cluster binds to them.

It is the model of `steersman/Latency-v0`, by the same kernels: what a pod uses, how load changes, how far users are,
and the errors of measurement. Nodes and pods come and go as they do in the cluster.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY, PODS
from steersman.cluster.model import Node, Pod
from steersman.cluster.node_metrics import CONNECTIONS, CPU_USED, FILESYSTEM_USED, LATENCY, MEMORY_AVAILABLE
from steersman.envs.latency import live_kernels as kernels
from steersman.envs.latency import state
from steersman.envs.latency.state import SimulatorState, new_simulator_state
from steersman.policies.node_metrics.arrays import HARD, NODES, POD, SOFT
from steersman.workloads.generators.latency_settings import (
    CACHE,
    MEMORY_REQUESTS,
    NODE_FILESYSTEM,
    SYSTEM_CPU,
    WEB,
    WORKER,
    LatencySettings,
    checked,
)
from steersman.workloads.topology import ZONE

USERS_ZONE = 0  # zone of the users of all pods with limits: there is one latency for each node, as in Matranga's thesis
FIRST_PODS = 256
MOST_REQUESTED = 1 << 55  # larger amounts (a node without a limit) count as this much, so that sums cannot overflow
MILLI = 1000.0

NODE_FIELDS = (
    *("node_use", "system", "counter", "counted", "ring", "rings"),
    *("gauge", "gauge_pods", "sampled", "down"),
)
VIEW_NODE_FIELDS = ("measured", "age", "since", "siblings", "zone")
POD_FIELDS = ("slot", "pod_use")
VIEW_POD_FIELDS = ("user", "limit", "replica")
WHOLE_FIELDS = ("rng", "clock", "load", "load_noise", "phase", "distance", "total")
"""Fields of the state: [1, N, ...] by node, [1, P, ...] by pod, and those that depend on neither."""


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
    """A pod: its row, its Deployment and index there, and its node, which may not be known yet."""

    row: int
    owner: str
    index: int
    node: str


@dataclass(slots=True)
class _ShownCounters:
    """Counters that a node shows. CPU time is shown with the errors of its samples."""

    at: float
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
        self._free = list(range(FIRST_PODS))[::-1]
        self._simulator = self._new_state(0, FIRST_PODS)
        self._simulator.rng[0] = [_digest(seed, "stream", str(i)) for i in range(state.STREAMS)]
        kernels.draw_cluster(self._simulator, self.settings)

    @property
    def node_names(self) -> list[str]:
        return list(self._nodes)

    def put_node(self, node: Node, time: float) -> None:
        """Add a node, or change its capacity. Pods that are on it already begin to run."""
        self._advance(time)
        capacity = np.zeros(PODS + 1, dtype=np.int64)
        capacity[[CPU, MEMORY, PODS]] = np.minimum([node.cpu_milli, node.memory_bytes, node.pods], MOST_REQUESTED)
        # Shares of CPU are divided by it.
        capacity[CPU] = max(capacity[CPU], 1)
        if node.name in self._nodes:
            row = self._row(node.name)
            kernels.settle(self._simulator, row)
            arrays = self._simulator.scheduler_view.nodes
            # What pods take stays the same, so that a node may have less than nothing free.
            arrays.free[row] += capacity - arrays.allocatable[row]
            arrays.allocatable[row] = capacity
            return
        self._reshape([*range(len(self._nodes)), -1])
        self._nodes[node.name] = _ShownCounters(at=time)
        row, low, high = self._row(node.name), *SYSTEM_CPU
        simulator, view = self._simulator, self._simulator.scheduler_view
        view.nodes.allocatable[row] = view.nodes.free[row] = capacity
        view.zone[0, row] = self._zone(node)
        simulator.system[0, row] = low + (high - low) * _share(_digest(self.seed, "node", node.name))
        simulator.counted[0, row] = time
        for pod in self._pods.values():
            if pod.node == node.name:
                kernels.bind(simulator, self.settings, pod.row, row)

    def remove_node(self, name: str, time: float) -> None:
        """Remove a node, if it is there. Its pods run no more."""
        if name not in self._nodes:
            return
        self._advance(time)
        # Pods stay in `_pods`: a node of that name that comes back has them again.
        for pod in self._pods.values():
            if pod.node == name:
                kernels.unbind(self._simulator, pod.row)
        row = self._row(name)
        self._reshape([each for each in range(len(self._nodes)) if each != row])
        del self._nodes[name]

    def bind(self, key: str, pod: Pod, owner: str, node: str, time: float) -> None:
        """Bind a pod to a node, unless it is bound already; until there is a node of that name the pod uses nothing.

        `owner` is the name of its Deployment, with its namespace.
        """
        if key in self._pods:
            return
        self._advance(time)
        if not self._free:
            self._grow()
        taken = self._indices[owner]
        # The lowest free index: a pod that replaces another uses the same.
        index = next(i for i in range(len(taken) + 1) if i not in taken)
        taken.add(index)
        bound = self._pods[key] = _BoundPod(self._free.pop(), owner, index, node)
        self._describe(bound, pod)
        if node in self._nodes:
            kernels.bind(self._simulator, self.settings, bound.row, self._row(node))

    def unbind(self, key: str, time: float) -> None:
        bound = self._pods.pop(key, None)
        if bound is not None:
            self._advance(time)
            kernels.unbind(self._simulator, bound.row)
            self._free.append(bound.row)
            self._indices[bound.owner].discard(bound.index)
            if not self._indices[bound.owner]:
                del self._indices[bound.owner]

    def scrape(self, name: str, time: float) -> NodeSample | None:
        """Scrape a node. None: it cannot be reached, or there is none of that name."""
        if name not in self._nodes:
            return None
        self._advance(time)
        simulator, row, shown = self._simulator, self._row(name), self._nodes[name]
        kernels.sample(simulator, self.settings, row)
        gauge = simulator.gauge[0, row]
        # A failed scrape leaves NaN, see `measurements.scrape`.
        if np.isnan(gauge[CONNECTIONS]):
            return None
        total = simulator.scheduler_view.nodes.allocatable[row]
        counted = float(simulator.counter[0, row, state.CPU_SECONDS])
        passed = time - shown.at
        # `sample` leaves the error of the CPU's measurement in this gauge, a factor near 1.
        used = min(float((counted - shown.cpu) / total[CPU] * gauge[CPU_USED]), passed)
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
            memory_available=float(gauge[MEMORY_AVAILABLE]),
            memory_total=float(total[MEMORY]),
            filesystem_available=NODE_FILESYSTEM * (1.0 - float(gauge[FILESYSTEM_USED]) / 100.0),
            filesystem_size=float(NODE_FILESYSTEM),
            network_received=float(simulator.counter[0, row, state.NETWORK_BYTES]),
            connections=float(gauge[CONNECTIONS]),
            latency=float(gauge[LATENCY + USERS_ZONE]),
        )

    def truth(self, time: float) -> Truth:
        self._advance(time)
        total = self._simulator.total[0]
        # Totals are zeroed there; without nodes its means would divide by 0.
        if self._nodes:
            kernels.take_note(self._simulator, self.settings)
        return Truth(
            empty_nodes=float(total[state.EMPTY]),
            used_nodes=float(total[state.USED]),
            cpu_use_deviation_percent=float(100.0 * total[state.DEVIATION]),
            connections_maximum=float(total[state.MOST_CONNECTIONS]),
            limited_pods=float(total[state.LIMITED_NOW]),
            soft_limits_kept=float(total[state.SOFT_NOW]),
            hard_limits_broken=float(total[state.HARD_NOW]),
            placed=float(total[state.PLACED]),
            placed_limited=float(total[state.LIMITED]),
            placed_within_soft=float(total[state.SOFT_MET]),
            placed_beyond_hard=float(total[state.HARD_BROKEN]),
            placed_beyond_hard_avoidably=float(total[state.HARD_AVOIDABLE]),
        )

    # -----------------------------------------------------------------------------------------------------------------

    def _row(self, name: str) -> int:
        return self.node_names.index(name)

    def _advance(self, time: float) -> None:
        kernels.advance(self._simulator, self.settings, time)

    def _zone(self, node: Node) -> int:
        """Return a zone by the node's label, in the order in which they come; without a label the next one in turn."""
        label = node.labels.get(ZONE) or f"node {node.name}"
        return self._zones.setdefault(label, len(self._zones)) % self.settings.zones

    def _describe(self, bound: _BoundPod, pod: Pod) -> None:
        simulator, view, requests = self._simulator, self._simulator.scheduler_view, pod.requests
        amounts = [requests.cpu_milli, requests.memory_bytes, 1]
        view.pods.request[bound.row] = 0
        view.pods.request[bound.row, [CPU, MEMORY, PODS]] = np.minimum(amounts, MOST_REQUESTED)
        view.pods.nonzero[bound.row] = view.pods.request[bound.row, [CPU, MEMORY]]
        view.user[0, bound.row] = USERS_ZONE if pod.latency.limited else -1
        view.limit[0, bound.row, SOFT] = pod.latency.soft
        view.limit[0, bound.row, HARD] = pod.latency.hard
        owner, own = (_digest(self.seed, "pod", bound.owner, *more) for more in ((), (str(bound.index),)))
        kernels.draw_use(simulator, bound.row, kind_of(pod), np.uint64(owner), np.uint64(own))

    def _new_state(self, nodes: int, pods: int) -> SimulatorState:
        simulator = new_simulator_state(self.settings._replace(max_nodes=max(nodes, 1), pods=pods), 1)
        simulator.scheduler_view.counts[0, NODES] = nodes
        simulator.scheduler_view.counts[0, POD] = pods
        return simulator

    def _reshape(self, rows: list[int], pods: int = 0) -> None:
        """Take over the state with these rows of nodes (-1: a new one) and so many rows of pods (0: as many)."""
        old, kept = self._simulator, len(self._simulator.slot[0])
        new = self._new_state(len(rows), pods or kept)
        self._simulator = new
        from_rows = [row for row in rows if row >= 0]
        to_rows = [i for i, row in enumerate(rows) if row >= 0]
        _copy_rows(old, new, NODE_FIELDS, from_rows, to_rows)
        _copy_rows(old.scheduler_view, new.scheduler_view, VIEW_NODE_FIELDS, from_rows, to_rows)
        for source, target in zip(old.scheduler_view.nodes, new.scheduler_view.nodes, strict=True):
            target[to_rows] = source[from_rows]
        every = list(range(kept))
        _copy_rows(old, new, POD_FIELDS, every, every)
        _copy_rows(old.scheduler_view, new.scheduler_view, VIEW_POD_FIELDS, every, every)
        for name, source in old.scheduler_view.pods._asdict().items():
            # `allowed` is [1, N]: its size follows the nodes, and all are allowed.
            if name != "allowed":
                getattr(new.scheduler_view.pods, name)[:kept] = source
        for name in WHOLE_FIELDS:
            getattr(new, name)[:] = getattr(old, name)
        # One entry more, at -1, maps pods without a node to none.
        moved = np.full(max(len(old.system[0]), 1) + 1, -1, dtype=np.int64)
        moved[from_rows] = to_rows
        new.slot[0, :kept] = moved[old.slot[0]]

    def _grow(self) -> None:
        count = len(self._simulator.slot[0])
        self._reshape(list(range(len(self._nodes))), 2 * count)
        self._free = list(range(count, 2 * count))[::-1]


def kind_of(pod: Pod) -> int:
    """Return the kind of application that a pod counts as: without limits a worker, with much memory a cache."""
    if not pod.latency.limited:
        return WORKER
    return CACHE if pod.requests.memory_bytes >= MEMORY_REQUESTS[CACHE][0] << 20 else WEB


def _copy_rows(source: Any, target: Any, fields: tuple[str, ...], from_rows: list[int], to_rows: list[int]) -> None:
    for name in fields:
        array: npt.NDArray[Any] = getattr(target, name)
        array[0, to_rows] = getattr(source, name)[0, from_rows]


def _digest(seed: int, *parts: str) -> int:
    text = "\0".join((str(seed), *parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _share(bits: int) -> float:
    return float((bits >> 11) * 2.0**-53)
