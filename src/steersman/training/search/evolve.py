"""Training by evolution on workloads: a run's plan, the validation of candidates, and the resulting policy file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.agents.configs import EvolutionConfig
from steersman.agents.evolution.simulations import EXCESS_WEIGHT, Evolution, SimulationTask
from steersman.core.errors import InputError, UsageError
from steersman.core.stored_command import StoredCommand
from steersman.orders.registry import find_order
from steersman.policies.base import default_member, with_profile
from steersman.policies.features import view
from steersman.policies.kinds import as_linear
from steersman.policies.kube_scheduler.policy import KUBE_DEFAULT
from steersman.policies.learned_weights import GPU_VIEW
from steersman.policies.linear import LinearPolicy
from steersman.policies.policy_file import (
    Card,
    WorkloadResult,
    open_policy,
    read_policy,
    with_stored_order,
    write_policy,
)
from steersman.policies.portfolio_policy import PORTFOLIO
from steersman.policies.registry import policy_path, resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Simulator
from steersman.training.environment import VALIDATION_SEEDS, check_disjoint, identity
from steersman.training.network import check_start, fingerprint
from steersman.training.run import OnIteration, TrainingLimits, TrainingProgress, TrainingRun
from steersman.version import __version__
from steersman.workloads.warnings import no_devices
from steersman.workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class EvolutionPlan:
    """The plan of a run of evolution on workloads."""

    name: str  # name of the policy
    # `training`, `validation`: workloads; without any of the latter those of training are used, with other seeds.
    training: tuple[Workload, ...]
    validation: tuple[Workload, ...] = ()
    test: tuple[str, ...] = ()  # names of workloads that neither may use, for the model card
    task: SimulationTask = field(default_factory=SimulationTask)  # protocol and objective
    config: EvolutionConfig = field(default_factory=EvolutionConfig)  # options of the search
    seed: int = 1  # of the search
    validation_seeds: tuple[int, ...] = VALIDATION_SEEDS  # of the protocol's own arrivals; training draws its own
    # A policy file of the same network to continue from, or `steersman`; None: FGD with planned losses
    start: Path | None = None

    def __post_init__(self) -> None:
        if not self.training:
            raise UsageError("training needs at least one workload")
        for workload in (*self.training, *self.validation):
            if problem := no_devices(workload):
                raise UsageError(f"{workload.name}: {problem}; evolution with --view cluster needs no GPU")
        check_disjoint(self.training, self.validation, self.test)

    def options(self) -> dict[str, Any]:
        """Return the plan as JSON; a checkpoint belongs to it."""
        return self.origin() | {
            "algorithm": Evolution.algorithm,
            "network": self.config.network,
            "name": self.name,
            "training": [identity(workload) for workload in self.training],
            "validation": [identity(workload) for workload in self.validation],
            "test": list(self.test),
            "task": asdict(self.task),
            "config": asdict(self.config),
            "seed": self.seed,
            "validation_seeds": list(self.validation_seeds),
        }

    def origin(self) -> dict[str, str]:
        """Return the policy file that the search continues from, if any."""
        if self.start is None:
            return {}
        with policy_path(str(self.start)) as file:
            return {"start": str(fingerprint(file))}


def evolve(
    plan: EvolutionPlan,
    folder: Path,
    limits: TrainingLimits,
    *,
    jobs: int = 1,
    resume: bool = False,
    on_iteration: OnIteration | None = None,
    command: StoredCommand | None = None,
) -> TrainingProgress:
    """Train to the limits; the best policy by validation is `policy.safetensors` in `folder`.

    Raises:
        UsageError: the plan is invalid.
        SteersmanError: see `TrainingRun`.
    """
    run = TrainingRun(folder, plan.options(), limits, resume=resume, command=command)
    search = Evolution(plan.training, plan.task, plan.config, plan.seed, jobs, _first(plan))
    validator = SimulationValidator(plan)

    def save(path: Path) -> None:
        write_policy(path, _card(plan, search, validator), search.policy(plan.name).tensors())

    try:
        return run.train(search, lambda: validator.validate(search), save, on_iteration)
    finally:
        search.close()


def _first(plan: EvolutionPlan) -> LinearPolicy | None:
    """Return the policy to continue from, without its embedded profile.

    Raises:
        InputError: the file is of another view or network.
    """
    if plan.start is None:
        return None
    with policy_path(str(plan.start)) as file:
        card = read_policy(file)[0]
        # A portfolio holds linear policies, so only a search for a linear one can continue from it.
        if card.network != PORTFOLIO or plan.config.network != "linear":
            check_start(file, card, GPU_VIEW, plan.config.network, plan.config.widths)
        policy = open_policy(file, plan.name)
    start = as_linear(default_member(policy)) if policy.is_learned else None
    if start is None:
        problem = "is a rule, or sees the whole cluster; evolution on workloads continues from its own policies"
        raise InputError(plan.start, "file", "policy", problem)
    # An embedded profile is of one cluster, and the search plays on others.
    return with_profile(start, None)


class SimulationValidator:
    """Validate a policy: percent of the reference's cost saved, on workloads and seeds of its own."""

    def __init__(self, plan: EvolutionPlan) -> None:
        self.plan = plan
        self.simulators = [Simulator(workload) for workload in plan.validation or plan.training]
        self._reference: dict[tuple[str, int], float] = {}
        self._baseline: dict[tuple[str, int], npt.NDArray[np.float64]] = {}
        self.costs: dict[str, tuple[float, float]] = {}

    def validate(self, search: Evolution) -> float:
        """Return the mean saving over workloads and seeds, less what the limit of kinds' losses costs."""
        policy, task = search.policy(self.plan.name), self.plan.task
        savings = []
        # The gain is of mean costs, not the mean of gains: a draw with hardly any cost would dominate.
        for simulator in self.simulators:
            played = [self._play(simulator, policy, seed) for seed in self.plan.validation_seeds]
            costs, references, paid, before = zip(*played, strict=True)
            cost, reference = float(np.mean(costs)), float(np.mean(references))
            self.costs[simulator.workload.name] = cost, reference
            excess = task.excess(np.sum(paid, axis=0), np.sum(before, axis=0))
            savings.append(task.gain(reference, cost) - EXCESS_WEIGHT * excess)
        return float(np.mean(savings))

    def _play(
        self, simulator: Simulator, policy: LinearPolicy, seed: int
    ) -> tuple[float, float, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the costs of the policy and of the reference, and what kinds pay under the policy and by default."""
        task = self.plan.task
        plan = schedule(simulator.workload, task.protocol, seed=seed, ratio=task.ratio, load=task.load)
        key = simulator.workload.name, seed
        if key not in self._reference:
            self._reference[key], paid = task.play(simulator, plan, resolve(self.plan.config.reference), seed)
            limited = task.max_kind_loss is not None
            self._baseline[key] = task.play(simulator, plan, resolve(KUBE_DEFAULT), seed).paid if limited else paid
        cost, paid = task.play(simulator, plan, policy, seed)
        return cost, self._reference[key], paid, self._baseline[key]


def _stated(task: SimulationTask) -> dict[str, str | float]:
    """Return what a card says of the task beside protocol, objective and order."""
    return {} if task.max_kind_loss is None else {"max_kind_loss": task.max_kind_loss}


def _card(plan: EvolutionPlan, search: Evolution, validator: SimulationValidator) -> Card:
    task, runs = plan.task, len(plan.validation_seeds)
    card = Card(
        name=plan.name,
        view=GPU_VIEW,
        view_version=view(GPU_VIEW).version,
        network=plan.config.network,
        hidden=plan.config.widths,
        objective=task.objective,
        algorithm=Evolution.algorithm,
        protocol=task.protocol,
        ratio=task.ratio if task.protocol == "inflation" else None,
        load=task.load,
        training=tuple(workload.name for workload in plan.training),
        validation=tuple(workload.name for workload in plan.validation),
        test=plan.test,
        seeds=f"{plan.seed} for the search, {', '.join(map(str, plan.validation_seeds))} for validation",
        settings=asdict(plan.config) | plan.origin() | _stated(task),
        steps=search.steps,
        scores=tuple(
            WorkloadResult(workload, task.metric, round(cost, 4), plan.config.reference, round(reference, 4), runs)
            for workload, (cost, reference) in validator.costs.items()
        ),
        made_by=f"steersman {__version__}",
    )
    return with_stored_order(card, find_order(task.order))
