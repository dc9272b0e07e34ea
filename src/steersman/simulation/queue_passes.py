"""Passes over the waiting pods after one has left: who is tried, in which order, and who may not be delayed."""

from __future__ import annotations

import numpy as np

from steersman.cluster.arrays import ClassArrays, NodeArrays, fits
from steersman.cluster.constraints.inter_pod import InterPodArrays, has_inter_pod_rules, may_have_inter_pod_rules
from steersman.cluster.model import GPU_MILLI
from steersman.core.compiled import called_kernel, inlined_kernel
from steersman.orders.queue import (
    AGEING,
    ANYBODY,
    BY_GPU,
    CANDIDATES,
    CAPACITY,
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
    MADE,
    MISSED,
    NODES,
    OPENED,
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
    elif settings[OVERTAKING] != ANYBODY and cursor[HEAD] == NONE:
        cursor[HEAD] = _best_group(arrivals, run, time)


@inlined_kernel
def may_overtake(run: Run, arrival: int, time: float) -> bool:
    """Return whether a pod may start anywhere, since by its estimate it ends before the reservation begins."""
    if run.reservation.state[MISSED]:
        return False
    return bool(time + estimate(run.queue, arrival) <= run.reservation.begins[0])


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
    return bool(arrivals.members[a] > 1 or fits_any(nodes, classes, arrivals.class_id[a], res.slots, res.state[NODES]))


@inlined_kernel
def _update_score(run: Run, g: int, time: float) -> None:
    q, a = run.queue, run.queue.first[g]
    set_score(q, g, score(q, a, time, _free_share(run), run.cursor[WAITING_NOW], 0.0))


@inlined_kernel
def _next_group(run: Run, s: int, time: float) -> int:
    """Return the next group of a shape to try in this pass, NONE if there is none."""
    q, best = run.queue, NONE
    if run.infeasible_in_pass[s] == run.cursor[PASSES]:
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
    count = 0
    for i in range(q.counts[SHAPES]):
        s = q.shapes[i]
        if run.infeasible_in_pass[s] == run.cursor[PASSES]:
            continue
        # What holds for one pod of the shape holds for all.
        a = q.first[q.active[q.begins[s]]]
        c = arrivals.class_id[a]
        is_new = every or _fits_freed_nodes(nodes, classes, run, c)
        in_time = not is_new and _may_backfill(nodes, classes, arrivals, run, a)
        if not is_new and not in_time and not may_have_inter_pod_rules(terms, c):
            continue
        best = NONE
        for place in range(q.begins[s], q.begins[s] + q.active_groups[s]):
            g = q.active[place]
            if g == run.cursor[HEAD] and q.settings[OVERTAKING] != ANYBODY:
                continue
            a = q.first[g]
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
        if every or run.cursor[PLACED] > 0:
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
