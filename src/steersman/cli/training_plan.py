"""From the options of `steersman train` and `steersman tune` to a plan; what does not fit together is said first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from steersman.cli.algorithm_options import (
    EVOLUTION,
    IN_ENVIRONMENTS,
    ON_WORKLOADS,
    options_of,
    settings_of,
)
from steersman.cli.display import Warnings, said_if_slow
from steersman.cli.inputs import NONE_RUNS, LiveSource
from steersman.cli.options import Protocol, check_load, check_ratio, running_of
from steersman.cli.training_options import LearningOptions, NetworkOptions, Scenario, Task, given
from steersman.cli.training_workloads import full_name, read_workloads
from steersman.config_fields import flag
from steersman.errors import UsageError
from steersman.workloads.workload import Running

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.training.network import NetworkPlan
    from steersman.training.plans import AnyPlan
    from steersman.training.scene import Options, Scene
    from steersman.workloads.workload import Workload

WITH_WORKLOADS = ("inflation", "arrivals", "timed")
GRADIENT_NETWORKS = ("linear", "mlp", "deepsets", "gnn")
LEGAL = {ON_WORKLOADS: ("linear", "mlp"), IN_ENVIRONMENTS: ("linear", "mlp", "deepsets")}
"""Networks of what cannot train all of them."""

BELONGS = {
    "ratio": ("inflation",),
    "load": ("timed", "latency"),
    "view": WITH_WORKLOADS,
    "servers_per_rack": (*WITH_WORKLOADS, "deployments"),
    "node_count": ("deployments", "latency"),
    "replicas": ("deployments", "latency"),
}
"""Options of scenarios and their protocols; those that are not here belong to `deployments`, `penalty` to all."""

PACE = {
    ON_WORKLOADS: (100, 10),
    IN_ENVIRONMENTS: (100, 10),
    "dqn": (4000, 200),
    "actor-critic": (1000, 50),
    "ppo": (200, 10),
    "imitation": (1000, 50),
}
"""How many iterations a run has, and how many are between two validations, unless something else is said."""

MAX_WIDTH = 65_536
EQUAL_SHARE = 0.5  # of the episodes with --mixed-nodes: on equal nodes differences are small, and have to be seen, too
FIRST_VALIDATION_SEED = 5001
EPISODES_A_WORKLOAD, EPISODES_WITHOUT = 3, 10


@dataclass(frozen=True, slots=True)
class Asked:
    """All that a command was told about training.

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
    def kind(self) -> str:
        """The algorithm, with the two forms of evolution told apart."""
        algorithm = self.task.algorithm.value if self.task.algorithm else EVOLUTION
        if algorithm != EVOLUTION:
            return algorithm
        whole_runs = self.protocol in WITH_WORKLOADS and self.scenario.view in (None, "gpu")
        return ON_WORKLOADS if whole_runs else IN_ENVIRONMENTS

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
        return self.task.network.value if self.task.network else "linear" if self.kind in LEGAL else "mlp"


def plan_of(asked: Asked, *, name: str, seed: int, warn: Warnings) -> AnyPlan:
    """What is to be trained.

    Raises:
        UsageError: options do not fit together, or one is out of range.
    """
    config = options_of(asked.kind, asked.declared)
    settings = settings_of(asked.protocol, asked.declared)
    _check_network(asked)
    _check_scenario(asked)
    if asked.network.start is not None:
        _check_start(asked.network.start)
    if asked.kind == ON_WORKLOADS:
        return _evolution(asked, config, name, seed, warn)
    return _learning(asked, config, settings, name, seed, warn)


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


def pace(asked: Asked, iterations: int | None, validate_every: int | None) -> tuple[int, int]:
    """How many iterations a run has, and how many are between two validations."""
    usual, between = PACE[asked.kind]
    return iterations or usual, validate_every or between


