"""The event loop, compiled and resumable: pods arrive, are bound, wait or fail, and leave; every event is recorded."""

from __future__ import annotations

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
from steersman.cluster.constraints.inter_pod import (
    InterPodArrays,
    counts_pod,
    has_inter_pod_rules,
    terms_place,
    terms_remove,
)
from steersman.cluster.model import GPU_MILLI
from steersman.core.compiled import called_kernel, inlined_kernel, ir_inlined, kernel, unlocked_kernel
from steersman.orders.queue import (
    ANYBODY,
    GROUPS,
    NO_ONE,
    OVERTAKING,
    SCORE,
    SHAPES,
    enqueue,
    note_end,
    note_start,
)
from steersman.orders.reservations import (
    MADE,
    NODES,
    ReservationArrays,
    cancel,
    fits_together,
    leaves_room,
)
from steersman.orders.scores import EXTERNAL
from steersman.policies.decision.kernels import (
    NONE,
    SELECT_EXTERNAL,
    DecisionState,
    choose_devices,
    choose_node,
    find_feasible,
    refresh_node,
)
from steersman.simulation.event_arrays import (
    ANSWER,
    ARRIVAL,
    ARRIVED,
    BOUND,
    CAUSE,
    COLLECT,
    CPU_SHARE,
    CPU_SQUARE,
    CPU_USED,
    CREATED,
    CURSORS,
    DELAYED,
    DEVICES,
    DONE,
    EVENTS,
    FAILED,
    FINISHED,
    FREED,
    GPU_EXCESS,
    GPU_SHARE,
    GPU_SQUARE,
    GPU_USED,
    HEAD,
    HEAD_FIRST,
    MEMORY_USED,
    NEEDS_ACTION,
    NEEDS_ORDER,
    NEEDS_REASON,
    NO_PASS,
    NODE,
    NODES_USED,
    NOW_WAITING,
    OUTCOME,
    PASS,
    PASSES,
    PAUSED,
    PLACED,
    POD,
    QUESTION,
    REFUSED,
    RESTRICTED,
    ROOM,
    RUNNING,
    SLOT,
    TOTALS,
    TRY_CANDIDATES,
    UNDECIDED,
    WAITING,
    WAITING_NOW,
    Arrivals,
    EventRecord,
    Run,
)
from steersman.simulation.queue_passes import (
    collect,
    end_attempt,
    first_candidate,
    may_overtake,
    next_head,
    update_reservation,
)


@kernel
def find_infeasible(
    nodes: NodeArrays,
    classes: ClassArrays,
    class_id: npt.NDArray[np.int64],
    members: npt.NDArray[np.int64],
    none: ReservationArrays,
    out: npt.NDArray[np.bool_],
) -> None:
    """Write into out, [S], whether `members` pods of a class, both [S], do not fit on the nodes as they are.

    `none` is no reservation.
    """
    for k in range(out.shape[0]):
        out[k] = not fits_together(nodes, classes, none, class_id[k], members[k], False)


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


@inlined_kernel
def _is_reserved(run: Run, n: int) -> bool:
    return bool(run.reservation.state[MADE] and run.reservation.pods[n] > 0)


@inlined_kernel
def _count_nominated(cluster: DecisionState, arrivals: Arrivals, run: Run, arrival: int, sign: int) -> None:
    """Count (1) the pods that wait with a nominated node there, or (-1) undo it: others of at least the priority."""
    nodes, classes = cluster.nodes, cluster.classes
    for i in range(run.nominated.shape[0]):
        # In the reverse order, so that each undoes its own.
        k = i if sign > 0 else run.nominated.shape[0] - 1 - i
        pod, n = run.nominated[k, POD], run.nominated[k, NODE]
        if pod == arrival or run.slot[pod] != NONE or arrivals.priority[pod] < arrivals.priority[arrival]:
            continue
        c = arrivals.class_id[pod]
        if sign > 0:
            # As many of its devices as are idle: it waits for the others.
            run.devices[pod] = 0
            missing = classes.gpu_count[c]
            for d in range(nodes.gpu_count[n]):
                if missing > 0 and nodes.gpu_free[n, d] >= classes.gpu_milli[c]:
                    run.devices[pod] |= 1 << d
                    missing -= 1
            place(nodes, classes, c, n, run.devices[pod])
            terms_place(cluster.terms, c, arrivals.labels_id[pod], n)
        else:
            remove(nodes, classes, c, n, run.devices[pod])
            terms_remove(cluster.terms, c, arrivals.labels_id[pod], n)
            run.devices[pod] = 0


