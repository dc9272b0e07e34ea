"""What a scheduler knows exactly of a node: the pods that it bound there and what they request."""

from __future__ import annotations

from steersman.cluster.arrays import CPU, MEMORY, PODS, fits
from steersman.compiled import inner
from steersman.telemetry.model import Seen


@inner
def row_of(seen: Seen, e: int, n: int) -> int:
    """The row of node `n` of environment `e` in `seen.nodes`."""
    return int(e * seen.zone.shape[1] + n)


@inner
def class_of(seen: Seen, e: int, pod: int) -> int:
    """The row of a pod of environment `e` in `seen.pods`."""
    return int(e * seen.user.shape[1] + pod)


@inner
def fits_on(seen: Seen, e: int, pod: int, n: int) -> bool:
    """Whether a pod fits on node `n`, by requests."""
    return fits(seen.nodes, seen.pods, class_of(seen, e, pod), row_of(seen, e, n))


@inner
def capacity(seen: Seen, e: int, n: int) -> int:
    """milli-CPU that may be requested of node `n`."""
    return int(seen.nodes.allocatable[row_of(seen, e, n), CPU])


@inner
def requested(seen: Seen, e: int, n: int) -> int:
    """milli-CPU requested on node `n`."""
    row = row_of(seen, e, n)
    return int(seen.nodes.allocatable[row, CPU] - seen.nodes.free[row, CPU])


@inner
def memory_requested(seen: Seen, e: int, n: int) -> int:
    """Bytes requested on node `n`."""
    row = row_of(seen, e, n)
    return int(seen.nodes.allocatable[row, MEMORY] - seen.nodes.free[row, MEMORY])


@inner
def running(seen: Seen, e: int, n: int) -> int:
    """Pods on node `n`."""
    row = row_of(seen, e, n)
    return int(seen.nodes.allocatable[row, PODS] - seen.nodes.free[row, PODS])
