"""Pods of one job on few racks, at no cost in allocated GPUs: a learned policy against FGD and kube-scheduler's."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.agents.configs import EpisodeEvolutionConfig
from steersman.agents.evolution.episodes import EpisodeEvolution, Weights, first_weights
from steersman.agents.networks.spec import NetworkConfig, sizes_of
from steersman.cluster.model import PodClass
from steersman.envs.workload import InflationVectorEnv
from steersman.policies.base import Policy
from steersman.policies.features import CLUSTER
from steersman.policies.network_policy import NetworkPolicy
from steersman.policies.policy_file import Card, open_network
from steersman.policies.registry import resolve
from steersman.simulation.run import Simulator
from steersman.workloads.formats.openb import SMALL, embedded
from steersman.workloads.topology import RACK, Hierarchy, label_nodes
from steersman.workloads.workload import Workload
from studies import tables
from studies.common import SEEDS, Desk, Json, Progress, Say, desk

NAME = "locality"
MINUTES = 15
DATA = ("openb",)
SERVERS_PER_RACK = 4
JOB = 8
"""Pods of a job at most: pods of one class, in the order of the trace."""
OBJECTIVE = "allocation=1,locality=0.02"
"""A GPU more in use at the end is worth as much as 50 pods that go where their job is."""
EVOLVED = EpisodeEvolutionConfig(population=16, episodes=2, step=0.3)
GENERATIONS = 100
TRAINING_SEEDS = (1, 2, 3)
RULES = ("fgd", "kube-default")
FGD_WEIGHT = 20.0
"""The search starts at FGD, with a weight that is large beside the search's first step."""
LEARNED = "learned"
RACKS, ALLOCATED = "racks_a_job", "gpu_allocation_percent"
LABELS = {RACKS: "racks a job", ALLOCATED: "allocated GPU, %"}


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "objective": OBJECTIVE,
        "servers_per_rack": SERVERS_PER_RACK,
        "job": JOB,
        "evolution": asdict(EpisodeEvolutionConfig(population=4, episodes=1) if quick else EVOLVED),
        "generations": 2 if quick else GENERATIONS,
        "training_seeds": TRAINING_SEEDS[:1] if quick else TRAINING_SEEDS,
        "seeds": SEEDS[:2] if quick else SEEDS,
    }


def run(say: Say, quick: bool = False) -> Json:
    """Train from every seed, and play all policies on the seeds of the evaluation."""
    at, asked = desk(NAME, quick, say), options(quick)
    workload = with_jobs(embedded(SMALL), asked["job"], asked["servers_per_rack"])
    rules = at.once("rules", asked, lambda: {name: _play(workload, resolve(name), asked["seeds"]) for name in RULES})
    learned: Json = {}
    for seed in asked["training_seeds"]:
        learned[str(seed)] = at.once(f"evolution-{seed}", asked, partial(_learn, at, asked, workload, seed))
    return {**asked, "rules": rules, "learned": learned, "comparison": _compare(rules, learned)}


def with_jobs(workload: Workload, size: int, servers_per_rack: int) -> Workload:
    """Return the workload with racks, and with jobs: `size` consecutive pods of one class have one owner."""
    counts: defaultdict[PodClass, int] = defaultdict(int)
    number = {each: i for i, each in enumerate(dict.fromkeys(pod.pod_class for pod in workload.pods))}
    pods = []
    for pod in workload.pods:
        job, counts[pod.pod_class] = counts[pod.pod_class] // size, counts[pod.pod_class] + 1
        pods.append(replace(pod, owner=f"Job/{number[pod.pod_class]}-{job}"))
    return replace(workload, nodes=label_nodes(workload.nodes, Hierarchy(servers_per_rack)), pods=tuple(pods))


def _learn(at: Desk, asked: Json, workload: Workload, seed: int) -> Json:
    """Train from a seed; CPU seconds, decisions played, and by figure [S] values."""
    began = time.process_time()
    weights, decisions = train(asked, workload, seed, Progress(at.say, f"training from seed {seed}, generation"))
    seconds = round(time.process_time() - began, 1)
    card = Card(
        name=LEARNED,
        view=CLUSTER.name,
        view_version=CLUSTER.version,
        network="linear",
        objective=asked["objective"],
        algorithm="evolution",
    )
    network = open_network(LEARNED, card, weights)
    figures = _play(workload, NetworkPolicy(LEARNED, CLUSTER, network), asked["seeds"])
    at.say(f"seed {seed}: {seconds:.0f} CPU seconds, " + ", ".join(f"{k} {np.mean(v):.3f}" for k, v in figures.items()))
    return {"cpu_seconds": seconds, "decisions": decisions, "figures": figures}


