"""What a run's record and counters mean for whoever watches it: where pods of owners are, and the cluster's summary."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.compiled import inner, kernel
from steersman.objectives import summary as state
from steersman.policies.encoding import OwnerArrays, count_owner
from steersman.simulation import engine


@inner
def follow_event(owners: OwnerArrays, owner_of: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64], k: int) -> None:
    """Count what event `k` of the record means for owners; `owner_of`, [A], are those of the arrivals, -1: none."""
    outcome, arrival = numbers[k, engine.OUTCOME], numbers[k, engine.ARRIVAL]
    if outcome == engine.BOUND or outcome == engine.FINISHED:
        count_owner(owners, owner_of[arrival], numbers[k, engine.SLOT], 1 if outcome == engine.BOUND else -1)


@inner
def summarise(cursor: npt.NDArray[np.int64], sums: npt.NDArray[np.float64], out: npt.NDArray[np.float64]) -> None:
    """Write the state of a run, its `cursor` and `sums`, into out, [15]; what never changes is there already."""
    out[state.NODES_USED] = cursor[engine.NODES_USED]
    out[state.CPU_SHARE] = sums[engine.CPU_SHARE]
    out[state.CPU_SQUARE] = sums[engine.CPU_SQUARE]
    out[state.CPU_TAKEN] = cursor[engine.CPU_USED]
    out[state.MEMORY_TAKEN] = cursor[engine.MEMORY_USED]
    out[state.GPU_TAKEN] = cursor[engine.GPU_USED]
    fragmented = 0.0
    for i in range(engine.CAUSE, sums.shape[0]):
        fragmented += sums[i]
    out[state.FRAGMENTED] = max(fragmented, 0.0)
    out[state.WAITING] = cursor[engine.WAITING_NOW]


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
    """Count the events from number `since` on, and write the state as it is now into the summary, [15]."""
    for k in range(since, cursor[engine.EVENTS]):
        follow_event(owners, owner_of, numbers, k)
    summarise(cursor, sums, summary)
