"""Even CPU use, learned from reward alone on 10 nodes: how even it is there, and on 100 and 1,000 nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from steersman.agents.base import Agent, random_rows
from steersman.agents.configs import DQNConfig
from steersman.agents.dqn import DQN
from steersman.agents.networks.score_networks import build
from steersman.agents.networks.spec import sizes_of
from steersman.core.statistics import interquartile_mean
from steersman.envs.deployments import MIXED_SHAPES, DeploymentsVectorEnv
from steersman.policies.features import CLUSTER
from steersman.policies.most_even import variance_change
from studies import tables
from studies.common import Desk, Json, Progress, Say, desk

NAME = "balance"
MINUTES = 30
TRAINING_SEEDS = (1, 2, 3)
ENVIRONMENTS = 20
NODES = 10
EQUAL_SHARE = 0.5
"""Of the clusters that are trained on; the others have nodes of several sizes."""
CONFIG = DQNConfig(
    gamma=0.0, batch_size=256, replay_size=20_000, update_every=20, epsilon_decay=0.99, minimum_epsilon=0.02
)
FIRST_SEED = 1_000_000
RANDOM, GREEDY = "random", "greedy"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a network is built and trained: its layers, how many decisions it learns from, and steps of Adam."""

    hidden: tuple[int, ...]
    decisions: int
    learning_rate: float
    learning_rate_decay: float


RECIPES = {"mlp": Recipe((64, 64), 140_000, 3e-3, 0.9997), "gnn": Recipe((32,), 110_000, 4e-3, 0.9996)}

