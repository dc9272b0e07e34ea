"""Experiments that files of other simulators describe: a cluster, its pods, and the policy to place them with.

A package adds a kind by an entry point of the group `steersman.experiments` that leads to an `ExperimentFormat`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from steersman.core.extensions import Registry
from steersman.workloads.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentCluster(ABC):
    """A cluster and what to do with its workload.

    Attributes:
        file: where it was read from, for errors.
        shuffle_pods: whether pods arrive in random order (by `seed`) instead of in that of the workload.
        ratio: GPU demand to tune the workload to, as a share of the cluster's GPUs; 0 leaves the workload as it is.
        seed: seed of shuffling and tuning.
        cpu_pods_typical: whether pods without GPUs are part of the profile.
        popularity_percent: how much of the workload the typical pods must cover.
        warnings: settings that have no effect here.
    """

    file: str
    shuffle_pods: bool
    ratio: float
    seed: int
    cpu_pods_typical: bool
    popularity_percent: int
    warnings: tuple[str, ...] = ()

    @abstractmethod
    def load(self) -> Workload:
        """Return the workload. Raises InputError: a file of it is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentScheduler(ABC):
    """What decides in an experiment.

    Attributes:
        file: where it was read from, for errors.
        warnings: settings that have no effect here.
    """

    file: str
    warnings: tuple[str, ...] = ()

    @abstractmethod
    def policy(self, own: str | None = None) -> str:
        """Return the policy as `--policy` takes it.

        Args:
            own: the user's policy, for a scheduler that asks one.

        Raises:
            UsageError: `own` is needed and missing, or given and not needed.
        """


@dataclass(frozen=True, slots=True)
class ExperimentFormat:
    """A kind of files that describe experiments.

    Attributes:
        name: of the kind.
        read: reads a file of the cluster, and one of the scheduler if there is one; raises InputError.
    """

    name: str
    read: Callable[[Path, Path | None], tuple[ExperimentCluster, ExperimentScheduler | None]]


EXPERIMENT_FORMATS: Registry[ExperimentFormat] = Registry(
    "format of experiments", "steersman.experiments", ExperimentFormat
)
