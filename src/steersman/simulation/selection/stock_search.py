"""Search for the profile of kube-scheduler, of its own plugins alone, that costs least on a cluster and its pods.

A profile has a scoring strategy over CPU, memory and GPUs, weights of the two plugins of resources, and the resources
of NodeResourcesBalancedAllocation; everything else stays as it is today. CMA-ES (Hansen and Ostermeier, "Completely
Derandomized Self-Adaptation in Evolution Strategies", 2001; the library `cmaes`) moves the shape of
RequestedToCapacityRatio, which contains the other two strategies up to rounding, and the weights. Every generation
plays draws of its own. What it found, a few plain profiles and today's are then compared by `selection.choice`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol as Interface

import numpy as np
import numpy.typing as npt

from steersman.policies.base import Policy
from steersman.policies.kube_scheduler.policy import KubeSchedulerPolicy
from steersman.policies.kube_scheduler.profile import (
    BALANCED,
    FIT,
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    REQUESTED_TO_CAPACITY,
    KubeProfile,
    ScoringStrategy,
)
from steersman.policies.portfolio_policy import KindLimit
from steersman.simulation.arrivals import Schedule, draw
from steersman.simulation.kind_losses import excess_loss
from steersman.simulation.result import Protocol
from steersman.simulation.selection.choice import Selection
from steersman.workloads.workload import Workload

Floats = npt.NDArray[np.float64]

FIRST_SEED = 1_700_000_000
"""First seed of the draws of generations; those of `choice`, of validations and of evaluations are others."""
POPULATION, STEP = 14, 0.6
DRAWS = (2, 4)
"""Draws of a generation, of large and of small workloads."""
LARGE = 1_000
"""Arrivals of a draw from which on a workload is large."""
GENERATIONS = (10, 80)
"""Least and most generations."""
BUDGET = 150_000_000
"""Arrivals times nodes of all generations, which decide how long a search takes: about 30 s."""
EXCESS_COST = 10.0
"""Cost of a percent beyond the limit of what a kind of pod may lose."""
UTILIZATION = (0, 25, 50, 75, 100)
"""Points of the shape of RequestedToCapacityRatio, percent."""
MOST_SCORE, MOST_WEIGHT = 10, 100
GPU_WEIGHTS = (1, 5, 25)


class PlayedRun(Interface):
    """What a search asks a finished run, see `simulation.run.Execution`."""

    def compared_cost(self, protocol: Protocol) -> float:
        """Return the cost."""

    def paid_by_kind(self, protocol: Protocol) -> Floats:
        """Return [2, 4] what kinds of pods paid."""


class DrawPlayer(Interface):
    """What plays draws of a workload, see `simulation.run.Simulator`."""

    @property
    def workload(self) -> Workload:
        """Return the workload."""

    @property
    def emptied(self) -> DrawPlayer:
        """Return what policies are compared with."""

    def play(self, policy: Policy, plan: Schedule, seed: int) -> PlayedRun:
        """Run a policy on given arrivals to the end."""

    def select(
        self,
        policies: Sequence[Policy],
        protocol: Protocol,
        ratio: float,
        load: float | None,
        mean_duration: float | None,
        *,
        fallback: int | None,
        limit: KindLimit | None,
    ) -> Selection:
        """Compare policies by paired simulations."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options of a search.

    Attributes:
        protocol, ratio, load, mean_duration: of the simulations, see `simulation.arrivals.schedule`.
        limit: what any kind of pod may lose; None: there is no limit.
        seed: of the search.
        generations: of the search; None: by the size of the workload.
    """

    protocol: Protocol = "inflation"
    ratio: float = 1.3
    load: float | None = None
    mean_duration: float | None = None
    limit: KindLimit | None = None
    seed: int = 1
    generations: int | None = None


@dataclass(frozen=True, slots=True)
class StockSearchOptions(SearchOptions):
    """Options of a search for a profile of kube-scheduler.

    Attributes:
        simple: search only MostAllocated and LeastAllocated and the weights of resources, all that EKS takes.
    """

    simple: bool = False


class ProfileSpace:
    """Profiles by points in a space of real numbers, [D], around 0.

    Args:
        today: the profile that the others differ from.
        gpu: name of the resource of GPUs; "" for a cluster without.
        simple: see `StockSearchOptions`.
    """

    def __init__(self, today: KubeProfile, gpu: str, *, simple: bool) -> None:
        self.today, self.gpu, self.simple = today, gpu, simple
        self.resources = ("cpu", "memory", *([gpu] if gpu else []))
        self.shaped = 1 if simple else len(UTILIZATION)

    @property
    def dimensions(self) -> int:
        """Return D: the shape, or which strategy; the resources' weights; balance of plugins, and of GPUs, or not."""
        return self.shaped + len(self.resources) + (0 if self.simple else 2)

    def profile(self, point: Floats) -> KubeProfile:
        """Return the profile of a point."""
        shape, rest = point[: self.shaped], point[self.shaped :]
        weights = np.clip(np.round(10.0 * np.exp(rest[: len(self.resources)])), 0, MOST_WEIGHT).astype(int)
        resources = tuple((name, int(w)) for name, w in zip(self.resources, weights, strict=True) if w)
        resources = resources or ((self.resources[-1], 1),)
        if self.simple:
            kind = MOST_ALLOCATED if shape[0] > 0 else LEAST_ALLOCATED
            return replace(self.today, fit=ScoringStrategy(kind, resources))
        scores = np.clip(np.round(MOST_SCORE * (0.5 + 0.5 * shape)), 0, MOST_SCORE).astype(int)
        curve = tuple((u, MOST_WEIGHT // MOST_SCORE * int(s)) for u, s in zip(UTILIZATION, scores, strict=True))
        balance, counts_gpus = rest[len(self.resources) :]
        # The larger one of the two weights over the smaller one, which is 1.
        ratio = int(np.clip(round(math.exp(2.0 * min(abs(balance), 3.0))), 1, MOST_WEIGHT))
        weighted = list(self.today.weights)
        weighted[FIT], weighted[BALANCED] = (ratio, 1) if balance >= 0 else (1, ratio)
        balanced = self.resources if counts_gpus > 0 else self.resources[:2]
        fit = ScoringStrategy(REQUESTED_TO_CAPACITY, resources, curve)
        return replace(self.today, fit=fit, weights=tuple(weighted), balanced=balanced)

    def plain(self) -> list[KubeProfile]:
        """Return profiles that people set by hand: both plain strategies over several resources."""
        sets: list[tuple[tuple[str, int], ...]] = [(("cpu", 1), ("memory", 1))]
        if self.gpu:
            sets += [((self.gpu, 1),), *((("cpu", 1), ("memory", 1), (self.gpu, weight)) for weight in GPU_WEIGHTS)]
        return [
            replace(self.today, fit=ScoringStrategy(kind, resources))
            for kind in (MOST_ALLOCATED, LEAST_ALLOCATED)
            for resources in sets
        ]


def gpu_name(workload: Workload) -> str:
    """Return the resource under which pods of a workload request most GPUs; "" if none does."""
    counts: dict[str, int] = {}
    for i in workload.demand():
        requests = workload.pods[i].requests
        if requests.gpu_count:
            name = requests.gpu_resource or "nvidia.com/gpu"
            counts[name] = counts.get(name, 0) + requests.gpu_count
    return max(counts, key=lambda name: counts[name]) if counts else ""


def find_profile(
    simulator: DrawPlayer,  # of the workload
    today: KubeSchedulerPolicy,  # the configuration that runs today
    options: StockSearchOptions,
    progress: Callable[[int, int], None] | None = None,  # called with generations done and all of them
) -> tuple[list[KubeSchedulerPolicy], Selection]:
    """Return the profiles that are left at the end, today's first, and their comparison."""
    simulator = simulator.emptied
    space = ProfileSpace(today.profile, gpu_name(simulator.workload), simple=options.simple)
    found = _evolve(simulator, space, today, options, progress or (lambda *_: None))
    profiles = list(dict.fromkeys([today.profile, *found, *space.plain()]))
    policies = [replace(today, name=f"{today.name}-{i}", profile=profile) for i, profile in enumerate(profiles)]
    policies[0] = today
    kind = options.protocol, options.ratio, options.load, options.mean_duration
    return policies, simulator.select(policies, *kind, fallback=0, limit=options.limit)


def _evolve(
    simulator: DrawPlayer,
    space: ProfileSpace,
    today: KubeSchedulerPolicy,
    options: StockSearchOptions,
    progress: Callable[[int, int], None],
) -> list[KubeProfile]:
    """Return the profile of the search's mean, and of its average over the second half of the generations."""
    from cmaes import CMA  # not to be waited for where nothing is searched

    def drawn(seed: int) -> Schedule:
        return draw(simulator.workload, options.protocol, seed, options.ratio, options.load, options.mean_duration)

    arrivals, nodes = max(1, len(drawn(FIRST_SEED).pods)), max(1, len(simulator.workload.nodes))
    draws = DRAWS[0] if arrivals >= LARGE else DRAWS[1]
    least, most = GENERATIONS
    generations = min(most, max(least, BUDGET // (POPULATION * draws * arrivals * nodes)))
    search = CMA(mean=np.zeros(space.dimensions), sigma=STEP, seed=options.seed, population_size=POPULATION)
    means = []
    for generation in range(generations):
        progress(generation, generations)
        first = FIRST_SEED + generation * draws
        plans = {seed: drawn(seed) for seed in range(first, first + draws)}
        points = [search.ask() for _ in range(POPULATION)]
        profiles = [space.profile(point) for point in points]
        distinct = list(dict.fromkeys(profiles))
        played = mean_costs(simulator, [replace(today, profile=each) for each in distinct], plans, options)
        cost_of = dict(zip(distinct, played.tolist(), strict=True))
        costs = [cost_of[each] for each in profiles]
        search.tell(list(zip(points, costs, strict=True)))
        means.append(search.mean.copy())
    progress(generations, generations)
    return [space.profile(search.mean), space.profile(np.mean(means[generations // 2 :], axis=0))]


def mean_costs(
    simulator: DrawPlayer, policies: Sequence[Policy], plans: dict[int, Schedule], options: SearchOptions
) -> Floats:
    """Return [P] the mean cost of each policy in draws by seed, with that of breaking the limit."""
    limit, before, costs = options.limit, np.zeros(0), np.zeros(len(policies))
    if limit is not None:
        baseline = [simulator.play(limit.baseline, plan, seed) for seed, plan in plans.items()]
        before = np.sum([each.paid_by_kind(options.protocol) for each in baseline], axis=0)
    for i, policy in enumerate(policies):
        played = [simulator.play(policy, plan, seed) for seed, plan in plans.items()]
        costs[i] = np.mean([each.compared_cost(options.protocol) for each in played])
        if limit is not None:
            paid = np.sum([each.paid_by_kind(options.protocol) for each in played], axis=0)
            costs[i] += EXCESS_COST * excess_loss(paid, before, options.protocol, limit.percent)
    return costs
