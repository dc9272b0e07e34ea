"""Every algorithm with every network: on a toy problem of known optimum, and briefly on two real environments."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from steersman.agents.base import teacher_of
from steersman.agents.configs import EpisodeEvolutionConfig
from steersman.agents.evolution.episodes import EpisodeEvolution
from steersman.agents.networks.score_networks import build
from steersman.agents.networks.spec import NetworkConfig, sizes_of
from steersman.agents.registry import GRADIENT_ALGORITHMS, find_algorithm
from steersman.envs.deployments import DeploymentsOptions
from steersman.envs.workload import WorkloadOptions
from steersman.policies.networks import NETWORKS
from steersman.training.environment import EnvironmentSpec
from studies import tables
from studies.common import Json, Progress, Say, desk
from studies.environments.toy_environment import Act, ToyVectorEnv, share_of_optimum

NAME = "toy"
MINUTES = 30
EVOLUTION = "evolution"
EVOLVED = ("linear", "mlp", "deepsets")
PAIRS = (
    *((algorithm, network) for algorithm in GRADIENT_ALGORITHMS for network in NETWORKS),
    *((EVOLUTION, network) for network in EVOLVED),
)
TRAINING_SEEDS = (0, 1, 2)
ENVIRONMENTS = 32
TOY_HIDDEN, HIDDEN = (16,), (64, 64)
TOY_OPTIONS: dict[str, Json] = {
    "dqn": {
        "learning_rate": 1e-2,
        "batch_size": 64,
        "update_every": 32,
        "target_update_every": 20,
        "epsilon_decay": 0.98,
        "reward_scale": 0.1,
    },
    "actor-critic": {"rollout": 8, "critic_steps": 2, "actor_learning_rate": 1e-2, "critic_learning_rate": 1e-2},
    "ppo": {"rollout": 16, "actor_learning_rate": 1e-2, "critic_learning_rate": 1e-2},
    "imitation": {"learning_rate": 1e-2, "batch_size": 64, "update_every": 32},
    EVOLUTION: {"population": 32, "episodes": 8},
}
"""For episodes of few decisions; on the real environments the algorithms have their default options."""
DECISIONS = {"toy": 12_000, "deployments": 10_000, "inflation": 10_000}
EVOLUTION_DECISIONS = {"toy": 600_000, "deployments": 100_000, "inflation": 100_000}
"""Evolution takes no gradient steps, which are what costs the others time, but needs whole episodes."""
TOY_EPISODES, TOY_SEED = 500, 99
SEEDS = tuple(range(9001, 9021))
RULES = {"deployments": "least-allocated", "inflation": "fgd"}

MakeEnv = Callable[[int], VectorEnv[Any, Any, Any]]


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "pairs": PAIRS[::5] if quick else PAIRS,
        "training_seeds": TRAINING_SEEDS[:1] if quick else TRAINING_SEEDS,
        "seeds": SEEDS[:2] if quick else SEEDS,
        "decisions": {task: 300 if quick else count for task, count in DECISIONS.items()},
        "evolution_decisions": {task: 300 if quick else count for task, count in EVOLUTION_DECISIONS.items()},
        "toy_options": TOY_OPTIONS,
        "defaults": {name: asdict(find_algorithm(name).config()) for name in GRADIENT_ALGORITHMS}
        | {EVOLUTION: asdict(EpisodeEvolutionConfig())},
        "rules": RULES,
    }


def run(say: Say, quick: bool = False) -> Json:
    """Train each pair on each task with each seed."""
    torch.set_num_threads(1)
    at, asked = desk(NAME, quick, say), options(quick)
    scenes = {
        "deployments": EnvironmentSpec("deployments", DeploymentsOptions()),
        "inflation": EnvironmentSpec("inflation", WorkloadOptions()),
    }
    rules = {task: _figure(task, scene, asked, RULES[task]) for task, scene in scenes.items()}
    same = {name: value for name, value in asked.items() if name not in ("pairs", "training_seeds")}
    progress, total = Progress(say, "trainings"), len(asked["pairs"]) * len(asked["training_seeds"])
    result: dict[str, list[Json]] = {}
    for algorithm, network in asked["pairs"]:
        budget = "decisions" if algorithm == EVOLUTION else "evolution_decisions"
        known = {name: value for name, value in same.items() if name != budget}
        known["toy_options"] = asked["toy_options"][algorithm]
        rows = result[f"{algorithm} {network}"] = []
        for seed in asked["training_seeds"]:
            progress(sum(map(len, result.values())), total)
            compute = partial(_pair, scenes, rules, asked, algorithm, network, seed)
            rows.append(at.once(f"{algorithm}-{network}-{seed}", known, compute))
    return {
        **asked,
        "rule_values": rules,
        "pairs": {
            pair: {
                task: {name: [row[task][name] for row in rows if task in row] for name in rows[0][task]}
                for task in rows[0]
            }
            for pair, rows in result.items()
        },
    }


def _pair(
    scenes: dict[str, EnvironmentSpec], rules: Json, asked: Json, algorithm: str, network: str, seed: int
) -> Json:
    """`value` and `cpu_seconds` by task; on the real environments of the first training alone."""
    made = {"toy": _toy(algorithm, network, seed, asked)}
    for task, scene in scenes.items() if seed == asked["training_seeds"][0] else ():
        made[task] = _real(task, scene, algorithm, network, seed, asked, rules[task])
    return made


def _toy(algorithm: str, network: str, seed: int, asked: Json) -> Json:
    """Return the share of the optimum."""
    make = partial(ToyVectorEnv, variant="reserve", nodes=4, max_nodes=5)
    act, seconds = _learn(
        make, algorithm, network, TOY_HIDDEN, TOY_OPTIONS[algorithm], _budget(asked, algorithm, "toy"), seed
    )
    unseen = ToyVectorEnv(64, "reserve", nodes=4, max_nodes=7)
    return {"value": share_of_optimum(unseen, act, TOY_EPISODES, seed=TOY_SEED), "cpu_seconds": seconds}


def _real(task: str, scene: EnvironmentSpec, algorithm: str, network: str, seed: int, asked: Json, rule: float) -> Json:
    """Return the final metric as a share of the rule's."""
    budget = _budget(asked, algorithm, task)
    act, seconds = _learn(scene.make, algorithm, network, HIDDEN, {}, budget, seed, RULES[task])
    return {"value": _figure(task, scene, asked, act) / rule, "cpu_seconds": seconds}


