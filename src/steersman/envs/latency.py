"""`steersman/Latency-v0`: a simulated cluster with telemetry, in which an agent chooses the nodes of arriving pods."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Node, Pod
from steersman.core.errors import SteersmanError, UsageError, unknown_name
from steersman.core.handles import TelemetryModel
from steersman.envs.base import AFTER, Arrays, BatchedCore, check_limits, known_options, make_options
from steersman.envs.environment import SchedulingEnv, SteersmanVectorEnv
from steersman.objectives import registry, summary
from steersman.objectives.summary import spread_of
from steersman.objectives.telemetry import TELEMETRY_OBJECTIVES
from steersman.objectives.telemetry import check as check_objectives
from steersman.policies.features import TELEMETRY
from steersman.policies.node_metrics import rule_number
from steersman.simulation.measures import LATENCY
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

RESET_OPTIONS = ("seed", "nodes")
SEEDS = 1 << 31
DEFAULT_SETTINGS = LatencySettings()


@dataclass(frozen=True, slots=True)
class LatencyOptions:
    """Options of the environment.

    Attributes:
        objective: the rewarded objective, one of `objectives.telemetry.TELEMETRY_OBJECTIVES` or a weighted sum of them.
        settings: the cluster and its workload.
        penalty: cost of an illegal action, which changes nothing else.
        step_limit: steps after which an episode is truncated; None: twice the pods, which only illegal actions reach.
        keep_hard_limits: whether the mask leaves out nodes that put the hard limit of a pod's latency at risk while
            others do not, see `core/src/telemetry.rs`; None: if `latency-aware` is rewarded.
    """

    objective: str = "latency-aware"
    settings: LatencySettings = DEFAULT_SETTINGS
    penalty: float = 1.0
    step_limit: int | None = None
    keep_hard_limits: bool | None = None

    def __post_init__(self) -> None:
        check_limits(self.penalty, self.step_limit)


class EpisodeTruth(NamedTuple):
    """What is true in an episode now; no policy knows it."""

    time: float  # seconds since its start
    pods: npt.NDArray[np.int64]  # [n] on each node
    # [n] milliseconds that the users of the current pod would have if it ran there; NaN: it has none
    latency: npt.NDArray[np.float64]


class LatencyCore(BatchedCore):
    """E clusters with telemetry.

    Every pod that fits on some node is a decision; a pod that fits nowhere is dropped. The reward is computed from the
    true state after the action; agents observe measurements.
    """

    def __init__(self, count: int, options: LatencyOptions) -> None:
        self.options, self.settings = options, checked(options.settings)
        objective = registry.resolve(options.objective)
        check_objectives(objective, "steersman/Latency-v0")
        super().__init__(count, TELEMETRY, self.settings.max_nodes, objective, options.penalty)
        is_latency_aware = any(each.name == "latency-aware" for each in objective.objectives)
        self.filters = is_latency_aware if options.keep_hard_limits is None else options.keep_hard_limits
        self._seeds, self._nodes = np.zeros((2, count), dtype=np.int64)

    def start(self, e: int, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Begin an episode, see `EnvCore`. Options: `seed`, `nodes` (up to `max_nodes`)."""
        known = known_options(options, RESET_OPTIONS)
        # Drawn even if a seed is given: later episodes do not depend on it.
        drawn = int(rng.integers(SEEDS))
        seed = known.get("seed", drawn)
        nodes = known.get("nodes", self.settings.nodes)
        if seed >= 1 << 63:
            raise UsageError(f"reset option 'seed' must be less than 2^63, not {seed}")
        if not 2 <= nodes <= self.max_nodes:
            raise UsageError(f"reset option 'nodes' must be from 2 to {self.max_nodes}, not {nodes}")
        self._start(e, seed, nodes)

    def _start(self, e: int, seed: int, nodes: int) -> None:
        drawn = {"latency.seed": np.array(seed), "latency.nodes": np.array(nodes)}
        zones = self.observation.groups[e, :, 0]
        zones[:] = -1
        zones[:nodes] = np.arange(nodes) % self.settings.zones
        if self._nodes[e]:
            asks = self._begin_again(e, drawn)
        else:
            numbers = [TELEMETRY_OBJECTIVES[each.name] for each in self.objective.objectives]
            limit = 2 * self.settings.pods if self.options.step_limit is None else self.options.step_limit
            task = {
                "episode.objectives": np.array(numbers, dtype=np.int64),
                "episode.weights": np.array(self.objective.weights, dtype=np.float64),
                "latency.filters": np.array(int(self.filters)),
            }
            asks = self._begin(e, drawn | task | described_settings(self.settings), limit)
        self._seeds[e], self._nodes[e] = seed, nodes
        if not asks:
            raise SteersmanError("no pod fits on any node")

    def rule_actions(self, name: str) -> npt.NDArray[np.int64]:
        """Return [E] what the rule of that name (`policies.node_metrics`) would do. Raises UsageError: none."""
        return self.heuristic(rule_number(name))

    def infos(self) -> Arrays:
        """Return the mean share of CPU used and its variance, nodes in use, illegal actions, limits kept.

        When an episode ends its metrics, see `simulation.measures.LATENCY`, are included.
        """
        row, kept = self.states[:, AFTER], self._batch.counts()[:, 2]
        ended = (self.terminated | self.truncated).any()
        return (self.figures() if ended else {}) | {
            "cpu_used": row[:, summary.CPU_SHARE] / np.maximum(row[:, summary.CPU_NODES], 1),
            **spread_of(row),
            "illegal": self.illegal,
            "within_soft": kept == WITHIN_SOFT,
            "within_hard": kept <= WITHIN_HARD,
        }

    def figures(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return metrics of each episode so far, [E] by name (`measures.LATENCY`); read them before the next reset."""
        return dict(zip(LATENCY, self._batch.figures().T, strict=True))

    def truth(self, e: int) -> EpisodeTruth:
        """Return what is true in environment `e` now."""
        time, nodes = self._batch.truth(e, self._nodes[e])
        return EpisodeTruth(time, nodes[:, 0].astype(np.int64), nodes[:, 1])

    def state(self) -> Arrays:
        """Return how each episode began, and what was done since: playing that again leads to the same state."""
        return {"seed": self._seeds, "nodes": self._nodes} | self._played()

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        for e, (seed, nodes) in enumerate(zip(arrays["seed"].tolist(), arrays["nodes"].tolist(), strict=True)):
            self._start(e, seed, nodes)
            self._replay(e, arrays)

    def names(self, e: int) -> list[str]:
        return [f"node-{n}-zone-{n % self.settings.zones}" for n in range(self._nodes[e])]

    def loads(self, e: int) -> npt.NDArray[np.float64]:
        loads = np.full((self._nodes[e], 3), np.nan)
        loads[:, :2] = self._batch.loads(e, len(loads))
        return loads


class LatencyEnv(SchedulingEnv):
    """Pods of Deployments arrive and leave; nodes' use is measured late, with errors, and sometimes not at all.

    Options: those of `LatencyOptions`, and those of `latency_settings.LatencySettings` that differ.
    """

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(LatencyCore(1, _options(options)), render_mode=render_mode)


class LatencyVectorEnv(SteersmanVectorEnv):
    """`LatencyEnv` `num_envs` times, see `SteersmanVectorEnv`."""

    def __init__(self, num_envs: int = 1, *, copy: bool = True, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(LatencyCore(num_envs, _options(options)), copy=copy, render_mode=render_mode)


def _options(given: Mapping[str, Any]) -> LatencyOptions:
    known = (*LatencyOptions.__dataclass_fields__, *LatencySettings._fields)
    for name in given:
        if name not in known:
            raise unknown_name("option of the environment", name, known)
    changes = {name: value for name, value in given.items() if name in LatencySettings._fields}
    options = {name: value for name, value in given.items() if name not in changes}
    options["settings"] = options.get("settings", LatencySettings())._replace(**changes)
    return make_options(LatencyOptions, options)


def described_settings(settings: LatencySettings) -> dict[str, npt.NDArray[np.generic]]:
    """Return checked settings as the compiled core reads them, see `core/src/latency_settings.rs`."""
    return {
        f"settings.{name}": np.array(value) if isinstance(value, int) else np.array([value])
        for name, value in settings._asdict().items()
    }


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


WITHIN_SOFT, WITHIN_HARD, BEYOND_ANY, BEYOND_AVOIDABLE = range(4)
"""Within the soft limit; within the hard one; beyond it, as on every node with free capacity; beyond it although such a
node could have met it."""
