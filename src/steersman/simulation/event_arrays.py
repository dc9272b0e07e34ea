"""The record of a run: what happened, one row an event."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.objectives import summary as state

BOUND, FAILED, WAITING, FINISHED = range(4)  # outcomes of an event

# Columns of `EventRecord.numbers`: the event, then the totals after it.
ARRIVAL, OUTCOME, SLOT, DEVICES = range(4)
NOW_WAITING, NODES_IN_USE, GPU_TAKEN, CPU_TAKEN, MEMORY_TAKEN, GPU_EXCEEDING = range(4, 10)
TOTALS = slice(NOW_WAITING, GPU_EXCEEDING)
TOTALS_IN_SUMMARY = [state.WAITING, state.NODES_USED, state.GPU_TAKEN, state.CPU_TAKEN, state.MEMORY_TAKEN]
# Columns of `EventRecord.sums`: shares of GPU and CPU used, summed over nodes, and their squares; then causes of
# fragmentation.
GPU_SHARE, GPU_SQUARE, CPU_SHARE, CPU_SQUARE, CAUSE = range(5)


class EventRecord(NamedTuple):
    """The events of a run, E of them; totals are those after the event."""

    time: npt.NDArray[np.float64]  # [E] seconds
    # [E, 10] int64, columns ARRIVAL, OUTCOME (BOUND, FAILED, WAITING or FINISHED), SLOT (NONE if not bound), DEVICES
    # (bit mask); then the totals of the cluster: NOW_WAITING (failed so far where nothing waits), NODES_IN_USE,
    # GPU_TAKEN (milli), CPU_TAKEN (milli), MEMORY_TAKEN (bytes), GPU_EXCEEDING (milli of GPU_TAKEN beyond what the
    # nodes of the pods have, so that the idle milli are capacity - taken + exceeding)
    numbers: npt.NDArray[np.int64]
    sums: npt.NDArray[np.float64]  # [E, 10] columns GPU_SHARE.. and CAUSE...
    reasons: npt.NDArray[np.int64]  # [E] numbers that the caller gives to reasons, or [0] if none are asked for
