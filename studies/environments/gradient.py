"""A deep network trained by gradients against FGD: DQN on the growth of what nodes are expected to lose.

A node's state says what will be left of its GPUs in the end: by filling it up with typical pods (two kinds of
sequences) and by a planned table of losses of devices. The reward of a placement is by how much the mean of these
forecasts falls, so it comes at once; and since filling a full node leaves its idle GPU, the rewards of the first
forecast add up to what is allocated in the end (potential-based shaping: Ng, Harada, Russell, "Policy invariance under
reward transformations", ICML 1999). DQN learns from these rewards alone on clusters of 31 nodes; there is no teacher.
Its network looks at one node and the pod, so that it plays on clusters of any size.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import VectorEnv, VectorWrapper

import steersman
from steersman.agents.base import random_rows
from steersman.agents.configs import DQNConfig
from steersman.agents.dqn import DQN
from steersman.agents.networks.score_networks import ScoreNetwork, build, export
from steersman.agents.networks.spec import sizes_of
from steersman.envs.workload import InflationVectorEnv
from steersman.evaluation.experiment import Experiment
from steersman.policies.features import GPU, POD_KINDS
from steersman.policies.greedy_forecast import (
    FORECASTS,
    SHARE_FORECASTS,
    forecast_card,
    forecast_policy,
    forecast_weights,
)
from steersman.policies.policy_file import Card, write_policy
from steersman.training.run import POLICY
from steersman.workloads.formats.openb import embedded, embedded_names
from steersman.workloads.workload import Workload
from studies import tables
from studies.common import SEEDS as ALL_SEEDS
from studies.common import Budget, Desk, Json, Progress, Say, desk, evaluate, shipped_split, train, workloads

NAME = "gradient"
MINUTES = 60
DATA = ("openb",)
BASELINE, RULE, EVOLUTION = "fgd", "forecast", "evolution"
METRIC = "gpu_allocation_percent"
TRAINING_SEEDS = (1, 2, 3)
HIDDEN = (32, 32)
ENVIRONMENTS = 16
KEEP = 40
"""Training clusters have every 40th node, and all pods of the trace to draw from."""
DECISIONS = 90_000
EVOLUTION_BUDGET = Budget(generations=10, seeds=TRAINING_SEEDS)
"""About five times the CPU time of a training here."""

FGD_SCORE = ("fgd_score",)
FORECASTING = ("lost_planned", "filled_idle", "gpu_filled_idle")
FORECAST_FEATURES = tuple(f"{name}_{part}" for name in FORECASTING for part in ("after", "change"))
"""Features that are forecasts."""

LOOKS = 200
NO_SPREAD = 1e-4

Array = npt.NDArray[np.float64]
Env = VectorEnv[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to train.

    Attributes:
        words: for the report.
        gamma: of DQN.
        without: what the network may not see, names of node features.
        reward_scale: brings its values to about 1.
    """

    words: str
    gamma: float
    without: tuple[str, ...] = ()
    reward_scale: float = 8.0


SEEDS = ALL_SEEDS[:10]
"""Of the evaluation: networks with features of the cluster score every node anew at every decision."""

VARIANTS = {
    "dqn": Variant("DQN, all features", 0.8),
    "dqn-no-fgd": Variant("DQN without FGD's score", 0.8, FGD_SCORE),
    "dqn-no-forecasts": Variant("DQN without FGD's score and without forecasts", 0.8, FGD_SCORE + FORECAST_FEATURES),
    "dqn-at-once": Variant("DQN for the next reward alone", 0.0, reward_scale=20.0),
}


def config(variant: Variant, decisions: int) -> DQNConfig:
    """DQN's options; the learning rate falls to a fiftieth."""
    update_every = 16
    return DQNConfig(
        gamma=variant.gamma,
        learning_rate=3e-3,
        learning_rate_decay=0.02 ** (update_every / decisions),
        batch_size=256,
        replay_size=12_000,
        update_every=update_every,
        target_update_every=200,
        minimum_epsilon=0.1,
        epsilon_decay=0.998,
        reward_scale=variant.reward_scale,
        candidates=24,
    )


