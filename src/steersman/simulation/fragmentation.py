"""Fragmentation by the workload's own profile, of a run whose policy used another: all policies are measured alike.

A policy with an embedded profile decides by it, and the event loop tracks the fragmentation that the policy sees. For
comparable results it is recomputed from the placements.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays, place, remove
from steersman.core.compiled import kernel
from steersman.objectives.fragmentation import FragmentArrays, refresh
from steersman.simulation.event_arrays import ARRIVAL, BOUND, CAUSE, DEVICES, FINISHED, OUTCOME, SLOT, EventRecord
from steersman.workloads.profile import ProfileArrays


@kernel
def recount(
    nodes: NodeArrays,
    classes: ClassArrays,
    profile: ProfileArrays,
    fragments: FragmentArrays,
    weight: npt.NDArray[np.float64],
    class_id: npt.NDArray[np.int64],
    record: EventRecord,
) -> None:
    """Replay a run's placements, and write the causes of fragmentation after each of E events into `record.sums`.

    Args:
        nodes: as at the start of the run.
        classes: of its pods.
        profile: the profile that fragmentation is measured by.
        fragments: of the nodes by this profile.
        weight: [N] GPUs that each device of a node is; 0 for nodes that do not count, see
            `cluster.constraints.node.eligible_nodes`.
        class_id: [A] classes of the arrivals.
        record: of the run.
    """
    numbers, sums = record.numbers, record.sums
    causes = fragments.causes.shape[1]
    for e in range(numbers.shape[0]):
        n, outcome, arrival = numbers[e, SLOT], numbers[e, OUTCOME], numbers[e, ARRIVAL]
        changes = outcome in (BOUND, FINISHED)
        counts = changes and weight[n] > 0.0
        for i in range(causes):
            before = 0.0
            if e > 0:
                before = sums[e - 1, CAUSE + i]
            else:
                for k in range(nodes.gpu_count.shape[0]):
                    if weight[k] > 0.0:
                        before += weight[k] * fragments.causes[k, i]
            # The node's contribution before the event is replaced by the one after it, below.
            sums[e, CAUSE + i] = before - weight[n] * fragments.causes[n, i] if counts else before
        if not changes:
            continue
        if outcome == BOUND:
            place(nodes, classes, class_id[arrival], n, numbers[e, DEVICES])
        else:
            remove(nodes, classes, class_id[arrival], n, numbers[e, DEVICES])
        refresh(profile, nodes, fragments, n)
        if not counts:
            continue
        for i in range(causes):
            sums[e, CAUSE + i] += weight[n] * fragments.causes[n, i]
