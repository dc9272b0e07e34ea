"""Every kind of training by one function: evolution on workloads, and learning in environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steersman.agents.configs import EvolutionConfig
from steersman.agents.evolution.simulations import SimulationTask
from steersman.agents.registry import EVOLUTION, IN_ENVIRONMENTS, ON_WORKLOADS, AlgorithmSpec, find_algorithm
from steersman.core.config.fields import checked_arguments, make_config
from steersman.core.errors import UsageError
from steersman.envs.deployments.environment import DeploymentsOptions
from steersman.envs.inflation.episodes import WorkloadOptions
from steersman.envs.latency.environment import LatencyOptions
from steersman.training.environment import DEFAULT_OBJECTIVES, EnvironmentSpec, WorkloadProtocol
from steersman.training.learning import LearningPlan, learn
from steersman.training.network import NetworkPlan
from steersman.training.run import OnIteration, TrainingLimits, TrainingProgress
from steersman.training.search.evolve import EvolutionPlan, evolve
from steersman.training.trackers import check_tracker
from steersman.workloads.workload import Workload

AnyPlan = EvolutionPlan | LearningPlan
EnvironmentOptions = WorkloadOptions | DeploymentsOptions | LatencyOptions

FIRST_VALIDATION_SEED = 5001
EPISODES_PER_WORKLOAD, EPISODES_WITHOUT_WORKLOADS = 3, 10


LEARNING_OPTIONS = ("environments", "device", "teacher", "recording", "dropout", "normalisation")
"""Further options of `make_plan`, of learning in an environment alone."""


@checked_arguments
def make_plan(
    source: Sequence[Workload] | EnvironmentOptions,
    *,
    name: str,
    algorithm: str = EVOLUTION,
    protocol: WorkloadProtocol = "inflation",
    objective: str | None = None,
    ratio: float = 1.3,
    load: float | None = None,
    validation: Sequence[Workload] = (),
    test: Sequence[str] = (),
    network: str | None = None,
    hidden: Sequence[int] | None = None,
    reference: str | None = None,
    validation_episodes: int | None = None,
    start: str | Path | None = None,
    seed: int = 1,
    settings: Mapping[str, Any] | None = None,
    **learning: Any,
) -> AnyPlan:
    """Return a plan of training: evolution on whole simulations of workloads, or learning in an environment.

    Args:
        source: workloads, or the options of an environment.
        name: name of the policy.
        algorithm: see `agents.registry.find_algorithm`; only evolution can run whole simulations.
        protocol: of workloads, or of `WorkloadOptions`.
        objective: the rewarded objective on workloads, None: the default of the protocol.
        ratio: arriving GPU demand over capacity, of workloads (`inflation`).
        load: demand over capacity, of workloads, None: the times of the trace (`timed`).
        validation: workloads to choose the best policy by; empty: those of training with other arrivals.
        test: names of workloads kept for a test, for the model card.
        network: name of the network, None: the algorithm's default.
        hidden: widths of its layers, None: the default.
        reference: the policy or rule that validation compares with, None: the one that suits the objective.
        validation_episodes: episodes of a validation on each workload, None: the default.
        start: a policy file with initial weights.
        seed: of all random numbers.
        settings: options of the algorithm's configuration class by name.
        **learning: `LEARNING_OPTIONS`, fields of `LearningPlan` and `NetworkPlan`.

    Raises:
        UsageError: an argument is invalid or contradicts another.
    """
    settings, episodes = dict(settings or {}), validation_episodes
    start = None if start is None else Path(start)
    if hidden is not None and (isinstance(hidden, str) or not isinstance(hidden, Sequence)):
        raise UsageError(f"hidden {hidden!r}: expected layer widths, e.g. (64, 64)")
    spec = find_algorithm(algorithm, IN_ENVIRONMENTS if isinstance(source, EnvironmentOptions) else ON_WORKLOADS)
    network = network or spec.network
    if network not in spec.supported_networks:
        known = ", ".join(spec.supported_networks)
        raise UsageError(f"network {network!r} cannot be trained by {spec.label}; these can: {known}")
    if not isinstance(source, EnvironmentOptions):
        if spec.plays == ON_WORKLOADS:
            if learning:
                raise UsageError(f"{spec.label} has no option {next(iter(learning))!r}")
            settings["network"] = network
            if hidden is not None:
                settings["hidden"] = ",".join(map(str, hidden))
            if reference is not None:
                settings["reference"] = reference
            return EvolutionPlan(
                name=name,
                training=tuple(source),
                validation=tuple(validation),
                test=tuple(test),
                task=SimulationTask(objective or DEFAULT_OBJECTIVES[protocol], protocol, ratio, load),
                config=make_config(EvolutionConfig, settings, spec.label),
                seed=seed,
                start=start,
                **({"validation_seeds": _validation_seeds(episodes)} if episodes else {}),
            )
        source = WorkloadOptions(tuple(source), objective or DEFAULT_OBJECTIVES[protocol], ratio, load)
    usual = EPISODES_PER_WORKLOAD if isinstance(source, WorkloadOptions) else EPISODES_WITHOUT_WORKLOADS
    of_network: dict[str, Any] = {key: learning.pop(key) for key in ("dropout", "normalisation") if key in learning}
    if hidden is not None:
        of_network["hidden"] = tuple(hidden)
    return LearningPlan(
        name=name,
        algorithm=algorithm,
        scene=_environment(source, protocol, tuple(validation)),
        config=make_config(spec.config, settings, spec.label),
        network=NetworkPlan(network, start=start, **of_network),
        seed=seed,
        reference=reference,
        validation_seeds=_validation_seeds(episodes or usual),
        test=tuple(test),
        **learning,
    )


def algorithm_of(plan: AnyPlan) -> AlgorithmSpec:
    """Return the algorithm of a plan."""
    if isinstance(plan, EvolutionPlan):
        return find_algorithm(EVOLUTION, ON_WORKLOADS)
    return find_algorithm(plan.algorithm)


def _validation_seeds(count: int) -> tuple[int, ...]:
    return tuple(range(FIRST_VALIDATION_SEED, FIRST_VALIDATION_SEED + count))


def _environment(
    options: EnvironmentOptions, protocol: WorkloadProtocol, validation: tuple[Workload, ...]
) -> EnvironmentSpec:
    if isinstance(options, WorkloadOptions):
        return EnvironmentSpec(protocol, options, validation)
    return EnvironmentSpec("deployments" if isinstance(options, DeploymentsOptions) else "latency", options)


def train(
    plan: AnyPlan,
    folder: Path,
    limits: TrainingLimits,
    *,
    jobs: int = 1,
    resume: bool = False,
    on_iteration: OnIteration | None = None,
    tracker: str = "tensorboard",
) -> TrainingProgress:
    """Train to the limits; the best policy by validation is `policy.safetensors` in `folder`.

    Args:
        plan: the plan of the run.
        folder: of the run.
        limits: when it ends.
        jobs: number of processes of evolution on workloads; environments are stepped in one.
        resume: resume the run in `folder`.
        on_iteration: progress.
        tracker: where its metrics go, too: `tensorboard`, `mlflow` or `trackio`.

    Raises:
        SteersmanError: see `evolve` and `learn`; or the tracker is not installed.
    """
    check_tracker(tracker)
    if isinstance(plan, EvolutionPlan):
        return evolve(plan, folder, limits, jobs=jobs, resume=resume, on_iteration=on_iteration, tracker=tracker)
    return learn(plan, folder, limits, resume=resume, on_iteration=on_iteration, tracker=tracker)


def gain(plan: AnyPlan, value: float) -> str:
    """Format the result of a validation."""
    if isinstance(plan, EvolutionPlan):
        return plan.task.said(value, plan.config.reference)
    return f"{abs(value):.2f} % {'more' if value >= 0 else 'less'} than {plan.rule} earns"