# What is played ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Scale:
    """How node features are standardised.

    Attributes:
        mean: [F] over feasible nodes.
        unit: [F] one over the deviation among the nodes of a decision, which is what a choice sees; 0: left out.
    """

    mean: Array
    unit: Array


class Forecast(VectorWrapper):  # type: ignore[misc, type-arg, unused-ignore]
    """Environments with forecasts for rewards, standardised features, and nothing of the cluster as a whole.

    Scores that depend on the cluster as a whole change everywhere with each placement: a table of scores is no help.
    """

    def __init__(self, env: Env, scale: Scale) -> None:
        super().__init__(env)
        self.mean, self.unit = scale.mean.astype(np.float32), scale.unit.astype(np.float32)
        self.weights = forecast_weights()
        self.seen: dict[str, npt.NDArray[Any]] = {}

    def reset(self, **options: Any) -> Any:
        """See `VectorEnv`."""
        observation, infos = self.env.reset(**options)
        return self._look(observation), infos

    def step(self, actions: Any) -> Any:
        """See `VectorEnv`."""
        chosen = self.seen["nodes"][np.arange(len(actions)), actions]
        weights = self.seen["pod"][:, :POD_KINDS] @ self.weights
        observation, _, terminated, truncated, infos = self.env.step(actions)
        return self._look(observation), -(chosen * weights).sum(axis=1), terminated, truncated, infos

    def _look(self, observation: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        self.seen = observation
        nodes = (observation["nodes"] - self.mean) * self.unit
        return {**observation, "nodes": nodes, "context": np.zeros_like(observation["context"])}


def small(name: str) -> Workload:
    """Return an embedded workload on few nodes."""
    whole = embedded(name)
    return Workload(whole.name, whole.nodes[::KEEP], whole.pods)


def measure(env: Env, without: tuple[str, ...], seed: int) -> Scale:
    """Look at features along random play; those in `without` are left out."""
    rng = np.random.default_rng(seed)
    observation, _ = env.reset(seed=seed)
    count, total, squares = 0.0, np.zeros(len(GPU.node)), np.zeros(len(GPU.node))
    for _ in range(LOOKS):
        nodes, mask = observation["nodes"].astype(np.float64), observation["mask"] > 0
        mean = (nodes * mask[..., None]).sum(axis=1) / np.maximum(mask.sum(axis=1), 1)[:, None]
        total += nodes[mask].sum(axis=0)
        squares += (((nodes - mean[:, None]) ** 2)[mask]).sum(axis=0)
        count += mask.sum()
        observation, *_ = env.step(random_rows(mask, rng))
    deviation = np.sqrt(squares / count)
    out = np.array([feature.name in without for feature in GPU.node])
    unit = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=(deviation > NO_SPREAD) & ~out)
    return Scale(total / count, unit)


# Training and files --------------------------------------------------------------------------------------------------


def arrays_of(network: ScoreNetwork, scale: Scale) -> dict[str, npt.NDArray[Any]]:
    """Return the network for features as they are, and without those of the cluster."""
    arrays: dict[str, npt.NDArray[Any]] = {name: array.astype(np.float64) for name, array in export(network).items()}
    first = arrays["layers.0.weight"]
    nodes = first[:, : len(GPU.node)] * scale.unit
    arrays["layers.0.bias"] = arrays["layers.0.bias"] - nodes @ scale.mean
    arrays["layers.0.weight"] = np.concatenate([nodes, first[:, len(GPU.node) : -len(GPU.context)]], axis=1)
    return arrays


