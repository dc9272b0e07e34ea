"""Reservations for every waiting pod that fits nowhere yet, so that whoever overtakes delays none of them.

A pod is given its reservation when it is first refused: on the node, or for a gang on the nodes, where it can start
first if running pods end as estimated and the reserved ones run as planned. It keeps it until it starts. A pod may
start at once where, as long as it runs by its estimate, all reserved pods still fit beside it. If estimates are right,
nobody starts later than reserved. Source: conservative backfilling of Mu'alem and Feitelson, "Utilization,
Predictability, Workloads, and User Runtime Estimates in Scheduling the IBM SP2 with Backfilling" (IEEE TPDS 2001), with
nodes and GPU devices instead of a pool. When pods end early, waiting ones are tried again in order; the remaining
reservations are not moved.

If pods run for longer than estimated, and a reservation is missed, the pod gets a second one, and goes before all whose
first reservations began later: it need not leave room for them. If that is missed, too, nobody else starts on its node
any more but beside it, whatever the estimates.

Equal pods, those of a group of the queue, share their reservations: the first pod has the earliest one.
"""

from __future__ import annotations

import numpy as np

from steersman.cluster.arrays import ClassArrays, NodeArrays, best_devices, counts_gpus, fits
from steersman.core.compiled import called_kernel, inlined_kernel
from steersman.orders.reservations import (
    AT,
    BEGINS,
    CLASS,
    DEVICES,
    ENDS,
    FREE_ROW,
    GROUP,
    LACKING,
    LEADER,
    MEMBER,
    MOST,
    NEXT,
    NODE,
    NOTHING,
    PRIORITY,
    RANK,
    RELEASED,
    ROWS,
    SECONDS,
    THROUGHOUT,
    ReservationArrays,
    RunningArrivals,
    copies_on,
    expected_end,
    heap_ends,
    pop_end,
)

MAX_HELD = 100
"""Pods that have reservations at once; the others wait for one, and start where they delay nobody who has one. What a
new reservation costs on a node grows with the square of those that the node has."""


@inlined_kernel
def is_held(res: ReservationArrays, n: int) -> bool:
    """Return whether there is a reservation on a node."""
    return bool(res.held.counts[ROWS] > 0 and res.held.first_row[n] != NOTHING)


@inlined_kernel
def reservation_of(res: ReservationArrays, g: int) -> int:
    """Return the earliest reservation of a group, NOTHING if it has none."""
    return int(res.held.first_of_group[g])


@inlined_kernel
def note_running(res: ReservationArrays, a: int, n: int) -> None:
    """Count a pod that starts on a node and will end."""
    res.held.next_running[a] = res.held.first_running[n]
    res.held.first_running[n] = a


@called_kernel
def note_ended(res: ReservationArrays, a: int, n: int) -> None:
    """Count a pod that ends on a node no more."""
    held = res.held
    if held.first_running[n] == a:
        held.first_running[n] = held.next_running[a]
        return
    before = held.first_running[n]
    while held.next_running[before] != a:
        before = held.next_running[before]
    held.next_running[before] = held.next_running[a]


@inlined_kernel
def _ends(res: ReservationArrays, row: int, now: float) -> float:
    """Return when a reserved pod has ended if it starts as planned, or now if that was missed."""
    begin, end = res.held.times[row, BEGINS], res.held.times[row, ENDS]
    return float(end if begin >= now else max(end, now + (end - begin)))


@inlined_kernel
def _counts(res: ReservationArrays, row: int, priority: int, own: int, rank: float) -> bool:
    """Return whether a pod has to leave room for a reserved one; for the arguments see `_left_throughout`."""
    leader = res.held.rows[row, LEADER]
    return bool(leader != own and res.held.rows[row, PRIORITY] >= priority and res.held.times[leader, RANK] < rank)


@inlined_kernel
def _add(
    nodes: NodeArrays, classes: ClassArrays, res: ReservationArrays, n: int, c: int, devices: int, sign: int
) -> None:
    """Add (or with -1 subtract) the requests of a pod to what is left of a node at one moment."""
    # Not `place`, which counts further things of the node itself.
    for r in range(classes.request.shape[1]):
        res.held.free[AT, r] += sign * classes.request[c, r]
    if counts_gpus(nodes, classes, c, n):
        res.held.free[AT, classes.gpu_column[c]] += sign * classes.gpu_count[c]
        return
    for d in range(nodes.gpu_count[n]):
        if (devices >> d) & 1:
            res.held.gpu_free[AT, d] += sign * classes.gpu_milli[c]