def _budget(asked: Json, algorithm: str, task: str) -> int:
    return int(asked["evolution_decisions" if algorithm == EVOLUTION else "decisions"][task])


def _learn(
    make: MakeEnv,
    algorithm: str,
    network: str,
    hidden: tuple[int, ...],
    changes: Json,
    decisions: int,
    seed: int,
    *rule: str,
) -> tuple[Act, float]:
    """Train for so many decisions; what the policy does then, and the CPU seconds it took."""
    began = time.process_time()
    if algorithm == EVOLUTION:
        spec = NetworkConfig(network, sizes_of(make(1).single_observation_space), hidden)
        learner: Any = EpisodeEvolution(make, spec, EpisodeEvolutionConfig(**changes), seed)
    else:
        env = make(ENVIRONMENTS)
        net = build(network, sizes_of(env.single_observation_space), hidden, seed=seed)
        registered = find_algorithm(algorithm)
        kind, config = registered.load(), registered.config
        learner = kind(
            env, net, config(**changes), seed, teacher=teacher_of(env, *rule) if algorithm == "imitation" else None
        )
    while learner.steps < decisions:
        learner.iterate()
    return learner.act, time.process_time() - began


def _figure(task: str, scene: EnvironmentSpec, asked: Json, policy: Any) -> float:
    """Return the mean over seeds at the ends: deviation of the nodes' CPU shares, or share of GPU allocated."""
    stage = scene.stage(asked["seeds"])
    figures = stage.play(stage.names[0], policy)
    return float(np.sqrt(figures["node_variance"]).mean() if task == "deployments" else figures["allocation"].mean())


def section(result: Json) -> str:
    """Return the page of docs/results."""
    rows = [
        [
            pair.replace(" ", ", "),
            *(
                f"{np.mean(value[task]['value']):.3f}"
                + (f" ({worst(value[task]['value']):.3f})" if len(value[task]["value"]) > 1 else "")
                for task, worst in WORST.items()
            ),
            tables.number(sum(float(np.mean(value[task]["cpu_seconds"])) for task in WORST), 0),
        ]
        for pair, value in result["pairs"].items()
    ]
    header = [
        "algorithm, network",
        "toy (1: optimum)",
        "Deployments (below 1: better)",
        "Inflation (above 1: better)",
        "CPU s",
    ]
    counts, evolved = result["decisions"], result["evolution_decisions"]
    return "\n".join(
        [
            "## Every algorithm with every network",
            "",
            "*Toy*: share of the known optimum that is earned on held-out instances; greedy play stays below 0.9. "
            "*Deployments*: standard deviation of the nodes' CPU use at the end (10 nodes, objective "
            "`balance`), as a share of that of the rule `least-allocated`. *Inflation*: GPU allocated at the end "
            "(64 nodes of `default`, objective `allocation`), as a share of `fgd`'s. The toy problem shows the mean of "
            f"{len(result['training_seeds'])} trainings, in parentheses the worst one; the others show one training. "
            "The budget is small and fixed: "
            f"{counts['toy']:,}, {counts['deployments']:,} and {counts['inflation']:,} decisions. Evolution, which "
            f"takes no gradient steps, has {evolved['toy']:,}, {evolved['deployments']:,} and "
            f"{evolved['inflation']:,}. Default options, {len(result['seeds'])} seeds. Imitation learns from the rule, "
            "on the toy problem from optimal play.",
            "",
            tables.markdown(header, rows),
        ]
    )


WORST: dict[str, Callable[[list[float]], float]] = {"toy": min, "deployments": max, "inflation": min}
"""The tasks, and which of several values is the worst."""
