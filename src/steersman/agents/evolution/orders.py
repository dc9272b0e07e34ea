"""Evolution of orders: whole runs in the core, in which candidates differ by who goes next alone.

A generation draws a few scenes (arrivals on a cluster); every candidate runs on the same ones. The fitness of a
candidate is its mean gain over the reference order, the logarithm of the ratio of their costs. Ratios are taken scene
by scene, so that those in which everybody waits for long weigh no more than others, or of the sums over the scenes of
a workload, where a mean over scenes is what counts; `OrderSearchConfig.pooled` mixes both. The search is CMA-ES
(Hansen, "The CMA Evolution Strategy: A Tutorial", 2016) with the full covariance: weights of an order are far from
independent.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
from cmaes import CMA

from steersman.core.engines import TaskWorkers, make_workers, runs_here
from steersman.orders.order import Estimates, Order
from steersman.orders.scores import LEARNED, LINEAR, UNIT_SIZE, delay_weights
from steersman.policies.base import Policy, with_order
from steersman.simulation.arrivals import Schedule
from steersman.simulation.run import Execution, Simulator
from steersman.simulation.waiting import Waits
from steersman.workloads.workload import Workload

Array = npt.NDArray[np.float64]

UNIT_STD = 0.5  # standard deviation of the first weights of hidden units, whose outputs start at 0
KEPT_SCENES = 200  # arrivals that are kept until they are played again
MEMORY = 0.8  # how much of the mean over generations is kept at each


SEEDS = 1 << 31  # seeds of scenes are below this


class Draw(Protocol):
    """Picklable function that draws arrivals."""

    def __call__(self, workload: Workload, seed: int) -> Schedule:
        """Return the arrivals of a seed."""


Scene = tuple[int, int, int]  # a workload, a seed, and a number that says where estimates come from
Played = tuple[Scene, Array | None]  # a scene and weights; None: the reference


@dataclass(frozen=True, slots=True)
class OrderTask:
    """What an order is trained on and for."""

    workloads: tuple[Workload, ...]  # played in turn
    draw: Draw  # draws arrivals from one of them
    cost: Callable[[Waits], float]  # of the waits of a run, above 0; the lower the better
    policy: Policy  # places the pods
    # The order that candidates are compared with, which also tells who may overtake, and where estimates come from
    # unless `sources` says
    reference: Order
    sources: tuple[Estimates, ...] = ()  # of estimates, drawn with equal probability; (): as in `reference`


@dataclass(frozen=True, slots=True)
class OrderSearchConfig:
    """Options of the search."""

    hidden: int = 0  # units on top of the linear score
    population: int = 16  # candidates of a generation
    episodes: int = 12  # scenes of a generation
    step: float = 0.3  # first standard deviation of candidates
    generations: int = 200  # number of generations
    validate_every: int = 10  # generations between two validations
    validation: int = 24  # scenes of a validation
    # Weight, 0 to 1, of the gain of the sums over a workload's scenes; the rest is that of single scenes
    pooled: float = 0.0
    # Whether the seeds of a generation are equally far apart, which covers a trace evenly if the draw takes a seed
    # for a place in it
    spread: bool = False
    delay: bool = True  # whether the delay is an input, which live schedulers do not know
    seed: int = 1  # seed of the search


def first_weights(linear: int, units: int, unit_size: int, rng: np.random.Generator) -> Array:
    """Return weights of which only the first one counts; units have random inputs, and their outputs start at 0.

    Args:
        linear: weights before those of the units.
        units: number of hidden units.
        unit_size: weights of a unit, the last one that of its output.
        rng: of the units' inputs.
    """
    drawn = rng.normal(0.0, UNIT_STD, (units, unit_size))
    drawn[:, -1] = 0.0
    return np.concatenate([np.eye(1, linear)[0], drawn.reshape(-1)])


def learned_order(reference: Order, weights: Array, name: str = "learned") -> Order:
    """Return an order with learned weights that treats overtaking, ageing and estimates as the reference does."""
    return Order(name, LEARNED, reference.overtaking, tuple(weights.tolist()), reference.ageing, reference.estimates)


def waits_under(policy: Policy, simulator: Simulator, plan: Schedule, seed: int) -> Waits:
    """Return the waits of a run of a policy with its order; `seed` is that of ties and of errors of estimates."""
    execution = Execution(simulator, plan, policy, seed, record=False)
    execution.finish(None)
    return execution.coming_waits


class OrderEvaluator:
    """Plays scenes with orders."""

    def __init__(self, task: OrderTask) -> None:
        self.task = task  # what is played
        self._simulators = [Simulator(workload) for workload in task.workloads]
        # All candidates of a generation play the same arrivals.
        self._drawn = lru_cache(KEPT_SCENES)(self._draw)

    def cost(self, scene: Scene, order: Order) -> float:
        """Return the cost of an order in a scene."""
        task, (which, seed, source) = self.task, scene
        if task.sources:
            order = replace(order, estimates=task.sources[source % len(task.sources)])
        plan = self._drawn(which, seed)
        return task.cost(waits_under(with_order(task.policy, order), self._simulators[which], plan, seed))

    def _draw(self, which: int, seed: int) -> Schedule:
        return self.task.draw(self.task.workloads[which], seed)


class WeightSearch(ABC):
    """Search for the weights of a score that decides who goes next.

    Args:
        workloads: number of workloads, which are played in turn.
        first: [W] first weights.
        searched: [W] which of them are searched for; None: all.
    """

    def __init__(
        self, workloads: int, config: OrderSearchConfig, first: Array, searched: npt.NDArray[np.bool_] | None = None
    ) -> None:
        self.workloads, self.config, self._first = workloads, config, first
        self._searched = np.ones(len(first), dtype=np.bool_) if searched is None else searched
        self.strategy = CMA(first[self._searched], config.step, seed=config.seed, population_size=config.population)
        # `best`: weights that were best in validation
        # `best_gain`: their gain there
        # `average`: mean weights over the last generations
        self.best, self.best_gain, self.average = first.copy(), -math.inf, first.copy()
        # `runs`: runs that were played, those of the reference and of validations included
        self.runs, self._scenes_drawn = 0, 0
        seeds = np.random.default_rng((config.seed, 2))
        self._scenes = self._draw_scenes(seeds, config.validation)
        self._reference = self._counted(self._scenes, [None])[0]
        self.rng = np.random.default_rng((config.seed, 3))

    @abstractmethod
    def costs(self, scenes: Sequence[Scene], candidates: Sequence[Array | None]) -> Array:
        """Return [C, S] what scenes cost with weights; None: with the reference."""

    def _counted(self, scenes: Sequence[Scene], candidates: Sequence[Array | None]) -> Array:
        self.runs += len(scenes) * len(candidates)
        return self.costs(scenes, candidates)

    def _draw_scenes(self, rng: np.random.Generator, count: int) -> list[Scene]:
        first, workloads = self._scenes_drawn, self.workloads
        self._scenes_drawn += count
        drawn = rng.integers(SEEDS, size=(count, 2))
        if self.config.spread:
            # One offset per workload, and its scenes at equal distances from there.
            k = np.arange(count)
            drawn[:, 0] = (drawn[k % workloads, 0] + k // workloads * (SEEDS * workloads // count)) % SEEDS
        return [((first + k) % workloads, seed, source) for k, (seed, source) in enumerate(drawn.tolist())]

    def _weights(self, searched: Array) -> Array:
        weights = self._first.copy()
        weights[self._searched] = searched
        return weights

    def generation(self) -> dict[str, float]:
        candidates = [self.strategy.ask() for _ in range(self.config.population)]
        scenes = self._draw_scenes(self.rng, self.config.episodes)
        costs = self._counted(scenes, [None, *(self._weights(each) for each in candidates)])
        gains = np.array([self._gain(scenes, costs[0], each) for each in costs[1:]])
        self.strategy.tell([(each, -gain) for each, gain in zip(candidates, gains.tolist(), strict=True)])
        self.average = MEMORY * self.average + (1 - MEMORY) * self._weights(self.strategy.mean)
        figures = {"gain": float(gains.mean()), "best": float(gains.max())}
        if self.strategy.generation % self.config.validate_every == 0:
            figures["validated"] = self.validate()
        return figures

    def _gain(self, scenes: Sequence[Scene], reference: Array, costs: Array) -> float:
        """Return the mean logarithm of the reference's cost over that of a candidate, [S] each."""
        single, pooled = float(np.log(reference / costs).mean()), self.config.pooled
        if not pooled:
            return single
        workloads = np.array([which for which, _, _ in scenes])
        sums = [(reference[workloads == each].sum(), costs[workloads == each].sum()) for each in set(workloads)]
        return pooled * float(np.mean([math.log(before / after) for before, after in sums])) + (1 - pooled) * single

    def validate(self) -> float:
        """Return the gain of the mean over the last generations in the scenes of validation, and keep the best."""
        costs = self._counted(self._scenes, [self.average])[0]
        gain = self._gain(self._scenes, self._reference, costs)
        if gain > self.best_gain:
            self.best, self.best_gain = self.average.copy(), gain
        return gain

    def run(self, on_generation: Callable[[int, dict[str, float]], None] | None = None) -> None:
        for k in range(self.config.generations):
            figures = self.generation()
            if on_generation is not None:
                on_generation(k + 1, figures)


