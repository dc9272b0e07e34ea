"""The workloads of a run: what a checkpoint remembers of them, and that none is used for two purposes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from steersman.errors import UsageError
from steersman.workloads.workload import Workload


def identity(workload: Workload) -> str:
    """What a checkpoint remembers of a workload."""
    return f"{workload.name}: {len(workload.nodes)} nodes, {len(workload.pods)} pods"


def keep_apart(training: Sequence[Workload], validation: Sequence[Workload] = (), test: Iterable[str] = ()) -> None:
    """Raises UsageError: a workload is used for training, and also for validation or, by its name, for the test."""
    both = {workload.name for workload in training} & ({workload.name for workload in validation} | set(test))
    if both:
        raise UsageError(f"{', '.join(sorted(both))}: used for training, so not fit for validation or test")
