"""Passes over the waiting pods after one has left: who is tried, in which order, and who may not be delayed."""

from __future__ import annotations

import numpy as np

from steersman.cluster.arrays import ClassArrays, NodeArrays, fits
from steersman.cluster.constraints.inter_pod import InterPodArrays, has_inter_pod_rules, may_have_inter_pod_rules
from steersman.cluster.model import GPU_MILLI
from steersman.core.compiled import called_kernel, inlined_kernel
from steersman.orders.conservative import (
    copies_throughout,
    devices_throughout,
    hold,
    is_held,
    is_newly_missed,
    may_hold,
    note_leaving,
    rank_of,
    renew_missed,
    reservation_of,
)
from steersman.orders.queue import (
    AGEING,
    ANYBODY,
    BY_GPU,
    CANDIDATES,
    CAPACITY,
    CONSERVATIVE,
    ENDING_BEFORE,
    GROUPS,
    NO_ONE,
    OVERTAKING,
    SHAPES,
    delay_of,
    dequeue,
    drop_candidate,
    estimate,
    goes_before,
    heapify,
    score,
    set_score,
    sink,
)
from steersman.orders.reservations import (
    LACKING,
    MADE,
    MISSED,
    MOST,
    NODES,
    OPENED,
    RELEASED,
    ROWS,
    SECONDS,
    RunningArrivals,
    cancel,
    fits_any,
    foresee,
    reserve,
)
from steersman.policies.decision.kernels import NONE, DecisionState
from steersman.simulation.event_arrays import (
    COLLECT,
    CPU_USED,
    FREED,
    GPU_USED,
    HEAD,
    HEAD_FIRST,
    NO_PASS,
    PASS,
    PASSES,
    PLACED,
    RUNNING,
    WAITING_NOW,
    Arrivals,
    Run,
)


@inlined_kernel
def _running(arrivals: Arrivals, run: Run) -> RunningArrivals:
    return RunningArrivals(run.heap, arrivals.class_id, run.slot, run.devices, run.started)


@inlined_kernel
def _free_share(run: Run) -> float:
    """Return the free share of the cluster's GPUs, or of its CPUs where no pod requests a GPU."""
    used = run.cursor[GPU_USED] if run.queue.limits[BY_GPU] > 0 else run.cursor[CPU_USED]
    return float(1.0 - used / (GPU_MILLI * run.queue.limits[CAPACITY]))


@inlined_kernel
def _first_overdue(run: Run, time: float) -> int:
    """Return the group of the oldest pod of the highest priority of those that wait for longer than ageing allows."""
    q = run.queue
    found = NONE
    for i in range(q.counts[SHAPES]):
        s = q.shapes[i]
        for place in range(q.begins[s], q.begins[s] + q.active_groups[s]):
            g = q.active[place]
            if time - q.time[q.first[g]] <= q.limits[AGEING]:
                continue
            if found != NONE and q.priority[q.first[g]] < q.priority[q.first[found]]:
                continue
            if found == NONE or q.priority[q.first[g]] > q.priority[q.first[found]] or q.first[g] < q.first[found]:
                found = g
    return found


@called_kernel
def _best_group(arrivals: Arrivals, run: Run, time: float) -> int:
    """Return the group whose first pod goes next, NONE if nobody waits."""
    q, best = run.queue, NONE
    free, waiting, running = _free_share(run), run.cursor[WAITING_NOW], 0
    if q.ends.shape[0] > 0:
        running = run.cursor[RUNNING]
        idle = free * q.limits[CAPACITY]
        foresee(run.reservation, _running(arrivals, run), running, q.size, idle, q.ends, q.freed, time)
    for i in range(q.counts[SHAPES]):
        s = q.shapes[i]
        for place in range(q.begins[s], q.begins[s] + q.active_groups[s]):
            g = q.active[place]
            delay = delay_of(q, q.first[g], time, free, running)
            set_score(q, g, score(q, q.first[g], time, free, waiting, delay))
            if best == NONE or goes_before(q, g, best):
                best = g
    return best


@inlined_kernel
def own_reservation(run: Run, g: int) -> int:
    """Return the earliest reservation of a waiting group; NONE: it has none, or the pod arrives just now."""
    return NONE if g == NONE or run.reservation.held.counts[ROWS] == 0 else reservation_of(run.reservation, g)


@inlined_kernel
def _seconds(run: Run, leader: int, own: int) -> float:
    """Return the estimate of a pod, as it was when its reservation was made."""
    return estimate(run.queue, leader) if own == NONE else run.reservation.held.times[own, SECONDS]


