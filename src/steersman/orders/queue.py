"""The waiting pods of a simulation, compiled: groups of equal pods, the order of the groups, and estimates.

Pods of a group are alike for every order and every node: of the same priority, class, size and estimate. Among them the
oldest goes first, so that an order costs as much as there are groups, not pods. Groups of the same shape (class and
size of a gang) are alike for every node: what fits nowhere is found once for all of them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.core.compiled import called_kernel, inlined_kernel
from steersman.orders.estimates import MEDIAN, OWNER_REQUESTS, SPREAD, RunTimeHistory, note_run_time, update_estimate
from steersman.orders.scores import EXTERNAL, FAIR, GIVEN, LEARNED, learned_score, simple_score

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NOBODY = -1

# Columns of `QueueArrays.settings`: kind of score, who may overtake, whether estimates matter (1, else 0).
SCORE, OVERTAKING, ESTIMATES = range(3)
# Who may overtake a pod that fits nowhere: everybody; nobody; with a reservation for it, those that end before it
# begins or leave room for it; with a reservation, those that end before it begins; with reservations for every waiting
# pod, those that delay none of them.
ANYBODY, NO_ONE, EASY = range(3)
# Columns of `QueueArrays.limits`: seconds after which a waiting pod goes before all others of its priority, the size of
# the cluster, and whether that is in GPUs (1), else in CPUs (0).
AGEING, CAPACITY, BY_GPU = range(3)
# Columns of `QueueArrays.counts`: groups with waiting pods, groups in the heap, whether a score was not a number,
# shapes with waiting pods.
GROUPS, CANDIDATES, INVALID, SHAPES = range(4)


class QueueArrays(NamedTuple):
    """A queue of A arrivals in G groups of S shapes.

    Attributes:
        settings: [3] see SCORE, OVERTAKING and ESTIMATES.
        limits: [3] see AGEING, CAPACITY and BY_GPU.
        weights: [W] of a learned order.
        counts: [4] see GROUPS...
        given: [A] scores that are known at the arrival.
        size: [A] what a pod requests, in the unit of CAPACITY.
        total: [A] the same of its whole gang, of the first pod of one.
        account: [A] number of its namespace.
        shares: [A, 3] shares of the cluster's GPUs, CPUs and memory that a pod requests; [0, 3] unless `fair` asks.
        usage: [U, 3] the same of the running pods of a namespace.
        estimated: [A] estimated seconds when it was bound, NaN: not bound, or estimates do not matter.
        time: [A] when it arrived.
        priority: [A] pods of higher priority go first.
        group: [A] number of the group.
        following: [A] the next waiting pod of the group, -1: none.
        first, last: [G] oldest and newest waiting pod of a group, -1: none.
        shape: [G] the shape of a group.
        begins: [S] where the groups of a shape begin in `active`.
        active_groups: [S] number of groups of a shape with waiting pods.
        shapes: [S] the shapes with waiting pods, in any order, `counts[SHAPES]` of them.
        shape_place: [S] where a shape is in `shapes`.
        active: [G] for each shape the groups with waiting pods, in any order.
        place: [G] where a group is in `active`.
        heap: [S] groups that are candidates, the next one of each shape; a binary heap by priority, score and age.
        may_start: [G] the pass in which a group was last found to be a candidate.
        scores: [G] scores of the first pods of groups.
        stated: [A] stated estimates in seconds, NaN: none.
        keys: [A, LEVELS] groups of the history.
        history: run times of what ended.
        ends: [A] scratch: when running pods are expected to end, ascending; [0] unless a learned order commits.
        freed: [A] scratch: what will be free by then, in the unit of CAPACITY.
    """

    settings: Ints
    limits: Floats
    weights: Floats
    counts: Ints
    given: Floats
    size: Floats
    total: Floats
    account: Ints
    shares: Floats
    usage: Floats
    estimated: Floats
    time: Floats
    priority: Ints
    group: Ints
    following: Ints
    first: Ints
    last: Ints
    shape: Ints
    begins: Ints
    active_groups: Ints
    shapes: Ints
    shape_place: Ints
    active: Ints
    place: Ints
    heap: Ints
    may_start: Ints
    scores: Floats
    stated: Floats
    keys: Ints
    history: RunTimeHistory
    ends: Floats
    freed: Floats


@inlined_kernel
def estimate(q: QueueArrays, a: int) -> float:
    """Return the estimated run time of a pod in seconds: as stated, else from the history."""
    if not math.isnan(q.stated[a]):
        return float(q.stated[a])
    k = q.keys[a, OWNER_REQUESTS]
    if math.isnan(q.history.estimates[k, MEDIAN]):
        update_estimate(q.history, q.keys[a])
    return float(q.history.estimates[k, MEDIAN])


@inlined_kernel
def spread(q: QueueArrays, a: int) -> float:
    """Return the spread of the estimate, see `estimates`; 0 where it was stated."""
    if not math.isnan(q.stated[a]):
        return 0.0
    return float(q.history.estimates[q.keys[a, OWNER_REQUESTS], SPREAD])


@inlined_kernel
def _use(q: QueueArrays, a: int, sign: float) -> None:
    if q.shares.shape[0] > 0:
        for r in range(q.shares.shape[1]):
            q.usage[q.account[a], r] += sign * q.shares[a, r]


@inlined_kernel
def note_start(q: QueueArrays, a: int, leader: int) -> None:
    """Count a pod that starts, of the gang whose first pod is `leader`."""
    _use(q, a, 1.0)
    if q.settings[ESTIMATES]:
        q.estimated[a] = estimate(q, leader)


@inlined_kernel
def note_end(q: QueueArrays, a: int, seconds: float) -> None:
    """Count a pod that ended after so many seconds, and learn from it if estimates come from the history."""
    _use(q, a, -1.0)
    if q.history.counts.shape[0] > 0:
        note_run_time(q.history, q.keys[a], seconds)


@inlined_kernel
def delay_of(q: QueueArrays, a: int, now: float, free: float, running: int) -> float:
    """Return in how many seconds as much as a pod requests is expected to be free, wherever; by `ends` and `freed`."""
    size = q.total[a] - 1e-9 * q.limits[CAPACITY]
    if running == 0 or size <= free * q.limits[CAPACITY]:
        return 0.0
    low, high = 0, running - 1
    while low < high:
        middle = (low + high) // 2
        if q.freed[middle] < size:
            low = middle + 1
        else:
            high = middle
    return float(max(q.ends[low] - now, 0.0))


@inlined_kernel
def score(q: QueueArrays, a: int, now: float, free: float, waiting: int, delay: float) -> float:
    """Return the score of waiting pod `a`; -inf once it has waited for longer than the limit of ageing.

    `free`: share of the cluster; `waiting`: pods that wait; `delay`: seconds until as much as the pod requests is
    expected to be free, see `delay_of`.
    """
    if now - q.time[a] > q.limits[AGEING]:
        return -math.inf
    # An environment's agent chooses who goes next; others overtake by age.
    kind = q.settings[SCORE]
    if kind in (GIVEN, EXTERNAL):
        return float(q.given[a])
    if kind == FAIR:
        row = q.usage[q.account[a]]
        return float(max(row[0], row[1], row[2]))
    w, r = now - q.time[a], max(estimate(q, a), 1.0)
    if kind != LEARNED:
        return simple_score(kind, r, q.total[a], w, q.time[a])
    share = min(q.total[a] / q.limits[CAPACITY], 1.0)
    return learned_score(q.weights, r, spread(q, a), share, w, free, float(waiting), delay)


@inlined_kernel
def enqueue(q: QueueArrays, a: int) -> None:
    """Append a pod to its group."""
    g = q.group[a]
    q.following[a] = NOBODY
    if q.first[g] == NOBODY:
        q.first[g] = a
        s = q.shape[g]
        if q.active_groups[s] == 0:
            q.shape_place[s] = q.counts[SHAPES]
            q.shapes[q.counts[SHAPES]] = s
            q.counts[SHAPES] += 1
        q.place[g] = q.begins[s] + q.active_groups[s]
        q.active[q.place[g]] = g
        q.active_groups[s] += 1
        q.counts[GROUPS] += 1
    else:
        q.following[q.last[g]] = a
    q.last[g] = a


@inlined_kernel
def dequeue(q: QueueArrays, g: int) -> None:
    """Remove the first pod of a group."""
    q.first[g] = q.following[q.first[g]]
    if q.first[g] != NOBODY:
        return
    q.counts[GROUPS] -= 1
    s = q.shape[g]
    q.active_groups[s] -= 1
    # The last group of the shape takes its place.
    moved = q.active[q.begins[s] + q.active_groups[s]]
    q.active[q.place[g]] = moved
    q.place[moved] = q.place[g]
    if q.active_groups[s] == 0:
        q.counts[SHAPES] -= 1
        other = q.shapes[q.counts[SHAPES]]
        q.shapes[q.shape_place[s]] = other
        q.shape_place[other] = q.shape_place[s]


@inlined_kernel
def goes_before(q: QueueArrays, g: int, h: int) -> bool:
    """Return whether the first pod of group `g` goes before that of group `h`: by priority, score and age."""
    a, b = q.first[g], q.first[h]
    if q.priority[a] != q.priority[b]:
        return bool(q.priority[a] > q.priority[b])
    if q.scores[g] != q.scores[h]:
        return bool(q.scores[g] < q.scores[h])
    return bool(a < b)


@inlined_kernel
def set_score(q: QueueArrays, g: int, value: float) -> None:
    """Set the score of a group's first pod. One that is not a number is noted, and goes last."""
    if math.isnan(value):
        q.counts[INVALID] = 1
        value = math.inf
    q.scores[g] = value


@called_kernel
def sink(q: QueueArrays, place: int) -> None:
    """Move a group of the heap down to where it belongs."""
    g, size = q.heap[place], q.counts[CANDIDATES]
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and goes_before(q, q.heap[child + 1], q.heap[child]):
            child += 1
        if not goes_before(q, q.heap[child], g):
            break
        q.heap[place] = q.heap[child]
        place = child
    q.heap[place] = g


@inlined_kernel
def heapify(q: QueueArrays) -> None:
    """Make a heap of the candidates."""
    for i in range(q.counts[CANDIDATES] // 2 - 1, -1, -1):
        sink(q, i)


@inlined_kernel
def drop_candidate(q: QueueArrays) -> None:
    """Remove the first candidate from the heap."""
    q.counts[CANDIDATES] -= 1
    if q.counts[CANDIDATES] > 0:
        q.heap[0] = q.heap[q.counts[CANDIDATES]]
        sink(q, 0)
