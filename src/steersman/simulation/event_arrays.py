"""The arrays of the event loop: arrivals, events, and the state of a run, so that it can stop and resume."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.objectives.fragmentation import CAUSES
from steersman.orders.queue import AGEING, NO_ONE, OVERTAKING, QueueArrays
from steersman.orders.reservations import ReservationArrays, no_reservations
from steersman.policies.decision.kernels import NONE, DecisionState

BOUND, FAILED, WAITING, FINISHED = range(4)  # outcomes of an event

DONE, PAUSED, NEEDS_ACTION, NEEDS_REASON, NEEDS_ORDER = range(5)
"""What `advance` returns: no event is left, `until` is reached, a decision is needed (`Run.question`), or the reason of
the last event, a pod that was not bound, while the cluster is as it was then (`EventRecord.reasons`), or the group that
goes next (HEAD)."""

UNDECIDED = -2  # value of a decision that has not been made yet

# Columns of `Run.cursor`: arrivals handled, events recorded, pods that will leave; of a pass over the queue: what it
# does (see NO_PASS...) and its number; members of a gang tried so far, and how many of them fit nowhere; the group
# whose first pod nobody may delay, or NONE; the node that a pod left last; whether the last question is about
# `Run.mask` alone; a pod that its controller makes now, since another one ended, or NONE. The totals come last.
ARRIVED, EVENTS, RUNNING, PASS, PASSES, PLACED, REFUSED, HEAD, FREED, RESTRICTED, CREATED, TOTALS = range(12)
WAITING_NOW, NODES_USED, GPU_USED, CPU_USED, MEMORY_USED, GPU_EXCESS = range(TOTALS, TOTALS + 6)
CURSORS = TOTALS + 6
# Values of PASS: no pass; the head's turn; the candidates are to be collected; they are tried.
NO_PASS, HEAD_FIRST, COLLECT, TRY_CANDIDATES = range(4)
# Columns of `EventRecord.numbers`: the event, then a copy of the totals.
ARRIVAL, OUTCOME, SLOT, DEVICES = range(4)
NOW_WAITING, NODES_IN_USE, GPU_TAKEN, CPU_TAKEN, MEMORY_TAKEN, GPU_EXCEEDING = range(4, 10)
# Columns of `Run.question`.
QUESTION, ANSWER = range(2)
# Columns of `Run.room`: how many more pods a controller may make now, and the first one that it may not make yet, or
# NONE.
ROOM, DELAYED = range(2)
# Columns of `Run.nominated`.
POD, NODE = range(2)
# Columns of `Run.sums`: shares of GPU and CPU used, summed over nodes, and their squares; then causes of fragmentation.
GPU_SHARE, GPU_SQUARE, CPU_SHARE, CPU_SQUARE, CAUSE = range(5)


class Arrivals(NamedTuple):
    """The pods that arrive, A of them, in order of time."""

    class_id: npt.NDArray[np.int64]  # [A] pod class
    labels_id: npt.NDArray[np.int64]  # [A] the pod's namespace and labels
    time: npt.NDArray[np.float64]  # [A] seconds
    duration: npt.NDArray[np.float64]  # [A] seconds from binding to departure, inf: stays
    priority: npt.NDArray[np.int64]  # [A] waiting pods of higher priority are tried first
    # [A] number of consecutive arrivals, from this one on, that start together; 0 for all but the first. Once as many
    # as `least` have started, the others are arrivals of their own.
    members: npt.NDArray[np.int64]
    least: npt.NDArray[np.int64]  # [A] how many of the members must start at once
    together: npt.NDArray[np.int64]  # [A] how many of its class must fit at once, at least, so that these can
    # [A] number of the class and of `together`: what fits nowhere for one fits nowhere for the others
    shape: npt.NDArray[np.int64]
    # [A] number of the controller, if it has a limited number of pods at a time, else NONE
    controller: npt.NDArray[np.int64]
    following: npt.NDArray[np.int64]  # [A] the next arrival of the same controller, or NONE


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


class Run(NamedTuple):
    """The state of a run, so that it can stop and resume between events."""

    cursor: npt.NDArray[np.int64]  # [18] counters and totals, see ARRIVED..
    question: npt.NDArray[np.int64]  # [2] the arrival that needs a decision, and the answer (UNDECIDED: none yet)
    sums: npt.NDArray[np.float64]  # [10] see GPU_SHARE..
    slot: npt.NDArray[np.int64]  # [A] node of each arrival, -1 while it has none
    devices: npt.NDArray[np.int64]  # [A] its devices
    heap: npt.NDArray[np.int64]  # [A] running pods that will leave, a binary heap by (leaves, started, arrival)
    leaves: npt.NDArray[np.float64]  # [A] when a running pod leaves
    started: npt.NDArray[np.float64]  # [A] when it was bound
    queue: QueueArrays  # the waiting pods
    reservation: ReservationArrays  # of the head of the queue
    infeasible: npt.NDArray[np.bool_]  # [S] shapes that fit on no nodes of the empty cluster: they fail at once
    # [S] shapes whose refusal another pod's start may lift: they have a required affinity or a hard spread; [0] if no
    # shape has one
    lifted: npt.NDArray[np.bool_]
    infeasible_in_pass: npt.NDArray[np.int64]  # [S] the pass in which a shape was last found to fit nowhere
    # [S] the pass in which it was last found to fit nowhere beside the reservation
    infeasible_beside: npt.NDArray[np.int64]
    # [N] scratch: nodes where the current pod may run, if other pods or a reservation matter to it
    mask: npt.NDArray[np.bool_]
    fitting: npt.NDArray[np.bool_]  # [N] scratch: the same beside nominated pods; [0] if there are none
    nominated: npt.NDArray[np.int64]  # [M, 2] pods with a nominated node, columns POD and NODE
    # [K, 2] by controller with a limited number of pods at a time, columns ROOM and DELAYED
    room: npt.NDArray[np.int64]
    # [N] whether a node is part of the totals and sums, see `cluster.constraints.node.eligible_nodes`
    eligible: npt.NDArray[np.bool_]
    rng: npt.NDArray[np.uint64]  # [1] uint64 state of the random numbers


def stand_as(run: Run, record: EventRecord, other: Run, known: EventRecord, count: int) -> None:
    """Let the first `count` arrivals stand as in another run, `other` with the events `known`, that has not advanced.

    `run` has not, either, and its cluster holds these pods already.
    """
    run.cursor[:], run.sums[:] = other.cursor, other.sums
    run.slot[:count], run.devices[:count] = other.slot[:count], other.devices[:count]
    run.queue.usage[:], run.queue.estimated[:count] = other.queue.usage, other.queue.estimated[:count]
    for mine, theirs in zip(record, known, strict=True):
        mine[: len(theirs[:count])] = theirs[:count]


def let_leave(run: Run, started: npt.NDArray[np.float64], duration: npt.NDArray[np.float64]) -> None:
    """Let the first arrivals, which run already, leave after their durations.

    Args:
        run: of which nobody else will leave yet.
        started: [S] when they began, seconds.
        duration: [S] seconds from then, inf: they stay.
    """
    leaves, count = started + duration, len(started)
    # An array in ascending order is a heap.
    order = np.lexsort((np.arange(count), started, leaves))
    order = order[: int(np.isfinite(leaves).sum())]
    run.started[:count], run.leaves[:count] = started, leaves
    run.heap[: len(order)] = order
    run.cursor[RUNNING] = len(order)
    if len(run.reservation.expected):
        run.reservation.expected[:count] = started + run.queue.estimated[:count]


def new_record(events: int, *, reasons: bool) -> EventRecord:
    """Return an empty record of `events` events, with the reasons of failures if requested."""
    return EventRecord(
        time=np.zeros(events),
        numbers=np.zeros((events, GPU_EXCEEDING + 1), dtype=np.int64),
        sums=np.zeros((events, CAUSE + len(CAUSES))),
        reasons=np.zeros(events if reasons else 0, dtype=np.int64),
    )


def new_run(
    cluster: DecisionState,
    arrivals: Arrivals,  # the pods
    queue: QueueArrays,  # the empty queue
    infeasible: npt.NDArray[np.bool_],  # [S] from `find_infeasible`
    lifted: npt.NDArray[np.bool_],  # [S] see `Run`
    nominated: npt.NDArray[np.int64],  # [M, 2] see `Run`
    room: npt.NDArray[np.int64],  # [K, 2] see `Run`
    eligible: npt.NDArray[np.bool_],  # [N] whether a node is part of the totals
    seed: int,  # of the random numbers
) -> Run:
    """Start a run on an empty cluster."""
    count = len(arrivals.class_id)
    sums = np.zeros(CAUSE + len(CAUSES))
    # An empty cluster has fragmented GPU already: idle GPU that some typical pod cannot use.
    sums[CAUSE:] = cluster.fragments.causes[eligible].sum(axis=0)
    cursor = np.zeros(CURSORS, dtype=np.int64)
    cursor[HEAD] = cursor[FREED] = cursor[CREATED] = NONE
    foresees = queue.settings[OVERTAKING] > NO_ONE or np.isfinite(queue.limits[AGEING]) or len(queue.ends)
    return Run(
        cursor=cursor,
        question=np.array([NONE, UNDECIDED], dtype=np.int64),
        sums=sums,
        slot=np.full(count, NONE, dtype=np.int64),
        devices=np.zeros(count, dtype=np.int64),
        heap=np.zeros(count, dtype=np.int64),
        leaves=np.zeros(count),
        started=np.zeros(count),
        queue=queue,
        reservation=no_reservations(count if foresees else 0, cluster.nodes),
        infeasible=infeasible,
        lifted=lifted,
        infeasible_in_pass=np.full(len(infeasible), NONE, dtype=np.int64),
        infeasible_beside=np.full(len(infeasible), NONE, dtype=np.int64),
        mask=np.zeros(len(cluster.nodes.gpu_count), dtype=np.bool_),
        fitting=np.zeros(len(cluster.nodes.gpu_count) if len(nominated) else 0, dtype=np.bool_),
        nominated=nominated,
        room=room,
        eligible=eligible,
        rng=np.array([seed], dtype=np.uint64),
    )