def train(
    asked: Json, workload: Workload, seed: int, progress: Callable[[int, int], None]
) -> tuple[dict[str, npt.NDArray[Any]], int]:
    """Train a linear policy by evolution from FGD; return it and its decisions."""

    def make(count: int) -> InflationVectorEnv:
        return InflationVectorEnv(count, workload=workload, objective=asked["objective"], copy=False)

    spec = NetworkConfig("linear", sizes_of(make(1).single_observation_space), ())
    search = EpisodeEvolution(make, spec, EpisodeEvolutionConfig(**asked["evolution"]), seed, start=_fgd(spec))
    for generation in range(asked["generations"]):
        search.iterate()
        progress(generation + 1, asked["generations"])
    return dict(search.best()), search.steps


def _fgd(spec: NetworkConfig) -> Weights:
    """Return the weights with which a linear network is FGD."""
    weights = first_weights(spec, np.random.default_rng(0))
    weights["head.weight"][:, CLUSTER.node_column("fgd_score")] = FGD_WEIGHT
    return weights


def _play(workload: Workload, policy: Policy, seeds: tuple[int, ...]) -> dict[str, list[float]]:
    """By figure: [S] values at the end of runs of the protocol `inflation`."""
    simulator = Simulator(workload)
    rack = {node.name: node.labels[RACK] for node in workload.nodes}
    job = {pod.name: pod.owner for pod in workload.pods}
    value: dict[str, list[float]] = {RACKS: [], ALLOCATED: []}
    for seed in seeds:
        result = simulator.run(policy, seed=seed, record=True)
        assert result.placements is not None
        places: defaultdict[str, list[str]] = defaultdict(list)
        for pod, node in zip(result.placements.pod, result.placements.node, strict=True):
            if node:
                places[job[pod]].append(rack[node])
        value[RACKS].append(float(np.mean([len(set(racks)) for racks in places.values() if len(racks) > 1])))
        value[ALLOCATED].append(next(m.value for m in result.metrics if m.name == ALLOCATED))
    return value


def _compare(rules: Json, learned: Json) -> Json:
    """By policy and figure: the mean, each training's, and the learned policy's difference to it, paired by seed."""
    ours = {figure: np.mean([each["figures"][figure] for each in learned.values()], axis=0) for figure in LABELS}
    result: Json = {}
    for name, figures in {**rules, LEARNED: {figure: ours[figure].tolist() for figure in LABELS}}.items():
        result[name] = {
            figure: {"values": tables.spread(figures[figure]), "ours": tables.difference(ours[figure], figures[figure])}
            for figure in LABELS
        }
    for figure in LABELS:
        result[LEARNED][figure]["trainings"] = [float(np.mean(each["figures"][figure])) for each in learned.values()]
    return result


def section(result: Json) -> str:
    """For the report."""
    rows = []
    for name, figures in result["comparison"].items():
        cells = [name]
        for row in figures.values():
            own = ", ".join(f"{value:.2f}" for value in row.get("trainings", []))
            mean = tables.number(row["values"]["mean"])
            cells += [f"{mean} ({own})" if own else mean, tables.interval(row["ours"]) if name != LEARNED else ""]
        rows.append(cells)
    header = ["policy", *(text for label in LABELS.values() for text in (label, "learned, difference"))]
    seconds = ", ".join(f"{each['cpu_seconds']:.0f}" for each in result["learned"].values())
    return f"""## Rack locality of jobs

64 nodes and 510 pods of the workload `default`, {result["servers_per_rack"]} nodes a rack; every {result["job"]} pods
of one class are a job. Pods arrive in random order until they ask for 1.3 times the GPUs. A linear policy on the view
`cluster` is evolved from FGD on with the objective `{result["objective"]}` (CPU seconds of each training: {seconds}).
All then play the arrivals of seeds {tables.seeds_text(result["seeds"])}, which no training saw. Racks are counted
for jobs with two placed pods or more; in brackets each training.

{tables.markdown(header, rows)}
"""