@inlined_kernel
def next_head(arrivals: Arrivals, run: Run, time: float) -> None:
    """Choose the pod that nobody may delay: the next one, or where anybody may overtake one that is overdue, if any.

    The next one stays so until it starts; of those that are overdue it is the first one now.
    """
    cursor, settings = run.cursor, run.queue.settings
    if settings[OVERTAKING] == ANYBODY and run.queue.limits[AGEING] < np.inf:
        before = cursor[HEAD]
        cursor[HEAD] = _first_overdue(run, time)
        if before != NONE and cursor[HEAD] != before:
            cancel(run.reservation)
    elif settings[OVERTAKING] != ANYBODY and settings[OVERTAKING] != CONSERVATIVE and cursor[HEAD] == NONE:
        cursor[HEAD] = _best_group(arrivals, run, time)


@called_kernel
def _may_start_now(nodes: NodeArrays, classes: ClassArrays, arrivals: Arrivals, run: Run, g: int, time: float) -> bool:
    """Return whether the first pod of a group may start on a node of which more is free than at the last pass.

    Those are the node that a pod left last and the nodes of reservations that ended. On others it was refused before,
    and time alone changes that only for a pod whose reservation was missed.
    """
    res, own = run.reservation, own_reservation(run, g)
    if is_newly_missed(res, own, time):
        return True
    leader = run.queue.first[g]
    c, priority, end = arrivals.class_id[leader], arrivals.priority[leader], time + _seconds(run, leader, own)
    running, rank = _running(arrivals, run), rank_of(res, own, time)
    for i in range(-1, res.held.counts[RELEASED]):
        n = run.cursor[FREED] if i < 0 else res.held.released[i]
        if fits(nodes, classes, c, n):
            if not is_held(res, n):
                return True
            if copies_throughout(nodes, classes, running, res, c, n, time, end, priority, own, rank, True, time) > 0:
                return True
    return False


@inlined_kernel
def may_overtake(run: Run, arrival: int, time: float) -> bool:
    """Return whether a pod may start anywhere, since by its estimate it ends before the reservation begins."""
    if run.reservation.state[MISSED]:
        return False
    end = time + estimate(run.queue, arrival)
    begins = run.reservation.begins[0]
    return bool(end < begins if run.queue.settings[OVERTAKING] == ENDING_BEFORE else end <= begins)


@inlined_kernel
def _fits_freed_nodes(nodes: NodeArrays, classes: ClassArrays, run: Run, c: int) -> bool:
    """Return whether a pod fits on the node that a pod left last, or on one that was reserved until now."""
    res = run.reservation
    return bool(
        fits(nodes, classes, c, run.cursor[FREED]) or fits_any(nodes, classes, c, res.opened, res.state[OPENED])
    )


@inlined_kernel
def _may_backfill(nodes: NodeArrays, classes: ClassArrays, arrivals: Arrivals, run: Run, a: int) -> bool:
    """Return whether pods of the shape of `a` may start if they are expected to end in time, where others may not."""
    res = run.reservation
    if not res.state[MADE] or run.cursor[HEAD] == NONE:
        return False
    everywhere = run.queue.settings[OVERTAKING] == ENDING_BEFORE or arrivals.members[a] > 1
    return bool(everywhere or fits_any(nodes, classes, arrivals.class_id[a], res.slots, res.state[NODES]))


@inlined_kernel
def _update_score(run: Run, g: int, time: float) -> None:
    """Set the score by which a group is tried."""
    q, a = run.queue, run.queue.first[g]
    # Whoever overtakes with ENDING_BEFORE goes by age, as in the protocol that it is for.
    by_age = q.settings[OVERTAKING] == ENDING_BEFORE
    set_score(q, g, q.time[a] if by_age else score(q, a, time, _free_share(run), run.cursor[WAITING_NOW], 0.0))


@inlined_kernel
def _is_shape_skipped(run: Run, s: int) -> bool:
    """Return whether no pod of a shape is tried any more in this pass: by CONSERVATIVE all are, for reservations."""
    return bool(run.infeasible_in_pass[s] == run.cursor[PASSES] and run.queue.settings[OVERTAKING] != CONSERVATIVE)


@inlined_kernel
def _next_group(run: Run, s: int, time: float) -> int:
    """Return the next group of a shape to try in this pass, NONE if there is none."""
    q, best = run.queue, NONE
    if _is_shape_skipped(run, s):
        return NONE
    refused = run.infeasible_beside[s] == run.cursor[PASSES]
    for place in range(q.begins[s], q.begins[s] + q.active_groups[s]):
        g = q.active[place]
        if q.may_start[g] != run.cursor[PASSES] or (refused and not may_overtake(run, q.first[g], time)):
            continue
        if best == NONE or goes_before(q, g, best):
            best = g
    return best


