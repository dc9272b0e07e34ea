"""What a scheduler knows exactly of a node: the pods that it bound there and their requests."""

from __future__ import annotations

from steersman.cluster.arrays import CPU, MEMORY, PODS, fits
from steersman.core.compiled import inlined_kernel
from steersman.policies.node_metrics.arrays import SchedulerView


@inlined_kernel
def row_of(view: SchedulerView, e: int, n: int) -> int:
    """Return the row of node `n` of environment `e` in `view.nodes`."""
    # `zone` is [E, N]: environment `e` has N rows, from e N on.
    return int(e * view.zone.shape[1] + n)


@inlined_kernel
def class_of(view: SchedulerView, e: int, pod: int) -> int:
    """Return the row of a pod of environment `e` in `view.pods`."""
    return int(e * view.user.shape[1] + pod)


@inlined_kernel
def fits_on(view: SchedulerView, e: int, pod: int, n: int) -> bool:
    return fits(view.nodes, view.pods, class_of(view, e, pod), row_of(view, e, n))


@inlined_kernel
def cpu_allocatable(view: SchedulerView, e: int, n: int) -> int:
    return int(view.nodes.allocatable[row_of(view, e, n), CPU])


@inlined_kernel
def cpu_requested(view: SchedulerView, e: int, n: int) -> int:
    row = row_of(view, e, n)
    return int(view.nodes.allocatable[row, CPU] - view.nodes.free[row, CPU])


@inlined_kernel
def memory_requested(view: SchedulerView, e: int, n: int) -> int:
    row = row_of(view, e, n)
    return int(view.nodes.allocatable[row, MEMORY] - view.nodes.free[row, MEMORY])


@inlined_kernel
def running(view: SchedulerView, e: int, n: int) -> int:
    row = row_of(view, e, n)
    return int(view.nodes.allocatable[row, PODS] - view.nodes.free[row, PODS])