class OrderSearch(WeightSearch):
    """Search for the weights of an order. `start`: first weights; None: shortest first."""

    def __init__(
        self, task: OrderTask, config: OrderSearchConfig, *, jobs: int = 1, start: Array | None = None
    ) -> None:
        self.task, self.jobs = task, jobs
        self._workers: TaskWorkers[Played, float] | None = None
        self._play: Callable[[Played], float] | None = None
        first = first_weights(len(LINEAR), config.hidden, UNIT_SIZE, np.random.default_rng((config.seed, 1)))
        if start is not None:
            first[: len(start)] = start
        super().__init__(len(task.workloads), config, first, _searched(task.reference, config))

    def costs(self, scenes: Sequence[Scene], candidates: Sequence[Array | None]) -> Array:
        """Return [C, S] costs, see `WeightSearch`."""
        if self._play is None and self._workers is None:
            self._start_players()
        played = [(scene, each) for each in candidates for scene in scenes]
        if self._play is not None:
            found = [self._play(each) for each in played]
        else:
            assert self._workers is not None
            answers = dict(self._workers.answers(played))
            found = [answers[i] for i in range(len(played))]
        return np.array(found).reshape(len(candidates), len(scenes))

    def _start_players(self) -> None:
        if runs_here(self.jobs):
            self._play = _open_player(self.task)
        else:
            self._workers = make_workers(self.jobs, partial(_open_player, self.task))

    def close(self) -> None:
        if self._workers is not None:
            self._workers.close()


def _searched(reference: Order, config: OrderSearchConfig) -> npt.NDArray[np.bool_]:
    """Return which weights are searched for: where anybody may overtake, the delay is always 0."""
    delays = delay_weights(config.hidden)
    return ~delays | (config.delay and reference.commits)


def _open_player(task: OrderTask) -> Callable[[Played], float]:
    evaluator = OrderEvaluator(task)

    def play(played: Played) -> float:
        scene, weights = played
        order = task.reference if weights is None else learned_order(task.reference, weights)
        return evaluator.cost(scene, order)

    return play