@called_kernel
def collect(
    nodes: NodeArrays,
    classes: ClassArrays,
    terms: InterPodArrays,
    arrivals: Arrivals,
    run: Run,
    time: float,
    every: bool,
) -> None:
    """Find the groups that may start now, and make a heap of the next one of each shape.

    Unless `every`, those whose pods do not fit on the node that a pod just left, nor on nodes that were reserved until
    now, fit nowhere, as before, or on reserved nodes alone. These are open to pods that are expected to end in time: by
    an estimate from history that may be only now.
    """
    q = run.queue
    is_conservative = q.settings[OVERTAKING] == CONSERVATIVE
    count = 0
    for i in range(q.counts[SHAPES]):
        s = q.shapes[i]
        if _is_shape_skipped(run, s):
            continue
        # What holds for one pod of the shape holds for all.
        a = q.first[q.active[q.begins[s]]]
        c = arrivals.class_id[a]
        is_new = every or is_conservative or _fits_freed_nodes(nodes, classes, run, c)
        in_time = not is_new and _may_backfill(nodes, classes, arrivals, run, a)
        if not is_new and not in_time and not may_have_inter_pod_rules(terms, c):
            continue
        best = NONE
        for place in range(q.begins[s], q.begins[s] + q.active_groups[s]):
            g = q.active[place]
            if g == run.cursor[HEAD] and q.settings[OVERTAKING] != ANYBODY:
                continue
            a = q.first[g]
            if is_conservative and not every:
                starts = _may_start_now(nodes, classes, arrivals, run, g, time)
            else:
                starts = is_new or (in_time and may_overtake(run, a, time))
            if not starts and not has_inter_pod_rules(terms, c, arrivals.labels_id[a]):
                continue
            q.may_start[g] = run.cursor[PASSES]
            _update_score(run, g, time)
            if best == NONE or goes_before(q, g, best):
                best = g
        if best != NONE:
            q.heap[count] = best
            count += 1
    q.counts[CANDIDATES] = count
    if is_conservative:
        run.reservation.held.counts[RELEASED] = 0
        run.reservation.held.passed[0] = time
    heapify(q)


@inlined_kernel
def _replace_candidate(run: Run, time: float) -> None:
    """Let the first candidate be followed by the next one of its shape, if there is one."""
    q = run.queue
    following = _next_group(run, q.shape[q.heap[0]], time)
    if following != NONE:
        q.heap[0] = following
        sink(q, 0)
    else:
        drop_candidate(q)


@inlined_kernel
def first_candidate(cluster: DecisionState, arrivals: Arrivals, run: Run, time: float, every: bool) -> int:
    """Return the group whose first pod is tried next, NONE: the pass is over.

    `every`: as for `collect`. Others that fit no more where pods left, since other candidates took that, are left out.
    """
    q = run.queue
    while q.counts[CANDIDATES] > 0:
        g = q.heap[0]
        a, s = q.first[g], q.shape[g]
        c = arrivals.class_id[a]
        if every or run.cursor[PLACED] > 0 or q.settings[OVERTAKING] == CONSERVATIVE:
            return int(g)
        if run.infeasible_beside[s] == run.cursor[PASSES]:
            return int(g)
        if has_inter_pod_rules(cluster.terms, c, arrivals.labels_id[a]):
            return int(g)
        if _fits_freed_nodes(cluster.nodes, cluster.classes, run, c):
            return int(g)
        if _may_backfill(cluster.nodes, cluster.classes, arrivals, run, a):
            run.infeasible_beside[s] = run.cursor[PASSES]
        else:
            run.infeasible_in_pass[s] = run.cursor[PASSES]
        _replace_candidate(run, time)
    run.reservation.state[OPENED] = 0
    return NONE


@inlined_kernel
def end_attempt(run: Run, g: int, bound: bool, alone: bool, time: float) -> None:
    """Update the queue after an attempt with the first pod of a group, the head's or the first candidate's.

    If a pod depends on itself and the nodes `alone`, not on other pods, no further pod of its shape is tried in this
    pass: binding pods in between cannot have freed resources.
    """
    q, cursor, s = run.queue, run.cursor, run.queue.shape[g]
    # Where anybody may overtake, the pass begins again once an overdue pod has started: there may be another one.
    is_head = cursor[PASS] == HEAD_FIRST or (bound and g == cursor[HEAD])
    if bound and q.settings[OVERTAKING] == CONSERVATIVE:
        note_leaving(run.reservation, g)
    if bound:
        dequeue(q, g)
        if is_head:
            cursor[HEAD] = NONE
            cancel(run.reservation)
    elif alone:
        run.infeasible_in_pass[s] = cursor[PASSES]
    if is_head:
        # With a head that goes on waiting, or with none, it is the others' turn.
        cursor[PASS] = HEAD_FIRST if bound else NO_PASS if q.settings[OVERTAKING] == NO_ONE else COLLECT
        return
    if bound and q.first[g] != NONE:
        _update_score(run, g, time)
    else:
        q.may_start[g] = NONE
    _replace_candidate(run, time)


