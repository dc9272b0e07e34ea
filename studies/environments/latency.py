"""The four objectives of Matranga's thesis on a simulated cluster with telemetry: against kube-scheduler's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from steersman.agents.configs import EpisodeEvolutionConfig
from steersman.agents.evolution.episodes import EpisodeEvolution
from steersman.agents.networks.score_networks import build
from steersman.agents.networks.spec import NetworkConfig, sizes_of
from steersman.agents.registry import find_algorithm
from steersman.envs.environment import Chooser, Figures
from steersman.envs.latency import LatencyOptions, LatencyVectorEnv
from steersman.evaluation.generated import play_all
from steersman.workloads.generators.latency_settings import LatencySettings
from studies import tables
from studies.common import SEEDS, Desk, Json, Progress, Say, desk

NAME = "latency"
BASELINE = "kube-default"
MINUTES = 25
EVOLUTION = "evolution"
EVOLVED = EpisodeEvolutionConfig(population=16, episodes=4, step=0.3)
GENERATIONS = 60
TRAINING_SEEDS: dict[str, tuple[int, ...]] = {EVOLUTION: (1, 2, 3), "ppo": (1,), "dqn": (1,)}
"""By algorithm. Evolution is what solves the tasks; the others are there to compare what they reach and cost."""
HIDDEN = (32, 32)
ENVIRONMENTS = 32
DECISIONS = {"ppo": 200_000, "dqn": 100_000}
GRADIENT_OPTIONS: dict[str, Json] = {"ppo": {}, "dqn": {"minimum_epsilon": 0.02, "epsilon_decay": 0.998}}
REWARDS = {"least-allocated": "balance"}
"""What is rewarded where the objective of the task's name is not what its figure measures: `least-allocated` asks for
small squares of shares, which are smallest when large nodes have higher shares, and not when all are equal."""


class Aim(NamedTuple):
    """What a task wants of a figure: `sign` 1, more of it than the baseline; -1, less; 0, none at all."""

    figure: str
    sign: int


TASKS = {
    "most-allocated": (Aim("empty_nodes", 1),),
    "least-allocated": (Aim("cpu_use_deviation_percent", -1),),
    "least-connections": (Aim("connections_peak", -1), Aim("connections_maximum_mean", -1)),
    "latency-aware": (
        Aim("hard_limits_broken_avoidable", 0),
        Aim("soft_limits_kept_percent", 1),
        Aim("used_nodes", -1),
    ),
}
"""Tasks of Matranga's thesis, by the objective that rewards them."""

LABELS = {
    "empty_nodes": "empty nodes",
    "cpu_use_deviation_percent": "deviation of used CPU, %",
    "connections_peak": "most connections ever",
    "connections_maximum_mean": "most connections, mean",
    "hard_limits_broken_avoidable": "hard limits broken, avoidable",
    "soft_limits_kept_percent": "soft limits kept, %",
    "used_nodes": "used nodes",
}
COUNTED = "hard_limits_broken_avoidable"
PRECISE = 2


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "tasks": list(TASKS)[-1:] if quick else list(TASKS),
        "training_seeds": {EVOLUTION: (1,)} if quick else TRAINING_SEEDS,
        "rewards": {task: REWARDS.get(task, task) for task in TASKS},
        "generations": 2 if quick else GENERATIONS,
        "evolution": asdict(EpisodeEvolutionConfig(population=4, episodes=1) if quick else EVOLVED),
        "decisions": DECISIONS,
        "gradient_options": GRADIENT_OPTIONS,
        "hidden": HIDDEN,
        "environments": ENVIRONMENTS,
        "settings": LatencySettings()._asdict(),
        "seeds": SEEDS[:2] if quick else SEEDS,
    }


def run(say: Say, quick: bool = False) -> Json:
    """Train for every task, and play every policy on the seeds of the evaluation."""
    torch.set_num_threads(1)
    at, asked = desk(NAME, quick, say), options(quick)
    rules = at.once("rules", asked, lambda: _named(play_all({n: n for n in (BASELINE, *TASKS)}, asked["seeds"])))
    learned: Json = {}
    for algorithm, seeds in asked["training_seeds"].items():
        for task in asked["tasks"]:
            for seed in seeds:
                name = f"{task}-{algorithm}-{seed}"
                learned[name] = at.once(name, asked, partial(_learn, at, asked, task, algorithm, seed))
    return {**asked, "rules": rules, "learned": learned, "comparison": _compare(asked, rules, learned)}


def _named(results: dict[str, Figures]) -> Json:
    """By policy and figure: [S] values."""
    return {policy: {name: values.tolist() for name, values in of.items()} for policy, of in results.items()}


def _learn(at: Desk, asked: Json, task: str, algorithm: str, seed: int) -> Json:
    """Train from a seed; CPU seconds, decisions played, and by figure [S] values."""
    what = f"{task}, {algorithm} from seed {seed}"
    began = time.process_time()
    learn = _evolve if algorithm == EVOLUTION else partial(_descend, algorithm)
    act, decisions = learn(asked, task, seed, Progress(at.say, what))
    seconds = round(time.process_time() - began, 1)
    figures = play_all({"learned": act}, asked["seeds"], LatencyOptions(objective=asked["rewards"][task]))["learned"]
    result = {name: values.tolist() for name, values in figures.items()}
    reached = ", ".join(f"{LABELS[aim.figure]} {np.mean(result[aim.figure]):.2f}" for aim in TASKS[task])
    at.say(f"{what}: {seconds:.0f} CPU seconds, {reached}")
    return {"task": task, "algorithm": algorithm, "cpu_seconds": seconds, "decisions": decisions, "figures": result}


