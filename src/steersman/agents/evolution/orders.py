"""Evolution of orders: whole runs in compiled code, in which candidates differ by who goes next alone.

A generation draws a few scenes (arrivals on a cluster); every candidate runs on the same ones. The fitness of a
candidate is its mean gain over the reference order, the logarithm of the ratio of their costs. Ratios are taken scene
by scene, so that those in which everybody waits for long weigh no more than others, or of the sums over the scenes of
a workload, where a mean over scenes is what counts; `OrderSearchConfig.pooled` mixes both. The search is CMA-ES
(Hansen, "The CMA Evolution Strategy: A Tutorial", 2016) with the full covariance: weights of an order are far from
independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
from cmaes import CMA

from steersman.core.engines import TaskWorkers, make_workers, runs_here
from steersman.orders.order import Order
from steersman.orders.run_times import RunTimes
from steersman.orders.scores import LEARNED, LINEAR, UNIT_SIZE, delay_weights, learned_size
from steersman.policies.base import Policy, with_order
from steersman.simulation.arrivals import Schedule
from steersman.simulation.run import Execution, Simulator
from steersman.simulation.waiting import Waits
from steersman.workloads.workload import Workload

Array = npt.NDArray[np.float64]

UNIT_STD = 0.5
"""Standard deviation of the first weights of hidden units, whose outputs start at 0."""
KEPT_SCENES = 200
"""Arrivals that are kept until they are played again."""
MEMORY = 0.8
"""How much of the mean over generations is kept at each."""


SEEDS = 1 << 31
"""Seeds of scenes are below this."""


class Draw(Protocol):
    """Picklable function that draws arrivals."""

    def __call__(self, workload: Workload, seed: int) -> Schedule:
        """Return the arrivals of a seed."""


Scene = tuple[int, int, int]
"""A workload, a seed, and a number that says where estimates come from."""
Played = tuple[Scene, Array | None]
"""A scene and weights; None: the reference."""


@dataclass(frozen=True, slots=True)
class OrderTask:
    """What an order is trained on and for.

    Attributes:
        workloads: played in turn.
        draw: draws arrivals from one of them.
        cost: of the waits of a run, above 0; the lower the better.
        policy: places the pods.
        reference: the order that candidates are compared with, which also tells who may overtake, and where estimates
            come from unless `sources` says.
        sources: where estimates come from, drawn with equal probability; (): as in `reference`.
    """

    workloads: tuple[Workload, ...]
    draw: Draw
    cost: Callable[[Waits], float]
    policy: Policy
    reference: Order
    sources: tuple[RunTimes, ...] = ()


@dataclass(frozen=True, slots=True)
class OrderSearchConfig:
    """Options of the search.

    Attributes:
        hidden: units on top of the linear score.
        population: candidates of a generation.
        episodes: scenes of a generation.
        step: first standard deviation of candidates.
        generations: number of generations.
        validate_every: generations between two validations.
        validation: scenes of a validation.
        pooled: weight, 0 to 1, of the gain of the sums over a workload's scenes; the rest is that of single scenes.
        spread: whether the seeds of a generation are equally far apart, which covers a trace evenly if the draw takes
            a seed for a place in it.
        delay: whether the delay is an input, which live schedulers do not know.
        seed: seed of the search.
    """

    hidden: int = 0
    population: int = 16
    episodes: int = 12
    step: float = 0.3
    generations: int = 200
    validate_every: int = 10
    validation: int = 24
    pooled: float = 0.0
    spread: bool = False
    delay: bool = True
    seed: int = 1


def learned_order(reference: Order, weights: Array, name: str = "learned") -> Order:
    """Return an order with learned weights that treats overtaking, ageing and estimates as the reference does."""
    return Order(name, LEARNED, reference.overtaking, tuple(weights.tolist()), reference.ageing, reference.run_times)


def waits_under(policy: Policy, simulator: Simulator, plan: Schedule, seed: int) -> Waits:
    """Return the waits of a run of a policy with its order; `seed` is that of ties and of errors of estimates."""
    execution = Execution(simulator, plan, policy, seed, record=False)
    execution.finish(None)
    return execution.coming_waits


class OrderEvaluator:
    """Plays scenes with orders.

    Args:
        task: what is played.
    """

    def __init__(self, task: OrderTask) -> None:
        self.task = task
        self._simulators = [Simulator(workload) for workload in task.workloads]
        # All candidates of a generation play the same arrivals.
        self._drawn = lru_cache(KEPT_SCENES)(self._draw)

    def cost(self, scene: Scene, order: Order) -> float:
        """Return the cost of an order in a scene."""
        task, (which, seed, source) = self.task, scene
        if task.sources:
            order = replace(order, run_times=task.sources[source % len(task.sources)])
        plan = self._drawn(which, seed)
        return task.cost(waits_under(with_order(task.policy, order), self._simulators[which], plan, seed))

    def _draw(self, which: int, seed: int) -> Schedule:
        return self.task.draw(self.task.workloads[which], seed)


class OrderSearch:
    """Search for the weights of an order.

    Args:
        task: what is trained on.
        config: options.
        jobs: number of workers.
        start: first weights; None: shortest first.

    Attributes:
        best: weights that were best in validation.
        best_gain: their gain there.
        average: mean weights over the last generations.
        runs: runs that were played, those of the reference and of validations included.
    """

    def __init__(
        self, task: OrderTask, config: OrderSearchConfig, *, jobs: int = 1, start: Array | None = None
    ) -> None:
        self.task, self.config = task, config
        self.rng = np.random.default_rng((config.seed, 1))
        mean = np.zeros(learned_size(config.hidden))
        mean[0] = 1.0
        units = self.rng.normal(0.0, UNIT_STD, (config.hidden, UNIT_SIZE))
        units[:, -1] = 0.0
        mean[len(LINEAR) :] = units.reshape(-1)
        if start is not None:
            mean[: len(start)] = start
        self._first, self._searched = mean, _searched(task.reference, config)
        self.strategy = CMA(mean[self._searched], config.step, seed=config.seed, population_size=config.population)
        self.best, self.best_gain, self.average = mean.copy(), -math.inf, mean.copy()
        self.runs, self._scenes_drawn = 0, 0
        self._workers: TaskWorkers[Played, float] | None = None
        self._play: Callable[[Played], float] | None = None
        if runs_here(jobs):
            self._play = _open_player(task)
        else:
            self._workers = make_workers(jobs, partial(_open_player, task))
        seeds = np.random.default_rng((config.seed, 2))
        self._scenes = self._draw_scenes(seeds, config.validation)
        self._reference = self._costs([(scene, None) for scene in self._scenes])
        self.rng = np.random.default_rng((config.seed, 3))

    def _draw_scenes(self, rng: np.random.Generator, count: int) -> list[Scene]:
        """Return the next scenes, in which each workload is played equally often."""
        first, workloads = self._scenes_drawn, len(self.task.workloads)
        self._scenes_drawn += count
        drawn = rng.integers(SEEDS, size=(count, 2))
        if self.config.spread:
            # One offset per workload, and its scenes at equal distances from there.
            k = np.arange(count)
            drawn[:, 0] = (drawn[k % workloads, 0] + k // workloads * (SEEDS * workloads // count)) % SEEDS
        return [((first + k) % workloads, seed, source) for k, (seed, source) in enumerate(drawn.tolist())]

    def _weights(self, searched: Array) -> Array:
        """Return all weights from those that are searched for."""
        weights = self._first.copy()
        weights[self._searched] = searched
        return weights

    def _costs(self, played: Sequence[Played]) -> Array:
        self.runs += len(played)
        if self._play is not None:
            return np.array([self._play(each) for each in played])
        assert self._workers is not None
        answers = dict(self._workers.answers(played))
        return np.array([answers[i] for i in range(len(played))])

    def generation(self) -> dict[str, float]:
        """Play one generation and return its figures."""
        candidates = [self.strategy.ask() for _ in range(self.config.population)]
        scenes = self._draw_scenes(self.rng, self.config.episodes)
        played: list[Played] = [(scene, None) for scene in scenes]
        played += [(scene, self._weights(each)) for each in candidates for scene in scenes]
        costs = self._costs(played).reshape(len(candidates) + 1, len(scenes))
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
        costs = self._costs([(scene, self.average) for scene in self._scenes])
        gain = self._gain(self._scenes, self._reference, costs)
        if gain > self.best_gain:
            self.best, self.best_gain = self.average.copy(), gain
        return gain

    def run(self, on_generation: Callable[[int, dict[str, float]], None] | None = None) -> Order:
        """Search to the end, and return the order that was best in validation."""
        for k in range(self.config.generations):
            figures = self.generation()
            if on_generation is not None:
                on_generation(k + 1, figures)
        return learned_order(self.task.reference, self.best)

    def close(self) -> None:
        """Stop the workers."""
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
