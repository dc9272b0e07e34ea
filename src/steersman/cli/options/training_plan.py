"""From the options of training, and those in a file such as `best.json` of `steersman tune`, to a plan."""

from __future__ import annotations

import enum
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from steersman.agents.registry import (
    EVOLUTION,
    IN_ENVIRONMENTS,
    ON_WORKLOADS,
    AlgorithmSpec,
    algorithm_specs,
    find_algorithm,
)
from steersman.cli.options.arrivals import RATIO, WITH_WORKLOADS, AnyProtocol, deployments_options, latency_options
from steersman.cli.options.common import path
from steersman.cli.options.declaring import annotations_of, check_options, given_options
from steersman.cli.options.inputs import holds_nodes, read_cluster, read_workload, running_pods
from steersman.cli.options.policies import stored_order_warnings
from steersman.cli.options.training import (
    LearningOptions,
    NetworkOptions,
    Scenario,
    TrainingTask,
    group_by_value,
    options_of,
    settings_of,
)
from steersman.cli.output.display import Warnings
from steersman.core.config.fields import (
    KINDS,
    ValueCheck,
    check_effects,
    config_fields,
    flag,
    is_of_kind,
    options_without_effect,
)
from steersman.core.errors import InputError, UsageError, unknown_name
from steersman.policies.networks import find_network
from steersman.workloads.files import input_path
from steersman.workloads.workload import RunningPods

if TYPE_CHECKING:
    from steersman.training.plans import AnyPlan, EnvironmentOptions
    from steersman.workloads.workload import Workload

MAX_WIDTH = 65_536
AGE = "age"  # the order of `orders.order`, which imports numpy
FROM_FILE = ("algorithm", "network", "protocol", "objective", "hidden", "dropout", "normalisation", "reference")
"""What a file may say beside the options of an algorithm."""


@dataclass(frozen=True, slots=True)
class TrainOptions:
    # `task`, `scenario`, `network`, `learning`: options by subject
    task: TrainingTask
    scenario: Scenario
    network: NetworkOptions
    learning: LearningOptions
    declared: dict[str, Any]  # options of algorithms and of the cluster of `latency` that were given

    @property
    def algorithm(self) -> AlgorithmSpec:
        """Return the algorithm. Raises SteersmanError: there is none of that name."""
        whole_runs = self.protocol in WITH_WORKLOADS and self.scenario.view in (None, "gpu")
        return find_algorithm(self.task.algorithm or EVOLUTION, ON_WORKLOADS if whole_runs else IN_ENVIRONMENTS)

    @property
    def is_on_workloads(self) -> bool:
        """Return whether candidates run whole simulations of workloads, without an environment."""
        return self.algorithm.plays == ON_WORKLOADS

    @property
    def protocol(self) -> str:
        return (self.task.protocol or AnyProtocol.INFLATION).value

    @property
    def running(self) -> RunningPods:
        return running_pods(self.task.pinned, self.task.from_now)

    @property
    def network_name(self) -> str:
        return self.task.network or self.algorithm.network


def plan_of(options: TrainOptions, *, name: str, seed: int, warn: Warnings) -> AnyPlan:
    config = options_of(options.algorithm, options.declared)
    settings = settings_of(options.protocol, options.declared)
    _check_network(options)
    _check_scenario(options)
    if options.network.start is not None:
        from steersman.policies.policy_file import read_policy
        from steersman.policies.registry import policy_path

        with policy_path(str(options.network.start)) as file:
            read_policy(file)
    (_check_rules if options.is_on_workloads else _check_learning)(options)

    from steersman.orders.registry import find_order
    from steersman.training.plans import PlanOptions, make_plan

    warn(stored_order_warnings(find_order(options.scenario.order or AGE)))
    has_workloads = options.protocol in WITH_WORKLOADS
    protocol: Any = options.protocol if has_workloads else "inflation"
    source = _training_workloads(options, warn) if options.is_on_workloads else _environment(options, settings, warn)
    network = options.network
    plan = PlanOptions(
        protocol=protocol,
        objective=options.task.objective,
        ratio=RATIO if options.scenario.ratio is None else options.scenario.ratio,
        load=options.scenario.load,
        order=options.scenario.order or AGE,
        validation=_read_workloads(options.task.validation or [], options.task.nodes, options.running, warn)
        if has_workloads
        else (),
        test=tuple(_full_name(each) for each in options.task.test or ()),
        network=options.network_name,
        hidden=None if network.hidden is None else widths(network.hidden),
        dropout=network.dropout,
        normalisation=None if network.normalisation is None else network.normalisation.value,
        start=network.start,
        seed=seed,
        settings=config,
        **given_options(options.learning),
    )
    return make_plan(source, name, options.task.algorithm or EVOLUTION, plan)