@called_kernel
def _keep_nominated(cluster: DecisionState, arrivals: Arrivals, run: Run, arrival: int) -> None:
    """Close the nodes of `mask` on which a pod would take the room of pods that are nominated there.

    Source: kube-scheduler 1.37, RunFilterPluginsWithNominatedPods.
    """
    _count_nominated(cluster, arrivals, run, arrival, 1)
    find_feasible(cluster, run.fitting, arrivals.class_id[arrival], arrivals.labels_id[arrival])
    _count_nominated(cluster, arrivals, run, arrival, -1)
    for n in range(run.mask.shape[0]):
        run.mask[n] = run.mask[n] and run.fitting[n]


@ir_inlined
def _choose(
    cluster: DecisionState,
    arrivals: Arrivals,
    run: Run,
    chooser: int,
    arrival: int,
    masked: bool,
    closed: bool,
) -> int:
    """Return the node for an arrival, NONE if it fits nowhere, UNDECIDED if the caller has to decide.

    `masked`: other pods matter to it, or a reservation does, so every node has to be evaluated. `closed`: reserved
    nodes are closed to it.
    """
    c, labels = arrivals.class_id[arrival], arrivals.labels_id[arrival]
    if masked:
        find_feasible(cluster, run.mask, c, labels)
        if run.nominated.shape[0] > 0:
            _keep_nominated(cluster, arrivals, run, arrival)
            closed = True
        if closed:
            for i in range(run.reservation.state[NODES]):
                run.mask[run.reservation.slots[i]] = False
    run.cursor[RESTRICTED] = closed
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
    if run.leaves[a] != run.leaves[b]:
        return bool(run.leaves[a] < run.leaves[b])
    return bool(run.started[a] < run.started[b] or (run.started[a] == run.started[b] and a < b))


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


@ir_inlined
def _place(
    cluster: DecisionState,
    arrivals: Arrivals,
    run: Run,
    rule: int,
    arrival: int,
    n: int,
) -> None:
    run.slot[arrival] = n
    run.devices[arrival] = choose_devices(cluster, rule, arrivals.class_id[arrival], n, run.rng)
    _change(cluster, arrivals, run, arrival, 1)


@inlined_kernel
def _start(arrivals: Arrivals, run: Run, record: EventRecord, arrival: int, time: float, waited: bool) -> None:
    """Start a placed pod, or the placed members of a gang."""
    for a in range(arrival, arrival + arrivals.members[arrival]):
        if run.slot[a] == NONE:
            continue
        run.started[a] = time
        note_start(run.queue, a, arrival)
        if waited:
            run.cursor[WAITING_NOW] -= 1
        if arrivals.duration[a] < np.inf:
            run.leaves[a] = time + arrivals.duration[a]
            if run.reservation.expected.shape[0] > 0:
                run.reservation.expected[a] = time + run.queue.estimated[a]
            _heap_push(run, a)
        _note(run, record, time, a, BOUND)


@inlined_kernel
def _undo(cluster: DecisionState, arrivals: Arrivals, run: Run, arrival: int) -> None:
    """Remove the members of a gang that were placed, too few to start."""
    for a in range(arrival + run.cursor[PLACED] - 1, arrival - 1, -1):
        if run.slot[a] == NONE:
            continue
        _change(cluster, arrivals, run, a, -1)
        run.slot[a], run.devices[a] = NONE, 0
    run.cursor[PLACED] = run.cursor[REFUSED] = 0


@inlined_kernel
def _separate(arrivals: Arrivals, run: Run, arrival: int, waited: bool) -> None:
    """Let the members that a gang has started without be arrivals of their own, or wait on their own if they waited."""
    for a in range(arrival, arrival + arrivals.members[arrival]):
        arrivals.members[a] = arrivals.least[a] = arrivals.together[a] = 1
        if waited and run.slot[a] == NONE:
            enqueue(run.queue, a)