@inlined_kernel
def _swap(nodes: NodeArrays, res: ReservationArrays, n: int, row: int) -> None:
    free, gpu_free = res.held.free, res.held.gpu_free
    for r in range(nodes.free.shape[1]):
        nodes.free[n, r], free[row, r] = free[row, r], nodes.free[n, r]
    for d in range(nodes.gpu_free.shape[1]):
        nodes.gpu_free[n, d], gpu_free[row, d] = gpu_free[row, d], nodes.gpu_free[n, d]


@called_kernel
def _left_at(
    nodes: NodeArrays,
    classes: ClassArrays,
    running: RunningArrivals,
    res: ReservationArrays,
    n: int,
    at: float,
    priority: int,
    own: int,
    rank: float,
    starts: bool,
    now: float,
) -> None:
    """Write what is left of a node at a moment, beside reserved pods; see `_left_throughout`."""
    held = res.held
    for r in range(nodes.free.shape[1]):
        held.free[AT, r] = nodes.free[n, r]
    for d in range(nodes.gpu_free.shape[1]):
        held.gpu_free[AT, d] = nodes.gpu_free[n, d]
    # Of pods that end now, some may not have left yet.
    a = held.first_running[n] if at > now else NOTHING
    while a != NOTHING:
        if expected_end(res, running, a, now) <= at:
            _add(nodes, classes, res, n, running.class_id[a], running.devices[a], 1)
        a = held.next_running[a]
    row = held.first_row[n]
    while row != NOTHING:
        begin = held.times[row, BEGINS]
        lasts = (starts and begin < now) or at < _ends(res, row, now)
        if begin <= at and lasts and _counts(res, row, priority, own, rank):
            _add(nodes, classes, res, n, held.rows[row, CLASS], held.rows[row, DEVICES], -1)
        row = held.rows[row, NEXT]


@called_kernel
def _left_throughout(
    nodes: NodeArrays,
    classes: ClassArrays,
    running: RunningArrivals,
    res: ReservationArrays,
    c: int,
    n: int,
    begin: float,
    end: float,
    priority: int,
    own: int,
    rank: float,
    starts: bool,
    now: float,
) -> bool:
    """Write what is left of a node, of each resource and device the least from `begin` until before `end`.

    Return whether a class fits there at each moment; else no more is written.

    Args:
        nodes: as they are now.
        classes: the classes.
        running: the pods that run and will end.
        res: output: row THROUGHOUT of `held.free` and `held.gpu_free`.
        c: the class.
        n: the node.
        begin: seconds.
        end: seconds.
        priority: reservations of lower priority do not count.
        own: the pod's own reservation, which does not count; NOTHING: all do.
        rank: reservations that first began at this time or later do not count.
        starts: whether the pod would start now, so that missed reservations count whatever the estimates.
        now: seconds.
    """
    held = res.held
    row, at, is_first = held.first_row[n], begin, True
    while True:
        _left_at(nodes, classes, running, res, n, at, priority, own, rank, starts, now)
        for r in range(nodes.free.shape[1]):
            if is_first or held.free[AT, r] < held.free[THROUGHOUT, r]:
                held.free[THROUGHOUT, r] = held.free[AT, r]
        for d in range(nodes.gpu_free.shape[1]):
            if is_first or held.gpu_free[AT, d] < held.gpu_free[THROUGHOUT, d]:
                held.gpu_free[THROUGHOUT, d] = held.gpu_free[AT, d]
        is_first = False
        _swap(nodes, res, n, AT)
        enough = fits(nodes, classes, c, n)
        _swap(nodes, res, n, AT)
        if not enough:
            return False
        # Nothing but the beginning of another reservation makes less of it.
        while row != NOTHING:
            at = held.times[row, BEGINS]
            if begin < at < end and _counts(res, row, priority, own, rank):
                break
            row = held.rows[row, NEXT]
        if row == NOTHING:
            return True
        row = held.rows[row, NEXT]


@called_kernel
def copies_throughout(
    nodes: NodeArrays,
    classes: ClassArrays,
    running: RunningArrivals,
    res: ReservationArrays,
    c: int,
    n: int,
    begin: float,
    end: float,
    priority: int,
    own: int,
    rank: float,
    starts: bool,
    now: float,
) -> int:
    """Return how many pods of a class fit on a node from `begin` to `end`, see `_left_throughout`."""
    if not classes.allowed[classes.constraint[c], n]:
        return 0
    if not _left_throughout(nodes, classes, running, res, c, n, begin, end, priority, own, rank, starts, now):
        return 0
    _swap(nodes, res, n, THROUGHOUT)
    count = copies_on(nodes, classes, c, n)
    _swap(nodes, res, n, THROUGHOUT)
    return int(count)


