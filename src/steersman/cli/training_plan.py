"""From the options of `steersman train` and `steersman tune` to a plan; what does not fit together is said first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from steersman.agents.registry import (
    EVOLUTION,
    IN_ENVIRONMENTS,
    ON_WORKLOADS,
    AlgorithmSpec,
    algorithm_specs,
    find_algorithm,
)
from steersman.cli.algorithm_options import group_by_value, options_of, settings_of
from steersman.cli.display import Warnings, said_if_slow
from steersman.cli.inputs import NONE_RUNS, LiveSource
from steersman.cli.options import Protocol, check_load, check_ratio, running_of
from steersman.cli.training_options import LearningOptions, NetworkOptions, Scenario, Task, given
from steersman.cli.training_workloads import full_name, read_workloads
from steersman.config_fields import flag
from steersman.errors import UsageError
from steersman.policies.network_registry import find_network
from steersman.workloads.workload import Running

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.training.network import NetworkPlan
    from steersman.training.plans import AnyPlan
    from steersman.training.scene import Options, Scene
    from steersman.workloads.workload import Workload

WITH_WORKLOADS = ("inflation", "arrivals", "timed")

OPTION_PROTOCOLS = {
    "ratio": ("inflation",),
    "load": ("timed", "latency"),
    "view": WITH_WORKLOADS,
    "servers_per_rack": (*WITH_WORKLOADS, "deployments"),
    "node_count": ("deployments", "latency"),
    "replicas": ("deployments", "latency"),
}
"""Options of scenarios and their protocols; those that are not here belong to `deployments`, `penalty` to all."""

MAX_WIDTH = 65_536
EQUAL_SHARE = 0.5  # of the episodes with --mixed-nodes: on equal nodes differences are small, and have to be seen, too
FIRST_VALIDATION_SEED = 5001
EPISODES_A_WORKLOAD, EPISODES_WITHOUT = 3, 10


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """What a command was told about training.

    Attributes:
        task, scenario, network, learning: options by subject.
        declared: options of algorithms and of the cluster of `latency` that were given.
    """

    task: Task
    scenario: Scenario
    network: NetworkOptions
    learning: LearningOptions
    declared: dict[str, Any]

    @property
    def algorithm(self) -> AlgorithmSpec:
        """The algorithm. Raises SteersmanError: there is none of that name."""
        whole_runs = self.protocol in WITH_WORKLOADS and self.scenario.view in (None, "gpu")
        return find_algorithm(self.task.algorithm or EVOLUTION, ON_WORKLOADS if whole_runs else IN_ENVIRONMENTS)

    @property
    def is_on_workloads(self) -> bool:
        """Whether candidates play whole runs of workloads, without an environment."""
        return self.algorithm.plays == ON_WORKLOADS

    @property
    def protocol(self) -> str:
        """What is played."""
        return self.task.protocol.value

    @property
    def running(self) -> Running:
        """What becomes of pods that run already. Raises UsageError: the options do not fit together."""
        return running_of(self.task.pinned, self.task.from_now, self.protocol)

    @property
    def network_name(self) -> str:
        """Which network is trained."""
        return self.task.network or self.algorithm.network


def plan_of(options: TrainOptions, *, name: str, seed: int, warn: Warnings) -> AnyPlan:
    """What is to be trained.

    Raises:
        UsageError: options do not fit together, or one is out of range.
    """
    config = options_of(options.algorithm, options.declared)
    settings = settings_of(options.protocol, options.declared)
    _check_network(options)
    _check_scenario(options)
    if options.network.start is not None:
        _check_start(options.network.start)
    if options.is_on_workloads:
        return _evolution(options, config, name, seed, warn)
    return _learning(options, config, settings, name, seed, warn)


def compile_for(plan: AnyPlan) -> None:
    """Make sure that the kernels that training needs are compiled, and say so if that takes a while.

    Raises:
        UsageError: an option of the environment is wrong.
    """
    from steersman.cli.compiling import MESSAGE, compile_kernels
    from steersman.training.evolve import Plan

    if isinstance(plan, Plan):
        compile_kernels((), plan.training)
        return
    with said_if_slow(MESSAGE):
        env = plan.scene.make(1)
        env.reset(seed=0)
        env.step(env.heuristic(plan.rule))


def pace(options: TrainOptions, iterations: int | None, validate_every: int | None) -> tuple[int, int]:
    """How many iterations a run has, and how many are between two validations."""
    algorithm = options.algorithm
    return iterations or algorithm.iterations, validate_every or algorithm.validate_every


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
    """Raises UsageError: an option was given that means nothing for the protocol or the algorithm."""
    scenario, protocol = given(options.scenario), options.protocol
    for name in scenario:
        owners = OPTION_PROTOCOLS.get(name, (protocol,) if name == "penalty" else ("deployments",))
        if protocol not in owners:
            raise UsageError(f"{flag(name)} belongs to --protocol {' or '.join(owners)}, not to {protocol}")
    if options.task.cluster and (options.task.workload or options.task.nodes):
        raise UsageError("--cluster and --workload say both what is trained on; give one of them, and no --nodes")
    LiveSource(options.task.cluster, options.task.kubeconfig, options.task.context)
    for name in ("pinned", "from_now"):
        if getattr(options.task, name) and not (options.task.nodes or options.task.cluster):
            raise UsageError(f"{flag(name)} belongs to --nodes and files of pods, or --cluster; {NONE_RUNS}")
    for name in ("workload", "validation", "nodes", "cluster"):
        if getattr(options.task, name) and protocol not in WITH_WORKLOADS:
            raise UsageError(f"{flag(name)} belongs to --protocol {' or '.join(WITH_WORKLOADS)}, not to {protocol}")
    if protocol in WITH_WORKLOADS and not (options.task.workload or options.task.cluster):
        raise UsageError(
            f"--protocol {protocol} needs --workload, such as --workload default or a file of pods, or --cluster"
        )
    network, learning = given(options.network), given(options.learning)
    if options.algorithm.name == EVOLUTION:
        idle = {"environments", "device", "teacher", "recording"} & learning.keys()
        idle |= {"dropout", "normalisation"} & network.keys()
        if options.is_on_workloads:
            useless = set() if find_network(options.network_name).has_layers else {"hidden"}
            idle |= {"penalty", "servers_per_rack"} & scenario.keys() | useless & network.keys()
        if idle:
            raise UsageError(f"{flag(min(idle))} is of no use to {options.algorithm.label}")


def _check_start(start: Path) -> None:
    """Raise SteersmanError if what training is to begin with is no policy, before workloads are read."""
    from steersman.policies.policy_file import read_policy
    from steersman.policies.registry import policy_path

    with policy_path(str(start)) as file:
        read_policy(file)


def _evolution(options: TrainOptions, config: dict[str, Any], name: str, seed: int, warn: Warnings) -> AnyPlan:
    """Whole runs of workloads in the kernel."""
    scenario, learning = options.scenario, options.learning
    protocol = Protocol(options.protocol)
    share, load = check_ratio(scenario.ratio, protocol), check_load(scenario.load, protocol)

    # Below this line numba is loaded; what is wrong with the options above is told at once.
    from steersman.agents.configs import EvolutionConfig
    from steersman.agents.evolution import Task as EvolutionTask
    from steersman.policies.registry import check_known
    from steersman.training.evolve import Plan
    from steersman.training.scene import OBJECTIVES

    config = config | {"network": options.network_name}
    if options.network.hidden is not None:
        config["hidden"] = ",".join(map(str, widths(options.network.hidden)))
    if learning.reference is not None:
        check_known([learning.reference])
        config["reference"] = learning.reference
    more = {"validation_seeds": _seeds(learning, 0)} if learning.validation_episodes else {}
    return Plan(
        name=name,
        training=_training_workloads(options, warn),
        validation=read_workloads(options.task.validation or [], options.task.nodes, options.running, warn),
        test=tuple(full_name(each) for each in options.task.test or ()),
        task=EvolutionTask(
            options.task.objective or OBJECTIVES[protocol],
            protocol.value,
            share,
            load,
        ),
        config=EvolutionConfig(**config),
        seed=seed,
        start=options.network.start,
        **more,
    )


def _training_workloads(options: TrainOptions, warn: Warnings) -> tuple[Workload, ...]:
    """Return what is trained on: a live cluster, or workloads by name or in files."""
    task = options.task
    if not task.cluster:
        return read_workloads(task.workload or [], task.nodes, options.running, warn)
    return (LiveSource(task.cluster, task.kubeconfig, task.context).read(options.running, warn),)


def _learning(
    options: TrainOptions, config: dict[str, Any], settings: dict[str, Any], name: str, seed: int, warn: Warnings
) -> AnyPlan:
    """Episodes in environments."""
    from steersman.agents import recording
    from steersman.training.learn import LearningPlan, find_device
    from steersman.training.scene import check_rule

    algorithm, learning = options.algorithm, options.learning
    if algorithm.name != EVOLUTION:
        algorithm.load()
        find_device(learning.device or "cpu")
    algorithm_config = algorithm.config(**config)
    for rule in filter(None, (learning.teacher, learning.reference)):
        check_rule(options.protocol, rule)
    if learning.recording is not None:
        recording.check_file(learning.recording)
    network = _network(options)
    scene = _scene(options, settings, warn)
    usual = EPISODES_A_WORKLOAD if options.protocol in WITH_WORKLOADS else EPISODES_WITHOUT
    return LearningPlan(
        name=name,
        algorithm=options.task.algorithm or EVOLUTION,
        scene=scene,
        config=algorithm_config,
        network=network,
        seed=seed,
        environments=learning.environments or 8,
        device=learning.device or "cpu",
        teacher=learning.teacher,
        recording=learning.recording,
        reference=learning.reference,
        validation_seeds=_seeds(learning, usual),
        test=tuple(full_name(each) for each in options.task.test or ()),
    )


def _seeds(learning: LearningOptions, usual: int) -> tuple[int, ...]:
    count = learning.validation_episodes or usual
    return tuple(range(FIRST_VALIDATION_SEED, FIRST_VALIDATION_SEED + count))


def _network(options: TrainOptions) -> NetworkPlan:
    from steersman.training.network import NetworkPlan

    more = given(options.network)
    if "hidden" in more:
        more["hidden"] = widths(more["hidden"])
    if "normalisation" in more:
        more["normalisation"] = more["normalisation"].value
    return NetworkPlan(options.network_name, **more)


def widths(text: str) -> tuple[int, ...]:
    """The layers of `128,64`. Raises UsageError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) <= MAX_WIDTH for part in parts):
        raise UsageError(f"--hidden {text}: widths from 1 to {MAX_WIDTH} such as 128,64 are right")
    return tuple(int(part) for part in parts)


