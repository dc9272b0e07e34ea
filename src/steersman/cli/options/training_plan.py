"""From the options of `steersman train` and `steersman tune` to a plan; contradictions are errors before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.agents.registry import (
    EVOLUTION,
    IN_ENVIRONMENTS,
    ON_WORKLOADS,
    AlgorithmSpec,
    algorithm_specs,
    find_algorithm,
)
from steersman.cli.options.algorithms import group_by_value, options_of, settings_of
from steersman.cli.options.arrivals import RATIO, WITH_WORKLOADS, AnyProtocol
from steersman.cli.options.common import path
from steersman.cli.options.declaring import check_options, given_options
from steersman.cli.options.generated import deployments_options, latency_options
from steersman.cli.options.inputs import read_cluster, running_pods
from steersman.cli.options.policies import stored_order_warnings
from steersman.cli.options.training import LearningOptions, NetworkOptions, Scenario, TrainingTask
from steersman.cli.output.display import Warnings
from steersman.cli.reading import holds_nodes, read_workload
from steersman.core.config.fields import flag
from steersman.core.errors import UsageError, unknown_name
from steersman.policies.networks.registry import find_network
from steersman.workloads.files import input_path
from steersman.workloads.workload import RunningPods

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.training.plans import AnyPlan, EnvironmentOptions
    from steersman.workloads.workload import Workload

MAX_WIDTH = 65_536
AGE = "age"  # the order of `orders.order`, which imports numpy


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """Options of training."""

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
        _check_start(options.network.start)
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


def _check_start(start: Path) -> None:
    from steersman.policies.files.policy_file import read_policy
    from steersman.policies.registry import policy_path

    with policy_path(str(start)) as file:
        read_policy(file)


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
        from steersman.agents.buffers.recording import check_file

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
    from steersman.envs.inflation.episodes import WorkloadOptions

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
