"""Evolution: whole episodes in compiled code, and a search strategy that looks at how they ended.

No gradients, no torch. A generation draws a few workloads with fresh arrivals; every candidate plays the same ones
(common random numbers), so that candidates differ by their weights alone. A candidate is worth the mean of what it
gains on the reference policy, and half of what it loses is subtracted once more: better everywhere than splendid here
and poor there.

The search starts at FGD with the planned losses of devices (`policies.planning`), or at a policy of an earlier search,
and moves in units of what a feature's change differs between the nodes that a pod could go to, so that a step means as
much in every direction. A network on the same features (`agents.residual`) may be added to the linear policy; it starts
as nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from steersman import strategies
from steersman.agents.configs import EvolutionConfig
from steersman.agents.residual import Residual, mean_units
from steersman.errors import SteersmanError, UsageError
from steersman.features import view
from steersman.objectives import measures, summary
from steersman.objectives import registry as objectives
from steersman.objectives.judging import reward
from steersman.objectives.measures import Objective
from steersman.policies.base import Policy
from steersman.policies.gpu_features import FEATURES, FILLED, TABLE
from steersman.policies.learned import KINDS, RULES, VIEW, WEIGHTS
from steersman.policies.learned_views import add_spread
from steersman.policies.linear_policy import LinearPolicy
from steersman.policies.local import FGD
from steersman.policies.observer import summary_of
from steersman.policies.outlook import TABLES
from steersman.policies.registry import resolve
from steersman.processes import Workers
from steersman.simulation import engine
from steersman.simulation.arrivals import Schedule, resample, schedule
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.workload import Workload

Array = npt.NDArray[np.float64]
Candidates = tuple[int, int, list[LinearPolicy]]
"""A workload, the seed of an episode, and who plays it."""

SHARE = 1  # the kind of pods that ask for a part of one device
NO_SPREAD = 1e-6
RULE_UNIT = 0.2
"""What a step of one means for the weight of a heuristic, whose points differ by some five between nodes."""
ARRIVALS_BETWEEN_LOOKS = 40
LEAST_LOOKS = 25
"""A run too short for so many is looked at more often: a kind of pods never seen has no units to move in."""
SPREAD_SEED = 7
PLANS_KEPT = 16
POINTS = 100.0
LEAST_COST = 5.0
"""Percent of GPU not allocated; savings of less are not blown up by being compared with next to nothing."""
SHORT_WAIT = 900.0
"""Seconds: mean waits well below it count as equal."""
WAITING_TIME = "waiting-time"
AT_THE_END = ("allocation", "fragmentation", "balance", "most-allocated", "least-allocated")
"""Objectives that the state at a run's end is judged by."""
FGD_TERM, RULES_TERM = "fgd", "rules"
FEATURE_GROUPS = {"tables": range(TABLE, FILLED), "sequences": range(FILLED, FEATURES)}
"""What `EvolutionConfig.without` can name beside features: tables of leftovers, and sequences of typical pods."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is played: the protocol, and what is measured at an episode's end.

    Attributes:
        objective: one of `AT_THE_END` or a weighted mix of them, or `waiting-time`, see `objectives.registry`.
        protocol: `timed` for `waiting-time`, else one in which nothing leaves.
        ratio: of `inflation`, arriving GPU demand over capacity.
        load: of `timed`, demand offered over capacity; None takes the trace's own times.
        mean_duration: of `timed`, seconds, see `simulation.arrivals.schedule`.

    Raises:
        UsageError: the objective is unknown, is not measured at a run's end, or needs another protocol.
    """

    objective: str = "allocation"
    protocol: Literal["inflation", "arrivals", "timed"] = "inflation"
    ratio: float = 1.3
    load: float | None = None
    mean_duration: float | None = None

    def __post_init__(self) -> None:
        names = [objective.name for objective in objectives.resolve(self.objective).objectives]
        for name in names:
            if name not in (*AT_THE_END, WAITING_TIME):
                raise UsageError(
                    f"evolution on workloads measures whole runs at their end, where {name!r} means nothing; known are "
                    f"{', '.join((*AT_THE_END, WAITING_TIME))}, others with --view cluster"
                )
        waits = WAITING_TIME in names
        if waits and len(names) > 1:
            raise UsageError(f"objective {self.objective!r}: {WAITING_TIME!r} is in seconds and cannot be mixed here")
        if waits != (self.protocol == "timed"):
            right = "timed" if waits else "inflation or arrivals"
            raise UsageError(f"objective {self.objective!r} needs --protocol {right}")

    @property
    def metric(self) -> str:
        """What `cost` is called in a model card."""
        known = {"allocation": "gpu_unallocated_percent", WAITING_TIME: "waiting_time_mean_seconds"}
        return known.get(self.objective, "loss_percent")

    def cost(self, execution: Execution) -> float:
        """Of a finished run: the percent that it falls short of the objective, or mean seconds that a pod waited."""
        if self.objective == WAITING_TIME:
            metrics = execution.result("timed", 0, self.ratio).metrics
            return next(metric.value for metric in metrics if metric.name == "waiting_time_mean_seconds")
        mix = objectives.resolve(self.objective)
        nodes = execution.state.arrays
        row = summary_of(nodes, execution.cluster.fragments.total.sum(), 0)
        shares = [_shortfall(objective, row) for objective in mix.objectives]
        return POINTS * float(np.dot(mix.weights, shares))

    def gain(self, reference: float, cost: float) -> float:
        """Percent of the reference's cost that is saved.

        Waits differ by factors between runs, and a run in which nearly nothing waits must not outweigh all others: they
        are compared by logarithm, in hundredths.
        """
        if self.objective == WAITING_TIME:
            return POINTS * math.log((reference + SHORT_WAIT) / (cost + SHORT_WAIT))
        return POINTS * (reference - cost) / max(reference, LEAST_COST)

    def said(self, gain: float, reference: str) -> str:
        """A gain on a policy of that name, in words."""
        if self.objective == WAITING_TIME:
            return f"{math.exp(-gain / POINTS):.2f} times the wait of {reference}"
        return f"{gain:.2f} % saved of what {reference} loses"

    def play(self, simulator: Simulator, plan: Schedule, policy: Policy, seed: int) -> float:
        """The cost of a whole run of a policy."""
        execution = Execution(simulator, plan, policy, seed, record=False)
        execution.finish(None)
        return self.cost(execution)