def _range(name: str, text: str) -> tuple[int, int]:
    """The ends of `5-20`; `5` is both. Raises UsageError."""
    low, dash, high = (part.strip() for part in text.partition("-"))
    ends = (low, high if dash else low)
    if not all(end.isascii() and end.isdigit() and len(end) < 10 for end in ends) or int(ends[0]) > int(ends[1]):
        raise UsageError(f"{flag(name)} {text}: a number such as 10 or a range such as 5-20 is right")
    return int(ends[0]), int(ends[1])


def _scene(options: TrainOptions, settings: dict[str, Any], warn: Warnings) -> Scene:
    from steersman.training.scene import OBJECTIVES, Scene

    objective = options.task.objective or OBJECTIVES[options.protocol]
    common: dict[str, Any] = {"objective": objective}
    if options.scenario.penalty is not None:
        common["penalty"] = options.scenario.penalty
    match options.task.protocol.value:
        case "deployments":
            return Scene("deployments", _deployments(options.scenario, common))
        case "latency":
            return Scene("latency", _latency(options.scenario, settings, common))
        case "timed":
            return _on_workloads("timed", options, common, warn)
        case "arrivals":
            return _on_workloads("arrivals", options, common, warn)
    return _on_workloads("inflation", options, common, warn)


def _on_workloads(
    protocol: Literal["inflation", "arrivals", "timed"], options: TrainOptions, common: dict[str, Any], warn: Warnings
) -> Scene:
    from steersman.envs.workload import Options
    from steersman.training.scene import Scene

    scenario, task = options.scenario, options.task
    environment = Options(
        workload=_training_workloads(options, warn),
        ratio=check_ratio(scenario.ratio, Protocol(protocol)),
        load=check_load(scenario.load, Protocol(protocol)),
        view=scenario.view or "cluster",
        servers_per_rack=scenario.servers_per_rack or 0,
        **common,
    )
    return Scene(protocol, environment, read_workloads(task.validation or [], task.nodes, options.running, warn))


