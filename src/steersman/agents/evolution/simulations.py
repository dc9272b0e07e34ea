"""Evolution on workloads: whole runs in the core, and a search strategy that compares how they ended.

No gradients, no torch. A generation draws a few workloads with fresh arrivals; every candidate runs on the same ones
(common random numbers), so that candidates differ by their weights alone. The fitness of a candidate is its mean gain
over the reference policy, with losses weighted by 1 + `loss_weight`: consistent gains beat large gains with losses.

The search starts at FGD with the planned losses of devices (`policies.leftovers`), or at a policy of an
earlier search, and moves in units of how much a feature's change differs between the nodes that a pod could go to, so
that a step means as much in every direction. A network on the same features (`Residual`) may be added
to the linear policy; it starts as zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.agents.configs import EvolutionConfig
from steersman.core.engines import TaskWorkers, make_workers, runs_here
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.evolution_strategies import SeparableCma
from steersman.objectives import registry as objectives
from steersman.objectives import summary
from steersman.objectives.objective import ALLOCATION, FRAGMENTATION, Objective
from steersman.objectives.registry import LIMIT
from steersman.objectives.summary import fragmented_milli, reward
from steersman.orders.order import AGE
from steersman.orders.registry import find_order
from steersman.policies.base import Policy, with_order
from steersman.policies.features import GPU, POD_KINDS, view
from steersman.policies.heuristics import heuristic
from steersman.policies.kinds import heuristic_as_linear
from steersman.policies.kube_scheduler.policy import KUBE_DEFAULT
from steersman.policies.learned_weights import FEATURES, FGD, GPU_VIEW, RULE_COUNT, WEIGHTS, Layer, feature_spread
from steersman.policies.linear import LinearPolicy
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import Schedule, resample, schedule
from steersman.simulation.kind_losses import excess_loss
from steersman.simulation.pod_kinds import KINDS
from steersman.simulation.run import Execution, Simulator
from steersman.simulation.selection.fitting import LEAST_SPREAD, RULE_UNIT
from steersman.workloads.workload import Workload

Array = npt.NDArray[np.float64]
Candidates = tuple[int, int, list[LinearPolicy]]  # a workload, the seed of an episode, and the policies that run on it

SHARE = 1  # the kind of pods that ask for a part of one device
PLANS_KEPT = 16
POINTS = 100.0
EXCESS_WEIGHT = 10.0  # percent of gain that a percent beyond the limit of a kind's loss costs
LEAST_COST = 5.0  # percent of unallocated GPU; smaller costs count as this, so that tiny savings are not inflated
SHORT_WAIT = 900.0  # seconds: mean waits well below it count as equal
WAITING_TIME = "waiting-time"
FINAL_STATE_OBJECTIVES = ("allocation", "fragmentation", "balance", "most-allocated", "least-allocated")
"""Objectives that are measured in the state at a run's end."""


class EpisodeOutcome(NamedTuple):
    """What came of a run: its cost, see `SimulationTask.cost`, and `Execution.paid_by_kind`, [2, 4]."""

    cost: float
    paid: Array


