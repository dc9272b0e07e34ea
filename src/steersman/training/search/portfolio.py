"""Train the portfolio of the package: weights for clusters of many shapes, and some for the openb traces.

1. *General*: one search over random clusters (`workloads.generators.clusters`), from FGD with planned losses.
2. *Members*: further searches continue from the general weights and from each of several rules. A search draws its
   clusters from those on which its own policy is (nearly) the best of all members, which is recomputed before every
   round, so that members come to suit different clusters (alternating assignment and improvement, as in k-means).
3. *openb*: a search on the openb training traces alone.
4. *Waiting*: a search for short waits, on random clusters whose pods leave again.
5. *Without a search*: `greedy-forecast`, whose weights are fixed, and rules, so that learning has to beat them.

Where the portfolio is used, short simulations of the cluster choose its best member
(`simulation.selection.choice`), rules included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from steersman.agents.configs import EvolutionConfig
from steersman.agents.evolution.simulations import CandidateEvaluator, Evolution, SimulationTask
from steersman.core.engines import make_workers, relayed
from steersman.policies import greedy_forecast
from steersman.policies.features import POD_KINDS, view
from steersman.policies.files.policy_file import Card, write_policy
from steersman.policies.gpu_state.arrays import GPU_VIEW, RULE_COUNT
from steersman.policies.heuristics import heuristic
from steersman.policies.kinds import heuristic_as_linear
from steersman.policies.linear import LinearPolicy
from steersman.policies.portfolio_policy import PORTFOLIO
from steersman.policies.rule_choice import CHOOSABLE_RULES
from steersman.simulation.arrivals import resample
from steersman.version import __version__
from steersman.workloads.generators.clusters import random_cluster
from steersman.workloads.workload import Workload

GENERAL, OPENB, WAITING = "general", "openb", "waiting"
STARTS = ("fgd", "best-fit", "gpu-packing", "balanced-allocation", "most-allocated")
"""Rules that a member's search starts from."""
NODES = 5, 160
MOST_PODS = 2_500
"""A random cluster with more pods would take too much of the search."""
MOST_TIMED_PODS = 1_200
"""The same where pods leave again: a run has three events per pod."""
FIRST_CLUSTER = 1_000
NEARLY = 0.15
"""Points; a cluster belongs to every member that loses at most this much more than the best one."""
DRAWS = 2
# Beyond the seeds of `Evolution`, which are below 2^31.
FIRST_DRAW = 1 << 33
SAID_EVERY = 50

Say = Callable[[str], None]
Members = dict[str, LinearPolicy]


@dataclass(frozen=True, slots=True)
class PortfolioPlan:
    """The plan of a portfolio's training.

    Attributes:
        clusters: number of random clusters.
        nodes: of the smallest and the largest of them.
        generations: of the general search; others have a share of it.
        rounds: of the members' searches.
        openb: training traces of openb; with none, no weights are trained for them.
        seed: of all searches.
        jobs: number of processes.
    """

    clusters: int = 400
    nodes: tuple[int, int] = NODES
    generations: int = 1_500
    rounds: int = 4
    openb: tuple[Workload, ...] = ()
    seed: int = 1
    jobs: int = 1

    @property
    def short_generations(self) -> int:
        """Return the generations of the search on openb, and of each member in a round."""
        return math.ceil(self.generations * 2 / 15)


Search = Callable[[PortfolioPlan, Say], tuple[Members, int]]
"""Return the members of a search and the episodes it took."""


def train_portfolio(plan: PortfolioPlan, output: Path, say: Say) -> None:
    """Train a portfolio and write its policy file.

    `say`, a module-level function, is called in several processes with progress.
    """
    searches: list[Search] = [_on_random_clusters, *([_on_openb] if plan.openb else []), _for_short_waits]
    # Whole searches side by side, each in one process: their generations depend on each other.
    with make_workers(min(plan.jobs, len(searches)), partial(_searcher, plan, relayed(say))) as workers:
        found = dict(workers.answers(searches))
    members = {name: policy for i in range(len(searches)) for name, policy in found[i][0].items()}
    members[greedy_forecast.NAME] = greedy_forecast.forecast_policy()
    steps = sum(episodes for _, episodes in found.values())
    write_policy(output, _card(plan, members, steps), _arrays(list(members.values())))


def _searcher(plan: PortfolioPlan, say: Say) -> Callable[[Search], tuple[Members, int]]:
    """Return the function that runs a search in a process."""
    return lambda search: search(plan, say)


def _on_random_clusters(plan: PortfolioPlan, say: Say) -> tuple[Members, int]:
    """Return general weights, and those for groups of similar clusters."""
    workloads = _clusters(plan, plan.clusters, MOST_PODS)
    say(
        f"{len(workloads)} random clusters; planning for the profile of each comes first "
        "(about a second each, kept on disk)"
    )
    search = Evolution(workloads, SimulationTask(), EvolutionConfig(episodes=6, planned_weight=10.0), plan.seed)
    general = _searched(search, plan.generations, GENERAL, say)
    members, episodes = _members(plan, workloads, general, search.evaluator, say)
    return {GENERAL: general, **members}, search.steps + episodes


