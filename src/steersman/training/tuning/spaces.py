"""Search spaces of `steersman tune`: the options whose fields have one, and widths of layers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from steersman.agents.registry import EVOLUTION
from steersman.core.config.fields import Choices, FloatRange, config_fields, options_without_effect
from steersman.training.learning import LearningPlan
from steersman.training.plans import AnyPlan
from steersman.training.search.evolve import EvolutionPlan

if TYPE_CHECKING:
    import optuna


HIDDEN: Choices = ("16", "32,32", "64,64", "128,128")
"""Widths of the hidden layers, for networks that have any."""


def apply_trial(trial: optuna.Trial, plan: AnyPlan, fixed: Collection[str]) -> AnyPlan:
    """Return the plan with the options of a trial; those in `fixed` stay as they are."""
    if isinstance(plan, EvolutionPlan):
        # It only shapes the start of a search from the beginning.
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
    useless = options_without_effect(config)  # what they depend on is not searched
    for name, field in config_fields(type(config)).items():
        match field.option.search:
            case _ if name in fixed or name in useless:
                continue
            case FloatRange(low, high, log):
                suggested[name] = trial.suggest_float(name, low, high, log=log)
            case tuple(choices):
                suggested[name] = trial.suggest_categorical(name, choices)
    return suggested


def to_options(plan: AnyPlan) -> dict[str, Any]:
    """Return the options of a plan by the names that `steersman train --options` reads."""
    if isinstance(plan, EvolutionPlan):
        config = _effective(plan.config)
        if not plan.config.widths:
            del config["hidden"]  # not applicable to a linear policy
        return {"algorithm": EVOLUTION} | _task(plan.task.protocol, plan.task.full_objective) | config
    task = _task(plan.scene.protocol, plan.scene.objective)
    return {"algorithm": plan.algorithm} | task | _network(plan) | _effective(plan.config)


def _task(protocol: str, objective: str) -> dict[str, Any]:
    return {"protocol": protocol, "objective": objective}


def _effective(config: Any) -> dict[str, Any]:
    return {name: value for name, value in asdict(config).items() if name not in options_without_effect(config)}


def _network(plan: LearningPlan) -> dict[str, Any]:
    network = plan.network
    result: dict[str, Any] = {"network": network.name}
    if network.layers:
        result["hidden"] = ",".join(map(str, network.layers))
    if plan.algorithm != EVOLUTION:
        result |= {"dropout": network.dropout, "normalisation": network.norm}
    return result