def _check_network(asked: Asked) -> None:
    legal = LEGAL.get(asked.kind, GRADIENT_NETWORKS)
    if asked.network_name not in legal:
        all_legal = "; ".join(f"{kind}: {', '.join(networks)}" for kind, networks in LEGAL.items())
        raise UsageError(
            f"--network {asked.network_name} cannot be trained by {asked.kind}; these can: {all_legal}; "
            f"dqn, actor-critic, ppo, imitation: {', '.join(GRADIENT_NETWORKS)}"
        )


def _check_scenario(asked: Asked) -> None:
    """Raises UsageError: an option was given that means nothing for the protocol or the algorithm."""
    scenario, protocol = given(asked.scenario), asked.protocol
    for name in scenario:
        owners = BELONGS.get(name, (protocol,) if name == "penalty" else ("deployments",))
        if protocol not in owners:
            raise UsageError(f"{flag(name)} belongs to --protocol {' or '.join(owners)}, not to {protocol}")
    if asked.task.cluster and (asked.task.workload or asked.task.nodes):
        raise UsageError("--cluster and --workload say both what is trained on; give one of them, and no --nodes")
    LiveSource(asked.task.cluster, asked.task.kubeconfig, asked.task.context)
    for name in ("pinned", "from_now"):
        if getattr(asked.task, name) and not (asked.task.nodes or asked.task.cluster):
            raise UsageError(f"{flag(name)} belongs to --nodes and files of pods, or --cluster; {NONE_RUNS}")
    for name in ("workload", "validation", "nodes", "cluster"):
        if getattr(asked.task, name) and protocol not in WITH_WORKLOADS:
            raise UsageError(f"{flag(name)} belongs to --protocol {' or '.join(WITH_WORKLOADS)}, not to {protocol}")
    if protocol in WITH_WORKLOADS and not (asked.task.workload or asked.task.cluster):
        raise UsageError(
            f"--protocol {protocol} needs --workload, such as --workload default or a file of pods, or --cluster"
        )
    network, learning = given(asked.network), given(asked.learning)
    if asked.kind in LEGAL:
        idle = {"environments", "device", "teacher", "recording"} & learning.keys()
        idle |= {"dropout", "normalisation"} & network.keys()
        if asked.kind == ON_WORKLOADS:
            useless = set() if asked.network_name == "mlp" else {"hidden"}
            idle |= {"penalty", "servers_per_rack"} & scenario.keys() | useless & network.keys()
        if idle:
            raise UsageError(f"{flag(min(idle))} is of no use to {asked.kind}")


def _check_start(start: Path) -> None:
    """Raise SteersmanError if what training is to begin with is no policy, before workloads are read."""
    from steersman.policies.policy_file import read_policy
    from steersman.policies.registry import policy_path

    with policy_path(str(start)) as file:
        read_policy(file)


def _evolution(asked: Asked, config: dict[str, Any], name: str, seed: int, warn: Warnings) -> AnyPlan:
    """Whole runs of workloads in the kernel."""
    scenario, learning = asked.scenario, asked.learning
    protocol = Protocol(asked.protocol)
    share, load = check_ratio(scenario.ratio, protocol), check_load(scenario.load, protocol)

    # Below this line numba is loaded; what is wrong with the options above is told at once.
    from steersman.agents.configs import EvolutionConfig
    from steersman.agents.evolution import Task as EvolutionTask
    from steersman.policies.registry import check_known
    from steersman.training.evolve import Plan
    from steersman.training.scene import OBJECTIVES

    config = config | {"network": asked.network_name}
    if asked.network.hidden is not None:
        config["hidden"] = ",".join(map(str, widths(asked.network.hidden)))
    if learning.reference is not None:
        check_known([learning.reference])
        config["reference"] = learning.reference
    more = {"validation_seeds": _seeds(learning, 0)} if learning.validation_episodes else {}
    return Plan(
        name=name,
        training=_training_workloads(asked, warn),
        validation=read_workloads(asked.task.validation or [], asked.task.nodes, asked.running, warn),
        test=tuple(full_name(each) for each in asked.task.test or ()),
        task=EvolutionTask(
            asked.task.objective or OBJECTIVES[protocol],
            protocol.value,
            share,
            load,
        ),
        config=EvolutionConfig(**config),
        seed=seed,
        start=asked.network.start,
        **more,
    )


