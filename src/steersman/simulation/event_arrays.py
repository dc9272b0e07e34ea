"""The record of a run, one row an event, and what is counted again from it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import GPU_MILLI, GPU_RESOURCES
from steersman.cluster.state import ClusterState
from steersman.core import handles
from steersman.objectives import summary as state
from steersman.workloads.profile import ProfileArrays

BOUND, FAILED, WAITING, FINISHED, EVICTED = range(5)  # outcomes of an event

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
    # [E, 10] int64, columns ARRIVAL, OUTCOME (BOUND, FAILED, WAITING, FINISHED or EVICTED), SLOT (NOWHERE if not
    # bound), DEVICES (bit mask); then the totals of the cluster: NOW_WAITING (failed so far where nothing waits),
    # NODES_IN_USE, GPU_TAKEN (milli), CPU_TAKEN (milli), MEMORY_TAKEN (bytes), GPU_EXCEEDING (milli of GPU_TAKEN
    # beyond what the nodes of the pods have, so that the idle milli are capacity - taken + exceeding)
    numbers: npt.NDArray[np.int64]
    sums: npt.NDArray[np.float64]  # [E, 10] columns GPU_SHARE.. and CAUSE...
    reasons: npt.NDArray[np.int64]  # [E] numbers that the caller gives to reasons, or [0] if none are asked for


def recount(
    state: ClusterState,
    profile: ProfileArrays,
    weight: npt.NDArray[np.float64],
    class_id: npt.NDArray[np.int64],
    record: EventRecord,
) -> None:
    """Replay a run's placements, and write the causes of fragmentation after each of E events into `record.sums`.

    A policy with an embedded profile decides by it, and the event loop tracks the fragmentation that the policy sees.
    This is that of the workload's own profile, so that all policies are measured alike.

    Args:
        state: as at the start of the run.
        profile: the profile that fragmentation is measured by.
        weight: [N] GPUs that each device of a node is; 0 for nodes that do not count, see
            `cluster.constraints.node.eligible_nodes`.
        class_id: [A] classes of the arrivals.
        record: of the run.
    """
    signs = signs_of(record.numbers)
    columns = record.numbers[:, SLOT], class_id[record.numbers[:, ARRIVAL]], record.numbers[:, DEVICES], signs
    nodes, classes = state.arrays._asdict(), state.class_arrays._asdict()
    arrays = handles.named(nodes=nodes, classes=classes, profile=profile._asdict()) | {
        "recount.weight": weight,
        "recount.changes": np.stack(columns, axis=1),
    }
    record.sums[:, CAUSE:] = handles.recount(arrays, len(signs))


Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def signs_of(numbers: Ints) -> Ints:
    """Return [E] 1 where a pod came to a node, -1 where it left one, else 0."""
    outcome = numbers[:, OUTCOME]
    signs: Ints = (outcome == BOUND).astype(np.int64) - (outcome == FINISHED) - (outcome == EVICTED)
    return signs


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

    The event loop counts what pods request. A slice or a replica is a part of a GPU, by the node that it is on.

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
    sign = signs_of(numbers)
    # Rounded after summing: parts of a third of a GPU add up to whole ones.
    taken: Ints = np.rint(np.cumsum(np.where(eligible[slot], sign * milli, 0.0))).astype(np.int64)
    return taken
