"""What `steersman tune` searches: for each algorithm the options that matter, and between which values."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from steersman.training.evolve import Plan
from steersman.training.learn import EVOLUTION, LearningPlan
from steersman.training.plans import AnyPlan

if TYPE_CHECKING:
    import optuna

Choice = tuple[int | float | str, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """Numbers from `low` to `high`, of which small ones are looked at as closely as large ones if `log`."""

    low: float
    high: float
    log: bool = False


Space = Between | Choice

ON_WORKLOADS: dict[str, Space] = {
    "step": Between(0.01, 0.3, log=True),
    "population": (10, 20, 30, 40),
    "episodes": (1, 2, 3, 4),
    "loss_weight": Between(0.0, 1.0),
    "planned_weight": Between(0.0, 100.0),
}

_ACTOR_CRITIC: dict[str, Space] = {
    "discount": (0.0, 0.5, 0.9, 0.97, 0.99, 1.0),
    "trace": Between(0.8, 1.0),
    "actor_learning_rate": Between(1e-4, 1e-2, log=True),
    "critic_learning_rate": Between(1e-4, 1e-2, log=True),
    "entropy_bonus": Between(1e-4, 1e-1, log=True),
}

SPACES: dict[str, dict[str, Space]] = {
    "dqn": {
        "discount": (0.0, 0.5, 0.9, 0.97, 0.99, 1.0),
        "learning_rate": Between(1e-4, 1e-2, log=True),
        "batch_size": (64, 128, 200, 400),
        "update_every": (5, 10, 25, 50),
        "target_update_every": (5, 10, 50, 200),
        "epsilon_decay": Between(0.98, 0.9995),
        "reward_scale": Between(0.1, 10.0, log=True),
    },
    "actor-critic": {**_ACTOR_CRITIC, "rollout": (8, 16, 32, 64), "critic_steps": (1, 2, 4, 8)},
    "ppo": {
        **_ACTOR_CRITIC,
        "rollout": (32, 64, 128),
        "epochs": (2, 4, 8),
        "batch_size": (64, 128, 256, 512),
        "clip": Between(0.1, 0.3),
    },
    "imitation": {
        "learning_rate": Between(1e-4, 1e-2, log=True),
        "batch_size": (64, 128, 200, 400),
        "update_every": (5, 10, 25, 50),
        "teacher_decay": Between(0.9, 0.999),
    },
    EVOLUTION: {
        "step": Between(0.05, 1.0, log=True),
        "population": (8, 16, 32),
        "episodes": (2, 4, 8),
        "memory": Between(0.5, 0.98),
    },
}
"""By algorithm, in environments."""

HIDDEN: Choice = ("16", "32,32", "64,64", "128,128")
"""Widths of the hidden layers, for networks that have any."""


def varied(trial: optuna.Trial, plan: AnyPlan, fixed: Collection[str]) -> AnyPlan:
    """The plan with the options that a trial tries; those in `fixed` stay as they are."""
    if isinstance(plan, Plan):
        fixed = fixed if plan.start is None else {*fixed, "planned_weight"}
        return replace(plan, config=replace(plan.config, **_suggested(trial, ON_WORKLOADS, fixed)))
    network = plan.network
    if network.layers and network.start is None and "hidden" not in fixed:
        widths = trial.suggest_categorical("hidden", HIDDEN)
        network = replace(network, hidden=tuple(int(width) for width in str(widths).split(",")))
    config = replace(plan.config, **_suggested(trial, SPACES[plan.algorithm], fixed))
    return replace(plan, network=network, config=config)


def _suggested(trial: optuna.Trial, spaces: dict[str, Space], fixed: Collection[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, space in spaces.items():
        if name in fixed:
            continue
        if isinstance(space, Between):
            found[name] = trial.suggest_float(name, space.low, space.high, log=space.log)
        else:
            found[name] = trial.suggest_categorical(name, space)
    return found


def told(plan: AnyPlan) -> dict[str, Any]:
    """The options of a plan by the names that `steersman train --options` reads."""
    if isinstance(plan, Plan):
        config = asdict(plan.config)
        if not plan.config.widths:
            del config["hidden"]  # of no use to a linear policy, and refused
        return {"algorithm": EVOLUTION} | config
    return {"algorithm": plan.algorithm} | _network(plan) | asdict(plan.config)


def _network(plan: LearningPlan) -> dict[str, Any]:
    network = plan.network
    found: dict[str, Any] = {"network": network.name}
    if network.layers:
        found["hidden"] = ",".join(map(str, network.layers))
    if plan.algorithm != EVOLUTION:
        found |= {"dropout": network.dropout, "normalisation": network.norm}
    return found
