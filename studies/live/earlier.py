"""Four agents with the default options of `train`, on their own task and on the runs that AAML published.

AAML learns while it schedules. Its driver recorded the Deployments of its six runs of 10 December 2023: two fillings
each, of about 155 equal pods on ten workers. The log does not say where the first one ends, which is taken to be half
of the pods. Here the agents learn in the simulator, and then place the second filling of each recording.
"""

from __future__ import annotations

import math

import numpy as np

from steersman.agents.registry import find_algorithm
from steersman.envs.deployments import DeploymentsOptions
from steersman.evaluation.experiment import Experiment
from steersman.evaluation.generated import nominal_workload
from steersman.training.learning import LearningPlan
from steersman.training.plans import PlanOptions, make_plan
from steersman.training.run import TrainingLimits
from steersman.workloads.generators.deployments import cluster, read_rows, replay
from steersman.workloads.workload import Workload
from studies import tables
from studies.common import Json, Say, desk, evaluate, train_plan
from studies.live.agents import AGENTS
from studies.queues.traces import trace_file

NAME = "earlier"
MINUTES = 30
DATA = ("aaml",)
NODES = 10
TASK = DeploymentsOptions(nodes=NODES)
RULES = ("kube-default", "least-allocated", "most-even", "random")
RUNS = ("154341", "163452", "192319", "201854", "212550", "220451")
"""Hour, minute and second in the names of AAML's recordings."""
PUBLISHED = {
    "DQN, MLP": (36.0, 35.1),
    "DQN, GNN": (43.6, 55.2),
    "actor-critic, MLP": (17.1,),
    "actor-critic, GNN": (6.5,),
}
"""Deviation of the nodes' CPU at the end of AAML's runs, in points: `3. Cluster Variance` of its TensorBoard files."""
SEEDS = tuple(range(142, 162))


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "agents": {agent: _plan(agent, 1).options()["config"] for agent in AGENTS},
        "training_seeds": (1,) if quick else (1, 2, 3),
        "iterations": 4 if quick else None,
        "runs": RUNS[:1] if quick else RUNS,
        "seeds": SEEDS[:2] if quick else SEEDS,
    }


def run(say: Say, quick: bool = False) -> Json:
    """Train every agent with every training seed, and evaluate all side by side."""
    at, asked = desk(NAME, quick, say), options(quick)
    files, trained = {}, {}
    for agent in AGENTS:
        for seed in asked["training_seeds"]:
            plan = _plan(agent, seed)
            spec = find_algorithm(plan.algorithm)
            limits = TrainingLimits(asked["iterations"] or spec.iterations, validate_every=spec.validate_every)
            files[plan.name], trained[plan.name] = train_plan(at, plan.name, plan, limits)
    policies, seeds = (*RULES, *map(str, files.values())), tuple(asked["seeds"])
    recordings = tuple(recording(name) for name in asked["runs"])
    experiments = {
        "fillings": Experiment((nominal_workload(TASK),), policies, seeds, "deployments", environment=TASK),
        "recordings": Experiment(recordings, policies, seeds, "arrivals"),
    }
    deviations: dict[str, dict[str, list[float]]] = {}
    for task, experiment in experiments.items():
        for played in evaluate(at, experiment, task):
            end = float(played.curve.cpu_balance_percent[-1])
            deviations.setdefault(task, {}).setdefault(played.policy, []).append(end)
    pods = [len(workload.pods) for workload in recordings]
    return {**asked, "pods": pods, "trained": trained, "deviations": deviations}


def recording(name: str) -> Workload:
    """Return the second filling of a recorded run."""
    rows = read_rows(trace_file(f"data_20231210_{name}.csv"))
    pods = np.cumsum([row.pod_count for row in rows])
    second = int(np.abs(pods - pods[-1] / 2).argmin()) + 1
    return Workload(name, cluster(NODES), replay(rows[second:]))


def _plan(agent: str, seed: int) -> LearningPlan:
    algorithm, network = AGENTS[agent]
    plan = make_plan(TASK, f"{algorithm}-{network}-{seed}", algorithm, PlanOptions(network=network, seed=seed))
    assert isinstance(plan, LearningPlan)
    return plan


def section(result: Json) -> str:
    """Return the page of docs/results."""
    rows = []
    for name in (*RULES, *AGENTS):
        plans = [_plan(name, seed).name for seed in result["training_seeds"]] if name in AGENTS else [name]
        cells = [f"`{name}`" if name in RULES else name]
        for of_policy in result["deviations"].values():
            means = [f"{np.mean(of_policy[plan]):.2f}" for plan in plans]
            cells.append(", ".join(means))
        seconds = [f"{result['trained'][plan]['seconds']:.0f}" for plan in plans if plan in result["trained"]]
        rows.append([*cells, ", ".join(f"{value:.1f}" for value in PUBLISHED.get(name, ())), ", ".join(seconds)])
    optimum = _optimum(result)
    return "\n".join(
        [
            "## Four agents on AAML's task and recordings",
            "",
            f"`steersman train --protocol deployments` with its default options and {len(result['training_seeds'])} "
            f"seeds, in the simulator: random Deployments on {NODES} equal nodes of 64 CPUs up to half of the CPU, the "
            "memory or the pods. The table has the standard deviation of the nodes' CPU in use at the end, in points: "
            f"on {len(result['seeds'])} fillings of that kind that no training saw, and on the second filling of "
            f"{len(result['runs'])} runs that AAML recorded, up to 20 % of the CPU. *Published* is what AAML's agents "
            "had at the end of these runs, in which they learned for 27 to 38 minutes. Of the recorded pods, which are "
            f"equal, no placement leaves less than {optimum:.2f} in the mean.",
            "",
            tables.markdown(
                ["policy", "random fillings", "AAML's recordings", "published by AAML", "seconds of a training"], rows
            ),
        ]
    )


def _optimum(result: Json) -> float:
    return float(np.mean([_least_deviation(pods) for pods in result["pods"]]))


def _least_deviation(pods: int) -> float:
    """Return the least deviation of CPU in points with so many pods of one CPU, on equal nodes of 64."""
    share = pods % NODES / NODES
    return 100.0 / 64.0 * math.sqrt(share * (1.0 - share))


def claim(result: Json) -> str:
    """Return what it shows, in a sentence."""
    of_policy = result["deviations"]["recordings"]
    ends = [float(np.mean(of_policy[name])) for name in result["trained"]]
    optimum = _optimum(result)
    others = ", ".join(f"{end:.1f}" for end in ends if end > optimum + 0.005)
    count = sum(end <= optimum + 0.005 for end in ends)
    published = [value for values in PUBLISHED.values() for value in values]
    return (
        f"On the Deployments that AAML recorded, {count} of {len(ends)} agents of its four kinds, trained with our "
        f"defaults, leave the least possible deviation of the nodes' CPU, {optimum:.2f} points"
        f"{f' (others: {others})' if others else ''}. AAML's own runs ended at {min(published)} to {max(published)}, "
        f"random placement at {np.mean(of_policy['random']):.1f}."
    )
