"""Train the portfolio that the package ships: weights for clusters of many shapes, and some for the openb traces.

1. *General*: one search over random clusters (`workloads.generators.clusters`), from FGD with planned losses.
2. *Members*: further searches go on from the general weights and from each of several rules. A search draws its
   clusters from those on which its own policy is (nearly) the best of all members, which is found anew before every
   round, so that members come to suit different clusters (alternating assignment and improvement, as in k-means).
3. *openb*: a search on the openb training traces alone.

What each is good for, nobody has to know: where the portfolio is used, a short simulation of the cluster at hand takes
its best member (`simulation.selection`), rules included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import steersman
from steersman.agents.evolution import Arena, Config, Evolution, Task, as_linear
from steersman.features import view
from steersman.policies.heuristics import heuristic
from steersman.policies.learned import KINDS, RULES, VIEW
from steersman.policies.policy import LinearPolicy
from steersman.policies.policy_file import PORTFOLIO, Card, write_policy
from steersman.simulation.arrivals import resample
from steersman.workloads.generators.clusters import random_cluster
from steersman.workloads.workload import Workload

GENERAL, OPENB = "general", "openb"
STARTS = ("fgd", "best-fit", "gpu-packing", "balanced-allocation", "most-allocated")
"""Rules that a member's search goes on from."""
CHOOSABLE_RULES = (
    "fgd",
    "best-fit",
    "gpu-packing",
    "dot-product",
    "most-allocated",
    "least-allocated",
    "balanced-allocation",
)
"""Rules that the portfolio may choose as they are."""
NODES = 5, 120
MOST_PODS = 2_500
"""A random cluster with more pods costs too much of the search."""
FIRST_CLUSTER = 1_000
NEARLY = 0.15
"""Points; a cluster belongs to every member that loses at most so much more than the best one."""
DRAWS = 2
FIRST_DRAW = 1 << 33

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is trained.

    Attributes:
        clusters: random clusters.
        generations: of the general search.
        rounds, round_generations: of the members' searches.
        openb: training traces of openb, and
        openb_generations: of the search on them.
        seed: of all searches.
        jobs: processes of the search on openb.
    """

    clusters: int = 200
    generations: int = 600
    rounds: int = 4
    round_generations: int = 80
    openb: tuple[Workload, ...] = ()
    openb_generations: int = 200
    seed: int = 1
    jobs: int = 1


def train_portfolio(plan: Plan, output: Path, say: Say) -> None:
    """Train a portfolio and write its policy file. `say` hears what is done."""
    workloads = _clusters(plan.clusters)
    say(f"{len(workloads)} random clusters; planning for each mix comes first (about a second each, kept on disk)")
    config = Config(episodes=6, planned_weight=10.0)
    search = Evolution(workloads, Task(), config, plan.seed)
    for generation in range(plan.generations):
        search.iterate()
        if generation % 100 == 99:
            say(f"general: generation {generation + 1} of {plan.generations}")
    general = _policy(search, GENERAL)
    members = {GENERAL: general, **_members(plan, workloads, general, search.arena, say)}
    if plan.openb:
        members[OPENB] = _on_openb(plan, say)
    write_policy(output, _card(plan, members), _arrays(list(members.values())))


def _clusters(count: int) -> tuple[Workload, ...]:
    found: list[Workload] = []
    seed = FIRST_CLUSTER
    while len(found) < count:
        workload = random_cluster(seed, nodes=NODES)
        seed += 1
        if len(workload.pods) <= MOST_PODS:
            found.append(workload)
    return tuple(found)


def _policy(search: Evolution, name: str) -> LinearPolicy:
    policy = search.policy(name)
    assert isinstance(policy, LinearPolicy)
    return policy


def _members(
    plan: Plan, workloads: tuple[Workload, ...], general: LinearPolicy, arena: Arena, say: Say
) -> dict[str, LinearPolicy]:
    """Search on from the general policy and from rules, each on the clusters that it is best on."""
    starts = {f"{GENERAL}-2": general} | {f"from-{name}": as_linear(heuristic(name)) for name in STARTS}
    config = Config(population=16, episodes=4)
    searches = {
        name: Evolution(workloads, Task(), config, plan.seed + 1 + i, start=start, arena=arena)
        for i, (name, start) in enumerate(starts.items())
    }
    policies = dict(starts)
    for number in range(plan.rounds):
        costs = _costs(arena, list(policies.values()))
        for row, search in zip(costs, searches.values(), strict=True):
            search.draw_from(np.flatnonzero(row <= costs.min(axis=0) + NEARLY))
        for name, search in searches.items():
            for _ in range(plan.round_generations):
                search.iterate()
            policies[name] = _policy(search, name)
        costs = _costs(arena, list(policies.values()))
        means = ", ".join(f"{name} {mean:.2f}" for name, mean in zip(policies, costs.mean(axis=1), strict=True))
        best = costs.min(axis=0).mean()
        say(f"round {number + 1} of {plan.rounds}: % not allocated: {means}; by the best of them {best:.2f}")
    return policies


def _costs(arena: Arena, policies: Sequence[LinearPolicy]) -> npt.NDArray[np.float64]:
    """[policies, clusters] mean percent of GPUs not allocated in draws that no search uses."""
    costs = np.zeros((len(policies), len(arena.simulators)))
    for i, simulator in enumerate(arena.simulators):
        for k in range(DRAWS):
            drawn = resample(simulator.workload, ratio=arena.task.ratio, seed=FIRST_DRAW + k)
            for j, policy in enumerate(policies):
                costs[j, i] += arena.task.play(simulator, drawn, policy, k) / DRAWS
    return costs


def _on_openb(plan: Plan, say: Say) -> LinearPolicy:
    search = Evolution(plan.openb, Task(), Config(), plan.seed, plan.jobs)
    try:
        for generation in range(plan.openb_generations):
            search.iterate()
            if generation % 20 == 19:
                say(f"openb: generation {generation + 1} of {plan.openb_generations}")
        return _policy(search, OPENB)
    finally:
        search.close()


def _card(plan: Plan, members: dict[str, LinearPolicy]) -> Card:
    last = FIRST_CLUSTER + plan.clusters
    return Card(
        name="steersman",
        view=VIEW,
        view_version=view(VIEW).version,
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
            "round_generations": plan.round_generations,
            "openb_generations": plan.openb_generations,
            "last_cluster_seed_at_least": last,
        },
        made_by=f"steersman {steersman.__version__}",
    )


def _arrays(members: Sequence[LinearPolicy]) -> dict[str, npt.NDArray[np.float32]]:
    rules = [np.zeros((KINDS, RULES)) if each.rules is None else each.rules for each in members]
    return {
        "weights": np.stack([each.weights for each in members]).astype(np.float32),
        "rules": np.stack(rules).astype(np.float32),
    }
