"""The environments of a protocol: for training, and separate ones for validation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, cast

from steersman.core.errors import UsageError
from steersman.envs.base import Arrays, EnvCore
from steersman.envs.deployments import DeploymentsCore, DeploymentsOptions
from steersman.envs.environment import Chooser, Figures, SteersmanVectorEnv, play
from steersman.envs.latency import LatencyCore, LatencyOptions
from steersman.envs.workload import WorkloadCore, WorkloadOptions
from steersman.objectives import registry as objectives
from steersman.orders.order import AGE
from steersman.policies.features import TELEMETRY, View, view
from steersman.policies.heuristics import HEURISTIC_IDS
from steersman.policies.node_metrics import METRIC_RULES
from steersman.workloads.workload import Workload

WorkloadProtocol = Literal["inflation", "arrivals", "timed"]
Protocol = Literal["inflation", "arrivals", "timed", "deployments", "latency"]
Options = WorkloadOptions | DeploymentsOptions | LatencyOptions

DEFAULT_OBJECTIVES: dict[str, str] = {
    "inflation": "allocation",
    "arrivals": "allocation",
    "timed": "waiting-time",
    "deployments": "balance",
    "latency": "latency-aware",
}
"""What each protocol rewards unless another objective is named."""

VALIDATION_SEEDS = (5001, 5002, 5003)
LATENCY_REFERENCE = "kube-default"
FIGURES = (
    "allocation",
    "node_variance",
    "nodes_used",
    "empty_nodes",
    "cpu_use_deviation_percent",
    "connections_maximum_mean",
    "hard_limits_broken_avoidable",
    "soft_limits_kept_percent",
)
"""What is told of an environment at an episode's end, where it has it."""


def check_rule(protocol: str, name: str) -> None:
    """Check that environments of the protocol have a rule. Raises UsageError: the message lists those they have."""
    rules = METRIC_RULES if protocol == "latency" else HEURISTIC_IDS
    if name not in rules:
        raise UsageError(f"unknown rule {name!r}; with --protocol {protocol} there are {', '.join(rules)}")


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """An environment and its options.

    Raises:
        UsageError: there is no workload, or one is used for both.
    """

    protocol: Protocol  # which environment
    options: Options  # its options; for `inflation`, `arrivals` and `timed` its workloads are the training workloads
    validation: tuple[Workload, ...] = ()  # workloads to validate on; empty: those of training

    def __post_init__(self) -> None:
        if isinstance(self.options, WorkloadOptions) and not self.training:
            raise UsageError("training needs at least one workload")
        check_disjoint(self.training, self.validation)

    @property
    def training(self) -> tuple[Workload, ...]:
        """Return the training workloads; empty if the environment generates its own pods."""
        if not isinstance(self.options, WorkloadOptions):
            return ()
        given: Any = self.options.workload
        return self.options.workloads() if given else ()

    @property
    def objective(self) -> str:
        return self.options.objective

    @property
    def view(self) -> View:
        """Return the view that agents observe. Raises UsageError: there is no such view."""
        return TELEMETRY if isinstance(self.options, LatencyOptions) else view(self.options.view)

    @property
    def order(self) -> str:
        return self.options.order if isinstance(self.options, WorkloadOptions) else AGE.name

    @property
    def reference(self) -> str:
        """Return the default rule to compare with."""
        if self.protocol == "latency":
            return LATENCY_REFERENCE
        return objectives.resolve(self.objective).objectives[0].reference

    def check_rule(self, name: str) -> None:
        """Check that the environment has a rule. Raises UsageError: see `check_rule`."""
        check_rule(self.protocol, name)

    def make(self, count: int) -> SteersmanVectorEnv:
        """Return `count` environments to train in. Raises UsageError: see the environment."""
        return SteersmanVectorEnv(self._core(count, self.options))

    def stage(self, seeds: Sequence[int]) -> ValidationEnvs:
        """Return the environments to validate in."""
        options = self.options
        if isinstance(options, WorkloadOptions) and self.validation:
            options = replace(options, workload=self.validation)
        names: tuple[str, ...] = (self.protocol,)
        if isinstance(options, WorkloadOptions):
            names = tuple(workload.name for workload in options.workloads())
        return ValidationEnvs(self._core(len(seeds), options), names, tuple(seeds))

    def _core(self, count: int, options: Options) -> EnvCore:
        match options:
            case WorkloadOptions():
                return WorkloadCore(count, cast("WorkloadProtocol", self.protocol), options)
            case DeploymentsOptions():
                return DeploymentsCore(count, options)
        return LatencyCore(count, options)

    def identity(self) -> dict[str, Any]:
        """Return the environment as JSON; a checkpoint belongs to it."""
        spec: dict[str, Any] = {"protocol": self.protocol}
        for field in fields(self.options):
            value = getattr(self.options, field.name)
            if field.name == "workload":
                value = [identity(workload) for workload in self.training]
            spec[field.name] = value if isinstance(value, int | float | str | list | None) else str(value)
        return spec | {"validation": [identity(workload) for workload in self.validation]}


class ValidationEnvs:
    """Environments in which policies run the same episodes, one for each seed and workload.

    Args:
        core: as many environments as there are seeds.
        names: of workloads; of the protocol if there are none.
        seeds: S of the episodes.
    """

    def __init__(self, core: EnvCore, names: tuple[str, ...], seeds: tuple[int, ...]) -> None:
        self.core, self.names, self.seeds = core, names, seeds

    def play(self, name: str, policy: str | Chooser) -> Figures:
        """Return [S] by name: the `return`, and metrics at the end of each episode (`FIGURES`).

        Args:
            policy: a rule's name, or a function that chooses actions.
        """
        options: dict[str, Any] = {"workload": name} if isinstance(self.core, WorkloadCore) else {}
        return play(self.core, policy, [{"seed": seed, **options} for seed in self.seeds], self._figures)

    def _figures(self) -> Arrays:
        infos = self.core.infos()
        return {figure: infos[figure] for figure in FIGURES if figure in infos}


def identity(workload: Workload) -> str:
    """Return what identifies a workload in a checkpoint."""
    return f"{workload.name}: {len(workload.nodes)} nodes, {len(workload.pods)} pods"


def check_disjoint(training: Sequence[Workload], validation: Sequence[Workload] = (), test: Iterable[str] = ()) -> None:
    """Check that no training workload is used for validation or, by its name, the test. Raises UsageError: one is."""
    both = {workload.name for workload in training} & ({workload.name for workload in validation} | set(test))
    if both:
        raise UsageError(f"{', '.join(sorted(both))}: used for training, so not fit for validation or test")
