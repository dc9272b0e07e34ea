"""Search spaces of `steersman tune`: the options whose fields have one, and widths of layers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from steersman.agents.registry import EVOLUTION
from steersman.core.config.fields import Choices, FloatRange, config_fields, options_without_effect
from steersman.training.search.evolve import EvolutionPlan

if TYPE_CHECKING:
    import optuna


TunedPlan = Any  # `EvolutionPlan`, `LearningPlan`, or `LivePlan` of the live learner, which this layer does not know
HIDDEN: Choices = ("16", "32,32", "64,64", "128,128")  # widths of the hidden layers, for networks that have any


def apply_trial(trial: optuna.Trial, plan: TunedPlan, fixed: Collection[str]) -> TunedPlan:
    """Return the plan with the options of a trial; those in `fixed` stay as they are."""
    fixed = _never_searched(plan, fixed)
    if isinstance(plan, EvolutionPlan):
        return replace(plan, config=replace(plan.config, **_suggest(trial, plan.config, fixed)))
    network = plan.network
    if _searches_hidden(plan, fixed):
        widths = trial.suggest_categorical("hidden", HIDDEN)
        network = replace(network, hidden=tuple(int(width) for width in str(widths).split(",")))
    config = replace(plan.config, **_suggest(trial, plan.config, fixed))
    return replace(plan, network=network, config=config)


def common_options(plan: TunedPlan, fixed: Collection[str]) -> dict[str, Any]:
    """Return what all trials of a study have in common: the plan as JSON without name, seed and what is searched.

    Only with the same ones are values of trials comparable, and options of the best trial known. Names of nested
    options have dots, such as `task.objective`.
    """
    fixed = _never_searched(plan, fixed)
    left_out = {"name", "seed", *(f"config.{name}" for name in _searched(plan.config, fixed))}
    if not isinstance(plan, EvolutionPlan) and _searches_hidden(plan, fixed):
        left_out.add("network.hidden")
    flat = _flat(plan.options())
    return {name: value for name, value in flat.items() if name not in left_out}


def _flat(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in options.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _never_searched(plan: TunedPlan, fixed: Collection[str]) -> Collection[str]:
    if isinstance(plan, EvolutionPlan) and plan.start is not None:
        # It only shapes the start of a search from the beginning.
        return {*fixed, "planned_weight"}
    return fixed


def _searches_hidden(plan: TunedPlan, fixed: Collection[str]) -> bool:
    return bool(plan.network.layers) and plan.network.start is None and "hidden" not in fixed


def _searched(config: Any, fixed: Collection[str]) -> dict[str, FloatRange | Choices]:
    useless = options_without_effect(config)  # what they depend on is not searched
    return {
        name: field.option.search
        for name, field in config_fields(type(config)).items()
        if field.option.search is not None and name not in fixed and name not in useless
    }


def _suggest(trial: optuna.Trial, config: Any, fixed: Collection[str]) -> dict[str, Any]:
    suggested: dict[str, Any] = {}
    for name, search in _searched(config, fixed).items():
        match search:
            case FloatRange(low, high, log):
                suggested[name] = trial.suggest_float(name, low, high, log=log)
            case tuple(choices):
                suggested[name] = trial.suggest_categorical(name, choices)
    return suggested


def to_options(plan: TunedPlan) -> dict[str, Any]:
    """Return the options of a plan by the names that `steersman train --options` reads."""
    if isinstance(plan, EvolutionPlan):
        config = _effective(plan.config)
        if not plan.config.widths:
            del config["hidden"]  # not applicable to a linear policy
        task = {"protocol": plan.task.protocol, "objective": plan.task.full_objective}
        return {"algorithm": EVOLUTION} | task | config
    return {"algorithm": plan.algorithm, **plan.task_options, **_network(plan), **_effective(plan.config)}


def _effective(config: Any) -> dict[str, Any]:
    return {name: value for name, value in asdict(config).items() if name not in options_without_effect(config)}


def _network(plan: TunedPlan) -> dict[str, Any]:
    network = plan.network
    result: dict[str, Any] = {"network": network.name}
    if network.layers:
        result["hidden"] = ",".join(map(str, network.layers))
    if plan.algorithm != EVOLUTION:
        result |= {"dropout": network.dropout, "normalisation": network.norm}
    return result
