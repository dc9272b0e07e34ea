"""Every kind of training by one function: evolution on workloads, and learning in environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from steersman.agents.configs import EvolutionConfig
from steersman.agents.evolution.simulations import SimulationTask
from steersman.agents.registry import EVOLUTION, IN_ENVIRONMENTS, ON_WORKLOADS, AlgorithmSpec, find_algorithm
from steersman.core.config.fields import check_kinds, config_fields, make_config
from steersman.core.errors import UsageError
from steersman.core.extras import to_frame
from steersman.core.stored_command import StoredCommand
from steersman.envs.deployments import DeploymentsOptions
from steersman.envs.latency import LatencyOptions
from steersman.envs.workload import WorkloadOptions
from steersman.objectives.registry import resolve, split_limit
from steersman.orders.order import AGE
from steersman.policies.base import Policy
from steersman.policies.registry import resolve as find_policy
from steersman.training.environment import DEFAULT_OBJECTIVES, VALIDATION_SEEDS, EnvironmentSpec, WorkloadProtocol
from steersman.training.learning import LearningPlan, learn
from steersman.training.network import NetworkPlan
from steersman.training.run import POLICY, OnIteration, TrainingLimits, TrainingProgress, read_metrics
from steersman.training.search.evolve import EvolutionPlan, evolve
from steersman.workloads.workload import Workload

AnyPlan = EvolutionPlan | LearningPlan
EnvironmentOptions = WorkloadOptions | DeploymentsOptions | LatencyOptions

EPISODES_PER_WORKLOAD, EPISODES_WITHOUT_WORKLOADS = 3, 10


OF_LEARNING = ("environments", "device", "teacher", "recording")
OF_NETWORKS = ("dropout", "normalisation")  # of `NetworkPlan`; those above are of `LearningPlan`


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options of training. `None`: the default of the algorithm, or of its environment.

    Raises:
        UsageError: an option is of another type.
    """

    protocol: WorkloadProtocol = "inflation"  # of workloads, or of `WorkloadOptions`
    objective: str | None = None  # the rewarded objective on workloads; None: the default of the protocol
    ratio: float = 1.3  # arriving GPU demand over capacity, of workloads (`inflation`)
    load: float | None = None  # demand over capacity, of workloads; None: the times of the trace (`timed`)
    order: str = AGE.name  # who goes next among pods that wait, of workloads (`timed`)
    # Workloads to choose the best policy by; empty: those of training with other arrivals
    validation: Sequence[Workload] = ()
    test: Sequence[str] = ()  # names of workloads kept for a test, for the model card
    network: str | None = None  # name of the network
    hidden: Sequence[int] | None = None  # widths of its layers
    # `dropout`, `normalisation`: see `NetworkPlan`.
    dropout: float | None = None
    normalisation: str | None = None
    start: str | Path | None = None  # a policy file with initial weights
    # The policy or rule that validation compares with; None: the one that suits the objective
    reference: str | None = None
    validation_episodes: int | None = None  # episodes of a validation on each workload
    seed: int = 1  # of all random numbers
    settings: Mapping[str, Any] = field(default_factory=dict)  # options of the algorithm's configuration class by name
    # `environments`, `device`, `teacher`, `recording`: see `LearningPlan`.
    environments: int | None = None
    device: str | None = None
    teacher: str | None = None
    recording: str | Path | None = None

    def __post_init__(self) -> None:
        check_kinds(self)
        if self.hidden is not None and (isinstance(self.hidden, str) or not isinstance(self.hidden, Sequence)):
            raise UsageError(f"hidden {self.hidden!r}: expected layer widths, e.g. (64, 64)")

    def given(self, names: Sequence[str]) -> dict[str, Any]:
        """Return those of some options that are not None."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def make_plan(
    source: Sequence[Workload] | EnvironmentOptions, name: str, algorithm: str, options: PlanOptions
) -> AnyPlan:
    """Return a plan of training: evolution on whole simulations of workloads, or learning in an environment.

    Args:
        source: workloads, or the options of an environment.
        algorithm: see `agents.registry.find_algorithm`; only evolution can run whole simulations.

    Raises:
        UsageError: an option is invalid or contradicts another.
    """
    spec = find_algorithm(algorithm, IN_ENVIRONMENTS if isinstance(source, EnvironmentOptions) else ON_WORKLOADS)
    network = options.network or spec.network
    if network not in spec.supported_networks:
        known = ", ".join(spec.supported_networks)
        raise UsageError(f"network {network!r} cannot be trained by {spec.label}; these can: {known}")
    if isinstance(source, EnvironmentOptions):
        return _learning_plan(source, name, algorithm, options)
    objective = options.objective or DEFAULT_OBJECTIVES[options.protocol]
    if spec.plays == ON_WORKLOADS:
        aim, limit = split_limit(objective)
        task = SimulationTask(
            aim, options.protocol, options.ratio, options.load, order=options.order, max_kind_loss=limit
        )
        return _evolution_plan(source, name, task, options)
    scene = WorkloadOptions(tuple(source), objective, options.ratio, options.load, options.order)
    return _learning_plan(scene, name, algorithm, options)


def _evolution_plan(
    training: Sequence[Workload], name: str, task: SimulationTask, options: PlanOptions
) -> EvolutionPlan:
    spec = find_algorithm(EVOLUTION, ON_WORKLOADS)
    for useless in options.given((*OF_LEARNING, *OF_NETWORKS)):
        raise UsageError(f"{spec.label} has no option {useless!r}")
    settings = {**options.settings, "network": options.network or spec.network, **options.given(("reference",))}
    if options.hidden is not None:
        settings["hidden"] = ",".join(map(str, options.hidden))
    episodes = options.validation_episodes
    return EvolutionPlan(
        name=name,
        training=tuple(training),
        validation=tuple(options.validation),
        test=tuple(options.test),
        task=task,
        config=make_config(EvolutionConfig, settings, spec.label),
        seed=options.seed,
        start=None if options.start is None else Path(options.start),
        **({"validation_seeds": _validation_seeds(episodes)} if episodes else {}),
    )


def _learning_plan(source: EnvironmentOptions, name: str, algorithm: str, options: PlanOptions) -> LearningPlan:
    spec = find_algorithm(algorithm, IN_ENVIRONMENTS)
    of_network = options.given(OF_NETWORKS)
    if options.hidden is not None:
        of_network["hidden"] = tuple(options.hidden)
    start = None if options.start is None else Path(options.start)
    settings = dict(options.settings)
    if "gamma" in config_fields(spec.config):
        settings.setdefault("gamma", resolve(source.objective).gamma)
    usual = EPISODES_PER_WORKLOAD if isinstance(source, WorkloadOptions) else EPISODES_WITHOUT_WORKLOADS
    return LearningPlan(
        name=name,
        algorithm=algorithm,
        scene=_environment(source, options.protocol, tuple(options.validation)),
        config=make_config(spec.config, settings, spec.label),
        network=NetworkPlan(options.network or spec.network, start=start, **of_network),
        seed=options.seed,
        reference=options.reference,
        validation_seeds=_validation_seeds(options.validation_episodes or usual),
        test=tuple(options.test),
        **options.given(OF_LEARNING),
    )


def algorithm_of(plan: AnyPlan) -> AlgorithmSpec:
    if isinstance(plan, EvolutionPlan):
        return find_algorithm(EVOLUTION, ON_WORKLOADS)
    return find_algorithm(plan.algorithm)


def _validation_seeds(count: int) -> tuple[int, ...]:
    return tuple(range(VALIDATION_SEEDS[0], VALIDATION_SEEDS[0] + count))


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
    command: StoredCommand | None = None,
) -> TrainingProgress:
    """Train to the limits; the best policy by validation is `policy.safetensors` in `folder`.

    Args:
        jobs: number of processes of evolution on workloads; environments are stepped in one.
        resume: resume the run in `folder`.
        command: that begins the run; its folder stores it.

    Raises:
        SteersmanError: see `evolve` and `learn`.
    """
    run = partial(evolve, plan, jobs=jobs) if isinstance(plan, EvolutionPlan) else partial(learn, plan)
    return run(folder, limits, resume=resume, on_iteration=on_iteration, command=command)


def gain_text(plan: AnyPlan, value: float) -> str:
    """Format the result of a validation."""
    if isinstance(plan, EvolutionPlan):
        return plan.task.said(value, plan.config.reference)
    return f"{abs(value):.2f} % {'more' if value >= 0 else 'less'} than {plan.rule} earns"


@dataclass(frozen=True, slots=True, repr=False)
class TrainingResult:
    """A training run that has ended.

    Attributes:
        plan: what was trained.
        folder: folder of the run.
        progress: iterations done, time spent and the best validation.
    """

    plan: AnyPlan
    folder: Path
    progress: TrainingProgress

    @property
    def file(self) -> Path:
        """Return the policy file with the best validation."""
        return self.folder / POLICY

    @property
    def policy(self) -> Policy:
        """Return the policy with the best validation."""
        return find_policy(str(self.file))

    @property
    def summary(self) -> str:
        """Return the best validation and its iteration in words."""
        best = gain_text(self.plan, self.progress.best)
        return f"{best} in validation (best: iteration {self.progress.best_iteration} of {self.progress.iteration})"

    def to_frame(self) -> Any:
        """Return a data frame of `metrics.csv`: one row per iteration, NaN for undefined values."""
        return to_frame(read_metrics(self.folder))

    def __repr__(self) -> str:
        """Return the outcome in a sentence."""
        return f"{self.plan.name}: {self.summary}. {self.file}"

    def _repr_html_(self) -> str:
        """Return the outcome as a paragraph for notebooks."""
        return f"<p><b>{escape(self.plan.name)}</b>: {escape(self.summary)}. <code>{escape(str(self.file))}</code></p>"