def _on_openb(plan: PortfolioPlan, say: Say) -> tuple[Members, int]:
    search = Evolution(plan.openb, SimulationTask(), EvolutionConfig(), plan.seed)
    return {OPENB: _searched(search, plan.short_generations, OPENB, say)}, search.steps


def _for_short_waits(plan: PortfolioPlan, say: Say) -> tuple[Members, int]:
    """Return weights for clusters whose pods leave again."""
    workloads = _clusters(plan, max(1, plan.clusters // 3), MOST_TIMED_PODS)
    task = SimulationTask("waiting-time", "timed", load=1.0)
    search = Evolution(workloads, task, EvolutionConfig(episodes=6, planned_weight=10.0), plan.seed)
    return {WAITING: _searched(search, math.ceil(plan.generations / 5), WAITING, say)}, search.steps


def _searched(search: Evolution, generations: int, name: str, say: Say) -> LinearPolicy:
    for generation in range(1, generations + 1):
        gain = search.iterate()["gain"]
        if generation % SAID_EVERY == 0 or generation == generations:
            say(f"{name}: generation {generation} of {generations}, {gain:+.1f} % against fgd")
    return search.policy(name)


def _clusters(plan: PortfolioPlan, count: int, most_pods: int) -> tuple[Workload, ...]:
    result: list[Workload] = []
    seed = FIRST_CLUSTER
    while len(result) < count:
        workload = random_cluster(seed, nodes=plan.nodes)
        # Seeds of clusters that are too large are skipped, not drawn again: the list stays the same for a given plan.
        seed += 1
        if len(workload.pods) <= most_pods:
            result.append(workload)
    return tuple(result)


def _members(
    plan: PortfolioPlan, workloads: tuple[Workload, ...], general: LinearPolicy, evaluator: CandidateEvaluator, say: Say
) -> tuple[Members, int]:
    """Search on from the general policy and from rules, each on the clusters that it is best on."""
    # `general` goes on under another name, so that the general weights themselves stay a member.
    starts = {f"{GENERAL}-2": general} | {f"from-{name}": heuristic_as_linear(heuristic(name)) for name in STARTS}
    config = EvolutionConfig(population=16, episodes=4)
    searches = {
        name: Evolution(workloads, SimulationTask(), config, plan.seed + 1 + i, start=start, evaluator=evaluator)
        for i, (name, start) in enumerate(starts.items())
    }
    policies = dict(starts)
    for number in range(plan.rounds):
        costs = _costs(evaluator, list(policies.values()))
        for row, search in zip(costs, searches.values(), strict=True):
            # With fewer than `episodes` of such clusters a search draws from all of them, see `draw_from`.
            search.draw_from(np.flatnonzero(row <= costs.min(axis=0) + NEARLY))
        for name, search in searches.items():
            for _ in range(plan.short_generations):
                search.iterate()
            policies[name] = search.policy(name)
        costs = _costs(evaluator, list(policies.values()))
        means = ", ".join(f"{name} {mean:.2f}" for name, mean in zip(policies, costs.mean(axis=1), strict=True))
        best = costs.min(axis=0).mean()
        say(f"round {number + 1} of {plan.rounds}: % not allocated: {means}; by the best of them {best:.2f}")
    return policies, sum(search.steps for search in searches.values())


def _costs(evaluator: CandidateEvaluator, policies: Sequence[LinearPolicy]) -> npt.NDArray[np.float64]:
    """Return [policies, clusters] mean percent of unallocated GPUs in draws that no search uses."""
    costs = np.zeros((len(policies), len(evaluator.simulators)))
    for i, simulator in enumerate(evaluator.simulators):
        for k in range(DRAWS):
            drawn = resample(simulator.workload, ratio=evaluator.task.ratio, seed=FIRST_DRAW + k)
            for j, policy in enumerate(policies):
                costs[j, i] += evaluator.task.play(simulator, drawn, policy, k).cost / DRAWS
    return costs


def _card(plan: PortfolioPlan, members: Members, steps: int) -> Card:
    return Card(
        name="steersman",
        view=GPU_VIEW,
        view_version=view(GPU_VIEW).version,
        network=PORTFOLIO,
        members=(*members, *CHOOSABLE_RULES),
        objective="allocation",
        algorithm=Evolution.algorithm,
        protocol="inflation",
        ratio=1.3,
        training=(f"{plan.clusters} random clusters from seed {FIRST_CLUSTER} on", *(w.name for w in plan.openb)),
        seeds=f"{plan.seed} and following for the searches",
        settings={
            "generations": plan.generations,
            "rounds": plan.rounds,
        },
        steps=steps,
        made_by=f"steersman {__version__}",
    )


def _arrays(members: Sequence[LinearPolicy]) -> dict[str, npt.NDArray[np.float32]]:
    rules = [np.zeros((POD_KINDS, RULE_COUNT)) if each.rules is None else each.rules for each in members]
    return {
        "weights": np.stack([each.weights for each in members]).astype(np.float32),
        "rules": np.stack(rules).astype(np.float32),
    }
