"""Options of each algorithm, and of the cluster with telemetry, derived from the classes that declare them.

An option that several algorithms have is one option. `None` stands for an option that was not given.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, cast

import typer

from steersman.agents.configs import LIVE_DEFAULTS
from steersman.agents.registry import EVOLUTION, AlgorithmSpec, algorithm_specs
from steersman.cli.options.declaring import spelled
from steersman.core.config.fields import ConfigField, config_fields, flag
from steersman.core.errors import UsageError
from steersman.policies.networks.registry import network_specs
from steersman.workloads.generators.latency_settings import LatencySettings

RENAMED = {"pods": "pod_count"}  # --pods is a file elsewhere
CLUSTER_PANEL = "Cluster of --protocol latency"
SHARED_PANEL = "Options of several algorithms"


@cache
def algorithm_fields() -> dict[str, dict[str, ConfigField]]:
    """Return label of an algorithm -> name -> field."""
    specs = sorted(algorithm_specs(), key=lambda spec: spec.name == EVOLUTION)  # last: evolution is two algorithms
    return {spec.label: config_fields(spec.config) for spec in specs}


@cache
def setting_fields() -> dict[str, ConfigField]:
    """Return option of the cluster with telemetry -> its field of `LatencySettings`."""
    return {RENAMED.get(name, name): field for name, field in config_fields(LatencySettings).items()}


def live_parameters(names: Iterable[str], panel: str) -> list[inspect.Parameter]:
    """Return parameters for options of the algorithms that learn on a live cluster, under the heading `panel`."""
    fields = {
        algorithm: {
            name: replace(field, default=defaults.get(name, field.default))
            for name, field in algorithm_fields()[algorithm].items()
        }
        for algorithm, defaults in LIVE_DEFAULTS.items()
    }
    return [
        _algorithm_parameter(name, {of: known[name] for of, known in fields.items() if name in known}, panel)
        for name in names
    ]


def setting_parameters() -> list[inspect.Parameter]:
    """Return a parameter for each setting of the cluster with telemetry."""
    return [
        _parameter(name, field, f"{field.option.help} [default: {field.default:g}]", CLUSTER_PANEL)
        for name, field in setting_fields().items()
    ]


def training_parameters() -> list[inspect.Parameter]:
    """Return the parameters of `setting_parameters`, and one per option of algorithms, those of several first."""
    owners: dict[str, list[str]] = {}
    for algorithm, known in algorithm_fields().items():
        for name in known:
            owners.setdefault(name, []).append(algorithm)
    panels = [(_panel(algorithms), name) for name, algorithms in owners.items()]
    panels.sort(key=lambda pair: pair[0] != SHARED_PANEL)  # stable: otherwise in the order of the algorithms
    return [
        *setting_parameters(),
        *(
            _algorithm_parameter(name, {of: algorithm_fields()[of][name] for of in owners[name]}, panel)
            for panel, name in panels
        ),
    ]


def _panel(algorithms: list[str]) -> str:
    if all(algorithm.startswith(EVOLUTION) for algorithm in algorithms):
        return f"Options of {EVOLUTION}"
    if len(algorithms) == 1:
        return f"Options of {algorithms[0]}"
    return "Options of actor-critic and ppo" if set(algorithms) == {"actor-critic", "ppo"} else SHARED_PANEL


def _algorithm_parameter(name: str, known: Mapping[str, ConfigField], panel: str) -> inspect.Parameter:
    # A panel needs no names of its own algorithm, except for evolution, which is two.
    named = panel == SHARED_PANEL or (len(known) == 1 and next(iter(known)).startswith(EVOLUTION))
    meanings = group_by_value({algorithm: field.option.help for algorithm, field in known.items()}, named)
    values = {of: field.option.shown_default or _shown(field.default) for of, field in known.items()}
    default = f" [default: {'; '.join(group_by_value(values, False))}]" if any(values.values()) else ""
    return _parameter(name, next(iter(known.values())), f"{' '.join(meanings)}{default}", panel)


def group_by_value(texts: Mapping[str, str], named: bool) -> list[str]:
    """Return each text once, after the names of its algorithms; alone if it is that of all, unless `named`."""
    owners: dict[str, list[str]] = {}
    for algorithm, text in texts.items():
        owners.setdefault(text, []).append(algorithm)
    if len(owners) == 1 and not named:
        return list(owners)
    return [f"{', '.join(algorithms)}: {text}" for text, algorithms in owners.items()]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _parameter(name: str, field: ConfigField, text: str, panel: str) -> inspect.Parameter:
    option = typer.Option(f"--{name.replace('_', '-')}", help=text, rich_help_panel=panel)
    if field.type is bool:
        flag = name.replace("_", "-")
        option = typer.Option(f"--{flag}/--no-{flag}", help=text, rich_help_panel=panel)
    kind = cast(Any, Annotated)[field.type | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def list_algorithms() -> str:
    """Return the values of `--algorithm` for its help."""
    described = {spec.name: f"{spec.name} {spec.help}".rstrip() for spec in algorithm_specs()}
    *others, last = described.values()
    return f"{', '.join(others)}, or {last}"


def list_networks() -> str:
    """Return the values of `--network` for its help."""
    return ", ".join(f"{spec.name} {spec.help}".rstrip() for spec in network_specs())


def list_defaults(default: Callable[[AlgorithmSpec], object]) -> str:
    """Return the defaults of an option, such as `10 for dqn and ppo, 50 for imitation`."""
    owners: dict[object, dict[str, None]] = {}
    for spec in algorithm_specs():
        owners.setdefault(default(spec), {})[spec.name] = None
    return ", ".join(f"{value} for {' and '.join(names)}" for value, names in owners.items())


def options_of(algorithm: AlgorithmSpec, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the given options that are an algorithm's, by the names of its configuration class."""
    known = config_fields(algorithm.config)
    for name in given:
        if name not in known and name not in setting_fields():
            flags = ", ".join(map(flag, known))
            raise UsageError(f"{flag(name)} is not an option of {algorithm.label}; it has {flags}")
    return {name: value for name, value in given.items() if name in known}


def settings_of(protocol: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the given options that are settings of `latency`, by the names of `LatencySettings`."""
    known = setting_fields()
    result = {known[name].name: value for name, value in given.items() if name in known}
    if result and protocol != "latency":
        first = next(name for name in given if name in known)
        raise UsageError(f"{flag(first)} belongs to --protocol latency, not to {protocol}")
    return result


def setting_arguments(given: Mapping[str, Any]) -> list[str]:
    """Return given settings as they are written on a command line."""
    return [part for name, value in given.items() for part in spelled(flag(name), value)]