@called_kernel
def devices_throughout(
    nodes: NodeArrays,
    classes: ClassArrays,
    running: RunningArrivals,
    res: ReservationArrays,
    c: int,
    n: int,
    end: float,
    priority: int,
    own: int,
    rank: float,
    devices: int,
    now: float,
) -> int:
    """Return the devices for a pod that starts on a node where it fits: those given, unless they delay another."""
    _left_throughout(nodes, classes, running, res, c, n, now, end, priority, own, rank, True, now)
    for d in range(nodes.gpu_count[n]):
        if (devices >> d) & 1 and res.held.gpu_free[THROUGHOUT, d] < classes.gpu_milli[c]:
            return _best_of(nodes, classes, res, c, n)
    return devices


@inlined_kernel
def _best_of(nodes: NodeArrays, classes: ClassArrays, res: ReservationArrays, c: int, n: int) -> int:
    _swap(nodes, res, n, THROUGHOUT)
    devices = best_devices(nodes, classes, c, n)
    _swap(nodes, res, n, THROUGHOUT)
    return int(devices)


# ---------------------------------------------------------------------------------------------------------------------


@inlined_kernel
def _note_released(res: ReservationArrays, n: int) -> None:
    for i in range(res.held.counts[RELEASED]):
        if res.held.released[i] == n:
            return
    res.held.released[res.held.counts[RELEASED]] = n
    res.held.counts[RELEASED] += 1


@called_kernel
def release(res: ReservationArrays, leader: int) -> None:
    """End a reservation: its first row and those of the other members of the gang."""
    held = res.held
    g, row = held.rows[leader, GROUP], held.first_of_group[held.rows[leader, GROUP]]
    if row == leader:
        held.first_of_group[g] = held.next_of_group[leader]
    else:
        while held.next_of_group[row] != leader:
            row = held.next_of_group[row]
        held.next_of_group[row] = held.next_of_group[leader]
    row = leader
    while row != NOTHING:
        n, following = held.rows[row, NODE], held.rows[row, MEMBER]
        if n != NOTHING:
            before = held.first_row[n]
            if before == row:
                held.first_row[n] = held.rows[row, NEXT]
            else:
                while held.rows[before, NEXT] != row:
                    before = held.rows[before, NEXT]
                held.rows[before, NEXT] = held.rows[row, NEXT]
            _note_released(res, n)
        held.rows[row, LEADER] = NOTHING
        held.rows[row, NEXT] = held.counts[FREE_ROW]
        held.counts[FREE_ROW] = row
        held.counts[ROWS] -= 1
        row = following


@inlined_kernel
def _new_row(res: ReservationArrays, g: int, c: int, priority: int, leader: int) -> int:
    """Return a new row, of the reservation `leader`; NOTHING: it is the first one of another."""
    held = res.held
    row = held.counts[FREE_ROW]
    held.counts[FREE_ROW] = held.rows[row, NEXT]
    held.counts[ROWS] += 1
    held.rows[row, GROUP], held.rows[row, CLASS], held.rows[row, PRIORITY] = g, c, priority
    held.rows[row, NODE] = held.rows[row, NEXT] = NOTHING
    if leader == NOTHING:
        held.rows[row, LEADER], held.rows[row, MEMBER] = row, NOTHING
    else:
        held.rows[row, LEADER], held.rows[row, MEMBER] = leader, held.rows[leader, MEMBER]
        held.rows[leader, MEMBER] = row
    return int(row)


@called_kernel
def _take(
    nodes: NodeArrays,
    classes: ClassArrays,
    running: RunningArrivals,
    res: ReservationArrays,
    row: int,
    n: int,
    begin: float,
    seconds: float,
    rank: float,
    now: float,
) -> None:
    """Reserve a node, on which it fits, for the pod of a row."""
    held, c = res.held, res.held.rows[row, CLASS]
    priority = held.rows[row, PRIORITY]
    _left_throughout(nodes, classes, running, res, c, n, begin, begin + seconds, priority, NOTHING, rank, False, now)
    held.rows[row, DEVICES] = _best_of(nodes, classes, res, c, n)
    held.rows[row, NODE], held.rows[row, NEXT] = n, held.first_row[n]
    held.first_row[n] = row
    held.times[row, BEGINS], held.times[row, ENDS] = begin, begin + seconds