@dataclass(frozen=True, slots=True)
class SimulationTask:
    """The protocol, and what is measured at an episode's end.

    Raises:
        UsageError: the objective is unknown, is not measured at a run's end, or needs another protocol.
    """

    objective: str = "allocation"  # one of `FINAL_STATE_OBJECTIVES` or a weighted sum of them, or `waiting-time`
    # `timed` for `waiting-time`, else one in which nothing leaves
    protocol: Literal["inflation", "arrivals", "timed"] = "inflation"
    ratio: float = 1.3  # arriving GPU demand over capacity (`inflation`)
    load: float | None = None  # demand over capacity; None takes the trace's own times (`timed`)
    mean_duration: float | None = None  # mean seconds, see `simulation.arrivals.schedule` (`timed`)
    order: str = AGE.name  # who goes next among pods that wait, see `orders.registry.find_order` (`timed`)
    # Percent that any kind of pod may lose against `kube-default`, see `simulation.kind_losses.kind_losses`; None:
    # there is no limit
    max_kind_loss: float | None = None

    def __post_init__(self) -> None:
        find_order(self.order)
        names = [objective.name for objective in objectives.resolve(self.objective).objectives]
        for name in names:
            if name not in (*FINAL_STATE_OBJECTIVES, WAITING_TIME):
                raise UsageError(
                    f"evolution on workloads measures whole runs at their end, where {name!r} means nothing; known are "
                    f"{', '.join((*FINAL_STATE_OBJECTIVES, WAITING_TIME))}, others with --view cluster"
                )
        waits = WAITING_TIME in names
        if waits and len(names) > 1:
            raise UsageError(f"objective {self.objective!r}: {WAITING_TIME!r} is in seconds and cannot be mixed here")
        if waits != (self.protocol == "timed"):
            right = "timed" if waits else "inflation or arrivals"
            raise UsageError(f"objective {self.objective!r} needs --protocol {right}")

    @property
    def full_objective(self) -> str:
        """Return the objective with the limit, as `--objective` takes it."""
        return self.objective if self.max_kind_loss is None else f"{self.objective},{LIMIT}={self.max_kind_loss:g}"

    @property
    def metric(self) -> str:
        """Return the name of `cost` in a model card."""
        known = {"allocation": "gpu_unallocated_percent", WAITING_TIME: "waiting_time_mean_seconds"}
        return known.get(self.objective, "loss_percent")

    def cost(self, execution: Execution) -> float:
        """Return the cost of a finished run: percent short of the objective, or mean wait in seconds."""
        if self.objective == WAITING_TIME:
            metrics = execution.result("timed", 0, self.ratio).metrics
            return next(metric.value for metric in metrics if metric.name == "waiting_time_mean_seconds")
        weighted = objectives.resolve(self.objective)
        nodes, profile = execution.state.arrays, execution.simulator.profile_arrays(execution.prepared)
        row = summary.summary_of(nodes, execution.eligible, fragmented_milli(profile, nodes), 0)
        shares = [_shortfall(objective, row) for objective in weighted.objectives]
        return POINTS * float(np.dot(weighted.weights, shares))

    def gain(self, reference: float, cost: float) -> float:
        """Return the saving in percent of the reference's cost.

        Waits differ by factors between runs, and a run in which nearly nothing waits must not outweigh all others: they
        are compared by logarithm, in hundredths.
        """
        if self.objective == WAITING_TIME:
            return POINTS * math.log((reference + SHORT_WAIT) / (cost + SHORT_WAIT))
        return POINTS * (reference - cost) / max(reference, LEAST_COST)

    def said(self, gain: float, reference: str) -> str:
        """Format a gain on a policy of that name."""
        if self.objective == WAITING_TIME:
            return f"{math.exp(-gain / POINTS):.2f} times the wait of {reference}"
        return f"{gain:.2f} % saved of what {reference} loses"

    def play(self, simulator: Simulator, plan: Schedule, policy: Policy, seed: int) -> EpisodeOutcome:
        """Return the outcome of a whole run of a policy."""
        ordered = with_order(policy, find_order(self.order))
        execution = Execution(simulator, plan, ordered, seed, record=False)
        execution.finish(None)
        return EpisodeOutcome(self.cost(execution), execution.paid_by_kind(self.protocol))

    def excess(self, paid: Array, baseline: Array) -> float:
        """Return by how much the kind that loses most breaks the limit, in percent, of sums over runs, [2, 4] each."""
        if self.max_kind_loss is None:
            return 0.0
        return excess_loss(paid, baseline, self.protocol, self.max_kind_loss)


def _shortfall(objective: Objective, row: Array) -> float:
    """Return the share by which a state, [16], falls short of one of `FINAL_STATE_OBJECTIVES`."""
    if objective.number == ALLOCATION:
        return float(1.0 - row[summary.GPU_TAKEN] / max(row[summary.GPU_TOTAL], 1.0))
    if objective.number == FRAGMENTATION:
        return float(row[summary.FRAGMENTED] / max(row[summary.GPU_TOTAL], 1.0))
    return 1.0 - reward(objectives.WeightedObjectives(objective.name, (objective,), (1.0,)), row, row)


