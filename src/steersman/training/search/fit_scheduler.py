"""Find the configuration of kube-scheduler that allocates most of a cluster, with its own plugins alone.

Candidates are scoring strategies over CPU, memory and GPUs, and weights of the two plugins of resources; everything
else is as in the configuration that runs today. A grid is thinned out by successive halving, then the best is changed
at random for a few rounds. It is kept only if a paired test on draws that the search did not see is clear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from steersman.core.errors import UsageError
from steersman.core.statistics import Interval, mean_interval
from steersman.policies.base import Policy
from steersman.policies.kinds import kube_scheduler
from steersman.policies.kube_scheduler import KUBE_DEFAULT, KubeSchedulerPolicy
from steersman.policies.node_scores.kube_profile import (
    BALANCED,
    FIT,
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    REQUESTED_TO_CAPACITY,
    KubeProfile,
    ScoringStrategy,
)
from steersman.policies.portfolio_policy import KindLimit
from steersman.simulation.arrivals import draw
from steersman.simulation.kind_losses import kind_losses
from steersman.simulation.pod_kinds import KINDS
from steersman.simulation.run import Simulator
from steersman.simulation.selection.halving import is_clear
from steersman.workloads.coarse import coarse
from steersman.workloads.workload import Workload

Floats = npt.NDArray[np.float64]

TUNED = "stock-tuned"
"""Name of the configuration that was found."""
VALIDATION_SEED = 1_900_000_000
"""First seed of the draws of the validation; those of `halving` and of evaluations are others."""
ROUNDS = 4
"""Rounds of random changes after the grid."""
CHANGES = 8
"""Candidates of a round."""
VALIDATION = 16
"""Draws of the validation."""
GPU_WEIGHTS = (1, 5, 25)
FIT_WEIGHTS = (1, 10, 100)
_SHAPES = (((0, 0), (70, 20), (100, 100)), ((0, 0), (30, 80), (100, 100)))


@dataclass(frozen=True, slots=True)
class SchedulerFitOptions:
    """Options of the search.

    Attributes:
        ratio: demand that arrives over the cluster's capacity.
        simple: search only the strategy and the weights of resources, all that EKS takes.
        max_kind_loss: percent that any kind of pod may lose against what runs today, see
            `simulation.kind_losses.kind_losses`; None: there is no limit.
        seed: seed of the random changes.
    """

    ratio: float = 1.3
    simple: bool = False
    seed: int = 1
    max_kind_loss: float | None = None


@dataclass(frozen=True)
class SchedulerFit:
    """A found configuration and its validation.

    Attributes:
        profile: the best profile.
        scheduler_name: name of the scheduler that it is for.
        today: name of the policy that it is compared with.
        costs: [V] percent of unallocated GPUs (without GPUs: CPU) in each draw of the validation, by policy.
        failed: [4] pods by kind that failed, mean over those draws, by policy.
        arrived: [4] pods by kind that arrived.
        max_kind_loss: the limit of the search.
    """

    profile: KubeProfile
    scheduler_name: str
    today: str
    costs: dict[str, Floats]
    failed: dict[str, Floats]
    arrived: Floats
    max_kind_loss: float | None = None

    @cached_property
    def savings(self) -> Floats:
        """Percentage points, [V], that the configuration allocates beyond what runs today."""
        return np.asarray(self.costs[self.today] - self.costs[TUNED])

    @property
    def is_better(self) -> bool:
        """Whether the gain is clear, and no kind of pod loses more than it may."""
        return is_clear(self.savings) and not self.breaks_limit

    @property
    def losses(self) -> Floats:
        """Percentage points, [4], of the pods of a kind that fail beyond what fails today."""
        paid, before = (np.array([self.failed[policy], self.arrived]) for policy in (TUNED, self.today))
        return kind_losses(paid, before, "inflation")

    @property
    def breaks_limit(self) -> bool:
        """Whether a kind of pod loses more than it may."""
        return self.max_kind_loss is not None and float(self.losses.max()) > self.max_kind_loss

    def gain(self, policy: str) -> tuple[float, Interval]:
        """Return what a policy allocates beyond what runs today, percentage points, and its 95 % interval."""
        savings = self.costs[self.today] - self.costs[policy]
        return float(savings.mean()), mean_interval(savings)


def candidates(today: KubeProfile, gpu: str, *, simple: bool) -> list[KubeProfile]:
    """Return the grid of profiles.

    Args:
        today: what runs today, the first of them.
        gpu: name of the resource of GPUs; "" for a cluster without.
        simple: see `SchedulerFitOptions`.
    """
    sets: list[tuple[tuple[str, int], ...]] = [(("cpu", 1), ("memory", 1))]
    if gpu:
        sets += [((gpu, 1),), *((("cpu", 1), ("memory", 1), (gpu, weight)) for weight in GPU_WEIGHTS)]
    kinds: list[tuple[int, tuple[tuple[int, int], ...]]] = [(MOST_ALLOCATED, ()), (LEAST_ALLOCATED, ())]
    if not simple:
        kinds += [(REQUESTED_TO_CAPACITY, shape) for shape in _SHAPES]
    strategies = [ScoringStrategy(kind, resources, shape) for kind, shape in kinds for resources in sets]
    result = [today]
    weights = [today.weights]
    if not simple:
        weights = [_weights(today.weights, fit, balanced) for fit in FIT_WEIGHTS for balanced in (0, 1)]
    result += [replace(today, fit=strategy, weights=each) for strategy in strategies for each in weights]
    return list(dict.fromkeys(result))


def fit_scheduler(
    workload: Workload,
    options: SchedulerFitOptions,
    *,
    today: Policy,
    beside: Sequence[Policy] = (),
    progress: Callable[[int, int], None] | None = None,
) -> SchedulerFit:
    """Search for the profile that leaves least unallocated, and compare it with what runs today on further draws.

    Args:
        workload: nodes, and pods like the expected ones.
        options: options of the search.
        today: the configuration that runs today.
        beside: further policies that are compared.
        progress: called with rounds done and all of them.

    Raises:
        UsageError: what runs today is no configuration of kube-scheduler.
    """
    runs = kube_scheduler(today)
    if runs is None:
        raise UsageError(
            f"--baseline {today.name} is no configuration of kube-scheduler; expected kube-default or a file"
        )
    steps, report = ROUNDS + 2, progress or (lambda *_: None)
    simulator = Simulator(coarse(workload.unbound()))
    found = candidates(runs.profile, gpu_name(workload), simple=options.simple)
    limit = None if options.max_kind_loss is None else KindLimit(options.max_kind_loss, today)
    best = _best(simulator, found, options, limit)
    rng = np.random.default_rng(options.seed)
    for k in range(ROUNDS):
        report(k + 1, steps)
        best = _best(simulator, [best, *_changed(best, rng, options)], options, limit)
    report(steps - 1, steps)
    compared = [today, KubeSchedulerPolicy(TUNED, best), *beside]
    costs, failed, arrived = _validate(Simulator(workload.unbound()), compared, options)
    report(steps, steps)
    return SchedulerFit(best, runs.scheduler_name, runs.name, costs, failed, arrived, options.max_kind_loss)


def gpu_name(workload: Workload) -> str:
    """Return the resource under which pods of a workload request most GPUs; "" if none does."""
    counts: dict[str, int] = {}
    for i in workload.demand():
        requests = workload.pods[i].requests
        if requests.gpu_count:
            name = requests.gpu_resource or "nvidia.com/gpu"
            counts[name] = counts.get(name, 0) + requests.gpu_count
    return max(counts, key=lambda name: counts[name]) if counts else ""


def _best(
    simulator: Simulator, profiles: Sequence[KubeProfile], options: SchedulerFitOptions, limit: KindLimit | None
) -> KubeProfile:
    policies = [KubeSchedulerPolicy(f"{KUBE_DEFAULT}-{i}", profile) for i, profile in enumerate(profiles)]
    chosen = simulator.select(policies, protocol="inflation", ratio=options.ratio, bursts=True, default=0, limit=limit)
    return profiles[chosen.leader]


def _changed(best: KubeProfile, rng: np.random.Generator, options: SchedulerFitOptions) -> Iterator[KubeProfile]:
    """Yield random changes of a profile: weights of resources and of the two plugins, by factors."""
    for _ in range(CHANGES):
        resources = tuple((name, _scaled(weight, rng, 100)) for name, weight in best.fit.resources)
        changed = replace(best, fit=replace(best.fit, resources=resources))
        if not options.simple:
            balanced = int(rng.integers(0, 4)) if rng.random() < 0.5 else best.weights[BALANCED]
            weights = _weights(best.weights, _scaled(best.weights[FIT] or 1, rng, 1000), balanced)
            changed = replace(changed, weights=weights)
        yield changed


def _scaled(weight: int, rng: np.random.Generator, most: int) -> int:
    """Return a weight times a random factor with the standard deviation e, rounded, within 1 and `most`."""
    return int(np.clip(round(weight * float(np.exp(rng.normal()))), 1, most))


def _weights(weights: Sequence[int], fit: int, balanced: int) -> tuple[int, ...]:
    changed = list(weights)
    changed[FIT], changed[BALANCED] = fit, balanced
    return tuple(changed)


def _validate(
    simulator: Simulator, policies: Sequence[Policy], options: SchedulerFitOptions
) -> tuple[dict[str, Floats], dict[str, Floats], Floats]:
    """Return costs, [V], and failed pods by kind, [4], by policy, and the pods by kind that arrived."""
    costs: dict[str, list[float]] = {each.name: [] for each in policies}
    failed = {each.name: np.zeros(len(KINDS)) for each in policies}
    arrived = np.zeros(len(KINDS))
    members = {each.name: simulator.member(each, protocol="inflation", ratio=options.ratio).policy for each in policies}
    for k in range(VALIDATION):
        seed = VALIDATION_SEED + k
        plan = draw(simulator.workload, "inflation", seed, options.ratio, None, None, bursts=True)
        for name, policy in members.items():
            execution = simulator.play(policy, plan, seed)
            costs[name].append(execution.compared_cost("inflation"))
            left, came = execution.failed_by_kind()
            failed[name] += left / VALIDATION
        arrived += came / VALIDATION
    return {name: np.array(each) for name, each in costs.items()}, failed, arrived
