"""`steersman/Deployments-v0`: the cluster of AAML's scheduler, filled with random Deployments and cleared again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY, PODS
from steersman.cluster.model import Pod, PodClass, Requests
from steersman.cluster.state import ClusterState
from steersman.core.errors import UsageError
from steersman.core.quantities import bytes_, cpu_milli
from steersman.envs.base import (
    Arrays,
    EnvCore,
    arrays_of,
    check_limits,
    empty_like,
    known_options,
    make_options,
    put,
    restored,
)
from steersman.envs.deployments import kernels
from steersman.envs.deployments.kernels import EpisodeRules, FillState
from steersman.envs.environment import SchedulingEnv, SteersmanVectorEnv
from steersman.envs.observation import AFTER, StepResults
from steersman.objectives import registry as objectives
from steersman.objectives import summary as summed
from steersman.objectives.fragmentation import fragment_arrays
from steersman.policies.features import CLUSTER
from steersman.policies.features import view as find_view
from steersman.policies.gpu_state.arrays import empty_learned
from steersman.policies.gpu_state.fragmentation_cache import empty_fragmentation_cache, profile_key
from steersman.policies.observations.encoder import fixed_summary, owner_arrays
from steersman.policies.observations.encoding import number_of
from steersman.workloads.generators.deployments import CONTROL_PLANE, DeploymentSettings, cluster
from steersman.workloads.profile import profile_arrays
from steersman.workloads.topology import Hierarchy, label_nodes

RESET_OPTIONS = ("seed", "nodes")
NAME = "Deployments"

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


class DeploymentsCore(EnvCore):
    """E clusters that are filled."""

    def __init__(self, count: int, options: DeploymentsOptions) -> None:
        most = options.range[1]
        if options.view != CLUSTER.name:
            find_view(options.view)
            raise UsageError(f"view {options.view!r} is about GPUs, which no node has here; expected {CLUSTER.name!r}")
        super().__init__(count, CLUSTER, options.max_nodes or most)
        self.options = options
        cpu, memory, places = options.sizes[0]
        nodes_of_size = cluster(most, cpu=cpu, memory=memory, pods=places)
        workers = tuple(node for node in nodes_of_size if node.name != CONTROL_PLANE)
        if options.servers_per_rack:
            workers = label_nodes(workers, Hierarchy(options.servers_per_rack))
        self.workers = workers
        self.sizes = np.array([node_size(shape) for shape in options.sizes], dtype=np.int64)
        classes = _classes(options.settings, self.sizes)
        objective = objectives.resolve(options.objective)
        pods = tuple(Pod(f"pod-{i}", each, owner="Deployment/any") for i, each in enumerate(classes))
        objectives.check(objective, NAME, workers, pods)
        if any(each.name == "waiting-time" for each in objective.objectives):
            raise UsageError("objective 'waiting-time' is undefined here: no pod waits; steersman/Timed-v0 has waiting")
        self._state = ClusterState(workers)
        # Ids follow the order of first use: the class of CPU i and memory j is i M + j, see `EpisodeRules.classes`.
        for each in classes:
            self._state.class_id(each)
        self.objective = objective
        settings, no_profile = options.settings, profile_arrays((), ())
        choices = len(settings.cpu_requests), len(settings.memory_requests)
        self.rules = EpisodeRules(
            classes=self._state.class_arrays,
            profile=no_profile,
            fragments=fragment_arrays(no_profile, self._state.arrays),
            # Without GPUs no fragmentation is computed; a cache of one state satisfies the kernels' types.
            known=empty_fragmentation_cache(profile_key(no_profile), 1),
            leftovers=empty_learned().leftovers,
            room=empty_learned().room,
            objectives=np.array(objective.numbers, dtype=np.int64),
            weights=np.array(objective.compiled_weights, dtype=np.float64),
            targets=np.array([settings.cpu_load, settings.memory_load, settings.pod_load]),
            numbers=np.array([*choices, settings.min_replicas, settings.max_replicas, settings.resets], dtype=np.int64),
            view_number=number_of(self.view),
            penalty=float(options.penalty),
            step_limit=options.step_limit or 2 * settings.resets * most * int(self.sizes[:, 2].max()),
        )
        self.filling = empty_like(self._single(np.zeros(most, dtype=np.int64)), count)

    def _single(self, sizes: npt.NDArray[np.int64]) -> FillState:
        arrays, per_rack, most = self._state.arrays, self.options.servers_per_rack, len(self.workers)
        nodes = len(sizes)
        here = type(arrays)(*(np.concatenate([a[:nodes], np.zeros_like(a[nodes:])]) for a in arrays))
        for amounts in (here.allocatable, here.free):
            amounts[:nodes, [CPU, MEMORY, PODS]] = self.sizes[sizes]
        racks = np.arange(most) // per_rack if per_rack else np.full(most, -1)
        counts = np.zeros(kernels.COUNTS, dtype=np.int64)
        counts[kernels.NODES] = nodes
        summary = np.tile(fixed_summary(here, np.arange(most) < nodes), (3, 1))
        summary[:, summed.SLOTS] = nodes
        return FillState(
            nodes=here,
            owners=owner_arrays(1, racks.astype(np.int64), max(1, int(racks[-1]) + 1)),
            counts=counts,
            summary=summary,
            rng=np.zeros(1, dtype=np.uint64),
        )

    def start(self, e: int, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Begin an episode, see `EnvCore`. Options: `seed` (of the Deployments), `nodes` (number of nodes)."""
        known = known_options(options, RESET_OPTIONS)
        fewest, most = self.options.range
        # Drawn even if an option names the number, so that the seed below is the same.
        nodes = int(known.get("nodes", rng.integers(fewest, most + 1)))
        if not 1 <= nodes <= len(self.workers):
            raise UsageError(f"reset option 'nodes' must be from 1 to {len(self.workers)}, not {nodes}")
        seed = int(known.get("seed", rng.integers(1 << 62)))
        if self.options.shapes:
            equal = rng.random() < self.options.equal_share
            drawn = rng.integers(len(self.sizes), size=1 if equal else nodes)
            self._build(e, np.resize(drawn, nodes))
        # Otherwise the nodes are the same, and `begin_filling` only clears them.
        elif self.filling.counts[e, kernels.NODES] != nodes:
            self._build(e, np.zeros(nodes, dtype=np.int64))
        # Every class fits on an empty node, so there is a first pod.
        kernels.begin_filling(self.filling, self.rules, self.observation, e, seed)

    def _build(self, e: int, sizes: npt.NDArray[np.int64]) -> None:
        put(self.filling, e, self._single(sizes))
        observation, nodes = self.observation, len(sizes)
        observation.nodes[e] = 0
        observation.mask[e] = 0
        observation.groups[e] = -1
        observation.groups[e, :nodes, 0] = self.filling.owners.rack[e, :nodes]
        if self.options.servers_per_rack:
            observation.groups[e, :nodes, 1] = np.arange(nodes)

    def step(self, actions: npt.NDArray[np.int64]) -> None:
        results = StepResults(self.rewards, self.terminated, self.truncated)
        kernels.step_filling(self.filling, self.rules, self.observation, actions, results)
        # Users' objectives are Python; illegal actions have their penalty instead of a reward.
        if self.objective.has_own:
            self._add_user_objectives(
                self.objective, self.filling.summary, self.filling.counts[:, kernels.ILLEGAL] == 0
            )

    def heuristic(self, rule: int) -> npt.NDArray[np.int64]:
        actions = np.zeros(self.count, dtype=np.int64)
        kernels.follow_rule_filling(self.filling, self.rules, rule, self.observation.mask, actions)
        return actions

    def infos(self) -> Arrays:
        """Return CPU share in use, variance of nodes' CPU shares, nodes in use, illegal, pods bound and dropped."""
        row, counts = self.filling.summary[:, AFTER], self.filling.counts
        nodes = row[:, summed.CPU_NODES]
        variance = row[:, summed.CPU_SQUARE] / nodes - (row[:, summed.CPU_SHARE] / nodes) ** 2
        return {
            "allocation": row[:, summed.CPU_TAKEN] / row[:, summed.CPU_TOTAL],
            "node_variance": np.maximum(variance, 0.0),
            "nodes_used": row[:, summed.NODES_USED].copy(),
            "illegal": counts[:, kernels.ILLEGAL] == 1,
            "pods_bound": counts[:, kernels.BOUND].copy(),
            "pods_dropped": counts[:, kernels.DROPPED].copy(),
        }

    def state(self) -> Arrays:
        arrays = {f"observation.{name}": array for name, array in arrays_of(self.observation)}
        return arrays | dict(arrays_of(self.filling, "filling."))

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self.filling = restored(self.filling, arrays, "filling.")
        for name, array in arrays_of(self.observation):
            array[:] = arrays[f"observation.{name}"]

    def names(self, e: int) -> list[str]:
        return [node.name for node in self.workers[: self.filling.counts[e, kernels.NODES]]]

    def loads(self, e: int) -> npt.NDArray[np.float64]:
        nodes, count = self.filling.nodes, self.filling.counts[e, kernels.NODES]
        free = nodes.free[e, :count, :][:, [CPU, MEMORY]] / nodes.allocatable[e, :count, :][:, [CPU, MEMORY]]
        return np.column_stack([1.0 - free, np.full(count, np.nan)])


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
