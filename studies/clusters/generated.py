"""Short trainings on generated clusters, and what policies allocate on clusters that no training saw."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from steersman.agents.configs import EvolutionConfig
from steersman.agents.evolution.simulations import CandidateEvaluator, Evolution, SimulationTask
from steersman.policies.base import Policy
from steersman.policies.linear import LinearPolicy
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Simulator
from steersman.workloads.generators.clusters import Distribution, random_cluster
from steersman.workloads.profile import typical_pods
from steersman.workloads.workload import Workload
from studies.common import SEEDS, Desk, Json, Progress

TRAINING_SEEDS = (1, 2, 3, 4, 5)
FIRST_CLUSTER = 100_000
"""Training K draws its clusters from seed K times this on, far from those of the shipped policy."""
FIRST_UNSEEN = 900_000
"""Clusters of evaluations begin here."""
MOST_GPUS, MOST_PODS = 350, 800
"""Of a cluster that is trained on: larger ones take longer and teach the same."""
BEST_OF = ("fgd", "best-fit", "gpu-packing")

IsKept = Callable[[Workload], bool]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a training goes.

    Attributes:
        clusters: generated for it.
        nodes: the fewest and the most of a cluster.
        generations: of the search.
        config: of the search.
    """

    clusters: int
    nodes: tuple[int, int]
    generations: int
    config: EvolutionConfig


RECIPE = Recipe(80, (5, 60), 80, EvolutionConfig(population=20, episodes=8, step=0.03, planned_weight=10.0))
"""With fewer clusters or fewer episodes a generation, what is learned does not carry over to other clusters."""
QUICK = Recipe(4, (16, 24), 2, EvolutionConfig(population=4, episodes=2, planned_weight=10.0))


def recipe(quick: bool) -> Recipe:
    """Return the recipe of a study."""
    return QUICK if quick else RECIPE


def options(quick: bool) -> Json:
    """Return what the results of a study with these trainings and evaluations depend on."""
    return {
        **asdict(recipe(quick)),
        "training_seeds": TRAINING_SEEDS[:2] if quick else TRAINING_SEEDS,
        "unseen": 3 if quick else 60,
        "unseen_nodes": (5, 8) if quick else (5, 120),
        "seeds": SEEDS[:2] if quick else SEEDS[:5],
    }


def everything(_: Workload) -> bool:
    """Keep every cluster."""
    return True


def draw(
    distribution: Distribution,
    first: int,
    count: int,
    nodes: tuple[int, int],
    *,
    keep: IsKept = everything,
    most_gpus: int = 10_000,
    most_pods: int = 2_500,
) -> tuple[Workload, ...]:
    """Draw `count` clusters from seed `first` on, without those that are too large or not to be kept."""
    result: list[Workload] = []
    seed = first
    while len(result) < count:
        workload = random_cluster(seed, distribution=distribution, nodes=nodes)
        small = len(workload.pods) <= most_pods and gpus(workload) <= most_gpus
        if small and keep(workload):
            result.append(workload)
        seed += 1
    return tuple(result)


def gpus(workload: Workload) -> int:
    """Return the devices of a cluster."""
    return sum(node.gpu_total for node in workload.nodes)


def simulator(workload: Workload, memory: bool = True) -> Simulator:
    """Make a workload ready; without `memory`, policies see CPU alone: the profile says that pods ask for no memory."""
    if memory:
        return Simulator(workload)
    profile = typical_pods(workload.pods[i] for i in workload.demand())
    return Simulator(workload, tuple(replace(pod, memory_bytes=0) for pod in profile))


