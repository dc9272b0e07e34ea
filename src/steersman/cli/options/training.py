"""Options of `steersman train` and `steersman tune`, and those of each algorithm.

The latter, and those of the cluster with telemetry, are derived from the classes that declare them. An option that
several algorithms have is one option. `None` stands for an option that was not given.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from steersman.agents.configs import LIVE_DEFAULTS
from steersman.agents.registry import EVOLUTION, AlgorithmSpec, algorithm_specs
from steersman.cli.completing import algorithms, devices, networks, objectives, orders, policies, views, workloads
from steersman.cli.options.arrivals import (
    LOAD_RANGE,
    OF_DEPLOYMENTS,
    ON_WORKLOADS,
    RATIO_RANGE,
    WITH_WORKLOADS,
    AnyProtocol,
    GeneratedCluster,
)
from steersman.cli.options.cluster import KubeconfigOptions
from steersman.cli.options.common import NODES_HELP, OBJECTIVES_HELP, ORDERS_HELP, advanced_path, path, path_option
from steersman.cli.options.declaring import AssumedValue, Excludes, RequiresProtocol, advanced, option
from steersman.cli.options.inputs import FromCluster, FromNow, Pinned
from steersman.core.config.fields import BELOW_1, ConfigField, config_fields, flag
from steersman.core.errors import UsageError
from steersman.policies.networks import network_specs
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
    spelling = f"{flag(name)}/{flag(f'no_{name}')}" if field.type is bool else flag(name)
    kind = cast(Any, Annotated)[field.type | None, typer.Option(spelling, help=text, rich_help_panel=panel)]
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


WORKLOAD_HELP = (
    "the name of a packaged openb workload (default, gpushare40, ..., or default-small: 64 nodes of default), or with "
    "--nodes a file of pods"
)


class Normalisation(enum.StrEnum):
    NONE = "none"
    LAYER = "layer"
    BATCH = "batch"


_scene = partial(option, rich_help_panel="Environment")
_network = partial(option, rich_help_panel="Network")
_learning = partial(option, rich_help_panel="Learning in environments (all but evolution on workloads)")


@dataclass(frozen=True, slots=True)
class TrainingTask:
    algorithm: str | None = option(
        f"{list_algorithms()}. [default: {EVOLUTION}]", metavar="NAME", autocompletion=algorithms
    )
    network: str | None = option(
        f"Network that computes scores: {list_networks()}. [default: linear for evolution, else mlp]",
        metavar="NAME",
        autocompletion=networks,
    )
    protocol: AnyProtocol | None = option(
        "inflation, arrivals, timed, deployments or latency. inflation: pods drawn from the trace until they "
        "request RATIO times the GPUs. arrivals: the pods in order, once; none leaves. timed: pods arrive, leave, "
        "and wait. deployments: random Deployments fill an empty cluster. latency: Deployments arrive and leave on "
        "a cluster with telemetry, whose users have latency limits. [default: inflation]",
        AssumedValue(AnyProtocol.INFLATION),
        metavar="NAME",
    )
    objective: str | None = option(
        f"Rewarded objective. {OBJECTIVES_HELP}, or a weighted sum such as "
        f"allocation=1,fragmentation=0.5. With evolution allocation,max-kind-loss=2 bounds what any kind of pod "
        f"may lose against kube-default. [default: allocation for inflation and arrivals, waiting-time for "
        f"timed, balance for deployments, "
        "latency-aware for latency]",
        metavar="OBJECTIVE",
        autocompletion=objectives,
    )
    workload: list[str] | None = option(
        f"inflation, arrivals, timed: workloads to train on, one or several: {WORKLOAD_HELP}.",
        ON_WORKLOADS,
        Excludes("cluster"),
        metavar="WORKLOAD",
        autocompletion=workloads,
    )
    validation: list[str] | None = advanced(
        "Workloads to choose the best policy by. [default: the training workloads, with other arrivals]",
        ON_WORKLOADS,
        metavar="WORKLOAD",
        autocompletion=workloads,
    )
    test: list[str] | None = advanced(
        "Workloads kept for a later test; recorded in the model card, never read.",
        metavar="NAME",
        autocompletion=workloads,
    )
    nodes: Path | None = path_option(NODES_HELP, ON_WORKLOADS, Excludes("cluster"))
    cluster: FromCluster = False
    live: KubeconfigOptions = field(default_factory=KubeconfigOptions)
    pinned: Pinned = False
    from_now: FromNow = False
    options: Path | None = advanced_path(
        "Options by name as JSON, such as best.json of steersman tune; the command line overrides them."
    )


@dataclass(frozen=True, slots=True)
class Scenario(GeneratedCluster):
    ratio: float | None = _scene(
        "inflation: requested GPUs as a share of all GPUs. [default: 1.3]", RequiresProtocol("inflation"), RATIO_RANGE
    )
    load: float | None = _scene(
        "timed: requested share of the cluster, by pods that arrive at random [default: the times in the "
        "trace]; latency: requested share of the CPU [default: 0.6]",
        RequiresProtocol("timed", "latency"),
        LOAD_RANGE,
    )
    order: str | None = _scene(
        f"timed: who goes next among pods that wait: {ORDERS_HELP} [default: age]",
        RequiresProtocol("timed"),
        metavar="ORDER",
        autocompletion=orders,
    )
    view: str | None = _scene(
        "inflation, arrivals, timed: view that the policy observes: cluster (loads of any cluster; for "
        "every objective) or gpu (what is left of GPUs, and for which pods). [default: gpu for evolution, "
        "else cluster]",
        ON_WORKLOADS,
        metavar="VIEW",
        autocompletion=views,
    )
    servers_per_rack: int | None = _scene(
        "Nodes per rack, in their order, if they have no label rack; 0: no racks. [default: 4 for deployments, else 0]",
        RequiresProtocol(*WITH_WORKLOADS, "deployments"),
        min=0,
    )
    penalty: float | None = _scene("Cost of an illegal action. [default: 1]")
    cluster_resets: int | None = _scene(
        "deployments: number of fillings in an episode. [default: 1]", OF_DEPLOYMENTS, min=1
    )


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    hidden: str | None = _network(
        "Widths of the hidden layers, such as 128,64. [default: 16 for evolution on workloads, else 64,64]",
        metavar="LIST",
    )
    dropout: float | None = _network("Share of hidden activations that training zeroes. [default: 0]", BELOW_1)
    normalisation: Normalisation | None = _network("Of the hidden layers: none, layer or batch. [default: none]")
    start: Path | None = _network(
        "Start with the weights of this policy file of the same view and network. Evolution on workloads "
        "also takes steersman, and starts with its first member, greedy-forecast.",
        parser=path,
        metavar="FILE",
        autocompletion=policies,
    )


@dataclass(frozen=True, slots=True)
class LearningOptions:
    environments: int | None = _learning("Environments that are stepped together. [default: 8]", min=1)
    device: str | None = _learning(
        "cpu, cuda, cuda:1, mps, or auto: the best available. [default: cpu]", metavar="DEVICE", autocompletion=devices
    )
    teacher: str | None = _learning(
        "imitation, dqn: the rule to learn from, such as fgd or least-allocated. [default: the reference]",
        metavar="RULE",
        autocompletion=policies,
    )
    recording: Path | None = _learning(
        "imitation, dqn: recorded transitions to learn from, or to fill the replay buffer with: .npz of "
        "workload record, or a sched_*.csv of AAML's scheduler.",
        parser=path,
        metavar="FILE",
    )
    reference: str | None = _learning(
        "Rule that validation compares with. [default: the one that suits the objective]",
        metavar="RULE",
        autocompletion=policies,
    )
    validation_episodes: int | None = _learning(
        "Episodes of a validation, on each workload. [default: 3; 10 without workloads]", min=1
    )
