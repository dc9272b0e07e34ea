"""Episodes from workloads: a batch of runs of the simulator's event loop in which an agent chooses the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY
from steersman.cluster.model import GPU_MILLI
from steersman.envs.buffers import arrays_of, empty_like, put, restored
from steersman.envs.core import Arrays, Core, known_options
from steersman.envs.kernels import batch as layout
from steersman.envs.kernels import stepping
from steersman.envs.kernels.batch import Batch, Kept, Task, nothing
from steersman.errors import SteersmanError, UsageError
from steersman.features import GPU
from steersman.features import view as find_view
from steersman.objectives import registry as objectives
from steersman.objectives import summary as summed
from steersman.policies.afterstates import afterstates, mark_of
from steersman.policies.base import Policy, ScoreQuery, Scorer, ScoringContext
from steersman.policies.encoding import number_of
from steersman.policies.gpu_features import scratch
from steersman.policies.learned import no_learned
from steersman.policies.observer import fixed_summary, owner_arrays
from steersman.policies.showing import kept_rows
from steersman.simulation import engine
from steersman.simulation.arrivals import Schedule, schedule
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.openb import SMALL, embedded
from steersman.workloads.topology import Hierarchy, label_nodes
from steersman.workloads.workload import Workload

RESET_OPTIONS = ("workload", "seed", "ratio", "load")
SEEDS = 1 << 31

WorkloadLike = Workload | str


@dataclass(frozen=True, slots=True)
class Options:
    """What an environment plays.

    Attributes:
        workload: a workload, the name of an embedded one, or several of which every reset draws one.
        objective: what is rewarded, see `objectives.registry`.
        ratio: of Inflation, arriving GPU demand over capacity.
        load: of Timed, demand offered over capacity; None takes the trace's own times.
        max_nodes: N; None: as many as the largest workload has.
        view: what is seen, see `features`.
        penalty: what an illegal action costs; it changes nothing else.
        step_limit: steps after which an episode is truncated; None: twice the arrivals, which only illegal actions
            reach.
        servers_per_rack: number nodes into racks in their order where they have no labels `rack` and `server`; 0: do
            not.
    """

    workload: WorkloadLike | Sequence[WorkloadLike] = SMALL
    objective: str = "allocation"
    ratio: float = 1.3
    load: float | None = 0.9
    max_nodes: int | None = None
    view: str = "cluster"
    penalty: float = 1.0
    step_limit: int | None = None
    servers_per_rack: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.penalty < 1e9:
            raise UsageError(f"penalty {self.penalty} is out of range; 0 or more is right")
        if self.step_limit is not None and self.step_limit < 1:
            raise UsageError(f"step_limit {self.step_limit} is out of range; 1 or more is right")
        if self.max_nodes is not None and self.max_nodes < 1:
            raise UsageError(f"max_nodes {self.max_nodes} is out of range; 1 or more is right")
        if self.servers_per_rack < 0:
            raise UsageError(f"servers_per_rack {self.servers_per_rack} is out of range; 0 or more is right")

    def workloads(self) -> tuple[Workload, ...]:
        """The workloads, with racks where asked for. Raises UsageError: there is none, or none of that name."""
        given = [self.workload] if isinstance(self.workload, Workload | str) else list(self.workload)
        if not given:
            raise UsageError("workload: give one or more")
        found = [_workload(each) for each in given]
        if self.servers_per_rack:
            hierarchy = Hierarchy(self.servers_per_rack)
            found = [replace(each, nodes=label_nodes(each.nodes, hierarchy)) for each in found]
        return tuple(found)


def _workload(given: WorkloadLike) -> Workload:
    return given if isinstance(given, Workload) else embedded(given)


@dataclass(frozen=True, slots=True)
class ExternalAgent(Policy):
    """Stands where a policy is wanted; whoever steps the environment decides."""

    name: str = "environment"

    def scorer(self, context: ScoringContext) -> Scorer:
        """Return a scorer that must not be asked: an environment waits for an action instead."""
        return ExternalScorer()


class ExternalScorer(Scorer):
    """Refuses to decide in place of whoever steps the environment."""

    def scores(self, query: ScoreQuery) -> npt.NDArray[np.float64]:
        """Raise SteersmanError: an environment is stepped, not run."""
        raise SteersmanError("an environment is stepped, not run")


class WorkloadCore(Core):
    """E runs of the simulator.

    Every pod that fits on some node is asked for, also where one node alone is left; pods that fit nowhere wait
    (`timed`) or are dropped without a question.

    Args:
        count: E.
        protocol: `inflation`, `arrivals` or `timed`.
        options: what to play.

    Raises:
        UsageError: an option is wrong, or the objective means nothing on a workload.
    """

    def __init__(self, count: int, protocol: Literal["inflation", "arrivals", "timed"], options: Options) -> None:
        workloads = options.workloads()
        mix = objectives.resolve(options.objective)
        for workload in workloads:
            objectives.check(mix, workload.name, workload.nodes, workload.pods)
        if protocol != "timed" and any(objective.name == "waiting-time" for objective in mix.objectives):
            raise UsageError(
                "objective 'waiting-time' means nothing here: no pod waits; steersman/Timed-v0 has waiting"
            )
        largest = max(workloads, key=lambda workload: len(workload.nodes))
        max_nodes = options.max_nodes or len(largest.nodes)
        if len(largest.nodes) > max_nodes:
            raise UsageError(f"{largest.name} has {len(largest.nodes)} nodes, more than max_nodes {max_nodes}")
        super().__init__(count, find_view(options.view), max_nodes)
        self.protocol, self.options = protocol, options
        self.simulators = [Simulator(workload) for workload in workloads]
        self.chosen = np.zeros(count, dtype=np.int64)
        self.order = np.zeros((count, max_nodes), dtype=np.int64)
        self.mix = mix
        self.task = Task(
            none=nothing(),
            objectives=np.array(mix.numbers, dtype=np.int64),
            weights=np.array(mix.compiled_weights, dtype=np.float64),
            view_number=number_of(self.view),
            waits=protocol == "timed",
            penalty=float(options.penalty),
        )
        self._batch: Batch | None = None
        self._marks = np.stack([mark_of(simulator.mix_arrays(None)) for simulator in self.simulators])
        self._kept = self._empty(0)

    @property
    def batch(self) -> Batch:
        """The runs. Raises UsageError: none was started."""
        if self._batch is None:
            raise UsageError("reset the environment before anything else")
        return self._batch

    def start(self, e: int, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """See `Core`. Options: `workload` (a name), `seed` (as of `simulate`), `ratio`, `load`."""
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
        for buffer in (observation.nodes, observation.pod, observation.context, observation.mask):
            buffer[e] = 0
        observation.groups[e] = -1
        observation.groups[e, : len(plan.nodes), 0] = simulator.places.rack[plan.nodes]
        observation.groups[e, : len(plan.nodes), 1] = simulator.places.server[plan.nodes]
        if not stepping.begin(self.batch, self.task, self._kept, observation, e):
            raise SteersmanError(f"{simulator.workload.name}: no pod fits on any node")

    def _index(self, name: str) -> int:
        names = [simulator.workload.name for simulator in self.simulators]
        if name not in names:
            raise UsageError(f"reset option 'workload' {name!r} is unknown; there are {', '.join(names)}")
        return names.index(name)

    def _put(self, e: int, item: Batch) -> None:
        """Write a run into the batch, which grows if it must."""
        if self._batch is None:
            self._batch = empty_like(item, self.count)
        self._batch = put(self._batch, e, item)
        classes = self._batch.classes.gpu_count.shape[1]
        if self._kept.rows.seen.shape[1] < classes:
            self._kept = self._empty(classes)
        self._kept.known.mark[e] = self._marks[self.chosen[e]]

    def _empty(self, classes: int) -> Kept:
        """Room for so many classes, and nothing known yet."""
        rows = kept_rows((self.count,), classes, self.max_nodes, len(self.view.node))
        return Kept(rows, afterstates(self._marks[self.chosen]))

    def step(self, actions: npt.NDArray[np.int64]) -> None:
        """See `Core`."""
        stepping.step(
            self.batch,
            self.task,
            self._kept,
            self.observation,
            actions,
            self.rewards,
            self.terminated,
            self.truncated,
        )
        if self.mix.has_own:
            self._add_own(self.mix, self.batch.summary, self.batch.counts[:, layout.ILLEGAL] == 0)

    def heuristic(self, rule: int) -> npt.NDArray[np.int64]:
        """See `Core`."""
        actions = np.zeros(self.count, dtype=np.int64)
        stepping.follow_rule(self.batch, rule, self.observation.mask, actions)
        return actions

    def infos(self) -> Arrays:
        """Of the last action: `allocation` (share of the GPU in use; of the CPU without GPUs), and its like."""
        summary, allocation, variance = self.batch.summary, np.empty(self.count), np.empty(self.count)
        stepping.judge(summary, allocation, variance)
        return {
            "allocation": allocation,
            "node_variance": variance,
            "nodes_used": summary[:, layout.AFTER, summed.NODES_USED].copy(),
            "waiting": self.batch.run.cursor[:, engine.WAITING_NOW].copy(),
            "illegal": self.batch.counts[:, layout.ILLEGAL] == 1,
        }

    def state(self) -> Arrays:
        """See `Core`."""
        own = {"chosen": self.chosen, "order": self.order}
        seen = {f"observation.{name}": array for name, array in arrays_of(self.observation)}
        return own | seen | dict(arrays_of(self.batch, "batch."))

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """See `Core`."""
        if self._batch is None:
            self.start(0, np.random.default_rng(0), {})
        self._batch = restored(self.batch, arrays, "batch.")
        for name, array in {"chosen": self.chosen, "order": self.order}.items():
            array[:] = arrays[name]
        self._kept = self._empty(self._batch.classes.gpu_count.shape[1])
        for name, array in arrays_of(self.observation):
            array[:] = arrays[f"observation.{name}"]

    def names(self, e: int) -> list[str]:
        """See `Core`."""
        nodes = self.simulators[self.chosen[e]].workload.nodes
        return [nodes[i].name for i in self.order[e, : len(nodes)]]

    def loads(self, e: int) -> npt.NDArray[np.float64]:
        """See `Core`."""
        nodes = type(self.batch.nodes)(*(a[e, : self.batch.counts[e, layout.NODES]] for a in self.batch.nodes))
        used = nodes.allocatable - nodes.free
        gpu = nodes.gpu_count * GPU_MILLI
        taken = np.stack([used[:, CPU], used[:, MEMORY], gpu - nodes.gpu_free.sum(axis=1)], axis=1)
        total = np.stack([nodes.allocatable[:, CPU], nodes.allocatable[:, MEMORY], gpu], axis=1)
        shares = np.full(total.shape, np.nan)
        np.divide(taken, total, out=shares, where=total > 0)
        return shares


def _single(simulator: Simulator, plan: Schedule, seed: int, options: Options) -> Batch:
    """One run, without the leading axis."""
    execution = Execution(simulator, plan, ExternalAgent(), seed, record=False)
    cluster, count, places = execution.cluster, len(plan.pods), simulator.places
    counts = np.zeros(layout.COUNTS, dtype=np.int64)
    counts[[layout.ARRIVALS, layout.NODES]] = count, len(plan.nodes)
    counts[layout.STEP_LIMIT] = 2 * count if options.step_limit is None else options.step_limit
    return Batch(
        nodes=cluster.nodes,
        classes=cluster.classes,
        terms=cluster.terms,
        mix=cluster.mix,
        fragments=cluster.fragments,
        outlook=simulator.learned.outlook if options.view == GPU.name else no_learned().outlook,
        room=scratch(cluster.nodes.gpu_free.shape[1], cluster.mix),
        arrivals=execution.arrivals,
        run=execution.run,
        record=execution.record,
        owners=owner_arrays(places.owners, places.rack[plan.nodes], places.racks),
        log=cluster.table.log,
        logged=cluster.table.logged,
        owner=places.owner[plan.pods],
        counts=counts,
        clock=np.array([plan.time[0], 0.0]),
        summary=np.tile(fixed_summary(cluster.nodes), (3, 1)),
    )
