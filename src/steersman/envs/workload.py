"""Episodes from workloads: runs of the simulator's event loop in which an agent chooses the nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY
from steersman.cluster.model import GPU_MILLI
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.handles import CoreEngine
from steersman.envs.base import AFTER, NOW, Arrays, BatchedCore, check_limits, known_options, make_options
from steersman.envs.environment import SchedulingEnv, SteersmanVectorEnv
from steersman.objectives import registry as objectives
from steersman.objectives import summary as summed
from steersman.objectives.summary import allocation_of, spread_of
from steersman.orders.order import AGE, Order
from steersman.orders.registry import find_order
from steersman.policies.base import Candidates, Policy, Scorer, ScoringContext
from steersman.policies.decision.description import Arrays as DescribedArrays
from steersman.policies.decision.description import described_view
from steersman.policies.features import view as find_view
from steersman.simulation.arrivals import Schedule, schedule
from steersman.simulation.description import RunDescription, write_state
from steersman.simulation.run import Simulator
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


@dataclass(slots=True)
class EpisodeStart:
    """How an episode started."""

    workload: int  # its index
    seed: int
    ratio: float
    load: float | None
    order: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # [N] nodes in the slots


class WorkloadCore(BatchedCore):
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
        super().__init__(count, find_view(options.view), max_nodes, objective, options.penalty)
        self.protocol, self.options = protocol, options
        self.simulators = [Simulator(workload) for workload in workloads]
        self._episodes: list[EpisodeStart | None] = [None] * count

    def start(self, e: int, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Begin an episode, see `EnvCore`. Options: `workload` (a name), `seed` (as of `simulate`), `ratio`, `load`."""
        known = known_options(options, RESET_OPTIONS)
        index = self._index(known["workload"]) if "workload" in known else int(rng.integers(len(self.simulators)))
        seed = int(known.get("seed", rng.integers(SEEDS)))
        ratio, load = float(known.get("ratio", self.options.ratio)), known.get("load", self.options.load)
        self._start(e, EpisodeStart(index, seed, ratio, load))

    @property
    def _started(self) -> list[EpisodeStart]:
        """How the episodes started. Raises UsageError: an environment was not reset."""
        self._check_begun()
        return [each for each in self._episodes if each is not None]

    def _start(self, e: int, begun: EpisodeStart) -> None:
        simulator = self.simulators[begun.workload]
        plan = schedule(simulator.workload, self.protocol, seed=begun.seed, ratio=begun.ratio, load=begun.load)
        begun.order = plan.nodes
        self._episodes[e] = begun
        groups = self.observation.groups
        # A smaller cluster than before leaves no rows of the larger one.
        groups[e] = -1
        groups[e, : len(plan.nodes), 0] = simulator.places.rack[plan.nodes]
        groups[e, : len(plan.nodes), 1] = simulator.places.server[plan.nodes]
        limit = 2 * len(plan.pods) if self.options.step_limit is None else self.options.step_limit
        if not self._begin(e, self._described(simulator, plan, begun.seed), limit):
            raise SteersmanError(f"{simulator.workload.name}: no pod fits on any node")

    def _described(self, simulator: Simulator, plan: Schedule, seed: int) -> DescribedArrays:
        """Return a run as the core reads it, see `RunEpisode::begin` in `core/src/episode.rs`."""
        agent = ExternalAgent(order=find_order(self.options.order))
        description = RunDescription(simulator, plan, agent, simulator.state(plan.nodes), seed)
        leftovers = partial(simulator.leftovers_with, None)
        return description.arrays() | described_view(self.view, simulator.places, plan.nodes, plan.pods, leftovers)

    def _index(self, name: str) -> int:
        names = [simulator.workload.name for simulator in self.simulators]
        if name not in names:
            raise UsageError(f"reset option 'workload' {name!r} is unknown; there are {', '.join(names)}")
        return names.index(name)

    def infos(self) -> Arrays:
        """Return metrics after the last action: `allocation` (share of GPU in use; of CPU without GPUs) and others."""
        after = self.states[:, AFTER]
        return {
            "allocation": allocation_of(after),
            **spread_of(after),
            "waiting": self.states[:, NOW, summed.WAITING].astype(np.int64),
            "illegal": self.illegal,
        }

    def state(self) -> Arrays:
        """Return how each episode began, and what was done since: playing that again leads to the same state."""
        begun = self._started
        return {
            "workload": np.array([each.workload for each in begun]),
            "seed": np.array([each.seed for each in begun], dtype=np.uint64),
            "ratio": np.array([each.ratio for each in begun]),
            "load": np.array([math.nan if each.load is None else each.load for each in begun]),
        } | self._played()

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        columns = (arrays[name].tolist() for name in ("workload", "seed", "ratio", "load"))
        for e, (workload, seed, ratio, load) in enumerate(zip(*columns, strict=True)):
            self._start(e, EpisodeStart(workload, seed, ratio, None if math.isnan(load) else load))
            self._replay(e, arrays)

    def names(self, e: int) -> list[str]:
        nodes = self.simulators[self._started[e].workload].workload.nodes
        return [nodes[i].name for i in self._started[e].order]

    def run(self, e: int) -> CoreEngine:
        """Return a copy of the run of environment `e`."""
        return self._batch.engine(e)

    def cluster(self, e: int) -> ClusterState:
        """Return the cluster of environment `e` as it is now."""
        begun = self._started[e]
        state = self.simulators[begun.workload].state(begun.order)
        write_state(self.run(e), state)
        return state

    def loads(self, e: int) -> npt.NDArray[np.float64]:
        nodes = self.cluster(e).arrays
        used = nodes.allocatable - nodes.free
        gpu = nodes.gpu_count * GPU_MILLI
        taken = np.stack([used[:, CPU], used[:, MEMORY], gpu - nodes.gpu_free.sum(axis=1)], axis=1)
        total = np.stack([nodes.allocatable[:, CPU], nodes.allocatable[:, MEMORY], gpu], axis=1)
        shares = np.full(total.shape, np.nan)
        np.divide(taken, total, out=shares, where=total > 0)
        return shares


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
