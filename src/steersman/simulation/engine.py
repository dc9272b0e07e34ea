"""The event loop, compiled and resumable: pods arrive, are bound, wait or fail, and leave; every event is recorded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import (
    CPU,
    MEMORY,
    PODS,
    ClassArrays,
    NodeArrays,
    fits,
    gpu_left,
    place,
    remove,
    signed_gpu,
)
from steersman.cluster.constraints.inter_pod import has_inter_pod_rules, terms_place, terms_remove
from steersman.cluster.model import GPU_MILLI
from steersman.core.compiled import inlined_kernel, ir_inlined, kernel
from steersman.objectives.fragmentation import CAUSES
from steersman.policies.decision.kernels import (
    NONE,
    SELECT_EXTERNAL,
    DecisionState,
    choose_devices,
    choose_node,
    find_feasible,
    refresh_node,
)

BOUND, FAILED, WAITING, FINISHED = range(4)
"""Outcomes of an event."""

DONE, PAUSED, NEEDS_ACTION, NEEDS_REASON = range(4)
"""What `advance` returns: no event is left, `until` is reached, a decision is needed (`Run.question`), or the reason of
the last event, a pod that was not bound, while the cluster is as it was then (`EventRecord.reasons`)."""

UNDECIDED = -2
"""Value of a decision that has not been made yet."""

# Columns of `Run.cursor`: arrivals handled, events recorded, pods that will leave, pods in the queue; of a retry of the
# queue: the place to go on, its number (negative once it is over), pods kept so far. The totals come last.
ARRIVED, EVENTS, RUNNING, QUEUED, RETRY, RETRIED, KEPT, TOTALS = range(8)
WAITING_NOW, NODES_USED, GPU_USED, CPU_USED, MEMORY_USED, GPU_EXCESS = range(TOTALS, TOTALS + 6)
CURSORS = TOTALS + 6
# Columns of `EventRecord.numbers`: the event, then a copy of the totals.
ARRIVAL, OUTCOME, SLOT, DEVICES = range(4)
NOW_WAITING, NODES_IN_USE, GPU_TAKEN, CPU_TAKEN, MEMORY_TAKEN, GPU_EXCEEDING = range(4, 10)
# Columns of `Run.question`.
QUESTION, ANSWER = range(2)
# Columns of `Run.sums`: shares of GPU and CPU used, summed over nodes, and their squares; then causes of fragmentation.
GPU_SHARE, GPU_SQUARE, CPU_SHARE, CPU_SQUARE, CAUSE = range(5)


class Arrivals(NamedTuple):
    """The pods that arrive, A of them, in order of time.

    Attributes:
        class_id: [A] pod class.
        labels_id: [A] the pod's namespace and labels.
        time: [A] seconds.
        duration: [A] seconds from binding to departure, inf: stays.
        priority: [A] waiting pods of higher priority are tried first.
    """

    class_id: npt.NDArray[np.int64]
    labels_id: npt.NDArray[np.int64]
    time: npt.NDArray[np.float64]
    duration: npt.NDArray[np.float64]
    priority: npt.NDArray[np.int64]


class EventRecord(NamedTuple):
    """The events of a run, E of them; totals are those after the event.

    Attributes:
        time: [E] seconds.
        numbers: [E, 10] int64, columns ARRIVAL, OUTCOME (BOUND, FAILED, WAITING or FINISHED), SLOT (NONE if not bound),
            DEVICES (bit mask); then the totals of the cluster: NOW_WAITING (failed so far where nothing waits),
            NODES_IN_USE, GPU_TAKEN (milli), CPU_TAKEN (milli), MEMORY_TAKEN (bytes), GPU_EXCEEDING (milli of
            GPU_TAKEN beyond what the nodes of the pods have, so that the idle milli are capacity - taken + exceeding).
        sums: [E, 10] columns GPU_SHARE.. and CAUSE...
        reasons: [E] numbers that the caller gives to reasons, or [0] if none are asked for.
    """

    time: npt.NDArray[np.float64]
    numbers: npt.NDArray[np.int64]
    sums: npt.NDArray[np.float64]
    reasons: npt.NDArray[np.int64]


class Run(NamedTuple):
    """The state of a run, so that it can stop and resume between events.

    Attributes:
        cursor: [13] counters and totals, see ARRIVED...
        question: [2] the arrival that needs a decision, and the answer (UNDECIDED: none yet).
        sums: [10] see GPU_SHARE...
        slot: [A] node of each arrival, -1 while it has none.
        devices: [A] its devices.
        heap: [A] running pods that will leave, a binary heap by (leaves, arrival).
        leaves: [A] when a running pod leaves.
        queue: [A] waiting pods by priority, then arrival.
        infeasible_classes: [C] classes that fit on no node of the empty cluster: they fail at once.
        infeasible_at_retry: [C] the retry in which a class was last found to fit nowhere.
        mask: [N] scratch: nodes where the current pod may run, if other pods matter to it.
        eligible: [N] whether a node is part of the totals and sums, see `cluster.constraints.node.eligible_nodes`.
        rng: [1] uint64 state of the random numbers.
    """

    cursor: npt.NDArray[np.int64]
    question: npt.NDArray[np.int64]
    sums: npt.NDArray[np.float64]
    slot: npt.NDArray[np.int64]
    devices: npt.NDArray[np.int64]
    heap: npt.NDArray[np.int64]
    leaves: npt.NDArray[np.float64]
    queue: npt.NDArray[np.int64]
    infeasible_classes: npt.NDArray[np.bool_]
    infeasible_at_retry: npt.NDArray[np.int64]
    mask: npt.NDArray[np.bool_]
    eligible: npt.NDArray[np.bool_]
    rng: npt.NDArray[np.uint64]


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
    arrivals: Arrivals,
    infeasible_classes: npt.NDArray[np.bool_],
    eligible: npt.NDArray[np.bool_],
    seed: int,
) -> Run:
    """Start a run on an empty cluster.

    Args:
        cluster: everything that decisions read.
        arrivals: the pods.
        infeasible_classes: [C] from `find_infeasible_classes`.
        eligible: [N] whether a node is part of the totals.
        seed: of the random numbers.
    """
    count, classes = len(arrivals.class_id), len(cluster.classes.gpu_count)
    sums = np.zeros(CAUSE + len(CAUSES))
    # An empty cluster has fragmented GPU already: idle GPU that some typical pod cannot use.
    sums[CAUSE:] = cluster.fragments.causes[eligible].sum(axis=0)
    return Run(
        cursor=np.zeros(CURSORS, dtype=np.int64),
        question=np.array([NONE, UNDECIDED], dtype=np.int64),
        sums=sums,
        slot=np.full(count, NONE, dtype=np.int64),
        devices=np.zeros(count, dtype=np.int64),
        heap=np.zeros(count, dtype=np.int64),
        leaves=np.zeros(count),
        queue=np.zeros(count, dtype=np.int64),
        infeasible_classes=infeasible_classes,
        infeasible_at_retry=np.full(classes, NONE, dtype=np.int64),
        mask=np.zeros(len(cluster.nodes.gpu_count), dtype=np.bool_),
        eligible=eligible,
        rng=np.array([seed], dtype=np.uint64),
    )


@kernel
def find_infeasible_classes(nodes: NodeArrays, classes: ClassArrays, infeasible_classes: npt.NDArray[np.bool_]) -> None:
    """Write into [C] whether each class fits on no node as the nodes are."""
    for c in range(infeasible_classes.shape[0]):
        infeasible_classes[c] = True
        for n in range(nodes.gpu_count.shape[0]):
            if fits(nodes, classes, c, n):
                infeasible_classes[c] = False
                break


@inlined_kernel
def _ask(cluster: DecisionState, run: Run, arrival: int, c: int, masked: bool) -> int:
    answer = run.question[ANSWER]
    # The answer to the last question; the pod still fits, since nothing has happened since.
    if answer != UNDECIDED:
        run.question[ANSWER] = UNDECIDED
        return int(answer)
    for n in range(cluster.nodes.gpu_count.shape[0]):
        if run.mask[n] if masked else fits(cluster.nodes, cluster.classes, c, n):
            run.question[QUESTION] = arrival
            return UNDECIDED
    return NONE


@ir_inlined
def _choose(cluster: DecisionState, arrivals: Arrivals, run: Run, chooser: int, arrival: int, masked: bool) -> int:
    """Return the node for an arrival, NONE if it fits nowhere, UNDECIDED if the caller has to decide.

    `masked`: other pods matter to it, so every node has to be evaluated.
    """
    c, labels = arrivals.class_id[arrival], arrivals.labels_id[arrival]
    if masked:
        find_feasible(cluster, run.mask, c, labels)
    if chooser == SELECT_EXTERNAL:
        return _ask(cluster, run, arrival, c, masked)
    return choose_node(cluster, run.mask, run.rng, chooser, c, labels, masked)


@inlined_kernel
def _count_node(cluster: DecisionState, run: Run, n: int, sign: float) -> None:
    """Add (or with -1 subtract) what node `n` contributes to the sums."""
    nodes = cluster.nodes
    sums = run.sums
    # Sums change by the node's contribution before and after, since shares cannot be updated by the pod alone.
    gpu = GPU_MILLI * nodes.gpu_count[n]
    if gpu > 0:
        share = (gpu - signed_gpu(nodes, n)) / gpu
        sums[GPU_SHARE] += sign * share
        sums[GPU_SQUARE] += sign * share * share
    cpu = nodes.allocatable[n, CPU]
    if cpu > 0:
        share = (cpu - nodes.free[n, CPU]) / cpu
        sums[CPU_SHARE] += sign * share
        sums[CPU_SQUARE] += sign * share * share
    for cause in range(cluster.fragments.causes.shape[1]):
        sums[CAUSE + cause] += sign * cluster.fragments.causes[n, cause]


@inlined_kernel
def _change(cluster: DecisionState, arrivals: Arrivals, run: Run, arrival: int, sign: int) -> None:
    """Place (1) or remove (-1) a pod on its node, and update every total over the eligible nodes."""
    nodes, classes = cluster.nodes, cluster.classes
    c, labels = arrivals.class_id[arrival], arrivals.labels_id[arrival]
    n, devices = run.slot[arrival], run.devices[arrival]
    counts = run.eligible[n]
    if counts:
        _count_node(cluster, run, n, -1.0)
    # Empty before: it becomes a used node if a pod is placed.
    if counts and nodes.allocatable[n, PODS] == nodes.free[n, PODS]:
        run.cursor[NODES_USED] += 1
    if sign > 0:
        place(nodes, classes, c, n, devices)
        terms_place(cluster.terms, c, labels, n)
    else:
        remove(nodes, classes, c, n, devices)
        terms_remove(cluster.terms, c, labels, n)
    # Empty after: it was a used node until this pod left.
    if counts and nodes.allocatable[n, PODS] == nodes.free[n, PODS]:
        run.cursor[NODES_USED] -= 1
    # Before the node is counted again: this updates its causes of fragmentation.
    refresh_node(cluster, n)
    if not counts:
        return
    _count_node(cluster, run, n, 1.0)
    run.cursor[GPU_USED] += sign * classes.gpu_count[c] * classes.gpu_milli[c]
    run.cursor[CPU_USED] += sign * classes.request[c, CPU]
    run.cursor[MEMORY_USED] += sign * classes.request[c, MEMORY]


@inlined_kernel
def _note(run: Run, record: EventRecord, time: float, arrival: int, outcome: int) -> None:
    e = run.cursor[EVENTS]
    run.cursor[EVENTS] += 1
    record.time[e] = time
    record.numbers[e, ARRIVAL] = arrival
    record.numbers[e, OUTCOME] = outcome
    record.numbers[e, SLOT] = run.slot[arrival]
    record.numbers[e, DEVICES] = run.devices[arrival]
    for i in range(TOTALS, CURSORS):
        record.numbers[e, NOW_WAITING + i - TOTALS] = run.cursor[i]
    for i in range(run.sums.shape[0]):
        record.sums[e, i] = run.sums[i]


@inlined_kernel
def _heap_before(run: Run, a: int, b: int) -> bool:
    return run.leaves[a] < run.leaves[b] or (run.leaves[a] == run.leaves[b] and a < b)


@inlined_kernel
def _heap_push(run: Run, arrival: int) -> None:
    i = run.cursor[RUNNING]
    run.cursor[RUNNING] += 1
    while i > 0 and _heap_before(run, arrival, run.heap[(i - 1) // 2]):
        run.heap[i] = run.heap[(i - 1) // 2]
        i = (i - 1) // 2
    run.heap[i] = arrival


@inlined_kernel
def _heap_pop(run: Run) -> int:
    first = run.heap[0]
    run.cursor[RUNNING] -= 1
    size = run.cursor[RUNNING]
    last = run.heap[size]
    i = 0
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and _heap_before(run, run.heap[child + 1], run.heap[child]):
            child += 1
        if not _heap_before(run, run.heap[child], last):
            break
        run.heap[i] = run.heap[child]
        i = child
    run.heap[i] = last
    return int(first)


@inlined_kernel
def _enqueue(arrivals: Arrivals, run: Run, arrival: int) -> None:
    """Insert a pod into the queue behind all of the same or a higher priority."""
    i = run.cursor[QUEUED]
    run.cursor[QUEUED] += 1
    # Strictly lower, so that among equals the earlier arrival stays first.
    while i > 0 and arrivals.priority[run.queue[i - 1]] < arrivals.priority[arrival]:
        run.queue[i] = run.queue[i - 1]
        i -= 1
    run.queue[i] = arrival


@ir_inlined
def _bind(cluster: DecisionState, arrivals: Arrivals, run: Run, rule: int, arrival: int, n: int, time: float) -> None:
    c = arrivals.class_id[arrival]
    run.slot[arrival] = n
    run.devices[arrival] = choose_devices(cluster, rule, c, n, run.rng)
    _change(cluster, arrivals, run, arrival, 1)
    if arrivals.duration[arrival] < np.inf:
        run.leaves[arrival] = time + arrivals.duration[arrival]
        _heap_push(run, arrival)


@ir_inlined
def _leave(cluster: DecisionState, arrivals: Arrivals, run: Run, record: EventRecord) -> None:
    arrival = _heap_pop(run)
    _change(cluster, arrivals, run, arrival, -1)
    _note(run, record, run.leaves[arrival], arrival, FINISHED)
    if run.cursor[QUEUED] > 0:
        run.cursor[RETRIED] = 1 - run.cursor[RETRIED]  # -k, retry k is over, becomes k + 1, under way


@inlined_kernel
def _finish_retry(arrivals: Arrivals, run: Run, arrival: int, bound: bool, alone: bool) -> int:
    """Update the queue after a retry of a waiting pod; return the outcome to record, or NONE if it goes on waiting.

    Every waiting pod is tried once after a departure. If it depends on itself and the nodes `alone`, not on other pods,
    no further pod of its class is tried: binding pods in between cannot have freed resources.
    """
    cursor = run.cursor
    cursor[RETRY] += 1
    if bound:
        cursor[WAITING_NOW] -= 1
    else:
        if alone:
            # The other waiting pods of the class are skipped until the next departure.
            run.infeasible_at_retry[arrivals.class_id[arrival]] = cursor[RETRIED]
        # The queue is compacted in place: KEPT never passes RETRY.
        run.queue[cursor[KEPT]] = arrival
        cursor[KEPT] += 1
    if cursor[RETRY] == cursor[QUEUED]:
        cursor[QUEUED] = cursor[KEPT]
        cursor[RETRY] = cursor[KEPT] = 0
        cursor[RETRIED] = -cursor[RETRIED]  # it is over
    return BOUND if bound else NONE


@inlined_kernel
def _finish_arrival(arrivals: Arrivals, run: Run, arrival: int, bound: bool, waits: bool) -> int:
    """Count an arrival, and queue it if it was not bound and may wait; return the outcome to record."""
    run.cursor[ARRIVED] += 1
    if bound:
        return BOUND
    # It could not run even on the empty cluster, so it does not count as waiting.
    if waits and run.infeasible_classes[arrivals.class_id[arrival]]:
        return FAILED
    # Where nothing waits the same total counts failures, see `EventRecord`.
    run.cursor[WAITING_NOW] += 1
    if not waits:
        return FAILED
    _enqueue(arrivals, run, arrival)
    return WAITING


@kernel
def stand(
    cluster: DecisionState,
    arrivals: Arrivals,
    run: Run,
    record: EventRecord,
    slots: npt.NDArray[np.int64],
    devices: npt.NDArray[np.int64],
) -> None:
    """Bind the first arrivals to the nodes `slots`, [S], and these devices (bit masks) for the whole run.

    They run there, so that they may take more than there is, which no later arrival can.
    """
    nodes, classes = cluster.nodes, cluster.classes
    for arrival in range(slots.shape[0]):
        c, n = arrivals.class_id[arrival], slots[arrival]
        run.slot[arrival], run.devices[arrival] = n, devices[arrival]
        # max: the idle GPU of a node that runs more than it has counts as 0.
        idle = max(gpu_left(nodes, classes, c, n), 0)
        _change(cluster, arrivals, run, arrival, 1)
        if run.eligible[n]:
            taken = idle - max(gpu_left(nodes, classes, c, n), 0)
            # What the pod requests beyond what the node had left for it.
            run.cursor[GPU_EXCESS] += classes.gpu_count[c] * classes.gpu_milli[c] - taken
        run.cursor[ARRIVED] += 1
        _note(run, record, arrivals.time[arrival], arrival, BOUND)


@kernel
def advance(
    cluster: DecisionState,
    arrivals: Arrivals,
    run: Run,
    record: EventRecord,
    chooser: int,
    rule: int,
    waits: bool,
    until: int,
) -> int:
    """Handle events until `until` are recorded; return DONE, PAUSED, NEEDS_ACTION or NEEDS_REASON.

    At equal times pods leave before others arrive, and waiting pods are tried, by priority, then age, before both. A
    pod that fits nowhere waits, or has failed if `waits` is False or if it would not fit on the empty cluster.
    """
    cursor = run.cursor
    while cursor[EVENTS] < until:
        # RETRIED: k > 0 while retry k of the queue is under way, -k when it is over.
        retrying, arriving = cursor[RETRIED] > 0, cursor[ARRIVED] < arrivals.class_id.shape[0]
        if not retrying:
            # `<=`: at equal times pods leave before others arrive.
            if cursor[RUNNING] > 0 and (not arriving or run.leaves[run.heap[0]] <= arrivals.time[cursor[ARRIVED]]):
                _leave(cluster, arrivals, run, record)
                continue
            if not arriving:
                return DONE
        arrival = run.queue[cursor[RETRY]] if retrying else cursor[ARRIVED]
        # A retry takes place at the time of the departure that caused it, the last event.
        time = record.time[cursor[EVENTS] - 1] if retrying else arrivals.time[arrival]
        c = arrivals.class_id[arrival]
        masked = has_inter_pod_rules(cluster.terms, c, arrivals.labels_id[arrival])
        n = NONE
        if not run.infeasible_classes[c] and not (retrying and run.infeasible_at_retry[c] == cursor[RETRIED]):
            n = _choose(cluster, arrivals, run, chooser, arrival, masked)
        # Nothing was changed yet: the same arrival is handled again when there is an answer.
        if n == UNDECIDED:
            return NEEDS_ACTION
        if n != NONE:
            _bind(cluster, arrivals, run, rule, arrival, n, time)
        if retrying:
            outcome = _finish_retry(arrivals, run, arrival, n != NONE, not masked)
        else:
            outcome = _finish_arrival(arrivals, run, arrival, n != NONE, waits)
        if outcome != NONE:
            _note(run, record, time, arrival, outcome)
            # At once, while the cluster is as it was when the pod was refused.
            if n == NONE and record.reasons.shape[0] > 0:
                return NEEDS_REASON
    return PAUSED