def _training_workloads(asked: Asked, warn: Warnings) -> tuple[Workload, ...]:
    """Return what is trained on: a live cluster, or workloads by name or in files."""
    task = asked.task
    if not task.cluster:
        return read_workloads(task.workload or [], task.nodes, asked.running, warn)
    return (LiveSource(task.cluster, task.kubeconfig, task.context).read(asked.running, warn),)


def _learning(
    asked: Asked, config: dict[str, Any], settings: dict[str, Any], name: str, seed: int, warn: Warnings
) -> AnyPlan:
    """Episodes in environments."""
    from steersman.agents import recording
    from steersman.agents.configs import EpisodeEvolutionConfig
    from steersman.agents.registry import gradient_algorithm
    from steersman.training.learn import LearningPlan, find_device
    from steersman.training.scene import check_rule

    if asked.kind == IN_ENVIRONMENTS:
        kind: type[Any] = EpisodeEvolutionConfig
    else:
        _, kind = gradient_algorithm(asked.kind)
        find_device(asked.learning.device or "cpu")
    options, learning = kind(**config), asked.learning
    for rule in filter(None, (learning.teacher, learning.reference)):
        check_rule(asked.protocol, rule)
    if learning.recording is not None:
        recording.check_file(learning.recording)
    network = _network(asked)
    scene = _scene(asked, settings, warn)
    usual = EPISODES_A_WORKLOAD if asked.protocol in WITH_WORKLOADS else EPISODES_WITHOUT
    return LearningPlan(
        name=name,
        algorithm=EVOLUTION if asked.kind == IN_ENVIRONMENTS else asked.kind,
        scene=scene,
        config=options,
        network=network,
        seed=seed,
        environments=learning.environments or 8,
        device=learning.device or "cpu",
        teacher=learning.teacher,
        recording=learning.recording,
        reference=learning.reference,
        validation_seeds=_seeds(learning, usual),
        test=tuple(full_name(each) for each in asked.task.test or ()),
    )


def _seeds(learning: LearningOptions, usual: int) -> tuple[int, ...]:
    count = learning.validation_episodes or usual
    return tuple(range(FIRST_VALIDATION_SEED, FIRST_VALIDATION_SEED + count))


def _network(asked: Asked) -> NetworkPlan:
    from steersman.training.network import NetworkPlan

    more = given(asked.network)
    if "hidden" in more:
        more["hidden"] = widths(more["hidden"])
    if "normalisation" in more:
        more["normalisation"] = more["normalisation"].value
    return NetworkPlan(asked.network_name, **more)


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


def _scene(asked: Asked, settings: dict[str, Any], warn: Warnings) -> Scene:
    from steersman.training.scene import OBJECTIVES, Scene

    objective = asked.task.objective or OBJECTIVES[asked.protocol]
    common: dict[str, Any] = {"objective": objective}
    if asked.scenario.penalty is not None:
        common["penalty"] = asked.scenario.penalty
    match asked.task.protocol.value:
        case "deployments":
            return Scene("deployments", _deployments(asked.scenario, common))
        case "latency":
            return Scene("latency", _latency(asked.scenario, settings, common))
        case "timed":
            return _on_workloads("timed", asked, common, warn)
        case "arrivals":
            return _on_workloads("arrivals", asked, common, warn)
    return _on_workloads("inflation", asked, common, warn)


def _on_workloads(
    protocol: Literal["inflation", "arrivals", "timed"], asked: Asked, common: dict[str, Any], warn: Warnings
) -> Scene:
    from steersman.envs.workload import Options
    from steersman.training.scene import Scene

    scenario, task = asked.scenario, asked.task
    options = Options(
        workload=_training_workloads(asked, warn),
        ratio=check_ratio(scenario.ratio, Protocol(protocol)),
        load=check_load(scenario.load, Protocol(protocol)),
        view=scenario.view or "cluster",
        servers_per_rack=scenario.servers_per_rack or 0,
        **common,
    )
    return Scene(protocol, options, read_workloads(task.validation or [], task.nodes, asked.running, warn))


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
