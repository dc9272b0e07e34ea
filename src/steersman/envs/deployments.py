"""`steersman/Deployments-v0`: the cluster of AAML's scheduler, filled with random Deployments and cleared again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Pod, PodClass, Requests
from steersman.cluster.state import ClusterState
from steersman.core.errors import UsageError
from steersman.core.quantities import bytes_, cpu_milli
from steersman.envs.base import AFTER, Arrays, BatchedCore, check_limits, known_options, make_options
from steersman.envs.environment import SchedulingEnv, SteersmanVectorEnv
from steersman.objectives import registry as objectives
from steersman.objectives.summary import allocation_of, spread_of
from steersman.policies.decision.description import Arrays as DescribedArrays
from steersman.policies.decision.description import described_cluster
from steersman.policies.decision.selection import NodeRule
from steersman.policies.features import CLUSTER
from steersman.policies.features import view as find_view
from steersman.workloads.generators.deployments import CONTROL_PLANE, DeploymentSettings, cluster
from steersman.workloads.profile import profile_arrays
from steersman.workloads.topology import Hierarchy, label_nodes

RESET_OPTIONS = ("seed", "nodes")
NAME = "Deployments"
SEEDS = 1 << 62

Shape = tuple[str, str, int]  # CPU, memory and pods of a node, such as `("64", "256Gi", 110)`

MIXED_SHAPES: tuple[Shape, ...] = tuple((str(cores), f"{4 * cores}Gi", 110) for cores in (16, 32, 64, 96))
"""Nodes of four sizes, each with 4 GiB of memory a core, as general-purpose machines of clouds have."""


@dataclass(frozen=True, slots=True)
class DeploymentsOptions:
    """Options of the environment.

    Attributes:
        nodes: number of nodes, or the range that every reset draws it from.
        node_cpu, node_memory, node_pods: capacity of a node.
        shapes: CPU, memory and pods of several sizes of nodes, of which every reset draws one for each node; empty: all
            nodes have the size above.
        equal_share: share of resets that draw one of these sizes for all nodes instead.
        settings: the Deployments, the target loads, and the number of fillings in an episode.
        objective: the rewarded objective, see `objectives.registry`; none that needs GPUs.
        max_nodes: N; None: the most nodes.
        view: the view that agents observe, see `features`.
        penalty: cost of an illegal action, which changes nothing else.
        step_limit: steps after which an episode is truncated; None: twice the pods that all fillings have room for,
            which only illegal actions reach.
        servers_per_rack: nodes in a rack, 0: no racks.
    """

    nodes: int | tuple[int, int] = 10
    node_cpu: str = "64"
    node_memory: str = "256Gi"
    node_pods: int = 110
    shapes: tuple[Shape, ...] = ()
    equal_share: float = 0.0
    settings: DeploymentSettings = field(default_factory=DeploymentSettings)
    objective: str = "balance"
    max_nodes: int | None = None
    view: str = "cluster"
    penalty: float = 1.0
    step_limit: int | None = None
    servers_per_rack: int = 4

    def __post_init__(self) -> None:
        fewest, most = self.range
        if not 1 <= fewest <= most <= (self.max_nodes or most):
            raise UsageError(f"nodes {self.nodes} is out of range; expected 1 to max_nodes, such as 10 or (5, 20)")
        check_limits(self.penalty, self.step_limit, self.servers_per_rack)
        if not 0 <= self.equal_share <= 1:
            raise UsageError(f"equal_share {self.equal_share} is out of range; expected 0 to 1")

    @property
    def sizes(self) -> tuple[Shape, ...]:
        return self.shapes or ((self.node_cpu, self.node_memory, self.node_pods),)

    @property
    def range(self) -> tuple[int, int]:
        return (self.nodes, self.nodes) if isinstance(self.nodes, int) else (self.nodes[0], self.nodes[1])


class DeploymentsCore(BatchedCore):
    """E clusters that are filled."""

    def __init__(self, count: int, options: DeploymentsOptions) -> None:
        most = options.range[1]
        if options.view != CLUSTER.name:
            find_view(options.view)
            raise UsageError(f"view {options.view!r} is about GPUs, which no node has here; expected {CLUSTER.name!r}")
        cpu, memory, places = options.sizes[0]
        nodes_of_size = cluster(most, cpu=cpu, memory=memory, pods=places)
        workers = tuple(node for node in nodes_of_size if node.name != CONTROL_PLANE)
        if options.servers_per_rack:
            workers = label_nodes(workers, Hierarchy(options.servers_per_rack))
        self.workers = workers
        self.sizes = np.array([node_size(shape) for shape in options.sizes], dtype=np.int64)
        self._classes = _classes(options.settings, self.sizes)
        objective = objectives.resolve(options.objective)
        pods = tuple(Pod(f"pod-{i}", each, owner="Deployment/any") for i, each in enumerate(self._classes))
        objectives.check(objective, NAME, workers, pods)
        if any(each.name == "waiting-time" for each in objective.objectives):
            raise UsageError("objective 'waiting-time' is undefined here: no pod waits; steersman/Timed-v0 has waiting")
        super().__init__(count, CLUSTER, options.max_nodes or most, objective, options.penalty)
        self.options = options
        self._step_limit = options.step_limit or 2 * options.settings.resets * most * int(self.sizes[:, 2].max())
        self._described: dict[int, DescribedArrays] = {}  # what is the same in all episodes, by number of nodes
        self._seeds = np.zeros(count, dtype=np.int64)  # of the Deployments
        self._drawn = [np.zeros(0, dtype=np.int64)] * count  # [n] sizes of the nodes

    def start(self, e: int, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Begin an episode, see `EnvCore`. Options: `seed` (of the Deployments), `nodes` (number of nodes)."""
        known = known_options(options, RESET_OPTIONS)
        fewest, most = self.options.range
        # Drawn even if an option names the number, so that the seed below is the same.
        nodes = int(known.get("nodes", rng.integers(fewest, most + 1)))
        if not 1 <= nodes <= len(self.workers):
            raise UsageError(f"reset option 'nodes' must be from 1 to {len(self.workers)}, not {nodes}")
        seed = int(known.get("seed", rng.integers(SEEDS)))
        if seed >= 1 << 63:
            raise UsageError(f"reset option 'seed' must be less than 2^63, not {seed}")
        sizes = np.zeros(nodes, dtype=np.int64)
        if self.options.shapes:
            equal = rng.random() < self.options.equal_share
            sizes = np.resize(rng.integers(len(self.sizes), size=1 if equal else nodes), nodes)
        self._start(e, sizes, seed)

    def _start(self, e: int, sizes: npt.NDArray[np.int64], seed: int) -> None:
        nodes, drawn = len(sizes), {"filling.seed": np.array(seed), "filling.sizes": self.sizes[sizes]}
        # Every class fits on an empty node, so there is a first pod.
        if nodes == len(self._drawn[e]):
            self._begin_again(e, drawn)
        else:
            groups, per_rack = self.observation.groups, self.options.servers_per_rack
            groups[e] = -1
            if per_rack:
                groups[e, :nodes, 0] = np.arange(nodes) // per_rack
                groups[e, :nodes, 1] = np.arange(nodes)
            described = self._described.get(nodes) or self._described.setdefault(nodes, self._describe(nodes))
            self._begin(e, described | drawn, self._step_limit)
        self._drawn[e], self._seeds[e] = sizes, seed

    def _describe(self, nodes: int) -> DescribedArrays:
        """Return what the core reads, see `Filling::begin`, without the nodes' sizes and the seed."""
        state = ClusterState(self.workers[:nodes])
        # Ids follow the order of first use: the class of CPU i and memory j is i M + j.
        for each in self._classes:
            state.class_id(each)
        settings, per_rack = self.options.settings, self.options.servers_per_rack
        rack = np.arange(nodes) // per_rack if per_rack else np.full(nodes, -1)
        return described_cluster(state, profile_arrays((), ())) | {
            "policy.node": np.array(NodeRule.EXTERNAL),
            "policy.devices": np.array(0),
            "policy.functions": np.zeros(0, dtype=np.int64),
            "policy.weights": np.zeros(0),
            "policy.seed": np.array(0),
            "observer.rack": rack,
            "observer.racks": np.array(max(1, int(rack[-1]) + 1)),
            "filling.targets": np.array([settings.cpu_load, settings.memory_load, settings.pod_load]),
            "filling.requests": np.array([len(settings.cpu_requests), len(settings.memory_requests)]),
            "filling.replicas": np.array([settings.min_replicas, settings.max_replicas]),
            "filling.fillings": np.array(settings.resets),
        }

    def infos(self) -> Arrays:
        """Return CPU share in use, variance of nodes' CPU shares, nodes in use, illegal, pods bound and dropped."""
        row, counts = self.states[:, AFTER], self._batch.counts()
        return {
            "allocation": allocation_of(row),
            **spread_of(row),
            "illegal": self.illegal,
            "pods_bound": counts[:, 0],
            "pods_dropped": counts[:, 1],
        }

    def state(self) -> Arrays:
        """Return how each episode began, and what was done since: playing that again leads to the same state."""
        nodes = np.array([len(sizes) for sizes in self._drawn])
        return {"seed": self._seeds, "nodes": nodes, "sizes": np.concatenate(self._drawn)} | self._played()

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        sizes = np.split(arrays["sizes"], np.cumsum(arrays["nodes"])[:-1])
        for e, seed in enumerate(arrays["seed"].tolist()):
            self._start(e, sizes[e], seed)
            self._replay(e, arrays)

    def capacities(self, e: int) -> npt.NDArray[np.int64]:
        """Return [n, 3] milli-CPU, bytes of memory and pods of the nodes of environment `e`."""
        return self.sizes[self._drawn[e]]

    def names(self, e: int) -> list[str]:
        return [node.name for node in self.workers[: len(self._drawn[e])]]

    def loads(self, e: int) -> npt.NDArray[np.float64]:
        loads = np.full((len(self._drawn[e]), 3), np.nan)
        loads[:, :2] = self._batch.loads(e, len(loads))
        return loads


