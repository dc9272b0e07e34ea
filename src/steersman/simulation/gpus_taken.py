"""GPUs that pods hold after each event of a run, where devices and units are not whole GPUs.

The event loop counts what pods request. A slice or a replica is a part of a GPU, by the node that it is on.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI, GPU_RESOURCES
from steersman.cluster.state import ClusterState
from steersman.simulation.event_arrays import ARRIVAL, BOUND, FINISHED, OUTCOME, SLOT

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def are_whole(state: ClusterState, device: Floats, counted: Floats) -> bool:
    """Return whether all devices and counted GPUs are whole ones, so that requests say how many pods hold.

    `device` and `counted` are as from `ClusterState.gpu_weights`.
    """
    names = np.array([name in GPU_RESOURCES for name in state.resources], dtype=np.bool_)
    # The columns of named resources; the last column stands for what no node offers.
    parts = counted[:, counted.shape[1] - len(names) - 1 : -1]
    is_whole = (parts == 0) | ((parts == GPU_MILLI) & names)
    return bool((device == GPU_MILLI).all() and is_whole.all())


def gpus_taken(
    numbers: Ints, state: ClusterState, class_id: Ints, eligible: npt.NDArray[np.bool_], device: Floats, counted: Floats
) -> Ints:
    """Return [E] the GPU milli that pods hold on eligible nodes after each event.

    Args:
        numbers: [E, 10] of the record.
        state: nodes of the run, in the order of their slots there.
        class_id: [A] classes of the arrivals.
        eligible: [N] nodes over which it is taken.
        device: [N] milli of a GPU of each device of a node.
        counted: [N, R] milli of a GPU of each unit of a resource.
    """
    classes = state.class_arrays
    slot = numbers[:, SLOT]
    c = class_id[numbers[:, ARRIVAL]]
    column = classes.gpu_column[c]
    # A node that only counts the GPUs of this name has no devices of it.
    counts = state.arrays.allocatable[slot, column] > 0
    each = np.where(counts, counted[slot, column], device[slot])
    milli = classes.gpu_count[c] * classes.gpu_milli[c] * each / GPU_MILLI
    # Resources that are GPUs by another name, such as slices.
    milli += (classes.request[c] * counted[slot]).sum(axis=1)
    sign = (numbers[:, OUTCOME] == BOUND).astype(np.int64) - (numbers[:, OUTCOME] == FINISHED)
    # Rounded after summing: parts of a third of a GPU add up to whole ones.
    taken: Ints = np.rint(np.cumsum(np.where(eligible[slot], sign * milli, 0.0))).astype(np.int64)
    return taken