def train(
    at: Desk, name: str, seed: int, *, keep: IsKept = everything, without: str = "", memory: bool = True
) -> tuple[LinearPolicy, float]:
    """Train a policy from the beginning on clusters of its own, in one process; what was trained before is kept.

    Args:
        at: keeps it.
        name: of the training; those with other options have other names.
        seed: of the clusters and of the search.
        keep: which clusters it may see.
        without: see `steersman.agents.configs.EvolutionConfig`.
        memory: whether it sees memory.

    Returns:
        The policy, and CPU seconds of the search.
    """
    how = recipe(at.quick)
    config = replace(how.config, without=without)

    clusters = draw(
        Distribution.TRAINING,
        FIRST_CLUSTER * seed,
        how.clusters,
        how.nodes,
        keep=keep,
        most_gpus=MOST_GPUS,
        most_pods=MOST_PODS,
    )

    def compute() -> Json:
        evaluator = CandidateEvaluator(clusters, SimulationTask(), config.reference)
        evaluator.simulators = [simulator(workload, memory) for workload in clusters]
        began, progress = time.process_time(), Progress(at.say, f"training {name}, generation")
        search = Evolution(clusters, SimulationTask(), config, seed, evaluator=evaluator)
        for generation in range(how.generations):
            search.iterate()
            progress(generation + 1, how.generations)
        policy = search.policy(name)
        return {"weights": policy.weights, "rules": policy.rules, "seconds": time.process_time() - began}

    names = [workload.name for workload in clusters]
    depends = {**asdict(how), "config": asdict(config), "clusters": names, "seed": seed, "memory": memory}
    kept = at.once(name, depends, compute)
    rules = None if kept["rules"] is None else np.array(kept["rules"], dtype=np.float64)
    return LinearPolicy(name, np.array(kept["weights"], dtype=np.float64), rules), float(kept["seconds"])


class Evaluation:
    """Workloads and arrivals that every policy plays in `inflation`.

    Args:
        workloads: that are filled.
        seeds: of the arrivals.
        memory: see `simulator`.
    """

    def __init__(self, workloads: Sequence[Workload], seeds: Sequence[int], memory: bool = True) -> None:
        self.simulators = [simulator(workload, memory) for workload in workloads]
        self._plans = [
            [(seed, schedule(workload, "inflation", seed=seed, ratio=1.3, load=None)) for seed in seeds]
            for workload in workloads
        ]

    def by_seed(self, policy: Policy) -> list[list[float]]:
        """Return the percent of the GPUs allocated in the end, by workload and seed."""
        return [self._by_seed(i, policy) for i in range(len(self.simulators))]

    def allocated(self, policy: Policy) -> list[float]:
        """Return the same by workload, means over seeds."""
        return [_mean(values) for values in self.by_seed(policy)]

    def chosen(self, policies: Sequence[Policy]) -> list[float]:
        """Return the same of the policy that short simulations choose for each workload."""
        best = [each.select(policies, protocol="inflation").best for each in self.simulators]
        return [_mean(self._by_seed(i, policies[which])) for i, which in enumerate(best)]

    def _by_seed(self, i: int, policy: Policy) -> list[float]:
        runs = (self.simulators[i].play(policy, plan, seed) for seed, plan in self._plans[i])
        return [round(100.0 - run.cost("inflation"), 4) for run in runs]


def _mean(values: list[float]) -> float:
    return round(float(np.mean(values)), 4)


def unseen(asked: Json, distribution: Distribution = Distribution.TRAINING) -> tuple[Workload, ...]:
    """Draw the clusters of an evaluation, given the `options`."""
    return draw(distribution, FIRST_UNSEEN, asked["unseen"], tuple(asked["unseen_nodes"]))


def best_of(by: dict[str, list[float]]) -> list[float]:
    """Return what the best of three rules allocates on each workload, given what each does."""
    return [max(values) for values in zip(*(by[rule] for rule in BEST_OF), strict=True)]


def described(result: Json) -> str:
    """Say how the policies of a result were trained and evaluated."""
    return (
        f"Each row has {len(result['training_seeds'])} trainings. Each has its own {result['clusters']} generated "
        f"clusters ({result['nodes'][0]} to {result['nodes'][1]} nodes) and random numbers, runs "
        f"{result['generations']} generations of {result['config']['population']} candidates, and gives one set of "
        f"weights. Evaluated in `inflation`, {len(result['seeds'])} seeds, on {result['unseen']} clusters of "
        f"{result['unseen_nodes'][0]} to {result['unseen_nodes'][1]} nodes that no training saw."
    )