def node_size(shape: Shape) -> tuple[int, int, int]:
    """Return milli-CPU, bytes and pods of a node. Raises UsageError: no machine has that much."""
    cpu, memory, pods = shape
    worker = next(node for node in cluster(1, cpu=cpu, memory=memory, pods=pods) if node.name != CONTROL_PLANE)
    return worker.cpu_milli, worker.memory_bytes, worker.pods


def _classes(settings: DeploymentSettings, sizes: npt.NDArray[np.int64]) -> list[PodClass]:
    """Return a class for every pair of requests, memory varying fastest; sizes: [S, 3] milli-CPU, bytes, pods."""
    classes = []
    for cpu in settings.cpu_requests:
        for memory in settings.memory_requests:
            milli, size = cpu_milli(cpu), bytes_(memory)
            if milli > sizes[:, 0].min() or size > sizes[:, 1].min():
                raise UsageError(f"a pod of {cpu} CPU and {memory} memory is more than a node has; take larger nodes")
            # A row states its requests, so scoring assumes no defaults.
            classes.append(PodClass(Requests(milli, size, cpu_nonzero_milli=milli, memory_nonzero_bytes=size)))
    return classes


class DeploymentsEnv(SchedulingEnv):
    """Random Deployments fill a cluster to a target load; then it is cleared, `settings.resets` times.

    Options: see `DeploymentsOptions`.
    """

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(DeploymentsCore(1, make_options(DeploymentsOptions, options)), render_mode=render_mode)


class DeploymentsVectorEnv(SteersmanVectorEnv):
    """`DeploymentsEnv` `num_envs` times, see `SteersmanVectorEnv`."""

    def __init__(self, num_envs: int = 1, *, copy: bool = True, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(
            DeploymentsCore(num_envs, make_options(DeploymentsOptions, options)), copy=copy, render_mode=render_mode
        )
