"""Fit a policy to one cluster and its pods: search from the best known policy, and keep what a paired test shows.

The search plays draws of the workload (`simulation.arrivals.resample` and the like). What it found is compared with
every rule and with the policy that it began with on draws that it never saw; it is kept where it is better by a paired
test, else the best of the others is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

import steersman
from steersman.agents.configs import EvolutionConfig
from steersman.agents.evolution import Evolution, Task
from steersman.errors import UsageError
from steersman.evaluation.statistics import Interval, mean_interval
from steersman.features import view
from steersman.policies.base import Policy
from steersman.policies.heuristics import LOCAL, heuristic
from steersman.policies.learned import VIEW
from steersman.policies.linear_policy import LinearPolicy
from steersman.policies.policy_file import Arrays, Card, ComparedOn, Score
from steersman.policies.portfolio_policy import PortfolioPolicy
from steersman.policies.prepared import bake
from steersman.simulation.arrivals import Schedule, draw
from steersman.simulation.result import Protocol
from steersman.simulation.run import Simulator
from steersman.workloads.coarse import coarse
from steersman.workloads.shapes import node_shapes, shapes_digest
from steersman.workloads.workload import Workload

FITTED = "fitted"
FIRST_HELD_BACK = 2_100_000_000
"""Seeds of the draws of the last comparison begin here; no search and no selection uses them."""

HELD_BACK = (8, 48)
"""The least and the most draws of the last comparison."""
ARRIVALS = 2_000_000
"""Simulated arrivals of the last comparison, some 20 s, unless that is less than the least number of draws."""
MARGIN = 1e-9


@dataclass(frozen=True, slots=True)
class Options:
    """How long and in what a policy is fitted.

    Attributes:
        seconds: of the search; the comparison comes on top of it.
        generations: at most; with these alone (and `seconds` None) the result depends on the seed only.
        protocol, ratio, load, mean_duration: what is played, see `simulation.arrivals.schedule`.
        seed: of the search.
        population, episodes, step: of the search, see `agents.evolution.EvolutionConfig`.
    """

    seconds: float | None = 60.0
    generations: int = 100_000
    protocol: Protocol = "inflation"
    ratio: float = 1.3
    load: float | None = None
    mean_duration: float | None = None
    seed: int = 1
    population: int = 20
    episodes: int = 3
    step: float = 0.06

    def __post_init__(self) -> None:
        if self.protocol == "arrivals":
            raise UsageError("a policy is fitted in --protocol inflation or timed; inflation serves arrivals, too")

    @property
    def task(self) -> Task:
        """What evolution plays."""
        objective = "waiting-time" if self.protocol == "timed" else "allocation"
        return Task(
            objective, "timed" if self.protocol == "timed" else "inflation", self.ratio, self.load, self.mean_duration
        )


@dataclass(frozen=True, slots=True)
class Compared:
    """A policy in the last comparison: its cost in each draw, [draws], see `Execution.cost`."""

    name: str
    policy: Policy
    costs: npt.NDArray[np.float64]

    @property
    def mean(self) -> float:
        """The mean cost."""
        return float(self.costs.mean())


@dataclass(frozen=True, slots=True)
class Fit:
    """What came of it.

    Attributes:
        chosen: name of the policy that is kept: `FITTED`, a rule's or a member's.
        compared: all candidates, the one with the least mean cost first.
        gain: mean of what the search's policy costs less than the best other one, and its 95 % interval.
        rival: name of that other one.
        generations: that the search took; 0 where there was nothing to search for.
        card, arrays: a policy file's, with the mix of the workload.
    """

    chosen: str
    compared: tuple[Compared, ...]
    gain: float
    interval: Interval
    rival: str
    generations: int
    card: Card
    arrays: Arrays


OnGeneration = Callable[[int, float], None]
"""Called after each generation with its number and the share of the budget that is spent."""


def fit(
    workload: Workload,
    start: PortfolioPolicy,
    options: Options,
    *,
    jobs: int = 1,
    on_generation: OnGeneration | None = None,
) -> Fit:
    """Fit a policy to a workload's nodes and mix.

    Args:
        workload: nodes, and pods like those to come, which may run already.
        start: the search goes on from its best member, or from a rule that does better here.
        options: how long, and in what.
        jobs: processes of the search.
        on_generation: called after each generation.

    Raises:
        UsageError: there are no GPUs or no pods that ask for them.
    """
    if not any(node.gpu_total for node in workload.nodes) or not any(pod.requests.gpu_count for pod in workload.pods):
        raise UsageError(f"{workload.name}: its nodes or pods have no GPU; policies are fitted to GPUs")
    workload = coarse(workload.unbound())
    simulator = Simulator(workload)
    others = {policy.name: policy for policy in (*start.members, *(heuristic(name) for name in LOCAL))}
    candidates = list(others.values())
    selection = simulator.select(
        candidates,
        protocol=options.protocol,
        ratio=options.ratio,
        load=options.load,
        mean_duration=options.mean_duration,
    )
    best = candidates[selection.best]
    first = best.as_linear()
    assert first is not None
    found, generations = _search(workload, first, options, jobs, on_generation)
    compared = _compare(simulator, {FITTED: found, **others}, options)
    ours = next(each for each in compared if each.name == FITTED)
    rival = next(each for each in compared if each.name != FITTED)
    gains = rival.costs - ours.costs
    interval = mean_interval(gains)
    kept = ours if interval.low > MARGIN else rival
    card, arrays = _file(workload, kept, compared, options, generations)
    return Fit(kept.name, compared, float(gains.mean()), interval, rival.name, generations, card, arrays)


def _search(
    workload: Workload, start: LinearPolicy, options: Options, jobs: int, on_generation: OnGeneration | None
) -> tuple[LinearPolicy, int]:
    """Evolve from `start` until the time or the generations are over."""
    config = EvolutionConfig(population=options.population, episodes=options.episodes, step=options.step)
    search = Evolution((workload,), options.task, config, options.seed, jobs, start)
    began, done = time.monotonic(), 0
    try:
        while done < options.generations:
            search.iterate()
            done += 1
            spent = (time.monotonic() - began) / options.seconds if options.seconds else 0.0
            share = max(spent, done / options.generations)
            if on_generation is not None:
                on_generation(done, min(1.0, share))
            if spent >= 1.0:
                break
    finally:
        search.close()
    return search.policy(FITTED), done


def _compare(simulator: Simulator, policies: dict[str, Policy], options: Options) -> tuple[Compared, ...]:
    """Play every policy on the same held-back draws; the best comes first, of equal ones rules before others."""

    def arrivals(seed: int) -> Schedule:
        return draw(simulator.workload, options.protocol, seed, options.ratio, options.load, options.mean_duration)

    first = arrivals(FIRST_HELD_BACK)
    least, most = HELD_BACK
    draws = min(most, max(least, ARRIVALS // (len(first.pods) * len(policies))))
    costs = np.empty((len(policies), draws))
    for k in range(draws):
        seed = FIRST_HELD_BACK + k
        plan = arrivals(seed)
        for i, policy in enumerate(policies.values()):
            costs[i, k] = simulator.play(policy, plan, seed).cost(options.protocol)
    compared = [Compared(name, policy, costs[i]) for i, (name, policy) in enumerate(policies.items())]
    return tuple(sorted(compared, key=lambda each: (each.mean, each.policy.is_learned)))


def _file(
    workload: Workload, kept: Compared, compared: Sequence[Compared], options: Options, generations: int
) -> tuple[Card, Arrays]:
    """The card and tensors of a policy file that serves by itself."""
    mix, baked = bake(workload, VIEW)
    metric = options.task.metric
    card = Card(
        name=kept.name,
        view=VIEW,
        view_version=view(VIEW).version,
        network=kept.policy.saved_as,
        members=() if kept.policy.is_learned else (kept.name,),
        objective=options.task.objective,
        algorithm=Evolution.algorithm if kept.policy.is_learned else "rule",
        protocol=options.protocol,
        ratio=options.ratio if options.protocol == "inflation" else None,
        load=options.load,
        training=(workload.name,),
        seeds=f"{options.seed} for the search, {len(kept.costs)} held-back draws",
        settings={k: v for k, v in asdict(options).items() if v is not None} | {"generations": generations},
        scores=tuple(
            Score(workload.name, metric, round(kept.mean, 4), each.name, round(each.mean, 4), len(each.costs))
            for each in compared
            if each.name != kept.name
        ),
        made_by=f"steersman {steersman.__version__}",
        mix=mix,
        compared_on=ComparedOn(len(workload.nodes), shapes_digest(node_shapes(workload.nodes)), len(kept.costs)),
    )
    return card, kept.policy.tensors() | baked
