"""The workloads of a run: their identity in a checkpoint, and a check that none is used for two purposes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from steersman.core.errors import UsageError
from steersman.workloads.workload import Workload


def identity(workload: Workload) -> str:
    """Return what identifies a workload in a checkpoint."""
    return f"{workload.name}: {len(workload.nodes)} nodes, {len(workload.pods)} pods"


def check_disjoint(training: Sequence[Workload], validation: Sequence[Workload] = (), test: Iterable[str] = ()) -> None:
    """Check that no training workload is used for validation or, by its name, the test. Raises UsageError: one is."""
    both = {workload.name for workload in training} & ({workload.name for workload in validation} | set(test))
    if both:
        raise UsageError(f"{', '.join(sorted(both))}: used for training, so not fit for validation or test")
