"""Training in environments, by gradients or by evolution of whole episodes: a run's plan and its policy.

Importing this module needs no torch; training by gradients does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from steersman.agents.networks.spec import sizes_of
from steersman.agents.registry import EVOLUTION, algorithm_specs, find_algorithm
from steersman.core.errors import UsageError
from steersman.core.extensions import attribute_foreign_errors
from steersman.core.stored_command import StoredCommand
from steersman.envs.environment import RETURN, Chooser, Figures
from steersman.orders.registry import find_order
from steersman.policies.networks import find_network
from steersman.policies.policy_file import Card, WorkloadResult, with_stored_order, write_policy
from steersman.training.environment import VALIDATION_SEEDS, EnvironmentSpec, check_disjoint
from steersman.training.network import NetworkPlan, fingerprint
from steersman.training.run import Learner, OnIteration, TrainingLimits, TrainingProgress, TrainingRun
from steersman.version import __version__

if TYPE_CHECKING:
    from steersman.agents.base import Agent
    from steersman.agents.evolution.episodes import EpisodeEvolution

LEAST_RETURN = 1e-9
DEVICES = "cpu, cuda, cuda:0, mps or auto"


@dataclass(frozen=True, slots=True)
class LearningPlan:
    """The plan of a training run in environments.

    Raises:
        UsageError: an option is invalid or contradicts another.
    """

    name: str  # name of the policy
    algorithm: str  # see `agents.registry.find_algorithm`
    scene: EnvironmentSpec  # the environment
    config: Any  # options of the algorithm, of its configuration class
    network: NetworkPlan = field(default_factory=NetworkPlan)  # the network to train
    seed: int = 1  # of the environments, exploration and the first weights
    environments: int = 8  # number of environments stepped together
    device: str = "cpu"  # device of the network: `cpu`, `cuda`, `cuda:1`, `mps`, or `auto`, the best available
    teacher: str | None = None  # the rule that imitation learns from, and that DQN explores by; None: the reference
    recording: Path | None = None  # transitions to learn from instead, or to begin with
    reference: str | None = None  # the rule that validation compares with; None: the one that suits the objective
    validation_seeds: tuple[int, ...] = VALIDATION_SEEDS  # of the validation episodes
    test: tuple[str, ...] = ()  # names of workloads kept for a test, for the model card

    def __post_init__(self) -> None:
        uses_teacher = find_algorithm(self.algorithm).uses_teacher
        if self.environments < 1:
            raise UsageError(f"--environments must be at least 1, not {self.environments}")
        check_disjoint(self.scene.training, test=self.test)
        for rule in (self.teacher, self.reference):
            if rule is not None:
                self.scene.check_rule(rule)
        for option, value in (("--teacher", self.teacher), ("--recording", self.recording)):
            if value is not None and not uses_teacher:
                others = " and ".join(spec.name for spec in algorithm_specs() if spec.uses_teacher)
                raise UsageError(f"{option} does not apply to {self.algorithm}; {others} learn from others")
        if (
            self.algorithm == "dqn"
            and self.teacher is not None
            and not (self.config.use_heuristic or self.config.prefill)
        ):
            raise UsageError("dqn asks --teacher only with --use-heuristic or --prefill")
        if self.algorithm == "imitation" and self.teacher is not None and self.recording is not None:
            raise UsageError("imitation learns from --teacher or from --recording, not from both")

    @property
    def rule(self) -> str:
        """Return the rule that validation compares with."""
        return self.reference or self.scene.reference

    @property
    def task_options(self) -> dict[str, Any]:
        """Return the task by the names that files of options have."""
        return {"protocol": self.scene.protocol, "objective": self.scene.objective}

    def options(self) -> dict[str, Any]:
        """Return the plan as JSON; a checkpoint belongs to it."""
        return {
            "algorithm": self.algorithm,
            "name": self.name,
            "scene": self.scene.identity(),
            "network": self.network.identity(),
            "config": asdict(self.config),
            "seed": self.seed,
            "environments": self.environments,
            "teacher": self.teacher,
            "recording": fingerprint(self.recording),
            "reference": self.rule,
            "validation_seeds": list(self.validation_seeds),
            "test": list(self.test),
        }


def learn(
    plan: LearningPlan,
    folder: Path,
    limits: TrainingLimits,
    *,
    resume: bool = False,
    on_iteration: OnIteration | None = None,
    command: StoredCommand | None = None,
) -> TrainingProgress:
    """Train to the limits; the best policy by validation is `policy.safetensors` in `folder`.

    Raises:
        UsageError: the plan is invalid.
        MissingExtraError: torch is not installed.
        SteersmanError: see `TrainingRun`.
    """
    is_evolution = plan.algorithm == EVOLUTION
    if not is_evolution:
        find_algorithm(plan.algorithm).load()
    device = "" if is_evolution else find_device(plan.device)
    run = TrainingRun(folder, plan.options(), limits, resume=resume, command=command)
    learner: Agent | EpisodeEvolution = _search(plan) if is_evolution else _agent(plan, device)
    validator = Validator(plan.scene, plan.validation_seeds, plan.rule)

    def save(path: Path) -> None:
        write_policy(path, _card(plan, learner, validator), weights_of(learner))

    with nullcontext() if is_evolution else _limit_torch_threads():
        return run.train(cast(Learner, learner), lambda: validator.validate(learner.act), save, on_iteration)


@contextmanager
def _limit_torch_threads() -> Iterator[None]:
    """Let torch use one thread, unless OMP_NUM_THREADS says how many.

    A second one gains at most a third on two idle cores, and where others use these it makes a step several times
    slower: the threads wait for each other. The same seed gives the same run whatever the number of cores.
    """
    import torch

    before = torch.get_num_threads()
    if not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def find_device(name: str) -> str:
    """Return the torch device of that name; `auto` is the best available.

    Raises:
        UsageError: there is no device of that name on this machine.
    """
    import torch

    has_cuda, has_mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if name == "auto":
        return "cuda" if has_cuda else "mps" if has_mps else "cpu"
    kind, colon, number = name.partition(":")
    # A colon needs a number and the other way round, and only cuda has several devices.
    if kind not in ("cpu", "cuda", "mps") or bool(colon) != number.isdigit() or (colon and kind != "cuda"):
        raise UsageError(f"--device {name}: there is no such device; expected {DEVICES}")
    there = {"cpu": True, "cuda": has_cuda and int(number or 0) < torch.cuda.device_count(), "mps": has_mps}[kind]
    if not there:
        raise UsageError(f"--device {name}: this machine has none that torch could use; cpu works everywhere")
    return name


def _search(plan: LearningPlan) -> EpisodeEvolution:
    from steersman.agents.evolution.episodes import EpisodeEvolution

    sizes = sizes_of(plan.scene.make(1).single_observation_space)
    spec = plan.network.spec(sizes)
    return EpisodeEvolution(plan.scene.make, spec, plan.config, plan.seed, plan.network.weights(plan.scene.view, spec))


def _agent(plan: LearningPlan, device: str) -> Agent:
    from steersman.agents.base import teacher_of
    from steersman.agents.buffers import Recording

    algorithm = find_algorithm(plan.algorithm)
    env = plan.scene.make(plan.environments)
    space = env.single_observation_space
    network = plan.network.build(plan.scene.view, sizes_of(space), plan.seed)
    more: dict[str, Any] = {}
    if algorithm.uses_teacher:
        if plan.recording is not None:
            more["recording"] = Recording.load(plan.recording)
            more["recording"].check(plan.recording, space, plan.config.candidates)
        # Imitation takes a teacher or a recording, not both; DQN may have both.
        if plan.algorithm != "imitation" or plan.recording is None:
            more["teacher"] = teacher_of(env, plan.teacher or plan.scene.reference)
    kind = algorithm.load()
    with attribute_foreign_errors(plan.algorithm, kind):
        agent: Agent = kind(env, network, plan.config, plan.seed, device, **more)
    return agent


def weights_of(learner: Agent | EpisodeEvolution) -> dict[str, Any]:
    """Return the weights of a policy file; batch normalisation is folded into its layers if possible."""
    if learner.algorithm == EVOLUTION:
        return cast("EpisodeEvolution", learner).best()
    from steersman.agents.networks.score_networks import export

    network = cast("Agent", learner).network
    return export(network, fold=find_network(network.spec.name).folds_batch_norm)


def _card(plan: LearningPlan, learner: Agent | EpisodeEvolution, validator: Validator) -> Card:
    network, scene = plan.network, plan.scene
    settings = asdict(plan.config)
    if plan.algorithm != EVOLUTION:
        settings |= {"environments": plan.environments, "dropout": network.dropout}
    card = Card(
        name=plan.name,
        view=scene.view.name,
        view_version=scene.view.version,
        network=network.name,
        hidden=network.layers,
        normalisation=network.saved_norm,
        objective=scene.objective,
        algorithm=plan.algorithm,
        protocol=scene.protocol,
        ratio=getattr(scene.options, "ratio", None) if scene.protocol == "inflation" else None,
        load=getattr(scene.options, "load", None) if scene.protocol == "timed" else None,
        training=tuple(workload.name for workload in scene.training),
        validation=tuple(workload.name for workload in scene.validation),
        test=plan.test,
        seeds=f"{plan.seed} for training, {', '.join(map(str, plan.validation_seeds))} for validation",
        settings=settings,
        steps=learner.steps,
        scores=validator.scores(),
        made_by=f"steersman {__version__}",
    )
    return with_stored_order(card, find_order(scene.order))


class Validator:
    """Run validation episodes.

    Args:
        seeds: of the episodes on each workload.
        reference: the rule to compare with; it runs each episode once.

    Raises:
        UsageError: the environment has no such rule, or an option of it is invalid.
    """

    def __init__(self, environment: EnvironmentSpec, seeds: Sequence[int], reference: str) -> None:
        environment.check_rule(reference)
        self.episodes, self.reference = environment.stage(seeds), reference
        self._reference_figures: dict[str, Figures] = {}
        self._policy_figures: dict[str, Figures] = {}

    def validate(self, choose: Chooser) -> float:
        """Return by how many percent the mean return exceeds the reference's: the mean over workloads."""
        gains = []
        for name in self.episodes.names:
            if name not in self._reference_figures:
                self._reference_figures[name] = self.episodes.play(name, self.reference)
            self._policy_figures[name] = self.episodes.play(name, choose)
            mean = float(self._policy_figures[name][RETURN].mean())
            reference_mean = float(self._reference_figures[name][RETURN].mean())
            # `abs`: the reference's return may be negative.
            gains.append(100.0 * (mean - reference_mean) / max(abs(reference_mean), LEAST_RETURN))
        return float(np.mean(gains))

    def scores(self) -> tuple[WorkloadResult, ...]:
        """Return the means of the last validation, for a model card: the return and the environment's metrics."""
        scores = []
        for name, figures in self._policy_figures.items():
            baseline_figures = self._reference_figures[name]
            for figure in (RETURN, *(each for each in figures if each != RETURN)):
                means = float(figures[figure].mean()), float(baseline_figures[figure].mean())
                if np.isfinite(means).all():  # an episode that was too short has no metrics
                    mean, baseline = (round(value, 6) for value in means)
                    scores.append(
                        WorkloadResult(name, figure, mean, self.reference, baseline, len(self.episodes.seeds))
                    )
        return tuple(scores)