Observation = dict[str, npt.NDArray[Any]]
Act = Callable[[Observation], npt.NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Cluster:
    """What is evaluated on: how many nodes, whether of several sizes, in how many sequences of Deployments."""

    nodes: int
    mixed: bool
    seeds: int

    @property
    def name(self) -> str:
        """Such as `100 of 4 sizes`."""
        return f"{self.nodes:,} of {len(MIXED_SHAPES)} sizes" if self.mixed else f"{self.nodes:,} equal"

    def environment(self) -> DeploymentsVectorEnv:
        """One environment a seed."""
        shapes = MIXED_SHAPES if self.mixed else ()
        return DeploymentsVectorEnv(self.seeds, nodes=self.nodes, shapes=shapes, copy=False)


CLUSTERS = (Cluster(NODES, False, 20), Cluster(NODES, True, 20), Cluster(100, True, 20), Cluster(1000, True, 5))


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    clusters = CLUSTERS[:2] if quick else CLUSTERS
    return {
        "training_seeds": TRAINING_SEEDS[:1] if quick else TRAINING_SEEDS,
        "recipes": {name: asdict(recipe) | ({"decisions": 400} if quick else {}) for name, recipe in RECIPES.items()},
        "environments": ENVIRONMENTS,
        "equal_share": EQUAL_SHARE,
        "config": asdict(CONFIG),
        "clusters": [[each.nodes, each.mixed, 2 if quick else each.seeds] for each in clusters],
        "first_seed": FIRST_SEED,
    }


def run(say: Say, quick: bool = False) -> Json:
    """Train every network from every seed, and fill every cluster with each and with the rules."""
    torch.set_num_threads(1)
    at, asked = desk(NAME, quick, say), options(quick)
    clusters = [Cluster(*each) for each in asked["clusters"]]
    rules = at.once("rules", asked, partial(_play_rules, at, clusters))
    learned = {}
    for network in RECIPES:
        for seed in asked["training_seeds"]:
            name = f"{network}-{seed}"
            learned[name] = at.once(name, asked, partial(_learn, at, asked, clusters, network, seed))
    return {**asked, "rules": rules, "learned": learned, "comparison": _compare(rules, learned)}


def _play_rules(at: Desk, clusters: list[Cluster]) -> Json:
    """By cluster and rule: the standard deviation at the end of every sequence."""
    result: Json = {}
    for cluster in clusters:
        env = cluster.environment()
        result[cluster.name] = {name: final_deviations(env, act).tolist() for name, act in _rules(env).items()}
        at.say(f"rules on {cluster.name}")
    return result


def _rules(env: DeploymentsVectorEnv) -> dict[str, Act]:
    rng = np.random.default_rng(0)
    return {
        GREEDY: most_even,
        RANDOM: lambda seen: random_rows(seen["mask"] > 0, rng),
        "LeastAllocated": lambda _: env.heuristic("least-allocated"),
        "LeastAllocated + BalancedAllocation": _kube_resources,
    }


def most_even(observation: Observation) -> npt.NDArray[np.int64]:
    """[E] the feasible node that leaves the smallest standard deviation of the nodes' shares of CPU: the greedy rule.

    It is the policy `most-even` (`policies.most_even`) on observations of the view `cluster`. Ties: the lowest slot.
    """
    shown = observation["nodes"].astype(np.float64)
    before = shown[..., CLUSTER.node_column("cpu_deviation_before")]
    after = shown[..., CLUSTER.node_column("cpu_deviation_after")]
    doublings = 20.0 * observation["context"][:, CLUSTER.context_column("nodes")].astype(np.float64)
    count = np.rint(np.exp2(doublings) - 1.0)[:, None]
    change = variance_change(before, after, count)
    actions: npt.NDArray[np.int64] = np.where(observation["mask"] > 0, change, np.inf).argmin(1)
    return actions


def _learn(at: Desk, asked: Json, clusters: list[Cluster], network: str, seed: int) -> Json:
    """Train from a seed; CPU seconds, and by cluster the standard deviation at the end of every sequence."""
    agent, seconds = train(at, network, seed, Recipe(**asked["recipes"][network]))
    at.say(f"{network} from seed {seed}: {seconds:.0f} CPU seconds")
    ends = {}
    for cluster in clusters:
        ends[cluster.name] = final_deviations(cluster.environment(), agent.act).tolist()
        at.say(f"{network} from seed {seed} on {cluster.name}: {np.mean(ends[cluster.name]):.5f}")
    return {"network": network, "seed": seed, "cpu_seconds": seconds, "deviations": ends}


def train(at: Desk, network: str, seed: int, recipe: Recipe) -> tuple[Agent, float]:
    """Return an agent that has learned on clusters of 10 nodes, equal or of drawn sizes, and its CPU seconds."""
    env = DeploymentsVectorEnv(ENVIRONMENTS, nodes=NODES, shapes=MIXED_SHAPES, equal_share=EQUAL_SHARE)
    scores = build(network, sizes_of(env.single_observation_space), recipe.hidden, seed=seed)
    config = replace(CONFIG, learning_rate=recipe.learning_rate, learning_rate_decay=recipe.learning_rate_decay)
    agent = DQN(env, scores, config, seed)
    progress = Progress(at.say, f"training {network} from seed {seed}, decisions")
    began = time.process_time()
    while agent.steps < recipe.decisions:
        agent.iterate()
        progress(min(agent.steps, recipe.decisions), recipe.decisions)
    return agent, round(time.process_time() - began, 1)


def final_deviations(env: DeploymentsVectorEnv, act: Act) -> npt.NDArray[np.float64]:
    """[E] the standard deviation of the nodes' shares of CPU at the end of each environment's first filling."""
    ends = np.full(env.num_envs, np.nan)
    observation, _ = env.reset(seed=FIRST_SEED)
    while np.isnan(ends).any():
        observation, _, terminated, _, infos = env.step(act(observation))
        first = terminated & np.isnan(ends)
        if first.any():
            ends[first] = np.sqrt(infos["final_info"]["node_variance"][first])
    return ends


def _kube_resources(observation: Observation) -> npt.NDArray[np.int64]:
    """Return the choice of kube-scheduler's default resource scores: free and balanced CPU and memory."""
    cpu, memory = (observation["nodes"][..., CLUSTER.node_column(f"{r}_free_after")] for r in ("cpu", "memory"))
    scores = (cpu + memory) / 2.0 + 1.0 - np.abs(cpu - memory) / 2.0
    best: npt.NDArray[np.int64] = np.where(observation["mask"] > 0, scores, -np.inf).argmax(1)
    return best


def _compare(rules: Json, learned: Json) -> Json:
    """By cluster and policy: mean, interquartile mean, ratio to greedy; for a network, each training seed's ratio."""
    result: Json = {}
    for cluster, ends in rules.items():
        greedy = np.array(ends[GREEDY])
        rows: Json = {name: _row([values], greedy) for name, values in ends.items()}
        for network in RECIPES:
            runs = [each["deviations"][cluster] for each in learned.values() if each["network"] == network]
            rows[f"dqn, {network}"] = _row(runs, greedy)
        result[cluster] = rows
    return result


def _row(runs: list[list[float]], greedy: npt.NDArray[np.float64]) -> Json:
    """Of one policy, or of one trained several times: [training seeds][evaluation seeds] deviations."""
    mean = np.mean(runs, axis=0)
    return {
        "mean": float(mean.mean()),
        "interquartile_mean": interquartile_mean(mean),
        "difference": tables.difference(mean, greedy),
        "ratio": float(mean.mean() / greedy.mean()),
        "ratios": [float(np.mean(values) / greedy.mean()) for values in runs],
    }


def section(result: Json) -> str:
    """For the report."""
    rows = []
    for cluster, policies in result["comparison"].items():
        for policy, row in policies.items():
            each = ", ".join(f"{ratio:.3f}" for ratio in row["ratios"]) if len(row["ratios"]) > 1 else ""
            numbers = [f"{row['mean']:.4f}", f"{row['interquartile_mean']:.4f}", f"{row['ratio']:.3f}", each]
            rows.append([f"{cluster}: {policy}", *numbers, tables.interval(row["difference"], 4)])
    seconds = {
        network: [each["cpu_seconds"] for each in result["learned"].values() if each["network"] == network]
        for network in RECIPES
    }
    times = "; ".join(f"{name} {', '.join(f'{s:.0f}' for s in all_)}" for name, all_ in seconds.items())
    header = ["nodes: policy", "mean", "interquartile mean", "of greedy's", "each training", "difference to greedy"]
    return f"""## CPU balance learned from reward alone

DQN learns to fill {NODES} nodes with random Deployments up to 50 %. Nodes are equal in half of the clusters, and of
drawn sizes in the others. The only signal is the reward 1 - 2 s / (s + 1), at a discount of 0, where s is the standard
deviation over nodes of the share of CPU in use. Each network is trained {len(result["training_seeds"])} times (CPU
seconds: {times}). The same networks then fill clusters with held-out sequences of Deployments
({", ".join(f"{each[2]} on {each[0]:,}" for each in result["clusters"])} nodes). Shown is s at the end, its mean over
sequences and trainings. Greedy is the rule that minimises s after each placement.

{tables.markdown(header, rows)}
"""
