"""State of a cluster after a placement, from the state before it: what objectives reward (`objectives.summary`)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY, PODS, best_devices, idle_gpu, place, remove
from steersman.core.compiled import kernel
from steersman.objectives.fragmentation import refresh
from steersman.objectives.summary import (
    CPU_SHARE,
    CPU_SQUARE,
    CPU_TAKEN,
    FRAGMENTED,
    GPU_TAKEN,
    MEMORY_TAKEN,
    NODES_USED,
    RACK_LOCALITY,
)
from steersman.policies.observations.encoding import EncodingContext, OwnerArrays, count_owner, share_nearby


@kernel
def write_outcome(
    context: EncodingContext, owners: OwnerArrays, c: int, owner: int, n: int, row: npt.NDArray[np.float64]
) -> None:
    """Change a summary, [16], as the placement of a pod of class `c` on node `n`, where it must fit, would.

    The pod takes the default devices (`best_devices`); `owner` is the index of its owner, -1 for none. All other arrays
    are as before when this returns.
    """
    nodes, classes, profile, fragments = context.nodes, context.classes, context.profile, context.fragments
    cpu = nodes.allocatable[n, CPU]
    share = (cpu - nodes.free[n, CPU]) / cpu if cpu > 0 else 0.0
    idle, fragmented = idle_gpu(nodes, n), fragments.total[n]
    row[NODES_USED] += nodes.free[n, PODS] == nodes.allocatable[n, PODS]
    devices = best_devices(nodes, classes, c, n)
    place(nodes, classes, c, n, devices)
    count_owner(owners, owner, n, 1)
    refresh(profile, nodes, fragments, n)
    share_after = (cpu - nodes.free[n, CPU]) / cpu if cpu > 0 else 0.0
    row[CPU_SHARE] += share_after - share
    row[CPU_SQUARE] += share_after * share_after - share * share
    row[CPU_TAKEN] += classes.request[c, CPU]
    row[MEMORY_TAKEN] += classes.request[c, MEMORY]
    row[GPU_TAKEN] += idle - idle_gpu(nodes, n)
    row[FRAGMENTED] += fragments.total[n] - fragmented
    row[RACK_LOCALITY] = share_nearby(owners, owner, n)
    # Undone in reverse; integers cancel exactly.
    count_owner(owners, owner, n, -1)
    remove(nodes, classes, c, n, devices)
    refresh(profile, nodes, fragments, n)