def check_scene(plan: AnyPlan) -> None:
    """Raise UsageError if the environment that training needs cannot be made."""
    from steersman.training.search.evolve import EvolutionPlan

    if not isinstance(plan, EvolutionPlan):
        plan.scene.make(1)


def _check_network(options: TrainOptions) -> None:
    find_network(options.network_name)
    algorithm = options.algorithm
    if options.network_name not in algorithm.supported_networks:
        trained = {spec.label: ", ".join(spec.supported_networks) for spec in algorithm_specs()}
        raise UsageError(
            f"--network {options.network_name} cannot be trained by {algorithm.label}; these can: "
            + "; ".join(group_by_value(trained, True))
        )


def _check_scenario(options: TrainOptions) -> None:
    check_options(options.task, options.scenario, options.network, options.learning)
    scenario, protocol = given_options(options.scenario), options.protocol
    if protocol in WITH_WORKLOADS and not (options.task.workload or options.task.cluster):
        raise UsageError(
            f"--protocol {protocol} needs --workload, such as --workload default or a file of pods, or --cluster"
        )
    network, learning = given_options(options.network), given_options(options.learning)
    if options.algorithm.name == EVOLUTION:
        idle = {"environments", "device", "teacher", "recording"} & learning.keys()
        idle |= {"dropout", "normalisation"} & network.keys()
        if options.is_on_workloads:
            useless = set() if find_network(options.network_name).has_layers else {"hidden"}
            idle |= {"penalty", "servers_per_rack"} & scenario.keys() | useless & network.keys()
        if idle:
            raise UsageError(f"{flag(min(idle))} does not apply to {options.algorithm.label}")


def _check_rules(options: TrainOptions) -> None:
    from steersman.policies.registry import check_policy_names

    if options.learning.reference is not None:
        check_policy_names([options.learning.reference])


def _check_learning(options: TrainOptions) -> None:
    from steersman.training.environment import check_rule
    from steersman.training.learning import find_device

    algorithm, learning = options.algorithm, options.learning
    if algorithm.name != EVOLUTION:
        algorithm.load()
        find_device(learning.device or "cpu")
    for rule in filter(None, (learning.teacher, learning.reference)):
        check_rule(options.protocol, rule)
    if learning.recording is not None:
        from steersman.agents.buffers import check_file

        check_file(learning.recording)


def _training_workloads(options: TrainOptions, warn: Warnings) -> tuple[Workload, ...]:
    task = options.task
    if not task.cluster:
        return _read_workloads(task.workload or [], task.nodes, options.running, warn)
    return (read_cluster(task.live, options.running, warn),)


