"""Where agents play: the environment of a protocol for training, and the same one apart for validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, cast

from steersman.envs.core import Arrays, Core
from steersman.envs.deployments import DeploymentsCore
from steersman.envs.deployments import Options as DeploymentsOptions
from steersman.envs.latency import LatencyCore, LatencyOptions
from steersman.envs.playing import Chooser, Figures, play
from steersman.envs.vector import SteersmanVectorEnv
from steersman.envs.workload import Options as WorkloadOptions
from steersman.envs.workload import WorkloadCore
from steersman.errors import UsageError
from steersman.features import View, view
from steersman.objectives import registry as objectives
from steersman.policies.heuristics import LOCAL
from steersman.policies.telemetry_rules import RULES
from steersman.policies.telemetry_view import TELEMETRY
from steersman.training.workloads import identity, keep_apart
from steersman.workloads.workload import Workload

WorkloadProtocol = Literal["inflation", "arrivals", "timed"]
Protocol = Literal["inflation", "arrivals", "timed", "deployments", "latency"]
Options = WorkloadOptions | DeploymentsOptions | LatencyOptions

OBJECTIVES: dict[str, str] = {
    "inflation": "allocation",
    "arrivals": "allocation",
    "timed": "waiting-time",
    "deployments": "balance",
    "latency": "latency-aware",
}
"""What each protocol rewards unless another objective is named."""

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
    """Raises UsageError: environments of the protocol have no such rule; the message lists those they have."""
    rules = RULES if protocol == "latency" else LOCAL
    if name not in rules:
        raise UsageError(f"unknown rule {name!r}; with --protocol {protocol} there are {', '.join(rules)}")


@dataclass(frozen=True, slots=True)
class Scene:
    """An environment and its options.

    Attributes:
        protocol: which environment.
        options: of it; for `inflation`, `arrivals` and `timed` its workloads are the training workloads.
        validation: workloads to validate on, of the same; none: those of training.

    Raises:
        UsageError: there is no workload, or one is used for both.
    """

    protocol: Protocol
    options: Options
    validation: tuple[Workload, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.options, WorkloadOptions) and not self.training:
            raise UsageError("training needs at least one workload")
        keep_apart(self.training, self.validation)

    @property
    def training(self) -> tuple[Workload, ...]:
        """The training workloads; none where the environment makes its own pods."""
        if not isinstance(self.options, WorkloadOptions):
            return ()
        given: Any = self.options.workload
        return self.options.workloads() if given else ()

    @property
    def objective(self) -> str:
        """What is rewarded."""
        return self.options.objective

    @property
    def view(self) -> View:
        """What agents see. Raises UsageError: there is no such view."""
        return TELEMETRY if isinstance(self.options, LatencyOptions) else view(self.options.view)

    @property
    def reference(self) -> str:
        """The rule to compare with unless another is named."""
        if self.protocol == "latency":
            return LATENCY_REFERENCE
        return objectives.resolve(self.objective).objectives[0].reference

    def check_rule(self, name: str) -> None:
        """Raises UsageError: see `check_rule`."""
        check_rule(self.protocol, name)

    def make(self, count: int) -> SteersmanVectorEnv:
        """`count` environments to train in. Raises UsageError: see the environment."""
        return SteersmanVectorEnv(self._core(count, self.options))

    def stage(self, seeds: Sequence[int]) -> Stage:
        """The environments to validate in."""
        options = self.options
        if isinstance(options, WorkloadOptions) and self.validation:
            options = replace(options, workload=self.validation)
        names: tuple[str, ...] = (self.protocol,)
        if isinstance(options, WorkloadOptions):
            names = tuple(workload.name for workload in options.workloads())
        return Stage(self._core(len(seeds), options), names, tuple(seeds))

    def _core(self, count: int, options: Options) -> Core:
        match options:
            case WorkloadOptions():
                return WorkloadCore(count, cast("WorkloadProtocol", self.protocol), options)
            case DeploymentsOptions():
                return DeploymentsCore(count, options)
        return LatencyCore(count, options)

    def identity(self) -> dict[str, Any]:
        """The same as JSON: what a checkpoint belongs to."""
        told: dict[str, Any] = {"protocol": self.protocol}
        for field in fields(self.options):
            value = getattr(self.options, field.name)
            if field.name == "workload":
                value = [identity(workload) for workload in self.training]
            told[field.name] = value if isinstance(value, int | float | str | list | None) else str(value)
        return told | {"validation": [identity(workload) for workload in self.validation]}


class Stage:
    """Environments in which policies play the same episodes, one for each seed and workload.

    Args:
        core: as many environments as there are seeds.
        names: of workloads; of the protocol where there are none.
        seeds: S of the episodes.
    """

    def __init__(self, core: Core, names: tuple[str, ...], seeds: tuple[int, ...]) -> None:
        self.core, self.names, self.seeds = core, names, seeds

    def play(self, name: str, policy: str | Chooser) -> Figures:
        """[S] by name: the `return`, and what the environment tells at the end of each episode (`FIGURES`).

        Args:
            name: one of `names`.
            policy: a rule's name, or what chooses actions.
        """
        options: dict[str, Any] = {"workload": name} if isinstance(self.core, WorkloadCore) else {}
        return play(self.core, policy, [{"seed": seed, **options} for seed in self.seeds], self._figures)

    def _figures(self) -> Arrays:
        infos = self.core.infos()
        return {figure: infos[figure] for figure in FIGURES if figure in infos}