class CandidateEvaluator:
    """Workloads prepared for many episodes; each process has its own."""

    def __init__(self, workloads: Sequence[Workload], task: SimulationTask, reference: str) -> None:
        self.simulators = [Simulator(workload) for workload in workloads]
        self.task, self.reference = task, resolve(reference)
        self._known: dict[tuple[int, int], tuple[Schedule, float, Array]] = {}

    def plan(self, which: int, seed: int) -> tuple[Schedule, float, Array]:
        """Return arrivals of a training episode of workload `which`, the reference's cost, and what kinds pay, [2, 4].

        They pay under `kube-default`, without a limit under the reference.
        """
        if (which, seed) not in self._known:
            simulator, task = self.simulators[which], self.task
            if task.protocol == "inflation":
                plan = resample(simulator.workload, ratio=task.ratio, seed=seed)
            else:
                plan = schedule(
                    simulator.workload,
                    task.protocol,
                    seed=seed,
                    ratio=task.ratio,
                    load=task.load,
                    mean_duration=task.mean_duration,
                )
            # The oldest first: a dict keeps the order of insertion, and generations hardly ever return to old seeds.
            while len(self._known) >= PLANS_KEPT:
                self._known.pop(next(iter(self._known)))
            reference, paid = task.play(simulator, plan, self.reference, seed)
            if task.max_kind_loss is not None:
                paid = task.play(simulator, plan, resolve(KUBE_DEFAULT), seed).paid
            self._known[which, seed] = plan, reference, paid
        return self._known[which, seed]

    def gain(self, which: int, seed: int, policy: Policy) -> Array:
        """Return a policy's saving in one episode, see `SimulationTask.gain`, then what kinds pay, and before, [17]."""
        plan, reference, before = self.plan(which, seed)
        cost, paid = self.task.play(self.simulators[which], plan, policy, seed)
        return np.concatenate([[self.task.gain(reference, cost)], paid.ravel(), before.ravel()])

    @cached_property
    def spread(self) -> Array:
        return feature_spread(simulator.feature_variances() for simulator in self.simulators)