def _shortfall(objective: Objective, row: Array) -> float:
    """By what share a cluster in the state of a summary, [15], falls short of one of `AT_THE_END`."""
    if objective.number == measures.ALLOCATION:
        return float(1.0 - row[summary.GPU_TAKEN] / max(row[summary.GPU_TOTAL], 1.0))
    if objective.number == measures.FRAGMENTATION:
        return float(row[summary.FRAGMENTED] / max(row[summary.GPU_TOTAL], 1.0))
    return 1.0 - reward(objectives.Mix(objective.name, (objective,), (1.0,)), row, row)


class Arena:
    """Workloads made ready for many episodes; each process has its own."""

    def __init__(self, workloads: Sequence[Workload], task: Task, reference: str) -> None:
        self.simulators = [Simulator(workload) for workload in workloads]
        self.task, self.reference = task, resolve(reference)
        self._known: dict[tuple[int, int], tuple[Schedule, float]] = {}

    def plan(self, which: int, seed: int) -> tuple[Schedule, float]:
        """Arrivals of a training episode of workload `which`, and the cost of the reference policy on them."""
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
            while len(self._known) >= PLANS_KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[which, seed] = plan, task.play(simulator, plan, self.reference, seed)
        return self._known[which, seed]

    def gain(self, which: int, seed: int, policy: Policy) -> float:
        """What a policy saves in one episode, see `Task.gain`."""
        plan, reference = self.plan(which, seed)
        return self.task.gain(reference, self.task.play(self.simulators[which], plan, policy, seed))

    @cached_property
    def spread(self) -> Array:
        """[4, 2, F] by kind of pod: how much the change of a feature, and the feature after, differ between nodes.

        The mean standard deviation within a decision, along runs of the reference policy.
        """
        sums, count = np.zeros((KINDS, 2, FEATURES)), np.zeros(KINDS)
        moments = np.zeros((5, FEATURES))
        weights = fgd_weights()
        for simulator in self.simulators:
            plan = resample(simulator.workload, ratio=1.0, seed=SPREAD_SEED)
            execution = Execution(simulator, plan, LinearPolicy("fgd", weights), SPREAD_SEED, record=False)
            between = max(1, min(ARRIVALS_BETWEEN_LOOKS, len(plan.pods) // LEAST_LOOKS))
            for until in range(between, len(plan.pods), between):
                if execution.advance(until) == engine.DONE:
                    break
                cluster, c = execution.cluster, int(execution.arrivals.class_id[until])
                add_spread(cluster.learned, cluster.mix, cluster.nodes, cluster.classes, c, sums, count, moments)
        spread: Array = np.sqrt(sums / np.maximum(count, 1.0)[:, None, None])
        return spread


def fgd_weights() -> Array:
    """[4, W] the weights that are FGD."""
    weights = np.zeros((KINDS, WEIGHTS))
    weights[:, 2 * FEATURES] = 1.0
    return weights


class LeftOut(NamedTuple):
    """What a policy may not use.

    Attributes:
        features: [F] whether a feature of a node's state is left out.
        fgd: whether FGD's score is.
        rules: whether the scores of the other heuristics are.
    """

    features: npt.NDArray[np.bool_]
    fgd: bool
    rules: bool


def left_out(without: str) -> LeftOut:
    """Read `EvolutionConfig.without`.

    Raises:
        UsageError: a part of it is no feature; the message lists those there are.
    """
    names = [feature.name.removesuffix("_after") for feature in view(VIEW).node[:FEATURES]]
    out = np.zeros(FEATURES, dtype=np.bool_)
    chosen = [name.strip() for name in without.split(",") if name.strip()]
    for name in chosen:
        if name in FEATURE_GROUPS:
            out[FEATURE_GROUPS[name]] = True
        elif name in names:
            out[names.index(name)] = True
        elif name not in (FGD_TERM, RULES_TERM):
            known = ", ".join((FGD_TERM, RULES_TERM, *FEATURE_GROUPS, *names))
            raise UsageError(f"without {name!r}: no feature is called so; there are {known}")
    return LeftOut(out, FGD_TERM in chosen, RULES_TERM in chosen)


class Evolution:
    """The search.

    Args:
        workloads: what candidates are tried on.
        task: protocol and objective.
        config: options.
        seed: of candidates and episodes.
        jobs: processes; the result does not depend on them.
        start: the policy to go on from, of the same network; None: the beginning.
        arena: the workloads made ready by a search on the same ones with one process; None: they are made ready here.

    Raises:
        UsageError: `start` is given, and `without` leaves out what it may use.
    """

    algorithm = "evolution"

    def __init__(
        self,
        workloads: Sequence[Workload],
        task: Task,
        config: EvolutionConfig,
        seed: int,
        jobs: int = 1,
        start: LinearPolicy | None = None,
        arena: Arena | None = None,
    ) -> None:
        if start is not None and config.without:
            raise UsageError("--without belongs to a search from the beginning, not to one from a policy")
        self.workloads, self.task, self.config, self.jobs = tuple(workloads), task, config, jobs
        self.arena = Arena(self.workloads, task, config.reference) if arena is None else arena
        spread = self.arena.spread
        # A feature that never differs is left out, and so is one of a kind of pods that never comes.
        without = left_out(config.without)
        self.units = np.divide(1.0, spread, out=np.zeros_like(spread), where=(spread > NO_SPREAD) & ~without.features)
        point = np.zeros_like(spread)
        # FGD's score among them, which has no weight of its own to search for.
        usable = np.full(RULES, 0.0 if without.rules else 1.0)
        usable[FGD] = 0.0 if without.fgd else 1.0
        self.rule_units: Array = np.where(spread.any(axis=(1, 2)), RULE_UNIT, 0.0)[:, None] * usable
        if config.network == "mlp":
            self.rule_units = np.zeros((KINDS, 0))
        if start is None:
            self.base = np.zeros((KINDS, WEIGHTS)) if without.fgd else fgd_weights()
            losses = TABLE + TABLES.index("planned")
            point[SHARE, 0, losses] = -config.planned_weight * spread[SHARE, 0, losses]
        else:
            self.base = start.weights
        self.base_rules = np.zeros((KINDS, RULES))
        if start is not None and start.rules is not None:
            self.base_rules = start.rules
        self.residual, added = None, np.zeros(0)
        if config.network == "mlp":
            units = np.where(without.features, 0.0, mean_units(spread, NO_SPREAD))
            layers = () if start is None else start.network
            self.residual = Residual(config.widths, units, with_fgd=not without.fgd, base=layers)
            added = self.residual.start(seed)
        self.strategy = strategies.build(
            config.strategy,
            np.concatenate([point.ravel(), np.zeros(self.rule_units.size), added]),
            step=config.step,
            population=config.population,
            seed=seed,
            learning_rate=config.learning_rate,
        )
        self.average = self.strategy.mean.copy()
        self.rng = np.random.default_rng(seed)
        self.drawable = np.arange(len(self.workloads))
        self.queue: list[int] = []
        self.steps = self.iterations = 0
        self._workers: Workers[Candidates, Array] = Workers(
            jobs, partial(_open_arena, self.workloads, task, config.reference)
        )

    def _weights(self, point: Array) -> Array:
        """[4, W] the linear part of a point: by kind of pod, of changes and states after, in units of spread."""
        change, after = np.moveaxis(point[: self.units.size].reshape(KINDS, 2, FEATURES) * self.units, 1, 0)
        weights = self.base.copy()
        weights[:, :FEATURES] += after
        weights[:, FEATURES : 2 * FEATURES] += change
        if self.rule_units.size:
            weights[:, 2 * FEATURES] += self._points(point)[:, FGD]
        return weights

    def _points(self, point: Array) -> Array:
        """[4, R] what a point of each heuristic's score is to count beyond what it counts at the start."""
        at = self.units.size
        return point[at : at + self.rule_units.size].reshape(KINDS, RULES) * self.rule_units

    def _policy(self, point: Array, name: str) -> LinearPolicy:
        if self.residual is None:
            rules = self.base_rules + self._points(point)
            rules[:, FGD] = 0.0  # is in the weights
            return LinearPolicy(name, self._weights(point), rules if rules.any() else None)
        return LinearPolicy(name, self._weights(point), network=self.residual.layers(point[self.units.size :]))

    def policy(self, name: str) -> LinearPolicy:
        """What the search has come to: its mean, averaged over late generations."""
        return self._policy(self.average, name)

    def best(self) -> Array:
        """[4, W] the linear part of that."""
        return self._weights(self.average)

    def iterate(self) -> dict[str, float]:
        """One generation.

        Returns:
            `steps` (episodes so far), `gain` (percent, mean of the population), `best` (of its best candidate), `step`.

        Raises:
            SteersmanError: candidates are no longer finite numbers.
        """
        episodes = self._draw()
        candidates = self.strategy.ask()
        if not np.isfinite(candidates).all():
            raise SteersmanError(f"the search diverged in generation {self.iterations + 1}: a weight is not finite")
        gains = self._play(candidates, episodes)
        values = gains.mean(axis=1) + self.config.loss_weight * np.minimum(gains, 0.0).mean(axis=1)
        self.strategy.tell(values)
        self.iterations += 1
        self.steps += gains.size
        memory = min(self.config.memory, 1 - 1 / (1 + self.iterations))
        self.average = memory * self.average + (1 - memory) * self.strategy.mean
        step = float(getattr(self.strategy, "step", 0.0))
        return {
            "steps": float(self.steps),
            "gain": float(gains.mean()),
            "best": float(gains.mean(axis=1).max()),
            "step": step,
        }

    def draw_from(self, which: npt.NDArray[np.int64]) -> None:
        """Play episodes of these workloads alone from now on; of all where there are fewer than `config.episodes`."""
        few = len(which) < self.config.episodes
        self.drawable, self.queue = np.arange(len(self.workloads)) if few else which, []

    def _draw(self) -> list[tuple[int, int]]:
        """The workloads and seeds of the next generation."""
        while len(self.queue) < self.config.episodes:
            self.queue += [int(i) for i in self.rng.permutation(self.drawable)]
        drawn, self.queue = self.queue[: self.config.episodes], self.queue[self.config.episodes :]
        return [(which, int(self.rng.integers(1 << 31))) for which in drawn]

    def _play(self, candidates: Array, episodes: list[tuple[int, int]]) -> Array:
        """[population, episodes] gains. An episode's candidates stay together in a process, which knows its states."""
        chunks = [
            (which, seed, part)
            for which, seed in episodes
            for part in np.array_split(np.arange(len(candidates)), max(1, self.jobs))
        ]
        work = [(which, seed, [self._policy(candidates[i], "candidate") for i in part]) for which, seed, part in chunks]
        if self.jobs == 1:
            results = [_gains(self.arena, item) for item in work]
        else:
            answers = dict(self._workers.answers(work))
            results = [answers[position] for position in range(len(work))]
        found = iter(results)
        return np.stack([np.concatenate([next(found) for _ in range(max(1, self.jobs))]) for _ in episodes], axis=1)

    def close(self) -> None:
        """Stop the processes."""
        self._workers.close()

    def state_dict(self) -> dict[str, Any]:
        """Everything that later generations depend on."""
        return {
            "algorithm": self.algorithm,
            "strategy": self.strategy.state_dict(),
            "average": self.average.copy(),
            "rng": self.rng.bit_generator.state,
            "queue": list(self.queue),
            "counts": [self.steps, self.iterations],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of a search with the same workloads, task and options."""
        if state.get("algorithm") != self.algorithm or len(state["average"]) != len(self.average):
            raise SteersmanError("the checkpoint is of another search; give the options it was made with")
        self.strategy.load_state_dict(state["strategy"])
        self.average = np.array(state["average"])
        self.rng.bit_generator.state = state["rng"]
        self.queue = list(state["queue"])
        self.steps, self.iterations = state["counts"]


def _open_arena(workloads: Sequence[Workload], task: Task, reference: str) -> Callable[[Candidates], Array]:
    """In a worker: what plays episodes."""
    return partial(_gains, Arena(workloads, task, reference))


def _gains(arena: Arena, candidates: Candidates) -> Array:
    which, seed, policies = candidates
    return np.array([arena.gain(which, seed, each) for each in policies])