def widths(text: str) -> tuple[int, ...]:
    """Return the layers of `128,64`. Raises UsageError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) <= MAX_WIDTH for part in parts):
        raise UsageError(f"--hidden {text}: expected widths from 1 to {MAX_WIDTH} such as 128,64")
    return tuple(int(part) for part in parts)


def _environment(options: TrainOptions, settings: dict[str, Any], warn: Warnings) -> EnvironmentOptions:
    from steersman.training.environment import DEFAULT_OBJECTIVES

    scenario, task = options.scenario, options.task
    common: dict[str, Any] = {"objective": task.objective or DEFAULT_OBJECTIVES[options.protocol]}
    if scenario.penalty is not None:
        common["penalty"] = scenario.penalty
    if options.protocol == "deployments":
        return deployments_options(given_options(scenario), common)
    if options.protocol == "latency":
        return latency_options(given_options(scenario), settings, common)
    from steersman.envs.workload import WorkloadOptions

    return WorkloadOptions(
        workload=_training_workloads(options, warn),
        ratio=RATIO if scenario.ratio is None else scenario.ratio,
        load=scenario.load,
        order=scenario.order or AGE,
        view=scenario.view or "cluster",
        servers_per_rack=scenario.servers_per_rack or 0,
        **common,
    )


def _full_name(name: str) -> str:
    from steersman.workloads.formats.openb import POD_FILE, embedded_names

    return f"{POD_FILE}{name}" if name in embedded_names() else name


def _read_workloads(names: list[str], nodes: Path | None, running: RunningPods, warn: Warnings) -> tuple[Workload, ...]:
    """Return packaged workloads by name, or those in files, which hold nodes or are used with `nodes`."""
    from steersman.workloads.formats.openb import embedded, known_names

    result = []
    for name in names:
        file = input_path(name)
        is_file = nodes is not None or (name not in known_names() and file.exists() and holds_nodes(file))
        if is_file:
            result.append(read_workload(nodes, path(name), running, warn))
        elif name in known_names():
            result.append(embedded(name))
            warn(result[-1].warnings)
        else:
            raise unknown_name("--workload", name, known_names(), "with --nodes a file of pods")
    return tuple(result)


def merge_options(options: TrainOptions) -> TrainOptions:
    """Return the options, with those of the file `--options` that the command line does not state."""
    file = options.task.options
    if file is None:
        given = options_of(options.algorithm, options.declared)
        # Only what the command line states: a default without effect is no mistake.
        check_effects(options.algorithm.config(**given), given)
        return options
    common, stated = read_options(file, FROM_FILE)
    if options.task.protocol not in (None, common.get("protocol", options.task.protocol)):
        common.pop("objective", None)  # it is of the file's protocol
    options = replace(
        options,
        task=_filled(options.task, common),
        network=_filled(options.network, common),
        learning=_filled(options.learning, common),
    )
    algorithm = options.algorithm
    from_file, given = settings_in(file, stated, algorithm), options_of(algorithm, options.declared)
    # Those of the file were checked in `settings_in`, where the message can name the file.
    check_effects(algorithm.config(**(from_file | given)), given)
    return replace(options, declared=from_file | options.declared)


def read_options(file: Path, names: Collection[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return those options of a file that have one of the names of `FROM_FILE`, and the others, for `settings_in`."""
    stated = _read(file)
    declared = annotations_of(TrainingTask, NetworkOptions, LearningOptions)
    common = {name: _value(file, name, stated.pop(name), declared[name][0]) for name in names if name in stated}
    for name, value in common.items():
        for rule in declared[name][1]:
            if isinstance(rule, ValueCheck):
                _check_range(file, name, value, rule)
    for name, check in (("algorithm", find_algorithm), ("network", find_network), ("hidden", widths)):
        if name in common:
            try:
                check(common[name])
            except UsageError as error:
                raise InputError(file, "", name, str(error)) from None
    return common, stated


def settings_in(file: Path, stated: Mapping[str, Any], algorithm: AlgorithmSpec) -> dict[str, Any]:
    """Return the options of an algorithm, as a file states them."""
    known = config_fields(algorithm.config)
    for name in stated:
        if name not in known:
            raise InputError(file, "", name, f"is not an option of {algorithm.label}; it has {', '.join(known)}")
    settings = {name: _value(file, name, value, known[name].type) for name, value in stated.items()}
    for name, value in settings.items():
        _check_range(file, name, value, known[name].option.valid)
    try:
        config = algorithm.config(**settings)
    except UsageError as error:  # of several options together
        raise InputError(file, "", "", str(error)) from None
    useless = options_without_effect(config)
    for name in settings:
        if name in useless:
            other, value = useless[name]
            raise InputError(file, "", name, f"has no effect unless {other} is {value}; leave one of them out")
    return settings


def _filled(options: Any, stated: dict[str, Any]) -> Any:
    names = [field.name for field in fields(options) if field.name in stated]
    return replace(options, **{name: stated[name] for name in names if getattr(options, name) is None})


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=partial(_unique, file))
    except OSError as error:
        raise InputError(file, "", "", f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(file, "", "", f"is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise InputError(file, "", "", 'is no JSON object such as {"learning_rate": 0.001}')
    return content


def _unique(file: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. Raises InputError: a name is there twice, of which Python would take the last."""
    content: dict[str, Any] = {}
    for name, value in pairs:
        if name in content:
            raise InputError(file, "", name, "is there twice; leave one of them out")
        content[name] = value
    return content


def _value(file: Path, name: str, value: Any, kind: Any) -> Any:
    if choices := _choices(kind):
        if value not in choices:
            raise InputError(file, "", name, f"is {value!r}; expected {', '.join(choices)}")
        return kind(value) if isinstance(kind, type) else value
    if not is_of_kind(value, kind):
        raise InputError(file, "", name, f"is {value!r}; expected {KINDS[kind]}")
    return kind(value)


def _check_range(file: Path, name: str, value: Any, valid: ValueCheck | None) -> None:
    if valid is not None and not valid.holds(value):
        raise InputError(file, "", name, f"is {value}; expected {valid.text}")


def _choices(kind: Any) -> list[str]:
    if isinstance(kind, type):
        return [str(choice.value) for choice in kind] if issubclass(kind, enum.Enum) else []
    return [str(choice) for choice in get_args(kind)]
