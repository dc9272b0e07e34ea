"""Fit a policy to one cluster and its pods: search from the best known policy, and keep what a paired test supports.

The search runs on draws of the workload (`simulation.arrivals.resample` and the like). Its result is compared with
every rule and with the initial policy on held-out draws; it is kept if it is better by a paired test, else the best of
the others is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from steersman.agents.configs import EvolutionConfig
from steersman.agents.evolution.simulations import Evolution, SimulationTask
from steersman.core.errors import UsageError
from steersman.core.statistics import Interval
from steersman.policies.base import Policy
from steersman.policies.embedded_profile import embed_profile
from steersman.policies.features import view
from steersman.policies.files.policy_file import Arrays, Card, ComparedOn, WorkloadResult, network_of, tensors_of
from steersman.policies.gpu_state.arrays import GPU_VIEW
from steersman.policies.heuristics import HEURISTIC_IDS, heuristic
from steersman.policies.kinds import as_linear
from steersman.policies.kube_scheduler import KubeSchedulerPolicy
from steersman.policies.linear import LinearPolicy
from steersman.policies.portfolio_policy import KindLimit, PortfolioPolicy
from steersman.simulation.arrivals import Schedule, check_times, draw
from steersman.simulation.pod_kinds import KINDS
from steersman.simulation.result import Protocol
from steersman.simulation.run import Simulator
from steersman.simulation.selection.choice import draws_of, saving_interval
from steersman.version import __version__
from steersman.workloads.profile import node_shapes, shapes_digest
from steersman.workloads.warnings import no_devices
from steersman.workloads.workload import Workload

FITTED = "fitted"
FIRST_HELD_BACK = 2_100_000_000
"""First seed of the draws of the last comparison; no search and no selection uses them."""

HELD_BACK = (8, 48)
"""The least and the most draws of the last comparison."""
ARRIVALS = 2_000_000
"""Simulated arrivals of the last comparison, about 20 s, unless that is less than the least number of draws."""
GENERATIONS = (20, 200)
"""The least and the most generations of a search, unless they are given."""
SEARCH_ARRIVALS = 5_000_000
"""Simulated arrivals of a search, about a minute of two cores, unless the bounds of generations say otherwise."""
MARGIN = 1e-9


@dataclass(frozen=True, slots=True)
class FitOptions:
    """Options of a fit.

    Attributes:
        generations: of the search; None: by the arrivals of a draw, see `SEARCH_ARRIVALS`.
        protocol, ratio, load, mean_duration: of the simulations, see `simulation.arrivals.schedule`.
        seed: of the search.
        population, episodes, step: of the search, see `agents.configs.EvolutionConfig`.
        max_kind_loss: percent that any kind of pod may lose against `kube-default`, see
            `simulation.kind_losses.kind_losses`; None: there is no limit.
    """

    generations: int | None = None
    protocol: Protocol = "inflation"
    ratio: float = 1.3
    load: float | None = None
    mean_duration: float | None = None
    seed: int = 1
    population: int = 20
    episodes: int = 3
    step: float = 0.06
    max_kind_loss: float | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        if self.protocol == "arrivals":
            raise UsageError("a policy is fitted in --protocol inflation or timed; inflation serves arrivals, too")

    @property
    def task(self) -> SimulationTask:
        """Return the task of the search."""
        timed = self.protocol == "timed"
        return SimulationTask(
            "waiting-time" if timed else "allocation",
            "timed" if timed else "inflation",
            self.ratio,
            self.load,
            self.mean_duration,
            max_kind_loss=self.max_kind_loss,
        )

    @property
    def limit(self) -> KindLimit | None:
        """Return the limit of what any kind may lose."""
        return None if self.max_kind_loss is None else KindLimit(self.max_kind_loss, KubeSchedulerPolicy())


@dataclass(frozen=True, slots=True)
class ComparedCandidate:
    """A policy in the last comparison: its cost in each draw, [draws], see `Execution.cost`.

    `excess` is by how much it breaks the limit of what a kind of pod may lose, in percent, 0: it keeps it.
    """

    name: str
    policy: Policy
    costs: npt.NDArray[np.float64]
    excess: float

    @property
    def mean(self) -> float:
        """Return the mean cost."""
        return float(self.costs.mean())


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of a fit.

    Attributes:
        chosen: name of the policy that is kept: `FITTED`, a rule's or a member's.
        compared: all candidates, the one with the least mean cost first.
        gain: mean saving of the search's policy over the best other one, and its 95 % interval.
        rival: name of that other one.
        generations: of the search; 0 if there was nothing to search for.
        card, arrays: a policy file's, with the profile of the workload.
    """

    chosen: str
    compared: tuple[ComparedCandidate, ...]
    gain: float
    interval: Interval
    rival: str
    generations: int
    card: Card
    arrays: Arrays


OnGeneration = Callable[[float], None]
"""Called after each generation with the share of all that are done."""