@inlined_kernel
def update_reservation(cluster: DecisionState, arrivals: Arrivals, run: Run, time: float) -> None:
    """Make the head's reservation if there is none, or a second one if the head should have started by now."""
    res = run.reservation
    if res.state[MADE] and (res.state[MISSED] or time <= res.begins[0]):
        return
    head = run.queue.first[run.cursor[HEAD]]
    c, members = arrivals.class_id[head], max(arrivals.together[head], 1)
    running = _running(arrivals, run)
    reserve(cluster.nodes, cluster.classes, running, run.cursor[RUNNING], res, c, members, time)


# ---------------------------------------------------------------------------------------------------------------------


@called_kernel
def close_nodes(cluster: DecisionState, arrivals: Arrivals, run: Run, leader: int, own: int, time: float) -> int:
    """Close the nodes of `mask` on which a pod, of the gang of `leader`, would delay reserved pods.

    Return how many stay open, and -1 - that number if some were closed. `own` is its group's reservation, NOTHING: it
    has none.
    """
    c, priority, count, closed = arrivals.class_id[leader], arrivals.priority[leader], 0, False
    end, running = time + _seconds(run, leader, own), _running(arrivals, run)
    rank = rank_of(run.reservation, own, time)
    for n in range(run.mask.shape[0]):
        if run.mask[n] and is_held(run.reservation, n):
            copies = copies_throughout(
                cluster.nodes,
                cluster.classes,
                running,
                run.reservation,
                c,
                n,
                time,
                end,
                priority,
                own,
                rank,
                True,
                time,
            )
            run.mask[n] = copies > 0
            closed = closed or copies == 0
        count += run.mask[n]
    return int(-1 - count if closed else count)


@called_kernel
def devices_beside(
    cluster: DecisionState, arrivals: Arrivals, run: Run, leader: int, own: int, n: int, devices: int, time: float
) -> int:
    """Return the devices for a pod, of the gang of `leader`, on a node where it delays nobody: those given if they do.

    `own` is its group's reservation, NOTHING: it has none.
    """
    c, priority = arrivals.class_id[leader], arrivals.priority[leader]
    end, running = time + _seconds(run, leader, own), _running(arrivals, run)
    rank = rank_of(run.reservation, own, time)
    return int(
        devices_throughout(
            cluster.nodes, cluster.classes, running, run.reservation, c, n, end, priority, own, rank, devices, time
        )
    )


@called_kernel
def hold_first(cluster: DecisionState, arrivals: Arrivals, run: Run, g: int, time: float) -> None:
    """Make a reservation for the next pod of a group that lacks one, if there may be one more."""
    res = run.reservation
    if not may_hold(res, g):
        return
    a = run.queue.first[g]
    c, members, priority = arrivals.class_id[a], max(arrivals.together[a], 1), arrivals.priority[a]
    running, count, seconds = _running(arrivals, run), run.cursor[RUNNING], estimate(run.queue, a)
    hold(cluster.nodes, cluster.classes, running, count, res, g, c, members, seconds, priority, np.inf, time)
    res.held.lacking[g] -= 1
    res.held.counts[LACKING] -= 1


@called_kernel
def end_conservative_pass(cluster: DecisionState, arrivals: Arrivals, run: Run, time: float) -> bool:
    """Make the reservations that waiting pods lack, in order; return whether the pods have to be tried again first."""
    q, res = run.queue, run.reservation
    renew_missed(cluster.nodes, cluster.classes, _running(arrivals, run), run.cursor[RUNNING], res, time)
    # A pod that started or has a second reservation has given up one: others may start there now.
    if res.held.counts[RELEASED] > 0 and q.counts[GROUPS] > 0:
        return True
    if res.held.counts[LACKING] == 0 or res.held.counts[ROWS] >= res.held.counts[MOST]:
        return False
    for i in range(q.counts[SHAPES]):
        s = q.shapes[i]
        for place in range(q.begins[s], q.begins[s] + q.active_groups[s]):
            _update_score(run, q.active[place], time)
    while True:
        best = NONE
        for i in range(q.counts[SHAPES]):
            s = q.shapes[i]
            for place in range(q.begins[s], q.begins[s] + q.active_groups[s]):
                g = q.active[place]
                if may_hold(res, g) and (best == NONE or goes_before(q, g, best)):
                    best = g
        if best == NONE:
            return False
        hold_first(cluster, arrivals, run, best, time)
