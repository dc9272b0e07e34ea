"""Follow a run's record: where pods of owners are, and the summary of the cluster."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.core.compiled import inlined_kernel, kernel
from steersman.objectives import summary as state
from steersman.policies.observations.encoding import OwnerArrays, count_owner
from steersman.simulation.event_arrays import (
    ARRIVAL,
    BOUND,
    CAUSE,
    CPU_SHARE,
    CPU_SQUARE,
    CPU_USED,
    EVENTS,
    FINISHED,
    GPU_USED,
    MEMORY_USED,
    NODES_USED,
    OUTCOME,
    SLOT,
    WAITING_NOW,
)


@inlined_kernel
def follow_event(owners: OwnerArrays, owner_of: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64], k: int) -> None:
    """Update the owners by event `k` of the record; `owner_of`, [A], are those of the arrivals, -1: none."""
    outcome, arrival = numbers[k, OUTCOME], numbers[k, ARRIVAL]
    if outcome in (BOUND, FINISHED):
        count_owner(owners, owner_of[arrival], numbers[k, SLOT], 1 if outcome == BOUND else -1)


@inlined_kernel
def summarise(cursor: npt.NDArray[np.int64], sums: npt.NDArray[np.float64], out: npt.NDArray[np.float64]) -> None:
    """Write the state of a run, its `cursor` and `sums`, into out, [16]; constant entries are there already."""
    out[state.NODES_USED] = cursor[NODES_USED]
    out[state.CPU_SHARE] = sums[CPU_SHARE]
    out[state.CPU_SQUARE] = sums[CPU_SQUARE]
    out[state.CPU_TAKEN] = cursor[CPU_USED]
    out[state.MEMORY_TAKEN] = cursor[MEMORY_USED]
    out[state.GPU_TAKEN] = cursor[GPU_USED]
    fragmented = 0.0
    for i in range(CAUSE, sums.shape[0]):
        fragmented += sums[i]
    out[state.FRAGMENTED] = max(fragmented, 0.0)
    out[state.WAITING] = cursor[WAITING_NOW]


@kernel
def follow(
    owners: OwnerArrays,
    owner_of: npt.NDArray[np.int64],
    numbers: npt.NDArray[np.int64],
    cursor: npt.NDArray[np.int64],
    sums: npt.NDArray[np.float64],
    since: int,
    summary: npt.NDArray[np.float64],
) -> None:
    """Update the owners by the events from number `since` on, and write the current state into the summary, [16]."""
    for k in range(since, cursor[EVENTS]):
        follow_event(owners, owner_of, numbers, k)
    summarise(cursor, sums, summary)