def fit(
    workload: Workload,
    start: PortfolioPolicy,
    options: FitOptions,
    *,
    jobs: int = 1,
    on_generation: OnGeneration | None = None,
) -> Fit:
    """Fit a policy to a workload's nodes and profile.

    Args:
        workload: nodes, and pods like the expected ones, which may run already.
        start: the search continues from its best member, or from a rule that does better here.
        options: time and simulations.
        jobs: number of processes of the search.
        on_generation: called after each generation.

    Raises:
        UsageError: there are no GPUs or no pods that request them.
        SteersmanError: in `timed` without a load, the time of a pod is not known.
    """
    if options.protocol == "timed" and options.load is None:
        check_times(workload)
    if not any(node.gpu_total for node in workload.eligible_nodes) or not any(
        pod.requests.gpu_count for pod in workload.pods
    ):
        raise UsageError(f"{workload.name}: {no_devices(workload)}; policies are fitted to GPUs")
    # Every draw starts on empty nodes; fewer classes of pods make the runs faster.
    simulator = Simulator(workload).emptied
    workload = simulator.workload
    # By name, so that a rule that is also a member takes part once.
    others = {policy.name: policy for policy in (*start.members, *(heuristic(name) for name in HEURISTIC_IDS))}
    # A search continues from weights, and a file holds them or the name of a rule.
    others = {name: policy for name, policy in others.items() if as_linear(policy) is not None}
    candidates = list(others.values())
    kind = options.protocol, options.ratio, options.load, options.mean_duration
    selection = simulator.select(candidates, *kind, limit=options.limit)
    best = candidates[selection.leader]
    first = as_linear(best)
    assert first is not None
    fitted_policy, generations = _search(workload, first, options, jobs, on_generation)
    compared = _compare(simulator, {FITTED: fitted_policy, **others}, options)
    fitted = next(each for each in compared if each.name == FITTED)
    rival = next(each for each in compared if each.name != FITTED)
    gains = rival.costs - fitted.costs
    interval = saving_interval(gains, options.protocol)
    # MARGIN: rounding of equal costs is no gain.
    is_kept = interval.low > MARGIN if fitted.excess == rival.excess else fitted.excess < rival.excess
    kept = fitted if is_kept else rival
    card, arrays = _file(workload, kept, compared, options, generations)
    return Fit(kept.name, compared, float(gains.mean()), interval, rival.name, generations, card, arrays)


def generations_of(options: FitOptions, arrivals: int) -> int:
    """Return the number of generations of a search whose draws have so many arrivals."""
    least, most = GENERATIONS
    runs = options.population * options.episodes
    return options.generations or min(most, max(least, SEARCH_ARRIVALS // (runs * max(1, arrivals))))


def _search(
    workload: Workload, start: LinearPolicy, options: FitOptions, jobs: int, on_generation: OnGeneration | None
) -> tuple[LinearPolicy, int]:
    """Evolve from `start`; return the policy and the number of generations."""
    plan = draw(workload, options.protocol, 0, options.ratio, options.load, options.mean_duration)
    generations = generations_of(options, len(plan.pods))
    config = EvolutionConfig(population=options.population, episodes=options.episodes, step=options.step)
    search = Evolution((workload,), options.task, config, options.seed, jobs, start)
    try:
        for done in range(1, generations + 1):
            search.iterate()
            if on_generation is not None:
                on_generation(done / generations)
    finally:
        search.close()
    return search.policy(FITTED), generations


def _compare(simulator: Simulator, policies: dict[str, Policy], options: FitOptions) -> tuple[ComparedCandidate, ...]:
    """Run every policy on the same held-out draws; the best comes first, of equal ones rules before others."""

    def arrivals(seed: int) -> Schedule:
        return draw(simulator.workload, options.protocol, seed, options.ratio, options.load, options.mean_duration)

    draws = draws_of(HELD_BACK, ARRIVALS, len(arrivals(FIRST_HELD_BACK).pods) * len(policies))
    costs = np.empty((len(policies), draws))
    paid, before = np.zeros((len(policies), 2, len(KINDS))), np.zeros((2, len(KINDS)))
    for k in range(draws):
        seed = FIRST_HELD_BACK + k
        plan = arrivals(seed)
        for i, policy in enumerate(policies.values()):
            execution = simulator.play(policy, plan, seed)
            costs[i, k] = execution.cost(options.protocol)
            paid[i] += execution.paid_by_kind(options.protocol)
        if options.limit is not None:
            before += simulator.play(options.limit.baseline, plan, seed).paid_by_kind(options.protocol)
    compared = [
        ComparedCandidate(name, policy, costs[i], options.task.excess(paid[i], before))
        for i, (name, policy) in enumerate(policies.items())
    ]
    # Sorting by `is_learned` last: of equals the simpler policy is kept.
    return tuple(sorted(compared, key=lambda each: (each.excess, each.mean, each.policy.is_learned)))


def _file(
    workload: Workload,
    kept: ComparedCandidate,
    compared: Sequence[ComparedCandidate],
    options: FitOptions,
    generations: int,
) -> tuple[Card, Arrays]:
    """Return the card and tensors of a policy file that is complete by itself."""
    profile, profile_tensors = embed_profile(workload, GPU_VIEW)
    metric = options.task.metric
    card = Card(
        name=kept.name,
        view=GPU_VIEW,
        view_version=view(GPU_VIEW).version,
        network=network_of(kept.policy),
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
            WorkloadResult(workload.name, metric, round(kept.mean, 4), each.name, round(each.mean, 4), len(each.costs))
            for each in compared
            if each.name != kept.name
        ),
        made_by=f"steersman {__version__}",
        profile=profile,
        compared_on=ComparedOn(len(workload.nodes), shapes_digest(node_shapes(workload.nodes)), len(kept.costs)),
    )
    return card, tensors_of(kept.policy) | profile_tensors