def _environment(objective: str, count: int) -> LatencyVectorEnv:
    return LatencyVectorEnv(count, objective=objective, copy=False)


def _evolve(asked: Json, task: str, seed: int, progress: Callable[[int, int], None]) -> tuple[Chooser, int]:
    """Train a linear policy by evolution; return it and its decisions."""
    make = partial(_environment, asked["rewards"][task])
    spec = NetworkConfig("linear", sizes_of(make(1).single_observation_space), ())
    search = EpisodeEvolution(make, spec, EpisodeEvolutionConfig(**asked["evolution"]), seed)
    for generation in range(asked["generations"]):
        search.iterate()
        progress(generation + 1, asked["generations"])
    return search.act, search.steps


def _descend(
    algorithm: str, asked: Json, task: str, seed: int, progress: Callable[[int, int], None]
) -> tuple[Chooser, int]:
    """Train an MLP by gradients; return it and its decisions."""
    registered = find_algorithm(algorithm)
    kind, config = registered.load(), registered.config
    env = LatencyVectorEnv(asked["environments"], objective=asked["rewards"][task])
    network = build("mlp", sizes_of(env.single_observation_space), tuple(asked["hidden"]), seed=seed)
    agent: Any = kind(env, network, config(**asked["gradient_options"][algorithm]), seed)
    while agent.steps < asked["decisions"][algorithm]:
        agent.iterate()
        progress(agent.steps, asked["decisions"][algorithm])
    return agent.act, agent.steps


def _compare(asked: Json, rules: Json, learned: Json) -> Json:
    """By task and policy, then by figure: [trainings] means, and the paired difference to kube-scheduler's default."""
    result: Json = {}
    for task in asked["tasks"]:
        rows: Json = {}
        for name, runs in _policies(asked, task, rules, learned).items():
            rows[name] = {
                aim.figure: {
                    "values": tables.spread(np.mean([run[aim.figure] for run in runs], axis=0)),
                    "difference": tables.difference(
                        np.mean([run[aim.figure] for run in runs], axis=0), rules[BASELINE][aim.figure]
                    ),
                    "trainings": [float(np.mean(run[aim.figure])) for run in runs],
                    "sum": float(np.sum([run[aim.figure] for run in runs])),
                }
                for aim in TASKS[task]
            }
        result[task] = rows
    return result


def _policies(asked: Json, task: str, rules: Json, learned: Json) -> dict[str, list[Json]]:
    """Train the policies of a task; return the metrics of each one's trainings."""
    policies = {BASELINE: [rules[BASELINE]], f"rule {task}": [rules[task]]}
    for algorithm in asked["training_seeds"]:
        runs = [one for one in learned.values() if (one["task"], one["algorithm"]) == (task, algorithm)]
        policies[f"learned, {algorithm}"] = [one["figures"] for one in runs]
    return policies


def section(result: Json) -> str:
    """For the report."""
    rows = []
    for task, policies in result["comparison"].items():
        for policy, figures in policies.items():
            for figure, row in figures.items():
                shown = (
                    f"{row['sum']:.0f} in all" if figure == COUNTED else tables.number(row["values"]["mean"], PRECISE)
                )
                each = ", ".join(f"{value:.{PRECISE}f}" for value in row["trainings"])
                apart = "" if policy == BASELINE else tables.interval(row["difference"], PRECISE)
                rows.append([f"{task}: {policy}", LABELS[figure], shown, each if "," in each else "", apart])
    settings = result["settings"]
    costs = []
    for algorithm in result["training_seeds"]:
        runs = [one for one in result["learned"].values() if one["algorithm"] == algorithm]
        costs.append(f"{algorithm} {np.mean([one['cpu_seconds'] for one in runs]):.0f}")
    header = ["task: policy", "figure", "mean", "each training", "difference"]
    return f"""## Matranga's objectives in `steersman/Latency-v0`

Each policy learned from the reward of its objective alone ({
        "; ".join(f"`{task}` from `{reward}`" for task, reward in result["rewards"].items() if task != reward)
    }); evolution has a linear network, the others an MLP. Mean CPU
seconds of a training: {"; ".join(costs)}. Evaluated are the clusters and workloads of seeds
{tables.seeds_text(result["seeds"])}, which no training saw; differences are to kube-scheduler's default and paired
by seed. The state is partly observed. Nodes are scraped every {settings["scrape_interval"]:.0f} s, a sample has an
error of {100 * settings["noise"]:.0f} %, and {100 * settings["missed"]:.0f} % of scrapes begin an outage. CPU is a rate
between two scrapes, traffic a rate over 5 minutes. Figures are true values, not measured ones. Learned `latency-aware`
policies choose among the nodes that the filter of hard limits leaves (`core/src/telemetry.rs`); rules
and kube-scheduler do without. A hard limit counts as broken avoidably if some node with room could have met it.

{tables.markdown(header, rows)}
"""