@inlined_kernel
def _is_delayed(arrivals: Arrivals, run: Run, arrival: int) -> bool:
    """Return whether the controller of an arrival may not make it yet: it has as many pods as it may have at a time."""
    k = arrivals.controller[arrival]
    if k == NONE or run.room[k, ROOM] > 0:
        return False
    if run.room[k, DELAYED] == NONE:
        run.room[k, DELAYED] = arrival
    return True


@inlined_kernel
def _take_room(arrivals: Arrivals, run: Run, arrival: int, count: int) -> None:
    """Count the pods of an arrival that its controller has made."""
    k = arrivals.controller[arrival]
    if k != NONE:
        run.room[k, ROOM] -= count


@inlined_kernel
def _replace(arrivals: Arrivals, run: Run, arrival: int) -> None:
    """Let the controller of a pod that ended make the next one, if it may not have made it before."""
    k = arrivals.controller[arrival]
    if k == NONE:
        return
    pod = run.room[k, DELAYED]
    if pod == NONE:
        run.room[k, ROOM] += 1
        return
    run.cursor[CREATED] = pod
    arrivals.time[pod] = run.leaves[arrival]
    following = arrivals.following[pod]
    run.room[k, DELAYED] = following if following < run.cursor[ARRIVED] else NONE


@ir_inlined
def _leave(cluster: DecisionState, arrivals: Arrivals, run: Run, record: EventRecord) -> None:
    arrival = _heap_pop(run)
    _change(cluster, arrivals, run, arrival, -1)
    run.cursor[FREED] = run.slot[arrival]
    note_end(run.queue, arrival, arrivals.duration[arrival])
    _replace(arrivals, run, arrival)
    _note(run, record, run.leaves[arrival], arrival, FINISHED)
    if run.queue.counts[GROUPS] > 0:
        run.cursor[PASS] = HEAD_FIRST
        run.cursor[PASSES] += 1


@inlined_kernel
def _queue_arrival(arrivals: Arrivals, run: Run, record: EventRecord, arrival: int, time: float, waits: bool) -> None:
    """Record that an arrival was not bound, and queue it if it may wait."""
    members = arrivals.members[arrival]
    # What another pod's start may let start is tried again then, even where nothing else waits.
    retried = waits or (run.lifted.shape[0] > 0 and run.lifted[arrivals.shape[arrival]])
    fails = not retried or run.infeasible[arrivals.shape[arrival]]
    # A pod that could not run even on the empty cluster does not count as waiting. Where nothing waits the same total
    # counts failures, see `EventRecord`.
    if not (waits and fails):
        run.cursor[WAITING_NOW] += members
    if not fails:
        enqueue(run.queue, arrival)
    # The first member comes last, since the reason of the last event is asked for.
    for a in range(arrival + members - 1, arrival - 1, -1):
        _note(run, record, time, a, FAILED if fails else WAITING)


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
        note_start(run.queue, arrival, arrival)
        _note(run, record, arrivals.time[arrival], arrival, BOUND)


@kernel
def queue_first(cluster: DecisionState, arrivals: Arrivals, run: Run, record: EventRecord, count: int) -> None:
    """Let the next `count` arrivals wait since their times, and try them all at time 0, before anything else happens.

    Those that would not fit on the empty cluster fail.
    """
    cursor, q = run.cursor, run.queue
    for arrival in range(cursor[ARRIVED], cursor[ARRIVED] + count):
        if arrivals.members[arrival] > 0 and not _is_delayed(arrivals, run, arrival):
            _queue_arrival(arrivals, run, record, arrival, 0.0, True)
            _take_room(arrivals, run, arrival, arrivals.members[arrival])
    cursor[ARRIVED] += count
    cursor[PASSES] += 1
    if q.settings[OVERTAKING] != ANYBODY or run.reservation.expected.shape[0] > 0:
        cursor[PASS] = HEAD_FIRST
        return
    # No pod has just left a node, so that every node counts.
    collect(cluster.nodes, cluster.classes, cluster.terms, arrivals, run, 0.0, True)
    cursor[PASS] = TRY_CANDIDATES