@called_kernel
def _hold_one(
    nodes: NodeArrays,
    classes: ClassArrays,
    running: RunningArrivals,
    count: int,
    res: ReservationArrays,
    row: int,
    seconds: float,
    rank: float,
    now: float,
) -> None:
    """Reserve the node on which a pod can start first, if there is one."""
    held = res.held
    c, priority = held.rows[row, CLASS], held.rows[row, PRIORITY]
    begins, node = np.inf, NOTHING
    # There is room as soon as a pod that runs, or a reserved one, has ended.
    for i in range(count + held.rows.shape[0]):
        if i < count:
            n, t = running.slot[running.heap[i]], expected_end(res, running, running.heap[i], now)
        else:
            other = i - count
            if held.rows[other, LEADER] == NOTHING or held.rows[other, NODE] == NOTHING:
                continue
            n, t = held.rows[other, NODE], max(_ends(res, other, now), now)
        if t > begins or (t == begins and n >= node):
            continue
        end = t + seconds
        if copies_throughout(nodes, classes, running, res, c, n, t, end, priority, NOTHING, rank, False, now) > 0:
            begins, node = t, n
    if node != NOTHING:
        _take(nodes, classes, running, res, row, node, begins, seconds, rank, now)


@called_kernel
def _count_together(
    nodes: NodeArrays,
    classes: ClassArrays,
    running: RunningArrivals,
    res: ReservationArrays,
    row: int,
    at: float,
    seconds: float,
    rank: float,
    now: float,
) -> int:
    """Return how many pods like that of a row fit on all nodes from `at` on, and write the numbers of each node."""
    held, together = res.held, 0
    c, priority = held.rows[row, CLASS], held.rows[row, PRIORITY]
    for n in range(nodes.gpu_count.shape[0]):
        held.copies[n] = copies_throughout(
            nodes, classes, running, res, c, n, at, at + seconds, priority, NOTHING, rank, False, now
        )
        together += held.copies[n]
    return int(together)


@called_kernel
def _hold_gang(
    nodes: NodeArrays,
    classes: ClassArrays,
    running: RunningArrivals,
    count: int,
    res: ReservationArrays,
    leader: int,
    members: int,
    seconds: float,
    rank: float,
    now: float,
) -> None:
    """Reserve nodes on which the members of a gang can start together first, if there are any."""
    held = res.held
    c, priority = held.rows[leader, CLASS], held.rows[leader, PRIORITY]
    together = _count_together(nodes, classes, running, res, leader, now, seconds, rank, now)
    heap_ends(res, running, count, now)
    left, at = count, now
    while True:
        # The next moment at which a pod ends, on one node of the running ones, else of the reserved ones.
        begins, ending = np.inf, NOTHING
        for row in range(held.rows.shape[0]):
            if held.rows[row, LEADER] != NOTHING and held.rows[row, NODE] != NOTHING:
                end = _ends(res, row, now)
                if at < end < begins:
                    begins = end
        if left > 0 and expected_end(res, running, res.ends[0], now) <= begins:
            ending = pop_end(res, running, left, now)
            left -= 1
            begins = expected_end(res, running, ending, now)
        if begins == np.inf:
            return
        for n in range(nodes.gpu_count.shape[0]):
            if ending != NOTHING and n != running.slot[ending]:
                continue
            if ending == NOTHING and held.first_row[n] == NOTHING:
                continue
            end = begins + seconds
            copies = copies_throughout(
                nodes, classes, running, res, c, n, begins, end, priority, NOTHING, rank, False, now
            )
            together += copies - held.copies[n]
            held.copies[n] = copies
        # A pod that was popped last may end at the same time as reserved ones.
        at = begins if ending == NOTHING else at
        # What fitted from an earlier moment on may not fit from this one on.
        if together >= members:
            together = _count_together(nodes, classes, running, res, leader, begins, seconds, rank, now)
        if together >= members:
            break
    for n in range(nodes.gpu_count.shape[0]):
        taken = min(held.copies[n], members)
        for _ in range(taken):
            row = leader
            if held.rows[leader, NODE] != NOTHING:
                row = _new_row(res, held.rows[leader, GROUP], c, priority, leader)
            _take(nodes, classes, running, res, row, n, begins, seconds, rank, now)
        members -= taken


