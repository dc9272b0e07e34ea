"""What a trial of `steersman tune` tries: the options whose fields have a search space, and widths of layers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from steersman.agents.registry import EVOLUTION
from steersman.config_fields import Choices, FloatRange, config_fields
from steersman.training.evolve import Plan
from steersman.training.learn import LearningPlan
from steersman.training.plans import AnyPlan

if TYPE_CHECKING:
    import optuna

HIDDEN: Choices = ("16", "32,32", "64,64", "128,128")
"""Widths of the hidden layers, for networks that have any."""


def apply_trial(trial: optuna.Trial, plan: AnyPlan, fixed: Collection[str]) -> AnyPlan:
    """Return the plan with the options that a trial tries; those in `fixed` stay as they are."""
    if isinstance(plan, Plan):
        fixed = fixed if plan.start is None else {*fixed, "planned_weight"}
        return replace(plan, config=replace(plan.config, **_suggest(trial, plan.config, fixed)))
    network = plan.network
    if network.layers and network.start is None and "hidden" not in fixed:
        widths = trial.suggest_categorical("hidden", HIDDEN)
        network = replace(network, hidden=tuple(int(width) for width in str(widths).split(",")))
    config = replace(plan.config, **_suggest(trial, plan.config, fixed))
    return replace(plan, network=network, config=config)


def _suggest(trial: optuna.Trial, config: Any, fixed: Collection[str]) -> dict[str, Any]:
    suggested: dict[str, Any] = {}
    for name, field in config_fields(type(config)).items():
        match field.option.search:
            case _ if name in fixed:
                continue
            case FloatRange(low, high, log):
                suggested[name] = trial.suggest_float(name, low, high, log=log)
            case tuple(choices):
                suggested[name] = trial.suggest_categorical(name, choices)
    return suggested


def to_options(plan: AnyPlan) -> dict[str, Any]:
    """Return the options of a plan by the names that `steersman train --options` reads."""
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
