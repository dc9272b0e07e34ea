"""Episodes from workloads: a batch of runs of the simulator's event loop in which an agent chooses the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY
from steersman.cluster.model import GPU_MILLI
from steersman.cluster.pod_query import PodQuery
from steersman.core.errors import SteersmanError, UsageError
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
from steersman.envs.environment import SchedulingEnv, SteersmanVectorEnv
from steersman.envs.inflation import batch as layout
from steersman.envs.inflation import kernels
from steersman.envs.inflation.batch import Batch, BatchConfig, StepCache, empty_arrays
from steersman.envs.observation import AFTER, StepResults
from steersman.objectives import registry as objectives
from steersman.objectives import summary as summed
from steersman.orders.order import AGE, Order
from steersman.orders.registry import find_order
from steersman.policies.base import Candidates, Policy, Scorer, ScoringContext
from steersman.policies.features import GPU
from steersman.policies.features import view as find_view
from steersman.policies.gpu_state.arrays import empty_learned
from steersman.policies.gpu_state.fragmentation_cache import empty_fragmentation_cache, profile_key
from steersman.policies.gpu_state.gpu_features import scratch
from steersman.policies.observations.encoder import fixed_summary, owner_arrays
from steersman.policies.observations.encoding import number_of
from steersman.policies.observations.kernels import new_feature_cache
from steersman.simulation import event_arrays
from steersman.simulation.arrivals import Schedule, schedule
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.formats.openb import SMALL, embedded
from steersman.workloads.topology import Hierarchy, label_nodes
from steersman.workloads.workload import Workload

RESET_OPTIONS = ("workload", "seed", "ratio", "load")
SEEDS = 1 << 31

WorkloadLike = Workload | str


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """Options of the environment.

    Attributes:
        workload: a workload, the name of a packaged one, or several of which every reset draws one.
        objective: the rewarded objective, see `objectives.registry`.
        ratio: arriving GPU demand over capacity (Inflation).
        load: demand over capacity; None takes the trace's own times (Timed).
        order: who goes next among pods that wait, see `orders.registry.find_order` (Timed).
        max_nodes: N; None: as many as the largest workload has.
        view: the view that agents observe, see `features`.
        penalty: cost of an illegal action, which changes nothing else.
        step_limit: steps after which an episode is truncated; None: twice the arrivals, which only illegal actions
            reach.
        servers_per_rack: group nodes without labels `rack` and `server` into racks in their order; 0: do not.
    """

    workload: WorkloadLike | Sequence[WorkloadLike] = SMALL
    objective: str = "allocation"
    ratio: float = 1.3
    load: float | None = 0.9
    order: str = AGE.name
    max_nodes: int | None = None
    view: str = "cluster"
    penalty: float = 1.0
    step_limit: int | None = None
    servers_per_rack: int = 0

    def __post_init__(self) -> None:
        find_order(self.order)
        check_limits(self.penalty, self.step_limit, self.servers_per_rack)
        if self.max_nodes is not None and self.max_nodes < 1:
            raise UsageError(f"max_nodes must be at least 1, not {self.max_nodes}")

    def workloads(self) -> tuple[Workload, ...]:
        """Return the workloads, with racks if requested. Raises UsageError: there is none, or none of that name."""
        given = [self.workload] if isinstance(self.workload, Workload | str) else list(self.workload)
        if not given:
            raise UsageError("workload: give one or more")
        result = [workload_of(each) for each in given]
        if self.servers_per_rack:
            hierarchy = Hierarchy(self.servers_per_rack)
            result = [replace(each, nodes=label_nodes(each.nodes, hierarchy)) for each in result]
        return tuple(result)


def workload_of(given: WorkloadLike) -> Workload:
    """Return a workload, one of the package by its name. Raises UsageError: there is none."""
    return given if isinstance(given, Workload) else embedded(given)


@dataclass(frozen=True, slots=True)
class ExternalAgent(Policy):
    """The policy of a run in which the caller of `step` decides."""

    name: str = "environment"
    order: Order = AGE

    def scorer(self, context: ScoringContext) -> Scorer:
        """Return a scorer that must not be asked: an environment waits for an action instead."""
        return ExternalScorer()


class ExternalScorer(Scorer):
    """Reject questions: the caller of `step` decides."""

    def scores(self, query: PodQuery, nodes: Candidates) -> npt.NDArray[np.float64]:
        """Raise SteersmanError: an environment is stepped, not run."""
        raise SteersmanError("an environment is stepped, not run")


class WorkloadCore(EnvCore):
    """E runs of the simulator.

    Every pod that fits on some node is a decision, even if only one node is feasible; pods that fit nowhere wait
    (`timed`) or are dropped.
    """

    def __init__(
        self, count: int, protocol: Literal["inflation", "arrivals", "timed"], options: WorkloadOptions
    ) -> None:
        if protocol != "timed" and options.order != AGE.name:
            raise UsageError(f"order {options.order!r}: no pod waits here; steersman/Timed-v0 has waiting")
        workloads = options.workloads()
        objective = objectives.resolve(options.objective)
        for workload in workloads:
            objectives.check(objective, workload.name, workload.nodes, workload.pods)
        if protocol != "timed" and any(each.name == "waiting-time" for each in objective.objectives):
            raise UsageError("objective 'waiting-time' is undefined here: no pod waits; steersman/Timed-v0 has waiting")
        largest = max(workloads, key=lambda workload: len(workload.nodes))
        max_nodes = options.max_nodes or len(largest.nodes)
        if len(largest.nodes) > max_nodes:
            raise UsageError(f"{largest.name} has {len(largest.nodes)} nodes, more than max_nodes {max_nodes}")
        super().__init__(count, find_view(options.view), max_nodes)
        self.protocol, self.options = protocol, options
        self.simulators = [Simulator(workload) for workload in workloads]
        self.chosen = np.zeros(count, dtype=np.int64)
        self.order = np.zeros((count, max_nodes), dtype=np.int64)
        self.objective = objective
        self.task = BatchConfig(
            none=empty_arrays(),
            objectives=np.array(objective.numbers, dtype=np.int64),
            weights=np.array(objective.compiled_weights, dtype=np.float64),
            view_number=number_of(self.view),
            waits=protocol == "timed",
            penalty=float(options.penalty),
        )
        self._batch: Batch | None = None
        self._marks = np.stack([profile_key(simulator.profile_arrays(None)) for simulator in self.simulators])
        self._kept = self._empty(0)

    @property
    def batch(self) -> Batch:
        """Return the runs. Raises UsageError: none was started."""
        if self._batch is None:
            raise UsageError("reset the environment before anything else")
        return self._batch

    def start(self, e: int, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Begin an episode, see `EnvCore`. Options: `workload` (a name), `seed` (as of `simulate`), `ratio`, `load`."""
        known = known_options(options, RESET_OPTIONS)
        index = self._index(known["workload"]) if "workload" in known else int(rng.integers(len(self.simulators)))
        seed = int(known.get("seed", rng.integers(SEEDS)))
        simulator = self.simulators[index]
        plan = schedule(
            simulator.workload,
            self.protocol,
            seed=seed,
            ratio=float(known.get("ratio", self.options.ratio)),
            load=known.get("load", self.options.load),
        )
        self.chosen[e] = index
        self.order[e, : len(plan.nodes)] = plan.nodes
        self._put(e, _single(simulator, plan, seed, self.options))
        observation = self.observation
        # A smaller cluster than before leaves no rows of the larger one.
        for buffer in (observation.nodes, observation.pod, observation.context, observation.mask):
            buffer[e] = 0
        observation.groups[e] = -1
        observation.groups[e, : len(plan.nodes), 0] = simulator.places.rack[plan.nodes]
        observation.groups[e, : len(plan.nodes), 1] = simulator.places.server[plan.nodes]
        # Those of the last step stay: an environment is reset in the step that ends its episode.
        results = StepResults(self.rewards.copy(), self.terminated.copy(), self.truncated.copy())
        self._step(np.zeros(0, dtype=np.int64), results, begun=e)
        if results.terminated[e]:
            raise SteersmanError(f"{simulator.workload.name}: no pod fits on any node")

    def _index(self, name: str) -> int:
        names = [simulator.workload.name for simulator in self.simulators]
        if name not in names:
            raise UsageError(f"reset option 'workload' {name!r} is unknown; there are {', '.join(names)}")
        return names.index(name)

    def _put(self, e: int, item: Batch) -> None:
        """Write a run into the batch, which grows if necessary."""
        if self._batch is None:
            self._batch = empty_like(item, self.count)
        self._batch = put(self._batch, e, item)
        classes = self._batch.classes.gpu_count.shape[1]
        if self._kept.rows.log_position.shape[1] < classes:
            self._kept = self._empty(classes)
        self._kept.known.mark[e] = self._marks[self.chosen[e]]

    def _empty(self, classes: int) -> StepCache:
        rows = new_feature_cache((self.count,), classes, self.max_nodes, len(self.view.node))
        return StepCache(rows, empty_fragmentation_cache(self._marks[self.chosen]))

    def step(self, actions: npt.NDArray[np.int64]) -> None:
        self._step(actions, StepResults(self.rewards, self.terminated, self.truncated))
        if self.objective.has_own:
            self._add_user_objectives(self.objective, self.batch.summary, self.batch.counts[:, layout.ILLEGAL] == 0)

    def _step(self, actions: npt.NDArray[np.int64], results: StepResults, begun: int = -1) -> None:
        kernels.step(self.batch, self.task, self._kept, self.observation, actions, results, begun)

    def heuristic(self, rule: int) -> npt.NDArray[np.int64]:
        actions = np.zeros(self.count, dtype=np.int64)
        kernels.follow_rule(self.batch, rule, self.observation.mask, actions)
        return actions

    def infos(self) -> Arrays:
        """Return metrics after the last action: `allocation` (share of GPU in use; of CPU without GPUs) and others."""
        summary, allocation, variance = self.batch.summary, np.empty(self.count), np.empty(self.count)
        kernels.compute_infos(summary, allocation, variance)
        return {
            "allocation": allocation,
            "node_variance": variance,
            "nodes_used": summary[:, AFTER, summed.NODES_USED].copy(),
            "waiting": self.batch.run.cursor[:, event_arrays.WAITING_NOW].copy(),
            "illegal": self.batch.counts[:, layout.ILLEGAL] == 1,
        }

    def state(self) -> Arrays:
        own = {"chosen": self.chosen, "order": self.order}
        arrays = {f"observation.{name}": array for name, array in arrays_of(self.observation)}
        return own | arrays | dict(arrays_of(self.batch, "batch."))

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        # The arrays have to exist before they can be replaced; this episode is overwritten below.
        if self._batch is None:
            self.start(0, np.random.default_rng(0), {})
        self._batch = restored(self.batch, arrays, "batch.")
        for name, array in {"chosen": self.chosen, "order": self.order}.items():
            array[:] = arrays[name]
        # After `chosen`, by which the caches of fragmentation are marked; features are computed again.
        self._kept = self._empty(self._batch.classes.gpu_count.shape[1])
        for name, array in arrays_of(self.observation):
            array[:] = arrays[f"observation.{name}"]

    def names(self, e: int) -> list[str]:
        nodes = self.simulators[self.chosen[e]].workload.nodes
        return [nodes[i].name for i in self.order[e, : len(nodes)]]

    def loads(self, e: int) -> npt.NDArray[np.float64]:
        nodes = type(self.batch.nodes)(*(a[e, : self.batch.counts[e, layout.NODES]] for a in self.batch.nodes))
        used = nodes.allocatable - nodes.free
        gpu = nodes.gpu_count * GPU_MILLI
        taken = np.stack([used[:, CPU], used[:, MEMORY], gpu - nodes.gpu_free.sum(axis=1)], axis=1)
        total = np.stack([nodes.allocatable[:, CPU], nodes.allocatable[:, MEMORY], gpu], axis=1)
        shares = np.full(total.shape, np.nan)
        np.divide(taken, total, out=shares, where=total > 0)
        return shares


