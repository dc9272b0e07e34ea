"""Summary of a cluster's state, read by objectives and policies: a row of float64, [16].

The event loop or environment keeps the row up to date; formulas only read it. It is about the nodes that some pod may
enter (`cluster.constraints.node.eligible_nodes`): an empty control plane changes no objective.
"""

from __future__ import annotations

(
    NODES,
    NODES_USED,
    CPU_NODES,
    CPU_SHARE,
    CPU_SQUARE,
    CPU_TAKEN,
    CPU_TOTAL,
    MEMORY_TAKEN,
    MEMORY_TOTAL,
    GPU_TAKEN,
    GPU_TOTAL,
    FRAGMENTED,
    WAITING,
    POD_SECONDS_WAITED,
    RACK_LOCALITY,
    SLOTS,
) = range(16)
"""Columns: nodes; nodes that hold a pod; nodes with CPU; sum over nodes of the share of CPU in use, and of its square;
milli-CPU in use and in all; bytes; GPU milli; fragmented GPU milli; pods that wait (or have failed); pod-seconds waited
since this row's state began; share of the placed pod's owner's running pods in the rack that it went to; rows of nodes
in an observation, whether they count or not."""

COLUMNS = 16