@ir_inlined
def _node_for(
    cluster: DecisionState,
    arrivals: Arrivals,
    run: Run,
    chooser: int,
    rule: int,
    arrival: int,
    masked: bool,
    after: bool,
) -> int:
    """Return the node for the next member of a pod's gang, see `_choose`.

    `after`: it would delay the reservation, unless it goes to another node or leaves room.
    """
    # One that asks somebody else, or has several pods, avoids all reserved nodes at once.
    closed = after and (chooser == SELECT_EXTERNAL or arrivals.members[arrival] > 1)
    run.cursor[RESTRICTED] = closed
    if arrivals.members[arrival] > 1 and run.cursor[PLACED] == 0 and not masked:
        c = arrivals.class_id[arrival]
        if not fits_together(cluster.nodes, cluster.classes, run.reservation, c, arrivals.together[arrival], after):
            return NONE
    member = arrival + run.cursor[PLACED]
    c = arrivals.class_id[member]
    while True:
        n = _choose(cluster, arrivals, run, chooser, member, masked or closed, closed)
        if not after or closed or n < 0 or not _is_reserved(run, n):
            return n
        devices = choose_devices(cluster, rule, c, n, run.rng)
        reserved = arrivals.class_id[run.queue.first[run.cursor[HEAD]]]
        if leaves_room(cluster.nodes, cluster.classes, run.reservation, reserved, n, c, devices):
            return n
        closed = True


@inlined_kernel
def _lifts(terms: InterPodArrays, arrivals: Arrivals, run: Run, arrival: int, members: int) -> bool:
    """Return whether a pod that waits may start now because a pod, or one of its gang, has started.

    Source: kube-scheduler 1.37, queueing hints of InterPodAffinity and PodTopologySpread for assigned pods.
    """
    if run.lifted.shape[0] == 0:
        return False
    q = run.queue
    for i in range(q.counts[SHAPES]):
        s = q.shapes[i]
        if not run.lifted[s]:
            continue
        first = q.first[q.active[q.begins[s]]]
        for waiting in range(first, first + arrivals.members[first]):
            for a in range(arrival, arrival + members):
                if run.slot[a] != NONE and counts_pod(terms, arrivals.class_id[waiting], arrivals.labels_id[a]):
                    return True
    return False


@inlined_kernel
def _leaves_first(arrivals: Arrivals, run: Run) -> bool:
    """Return whether the next pod to leave does so before the next one arrives.

    At equal times it leaves first, except where the order commits to one pod: then that is chosen among all that have
    arrived.
    """
    leaves, arrives = run.leaves[run.heap[0]], arrivals.time[run.cursor[ARRIVED]]
    return bool(leaves <= arrives if run.queue.settings[OVERTAKING] == ANYBODY else leaves < arrives)


