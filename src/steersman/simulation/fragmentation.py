"""Fragmentation by the workload's own profile, of a run whose policy used another: all policies are measured alike.

A policy with an embedded profile decides by it, and the event loop tracks the fragmentation that the policy sees. For
comparable results it is recomputed from the placements.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.cluster.state import ClusterState
from steersman.core import handles
from steersman.simulation.event_arrays import ARRIVAL, BOUND, CAUSE, DEVICES, FINISHED, OUTCOME, SLOT, EventRecord
from steersman.workloads.profile import ProfileArrays


def recount(
    state: ClusterState,
    profile: ProfileArrays,
    weight: npt.NDArray[np.float64],
    class_id: npt.NDArray[np.int64],
    record: EventRecord,
) -> None:
    """Replay a run's placements, and write the causes of fragmentation after each of E events into `record.sums`.

    Args:
        state: as at the start of the run.
        profile: the profile that fragmentation is measured by.
        weight: [N] GPUs that each device of a node is; 0 for nodes that do not count, see
            `cluster.constraints.node.eligible_nodes`.
        class_id: [A] classes of the arrivals.
        record: of the run.
    """
    outcome = record.numbers[:, OUTCOME]
    signs = (outcome == BOUND).astype(np.int64) - (outcome == FINISHED)
    columns = record.numbers[:, SLOT], class_id[record.numbers[:, ARRIVAL]], record.numbers[:, DEVICES], signs
    nodes, classes = state.arrays._asdict(), state.class_arrays._asdict()
    arrays = handles.named(nodes=nodes, classes=classes, profile=profile._asdict()) | {
        "recount.weight": weight,
        "recount.changes": np.stack(columns, axis=1),
    }
    record.sums[:, CAUSE:] = handles.recount(arrays, len(outcome))