@called_kernel
def hold(
    nodes: NodeArrays,
    classes: ClassArrays,
    running: RunningArrivals,
    count: int,
    res: ReservationArrays,
    g: int,
    c: int,
    members: int,
    seconds: float,
    priority: int,
    rank: float,
    now: float,
) -> None:
    """Make a reservation for a pod, or the pods of a gang, that start nowhere now.

    Args:
        nodes: as they are; they are changed and changed back.
        classes: the classes.
        running: the pods that run and will end.
        count: their number.
        res: the reservations.
        g: the pod's group.
        c: its class.
        members: number of pods.
        seconds: estimated run time.
        priority: of the pod.
        rank: when the first one of the pod began, inf: this is the first one.
        now: seconds.
    """
    held = res.held
    leader = _new_row(res, g, c, priority, NOTHING)
    held.times[leader, BEGINS] = held.times[leader, ENDS] = np.inf
    # Until the gang is whole its own members count.
    held.times[leader, SECONDS], held.times[leader, RANK] = seconds, -np.inf
    if members == 1:
        _hold_one(nodes, classes, running, count, res, leader, seconds, rank, now)
    else:
        _hold_gang(nodes, classes, running, count, res, leader, members, seconds, rank, now)
    held.times[leader, RANK] = held.times[leader, BEGINS] if rank == np.inf else rank
    before, after = NOTHING, held.first_of_group[g]
    while after != NOTHING and held.times[after, RANK] <= held.times[leader, RANK]:
        before, after = after, held.next_of_group[after]
    held.next_of_group[leader] = after
    if before == NOTHING:
        held.first_of_group[g] = leader
    else:
        held.next_of_group[before] = leader


@inlined_kernel
def rank_of(res: ReservationArrays, own: int, now: float) -> float:
    """Return before which reservations a pod goes, see `_left_throughout`: none unless its own one was missed."""
    if own == NOTHING or res.held.times[own, RANK] >= now:
        return np.inf
    return float(res.held.times[own, RANK])


@inlined_kernel
def _first_missed(res: ReservationArrays, now: float) -> int:
    """Return the reservation that was missed first, of those that are no second ones; NOTHING: there is none."""
    held, found = res.held, NOTHING
    for row in range(held.rows.shape[0]):
        if held.rows[row, LEADER] != row or held.times[row, BEGINS] != held.times[row, RANK]:
            continue
        begin = held.times[row, BEGINS]
        if begin < now and (found == NOTHING or begin < held.times[found, BEGINS]):
            found = row
    return found


@called_kernel
def renew_missed(
    nodes: NodeArrays, classes: ClassArrays, running: RunningArrivals, count: int, res: ReservationArrays, now: float
) -> None:
    """Make second reservations for the pods that should have started by now but fit nowhere, in order."""
    held = res.held
    leader = _first_missed(res, now)
    while leader != NOTHING:
        g, c, priority = held.rows[leader, GROUP], held.rows[leader, CLASS], held.rows[leader, PRIORITY]
        seconds, rank = held.times[leader, SECONDS], held.times[leader, RANK]
        members, row = 0, leader
        while row != NOTHING:
            members, row = members + 1, held.rows[row, MEMBER]
        release(res, leader)
        hold(nodes, classes, running, count, res, g, c, members, seconds, priority, rank, now)
        leader = _first_missed(res, now)


@inlined_kernel
def is_newly_missed(res: ReservationArrays, own: int, now: float) -> bool:
    """Return whether a reservation was missed since the last pass, so that others delay its pod less than before."""
    return bool(own != NOTHING and res.held.passed[0] <= res.held.times[own, RANK] < now)


@inlined_kernel
def note_waiting(res: ReservationArrays, g: int) -> None:
    """Count a pod that begins to wait."""
    res.held.lacking[g] += 1
    res.held.counts[LACKING] += 1


@inlined_kernel
def note_leaving(res: ReservationArrays, g: int) -> None:
    """Count the first pod of a group, which starts, no more; its reservation ends."""
    if res.held.first_of_group[g] != NOTHING:
        release(res, res.held.first_of_group[g])
    else:
        res.held.lacking[g] -= 1
        res.held.counts[LACKING] -= 1


@inlined_kernel
def may_hold(res: ReservationArrays, g: int) -> bool:
    """Return whether a pod of a group lacks a reservation, and there may be one more."""
    return bool(res.held.lacking[g] > 0 and res.held.counts[ROWS] < res.held.counts[MOST])