@unlocked_kernel
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
    """Handle events until `until` are recorded; return DONE, PAUSED or what it needs, NEEDS_...

    At equal times waiting pods are tried, in the queue's order, before others arrive or leave. A pod that fits nowhere
    waits, or has failed if `waits` is False or if it would not fit on the empty cluster.
    """
    cursor, q = run.cursor, run.queue
    while cursor[EVENTS] < until:
        passing = cursor[PASS] != NO_PASS
        arrival, g, time = NONE, NONE, 0.0
        if passing:
            # A pass takes place at the time of the event that caused it, the last one.
            time = record.time[cursor[EVENTS] - 1]
            if cursor[PASS] == HEAD_FIRST:
                if cursor[HEAD] == NONE and q.settings[SCORE] == EXTERNAL and q.counts[GROUPS] > 1:
                    return NEEDS_ORDER
                next_head(arrivals, run, time)
                if cursor[HEAD] == NONE or q.settings[OVERTAKING] == ANYBODY:
                    # Nobody waits, or anybody may start: an overdue pod is tried after those of a higher priority.
                    cursor[PASS] = COLLECT
                    continue
                g = cursor[HEAD]
            else:
                # Before the first pod has left, no node says which pods may fit now.
                every = chooser == SELECT_EXTERNAL or cursor[FREED] == NONE
                if cursor[PASS] == COLLECT:
                    # As the first of them would: who is tried depends on it.
                    if cursor[HEAD] != NONE and q.counts[GROUPS] > 1:
                        update_reservation(cluster, arrivals, run, time)
                    collect(cluster.nodes, cluster.classes, cluster.terms, arrivals, run, time, every)
                    cursor[PASS] = TRY_CANDIDATES
                g = first_candidate(cluster, arrivals, run, time, every)
                if g == NONE:
                    cursor[PASS] = NO_PASS
                    continue
            arrival = q.first[g]
        else:
            arriving = cursor[ARRIVED] < arrivals.class_id.shape[0]
            arrival = cursor[CREATED]
            if arrival == NONE:
                if cursor[RUNNING] > 0 and (not arriving or _leaves_first(arrivals, run)):
                    _leave(cluster, arrivals, run, record)
                    continue
                if not arriving:
                    return DONE
                arrival = cursor[ARRIVED]
                if cursor[PLACED] == 0 and run.slot[arrival] != NONE:
                    # It has started with its gang, of which others have not.
                    _take_room(arrivals, run, arrival, 1)
                    cursor[ARRIVED] += 1
                    continue
                if _is_delayed(arrivals, run, arrival):
                    cursor[ARRIVED] += 1
                    continue
            time = arrivals.time[arrival]
            if q.counts[GROUPS] > 0 and run.reservation.expected.shape[0] > 0:
                next_head(arrivals, run, time)
        member, shape = arrival + cursor[PLACED], arrivals.shape[arrival]
        masked = has_inter_pod_rules(cluster.terms, arrivals.class_id[member], arrivals.labels_id[member])
        masked = masked or run.nominated.shape[0] > 0
        # Behind the head, unless of a higher priority. By orders that commit it is the new head if it has to wait.
        behind = cursor[HEAD] != NONE and g != cursor[HEAD]
        if behind and arrivals.priority[arrival] > q.priority[q.first[cursor[HEAD]]]:
            behind = False
        allowed, after = True, False
        if behind:
            allowed = q.settings[OVERTAKING] != NO_ONE
            if allowed:
                update_reservation(cluster, arrivals, run, time)
                after = not may_overtake(run, arrival, time)
        n = NONE
        if passing:
            allowed = allowed and run.infeasible_in_pass[shape] != cursor[PASSES]
            allowed = allowed and not (after and run.infeasible_beside[shape] == cursor[PASSES])
        if allowed and not run.infeasible[shape]:
            n = _node_for(cluster, arrivals, run, chooser, rule, arrival, masked, after)
        # Nothing was changed yet: the same arrival is handled again when there is an answer.
        if n == UNDECIDED:
            return NEEDS_ACTION
        if n != NONE:
            _place(cluster, arrivals, run, rule, member, n)
        else:
            cursor[REFUSED] += 1
        cursor[PLACED] += 1
        members, least = arrivals.members[arrival], arrivals.least[arrival]
        starts = allowed and not run.infeasible[shape] and members - cursor[REFUSED] >= least
        if starts and cursor[PLACED] < members:
            continue
        is_split = starts and cursor[REFUSED] > 0
        if starts:
            cursor[PLACED] = cursor[REFUSED] = 0
            _start(arrivals, run, record, arrival, time, passing)
            if cursor[HEAD] != NONE and g != cursor[HEAD] and not behind:
                # A pod of higher priority has started: the head's reservation does not account for it.
                cancel(run.reservation)
        else:
            _undo(cluster, arrivals, run, arrival)
        if passing:
            # Marked only where nothing but the nodes refused it, or these and a reservation that it would delay.
            alone = allowed and not masked
            if alone and not starts and after and chooser != SELECT_EXTERNAL:
                run.infeasible_beside[shape] = cursor[PASSES]
            end_attempt(run, g, starts, alone and not cursor[RESTRICTED], time)
        elif cursor[CREATED] != NONE:
            cursor[CREATED] = NONE
        elif not is_split:
            _take_room(arrivals, run, arrival, members)
            cursor[ARRIVED] += members
        if is_split:
            _separate(arrivals, run, arrival, passing)
        if starts and _lifts(cluster.terms, arrivals, run, arrival, members):
            cursor[PASS] = HEAD_FIRST
            cursor[PASSES] += 1
        if passing or starts:
            continue
        _queue_arrival(arrivals, run, record, arrival, time, waits)
        if q.settings[OVERTAKING] != ANYBODY and not behind and waits and not run.infeasible[shape]:
            cursor[HEAD] = q.group[arrival]
            cancel(run.reservation)
        # At once, while the cluster is as it was when the pod was refused.
        if record.reasons.shape[0] > 0:
            return NEEDS_REASON
    return PAUSED