def learn(at: Desk, name: str, variant: Variant, asked: Json, seed: int) -> tuple[Path, Json]:
    """Train a network, or take the one that is there; the policy file, and `cpu_seconds`."""
    folder, decisions = at.folder / name, int(asked["decisions"])
    settings = config(variant, decisions)

    def compute() -> Json:
        env = InflationVectorEnv(ENVIRONMENTS, workload=[small(each) for each in asked["training"]], view=GPU.name)
        measure(env, (), seed)  # so that mixes are planned and kernels compiled, which is not learning
        began = time.process_time()
        scale = measure(env, variant.without, seed)
        network = build("mlp", sizes_of(env.single_observation_space), HIDDEN, seed=seed)
        agent = DQN(Forecast(env, scale), network, settings, seed)
        progress = Progress(at.say, f"training {name}, decisions")
        while agent.steps < decisions:
            agent.iterate()
            progress(agent.steps, max(decisions, agent.steps))
        seconds = round(time.process_time() - began, 1)
        write_policy(folder / POLICY, _card(name, variant, settings, asked, seed), arrays_of(network, scale))
        return {"cpu_seconds": seconds}

    if not (folder / POLICY).exists():
        at.forget(name)
    known = {**asdict(variant), **asdict(settings), "training": asked["training"], "decisions": decisions}
    return folder / POLICY, at.once(name, known, compute)


def _card(name: str, variant: Variant, settings: DQNConfig, asked: Json, seed: int) -> Card:
    return Card(
        name=name,
        view=GPU.name,
        view_version=GPU.version,
        network="mlp",
        hidden=HIDDEN,
        objective="expected leftovers",
        algorithm=DQN.algorithm,
        protocol="inflation",
        ratio=1.3,
        training=tuple(asked["training"]),
        seeds=f"{seed} for training",
        settings={**asdict(settings), "without": ", ".join(variant.without)},
        steps=int(asked["decisions"]),
        made_by=f"steersman {steersman.__version__}",
    )


def write_rule(at: Desk) -> Path:
    """Return the policy that takes the greatest reward at once: linear, without learning."""
    path = at.folder / RULE / POLICY
    write_policy(path, forecast_card(RULE), forecast_policy(RULE).tensors())
    return path


# The study -----------------------------------------------------------------------------------------------------------


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    budget = EVOLUTION_BUDGET.shrunk() if quick else EVOLUTION_BUDGET
    decisions = 600 if quick else DECISIONS
    return {
        "variants": {name: asdict(variant) for name, variant in VARIANTS.items()},
        "settings": asdict(config(VARIANTS["dqn"], decisions)),
        "hidden": HIDDEN,
        "environments": ENVIRONMENTS,
        "keep": KEEP,
        "forecasts": {**FORECASTS, **SHARE_FORECASTS},
        "training": shipped_split().training[: 2 if quick else None],
        "decisions": decisions,
        "training_seeds": TRAINING_SEEDS[:1] if quick else TRAINING_SEEDS,
        "generations": budget.generations,
        "workloads": ("default", "gpushare60") if quick else embedded_names(),
        "seeds": SEEDS[:3] if quick else SEEDS,
    }


def run(say: Say, quick: bool = False) -> Json:
    """Train every variant and evolution with every training seed, and evaluate them side by side."""
    torch.set_num_threads(1)
    at, asked = desk(NAME, quick, say), options(quick)
    budget, split = EVOLUTION_BUDGET.shrunk() if quick else EVOLUTION_BUDGET, shipped_split()
    made: dict[str, tuple[Path, Json]] = {}
    for seed in asked["training_seeds"]:
        for name, variant in VARIANTS.items():
            made[f"{name}-{seed}"] = learn(at, f"{name}-{seed}", variant, asked, seed)
        path, told = train(at, f"{EVOLUTION}-{seed}", split, budget, seed)
        made[f"{EVOLUTION}-{seed}"] = path, {**told, "cpu_seconds": told["seconds"] * at.jobs}
    policies = (BASELINE, str(write_rule(at)), *(str(path) for path, _ in made.values()))
    runs = evaluate(at, Experiment(workloads(asked["workloads"], quick), policies, tuple(asked["seeds"])))
    values = tables.values_of(runs, METRIC)
    groups = {RULE: [RULE]}
    groups |= {name: [f"{name}-{seed}" for seed in asked["training_seeds"]] for name in (*VARIANTS, EVOLUTION)}
    with_mean = tables.with_mean(values)
    return {
        **asked,
        "trained": {label: told for label, (_, told) in made.items()},
        "values": values,
        "baseline": {workload: tables.spread(by[BASELINE]) for workload, by in with_mean.items()},
        "comparison": {
            name: {workload: _compare(by, labels) for workload, by in with_mean.items()}
            for name, labels in groups.items()
        },
    }