def _single(simulator: Simulator, plan: Schedule, seed: int, options: WorkloadOptions) -> Batch:
    # The policy only builds the arrays; `BatchConfig.none` stands for what it would read.
    agent = ExternalAgent(order=find_order(options.order))
    execution = Execution(simulator, plan, agent, seed, record=False)
    cluster, count, places = execution.cluster, len(plan.pods), simulator.places
    counts = np.zeros(layout.COUNTS, dtype=np.int64)
    counts[[layout.ARRIVALS, layout.NODES]] = count, len(plan.nodes)
    counts[layout.STEP_LIMIT] = 2 * count if options.step_limit is None else options.step_limit
    return Batch(
        nodes=cluster.nodes,
        classes=cluster.classes,
        terms=cluster.terms,
        profile=cluster.profile,
        fragments=cluster.fragments,
        leftovers=simulator.learned.leftovers if options.view == GPU.name else empty_learned().leftovers,
        room=scratch(cluster.nodes.gpu_free.shape[1], cluster.profile),
        arrivals=execution.arrivals,
        run=execution.run,
        record=execution.record,
        owners=owner_arrays(places.owners, places.rack[plan.nodes], places.racks),
        log=cluster.table.log,
        logged=cluster.table.logged,
        owner=places.owner[plan.pods],
        counts=counts,
        clock=np.array([plan.time[0], 0.0]),
        summary=np.tile(fixed_summary(cluster.nodes, execution.eligible), (3, 1)),
    )


class InflationEnv(SchedulingEnv):
    """Pods of a workload arrive until their GPU demand is `ratio` times the capacity; none leaves."""

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(WorkloadCore(1, "inflation", make_options(WorkloadOptions, options)), render_mode=render_mode)


class InflationVectorEnv(SteersmanVectorEnv):
    """`InflationEnv` `num_envs` times, see `SteersmanVectorEnv`."""

    def __init__(self, num_envs: int = 1, *, copy: bool = True, render_mode: str | None = None, **options: Any) -> None:
        core = WorkloadCore(num_envs, "inflation", make_options(WorkloadOptions, options))
        super().__init__(core, copy=copy, render_mode=render_mode)


class TimedEnv(SchedulingEnv):
    """Pods of a workload arrive, run for their time and leave; those that fit nowhere wait."""

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(WorkloadCore(1, "timed", make_options(WorkloadOptions, options)), render_mode=render_mode)


class TimedVectorEnv(SteersmanVectorEnv):
    """`TimedEnv` `num_envs` times, see `SteersmanVectorEnv`."""

    def __init__(self, num_envs: int = 1, *, copy: bool = True, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(
            WorkloadCore(num_envs, "timed", make_options(WorkloadOptions, options)), copy=copy, render_mode=render_mode
        )
