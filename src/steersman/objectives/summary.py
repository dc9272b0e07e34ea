"""Summary of a cluster's state, read by objectives and policies: a row of float64, [16].

The event loop or environment keeps the row up to date; formulas only read it. It is about the nodes that some pod may
enter (`cluster.constraints.node.eligible_nodes`): an empty control plane changes no objective.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY, PODS, NodeArrays
from steersman.cluster.model import GPU_MILLI
from steersman.core.handles import fragments, named, rewards_of
from steersman.objectives.objective import Floats
from steersman.objectives.registry import WeightedObjectives
from steersman.workloads.profile import ProfileArrays

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


def fixed_summary(nodes: NodeArrays, eligible: npt.NDArray[np.bool_]) -> Floats:
    """Return [16] a summary with the constant entries of eligible nodes, [N]; the rest is 0."""
    row = np.zeros(COLUMNS)
    allocatable = nodes.allocatable[eligible]
    row[NODES] = len(allocatable)
    row[CPU_NODES] = (allocatable[:, CPU] > 0).sum()
    row[CPU_TOTAL] = allocatable[:, CPU].sum()
    row[MEMORY_TOTAL] = allocatable[:, MEMORY].sum()
    row[GPU_TOTAL] = nodes.gpu_count[eligible].sum() * GPU_MILLI
    row[SLOTS] = len(nodes.gpu_count)
    return row


def summary_of(nodes: NodeArrays, eligible: npt.NDArray[np.bool_], fragmented: Floats, waiting: int) -> Floats:
    """Return [16] a summary of eligible nodes, [N], as they are, with [N] fragmented GPU milli and waiting pods."""
    row = fixed_summary(nodes, eligible)
    allocatable = nodes.allocatable[eligible]
    # Free may be below 0 where pods run on a node that shrank; shares then exceed 1.
    used = allocatable - nodes.free[eligible]
    with_cpu = allocatable[:, CPU] > 0
    share = used[with_cpu, CPU] / allocatable[with_cpu, CPU]
    row[NODES_USED] = (used[:, PODS] > 0).sum()
    row[CPU_SHARE], row[CPU_SQUARE] = share.sum(), (share * share).sum()
    row[CPU_TAKEN], row[MEMORY_TAKEN] = used[:, CPU].sum(), used[:, MEMORY].sum()
    row[GPU_TAKEN] = row[GPU_TOTAL] - nodes.gpu_free[eligible].sum()
    row[FRAGMENTED] = fragmented[eligible].sum()
    row[WAITING] = waiting
    return row


def allocation_of(states: Floats) -> Floats:
    """Return the shares of GPU (of CPU without GPUs) in use, [E], in states, [E, 16]."""
    has_gpus = states[:, GPU_TOTAL] > 0
    taken = np.where(has_gpus, states[:, GPU_TAKEN], states[:, CPU_TAKEN])
    return taken / np.where(has_gpus, states[:, GPU_TOTAL], states[:, CPU_TOTAL])


def spread_of(states: Floats) -> dict[str, Floats]:
    """Return the variance over nodes of the shares of CPU in use, and nodes in use, [E] each, in states, [E, 16]."""
    nodes = np.maximum(states[:, CPU_NODES], 1.0)
    mean = states[:, CPU_SHARE] / nodes
    variance = np.maximum(states[:, CPU_SQUARE] / nodes - mean * mean, 0.0)
    return {"node_variance": variance, "nodes_used": states[:, NODES_USED].copy()}


CAUSES = ("lack_both", "lack_gpu", "lack_cpu", "cpu_pod_satisfied", "cpu_pod_lack_cpu", "no_access")
"""Why a typical pod cannot use idle GPU, in the order of summation: the node lacks both CPU and GPU for it, GPU alone,
CPU alone; the pod wants no GPU (with and without the CPU for it); the pod does not accept the node's GPU model."""


def fragmented_milli(profile: ProfileArrays, nodes: NodeArrays) -> npt.NDArray[np.float64]:
    """Return the GPU milli of each node that typical pods cannot use, [N]."""
    arrays = named(nodes=nodes._asdict(), profile=profile._asdict())
    return fragments(arrays, len(nodes.gpu_count))[:, 0]


def reward(objective: WeightedObjectives, before: Floats, after: Floats) -> float:
    """Return the reward of an action from the states before and after it (`summary`, [16])."""
    return float(rewards(objective, before[None], after[None])[0])


def rewards(objective: WeightedObjectives, before: Floats, after: Floats) -> Floats:
    """Return the rewards of actions, [E], from the states before and after them, [E, 16] each."""
    numbers = np.array(objective.numbers, dtype=np.int64)
    result = rewards_of(numbers, np.array(objective.compiled_weights, dtype=np.float64), before, after)
    if objective.has_own and len(before):
        result += objective.own_rewards(before, after)
    return result