class Evolution:
    """Evolution strategy on simulated workloads."""

    algorithm = "evolution"

    def __init__(
        self,
        workloads: Sequence[Workload],  # the workloads of training
        task: SimulationTask,  # protocol and objective
        config: EvolutionConfig,
        seed: int,  # of candidates and episodes
        jobs: int = 1,  # number of processes; the result does not depend on it
        # The policy to continue from, of the same network; None: FGD with planned losses
        start: LinearPolicy | None = None,
    ) -> None:
        self.workloads, self.task, self.config, self.jobs = tuple(workloads), task, config, jobs
        self.evaluator = CandidateEvaluator(self.workloads, task, config.reference)
        spread = self.evaluator.spread
        # A feature that never differs is left out, and so is one of a kind of pods that never arrives.
        self.units = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > LEAST_SPREAD)
        point = np.zeros_like(spread)
        # FGD's entry is a change of the weight of its score in `weights`, see `_weights`; `rules` has none for it.
        self.rule_units: Array = np.where(spread.any(axis=(1, 2)), RULE_UNIT, 0.0)[:, None] * np.ones(RULE_COUNT)
        # The network sees FGD's score and the features; a point has no part for the heuristics.
        if config.network == "mlp":
            self.rule_units = np.zeros((POD_KINDS, 0))
        if start is None:
            self.base = heuristic_as_linear(heuristic("fgd")).weights
            # Points are in units of 1 / spread, so this is a weight of -planned_weight per GPU of planned loss.
            lost = GPU.node_column("lost_planned_after")
            point[SHARE, 0, lost] = -config.planned_weight * spread[SHARE, 0, lost]
        else:
            self.base = start.weights
        self.base_rules = np.zeros((POD_KINDS, RULE_COUNT))
        if start is not None and start.rules is not None:
            self.base_rules = start.rules
        self.residual, added = None, np.zeros(0)
        if config.network == "mlp":
            layers = () if start is None else start.network
            self.residual = Residual(config.widths, mean_units(spread, LEAST_SPREAD), base=layers)
            added = self.residual.start(seed)
        first = np.concatenate([point.ravel(), np.zeros(self.rule_units.size), added])
        self.strategy = SeparableCma(first, config.step, config.population, seed)
        self.average = self.strategy.mean.copy()
        # A separate generator, so that candidates do not depend on how workloads are drawn.
        self.rng = np.random.default_rng(seed)
        self.queue: list[int] = []
        self.steps = self.iterations = 0
        self._workers: TaskWorkers[Candidates, Array] = make_workers(
            jobs, partial(_open_evaluator, self.workloads, task, config.reference)
        )

    def _weights(self, point: Array) -> Array:
        """Return [4, W] the linear part of a point: by kind of pod, of changes and states after, in units of spread."""
        # [4, 2, F] to two arrays [4, F]: change and after.
        change, after = np.moveaxis(point[: self.units.size].reshape(POD_KINDS, 2, FEATURES) * self.units, 1, 0)
        weights = self.base.copy()
        weights[:, :FEATURES] += after
        weights[:, FEATURES : 2 * FEATURES] += change
        if self.rule_units.size:
            weights[:, 2 * FEATURES] += self._points(point)[:, FGD]
        return weights

    def _points(self, point: Array) -> Array:
        """Return [4, R] how much a point of each heuristic's score counts beyond its initial weight."""
        at = self.units.size
        return point[at : at + self.rule_units.size].reshape(POD_KINDS, RULE_COUNT) * self.rule_units

    def _policy(self, point: Array, name: str) -> LinearPolicy:
        if self.residual is None:
            rules = self.base_rules + self._points(point)
            rules[:, FGD] = 0.0  # is in the weights
            return LinearPolicy(name, self._weights(point), rules if rules.any() else None)
        return LinearPolicy(name, self._weights(point), network=self.residual.layers(point[self.units.size :]))

    def policy(self, name: str) -> LinearPolicy:
        """Return the policy of the search's mean, averaged over late generations."""
        return self._policy(self.average, name)

    def best(self) -> Array:
        """Return [4, W] the linear part of that policy."""
        return self._weights(self.average)

    def iterate(self) -> dict[str, float]:
        """Run one generation.

        Returns:
            `steps` (episodes so far), `gain` (percent, mean of the population), `best` (of its best candidate), `step`.

        Raises:
            SteersmanError: candidates are no longer finite numbers.
        """
        episodes = self._draw()
        candidates = self.strategy.ask()
        if not np.isfinite(candidates).all():
            raise SteersmanError(f"the search diverged in generation {self.iterations + 1}: a weight is not finite")
        played = self._play(candidates, episodes)
        gains, paid = played[:, :, 0], played[:, :, 1:].sum(axis=1).reshape(len(candidates), 2, 2, len(KINDS))
        values = gains.mean(axis=1) + self.config.loss_weight * np.minimum(gains, 0.0).mean(axis=1)
        values -= EXCESS_WEIGHT * np.array([self.task.excess(own, before) for own, before in paid])
        self.strategy.tell(values)
        self.iterations += 1
        self.steps += gains.size
        # A plain mean of the start and all generations at first, an exponential one once that is shorter.
        memory = min(self.config.memory, 1 - 1 / (1 + self.iterations))
        self.average = memory * self.average + (1 - memory) * self.strategy.mean
        return {
            "steps": float(self.steps),
            "gain": float(gains.mean()),
            "best": float(gains.mean(axis=1).max()),
            "step": self.strategy.step,
        }

    def _draw(self) -> list[tuple[int, int]]:
        while len(self.queue) < self.config.episodes:
            # Whole permutations, so that every workload is played equally often.
            self.queue += [int(i) for i in self.rng.permutation(np.arange(len(self.workloads)))]
        drawn, self.queue = self.queue[: self.config.episodes], self.queue[self.config.episodes :]
        return [(which, int(self.rng.integers(1 << 31))) for which in drawn]

    def _play(self, candidates: Array, episodes: list[tuple[int, int]]) -> Array:
        """Return [population, episodes, 17], see `CandidateEvaluator.gain`.

        An episode's candidates stay in one process, which caches its states.
        """
        parts = min(self.jobs, len(candidates))
        chunks = [
            (which, seed, part)
            for which, seed in episodes
            for part in np.array_split(np.arange(len(candidates)), parts)
        ]
        work = [(which, seed, [self._policy(candidates[i], "candidate") for i in part]) for which, seed, part in chunks]
        if runs_here(self.jobs):
            results = [_gains(self.evaluator, item) for item in work]
        else:
            answers = dict(self._workers.answers(work))
            results = [answers[position] for position in range(len(work))]
        result = iter(results)
        # Chunks are ordered by episode, then by candidate: [population] of each episode, stacked along the second axis.
        return np.stack([np.concatenate([next(result) for _ in range(parts)]) for _ in episodes], axis=1)

    def close(self) -> None:
        self._workers.close()

    def state_dict(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "strategy": self.strategy.state_dict(),
            "average": self.average.copy(),
            "rng": self.rng.bit_generator.state,
            "queue": list(self.queue),
            "counts": [self.steps, self.iterations],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of a search with the same workloads, task and options."""
        if state.get("algorithm") != self.algorithm or len(state["average"]) != len(self.average):
            raise SteersmanError("the checkpoint is of another search; give the options it was made with")
        self.strategy.load_state_dict(state["strategy"])
        self.average = np.array(state["average"])
        self.rng.bit_generator.state = state["rng"]
        self.queue = list(state["queue"])
        self.steps, self.iterations = state["counts"]


def _open_evaluator(
    workloads: Sequence[Workload], task: SimulationTask, reference: str
) -> Callable[[Candidates], Array]:
    return partial(_gains, CandidateEvaluator(workloads, task, reference))


def _gains(evaluator: CandidateEvaluator, candidates: Candidates) -> Array:
    which, seed, policies = candidates
    return np.array([evaluator.gain(which, seed, each) for each in policies])


FGD_UNIT = 0.1  # so that ten points of FGD's score count as much as a usual difference of a feature


class Residual:
    """ReLU layers on the features of a node (31) and of the pod (11), and a head with one output, in points.

    A vector of parameters has layer after layer, the head last: the weights [H, I] row by row, then the biases [H].
    The first layer's weights are in the units of the features.

    Args:
        hidden: widths of the layers.
        units: [2, F] factors of a feature's change, and of a feature after the placement.
        base: layers that the parameters are added to, the head last; none: zeros.
    """

    def __init__(self, hidden: tuple[int, ...], units: Array, *, base: tuple[Layer, ...] = ()) -> None:
        self.base = base
        pod = len(view(GPU_VIEW).pod)
        self.shapes = list(pairwise((WEIGHTS + pod, *hidden, 1)))
        # As in `WEIGHTS`: features after, their change, FGD's score; then the pod's. `units` has the change first.
        self.units = np.concatenate([units[1], units[0], [FGD_UNIT], np.ones(pod)])

    @property
    def size(self) -> int:
        return sum((inputs + 1) * outputs for inputs, outputs in self.shapes)

    def start(self, seed: int) -> Array:
        """Return initial parameters: random layers (He et al. 2015), and a zero head, so that nothing is added yet.

        If there are layers already, all are zero.
        """
        if self.base:
            return np.zeros(self.size)
        rng, parts = np.random.default_rng(seed), []
        for inputs, outputs in self.shapes[:-1]:
            parts += [rng.normal(0.0, np.sqrt(2.0 / inputs), inputs * outputs), np.zeros(outputs)]
        inputs, outputs = self.shapes[-1]
        return np.concatenate([*parts, np.zeros((inputs + 1) * outputs)])

    def layers(self, parameters: Array) -> tuple[Layer, ...]:
        """Return the layers, the head last."""
        result: list[Layer] = []
        at = 0
        for inputs, outputs in self.shapes:
            weight = parameters[at : at + inputs * outputs].reshape(outputs, inputs)
            at += inputs * outputs
            # The first layer is in units of the features. Copies: `parameters` may be a view of the search's mean.
            result.append((weight * self.units if not result else weight.copy(), parameters[at : at + outputs].copy()))
            at += outputs
        if self.base:
            result = [(w + base_w, b + base_b) for (w, b), (base_w, base_b) in zip(result, self.base, strict=True)]
        return tuple(result)


def mean_units(spread: Array, least: float) -> Array:
    """Return [2, F] one over the mean of the spread [4, 2, F] over kinds of pods that have any; 0 where none has."""
    varies = spread > least
    mean = spread.sum(axis=0, where=varies) / np.maximum(varies.sum(axis=0), 1)
    units: Array = np.divide(1.0, mean, out=np.zeros_like(mean), where=mean > least)
    return units