def _deployments(scenario: Scenario, common: dict[str, Any]) -> Options:
    from steersman.envs.deployments import MIXED_SHAPES, Options
    from steersman.workloads.deployments import Settings

    told = given(scenario)
    settings: dict[str, Any] = {name: told[name] for name in ("cpu_load", "memory_load", "pod_load") if name in told}
    if "replicas" in told:
        settings["min_replicas"], settings["max_replicas"] = _range("replicas", told["replicas"])
    if "cluster_resets" in told:
        settings["resets"] = told["cluster_resets"]
    plain = ("node_cpu", "node_memory", "node_pods", "servers_per_rack")
    options: dict[str, Any] = {name: told[name] for name in plain if name in told}
    if "node_count" in told:
        low, high = _range("node_count", told["node_count"])
        options["nodes"] = low if low == high else (low, high)
    if scenario.mixed_nodes:
        options |= {"shapes": MIXED_SHAPES, "equal_share": EQUAL_SHARE}
    return Options(settings=Settings(**settings), **options, **common)


def _latency(scenario: Scenario, settings: dict[str, Any], common: dict[str, Any]) -> Options:
    from steersman.envs.latency import LatencyOptions
    from steersman.telemetry.settings import Settings, checked

    if scenario.node_count is not None:
        low, high = _range("node_count", scenario.node_count)
        if low != high:
            raise UsageError(
                f"--node-count {scenario.node_count}: with --protocol latency a number such as 12 is right"
            )
        settings |= {"nodes": low, "max_nodes": max(low, Settings().max_nodes)}
    if scenario.load is not None:
        settings |= {"load": scenario.load}
    if scenario.replicas is not None:
        settings |= {"replicas": _range("replicas", scenario.replicas)[1]}
    return LatencyOptions(settings=checked(Settings(**settings)), **common)