def _compare(by: dict[str, list[float]], labels: list[str]) -> Json:
    """Of the values of one workload: the mean over trainings against FGD, and each training by itself."""
    allocated, baseline = np.array([by[label] for label in labels]), by[BASELINE]
    return {
        "allocated": tables.spread(allocated.mean(axis=0)),
        "difference": tables.difference(allocated.mean(axis=0), baseline),
        "saved": tables.unallocated_saved(allocated.mean(axis=0), baseline),
        "difference_by_training": [tables.difference(each, baseline) for each in allocated],
    }


def section(result: Json) -> str:
    """Return the page of docs/results."""
    words = {
        **{name: each["words"] for name, each in result["variants"].items()},
        RULE: "greedy in the forecasts, nothing learned",
        EVOLUTION: f"evolution, {result['generations']} generations",
    }
    rows = [["`fgd`", tables.number(result["baseline"][tables.ALL]["mean"]), "", "", "", "", ""]]
    for name, text in words.items():
        value = result["comparison"][name]
        total, parts = value[tables.ALL], [each for workload, each in value.items() if workload != tables.ALL]
        trainings = [each["mean"] for each in total["difference_by_training"]]
        seconds = [told["cpu_seconds"] for label, told in result["trained"].items() if label.rpartition("-")[0] == name]
        rows.append(
            [
                text,
                tables.number(total["allocated"]["mean"]),
                tables.interval(total["difference"]),
                f"{min(trainings):+.2f} to {max(trainings):+.2f}" if len(trainings) > 1 else "",
                tables.interval(total["saved"], 1, sign=False),
                f"{sum((each['difference']['low'] or 0) > 0 for each in parts)} of {len(parts)}",
                tables.number(float(np.mean(seconds)), 0) if seconds else "",
            ]
        )
    header = ["policy", "GPU allocated, %", "difference to `fgd`", "trainings", "fewer unallocated GPUs, %"]
    header += ["workloads surely better", "CPU s of a training"]
    workloads_header = ["workload", "`fgd`", *(f"`{name}`" for name in ("dqn", "dqn-no-fgd"))]
    by_workload = [
        [
            name if name in (*result["training"], tables.ALL) else f"{name} *",
            tables.number(baseline["mean"]),
            *(tables.interval(result["comparison"][policy][name]["difference"]) for policy in ("dqn", "dqn-no-fgd")),
        ]
        for name, baseline in result["baseline"].items()
    ]
    return "\n".join(
        [
            "## A deep network trained by gradients",
            "",
            f"DQN with an MLP ({', '.join(map(str, result['hidden']))}) on afterstates, from rewards alone, "
            f"{result['decisions']:,} decisions on clusters of every {result['keep']}th node. The reward is how "
            "much a placement lowers the expected final loss of its node: the mean of forecasts by filling it with "
            "typical pods and, for shares, of planned losses of devices. *Without forecasts* the network does "
            "not see these, nor any table of leftovers. Networks choose GPU devices as well when they are played. "
            f"Whole clusters, seeds {tables.seeds_text(result['seeds'])}, paired; means over "
            f"{len(result['values'])} workloads and {len(result['training_seeds'])} trainings with 95 % intervals over "
            "seeds, and the range over trainings. *Surely better*: the interval of a workload lies above 0. "
            "The seconds of evolution are those of the clock times its processes, beside other work.",
            "",
            tables.markdown(header, rows),
            "",
            "By workload (difference to `fgd`; training did not use those with a star):",
            "",
            tables.markdown(workloads_header, by_workload),
        ]
    )
