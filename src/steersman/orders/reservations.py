"""A reservation for the pod that goes next but fits nowhere yet, so that pods which overtake it never delay it.

It begins when the pod, or every pod of its gang, would fit if running pods ended as estimated and nothing else
started. Whoever overtakes ends before that by its own estimate, goes to another node, or leaves room for the reserved
pods beside it. Source: EASY backfilling of Lifka, "The ANL/IBM SP Scheduling System" (JSSPP 1995), with nodes instead
of a pool.

If pods run for longer than estimated, and the reservation is missed, a second one follows. On its nodes nobody starts
any more but beside it, whatever the estimates: the pod waits no longer than for what runs there by then.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import ClassArrays, NodeArrays, counts_gpus, fits, place, remove
from steersman.core.compiled import called_kernel, inlined_kernel

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MANY = 1 << 30

# Columns of `ReservationArrays.state`: whether there is a reservation, its number of nodes, whether one for the same
# pod was missed, because pods ran for longer than estimated, and the number of nodes in `opened`.
MADE, NODES, MISSED, OPENED = range(4)


class ReservationArrays(NamedTuple):
    """A reservation on a cluster of N nodes with R resources and G devices, among A arrivals.

    Attributes:
        state: [4] see MADE...
        begins: [1] seconds, inf: nobody knows when.
        expected: [A] when a running pod ends by its estimate.
        ends: [A] scratch: the running pods, a heap by expected end.
        pods: [N] reserved pods on a node, 0: none.
        slots: [N] the reserved nodes, `NODES` of them.
        opened: [N] nodes of reservations that ended since waiting pods were last tried, `OPENED` of them.
        free: [N, R] of the reserved nodes: what is left of them when the reservation begins, without the reserved pods.
        gpu_free: [N, G] the same of devices.
    """

    state: Ints
    begins: Floats
    expected: Floats
    ends: Ints
    pods: Ints
    slots: Ints
    opened: Ints
    free: Ints
    gpu_free: Ints


class RunningArrivals(NamedTuple):
    """Pods that run: the first `count` of `heap`, with what the event loop knows of each arrival; [A] each."""

    heap: Ints
    class_id: Ints
    slot: Ints
    devices: Ints
    started: Floats


def no_reservations(arrivals: int, nodes: NodeArrays) -> ReservationArrays:
    """Return the arrays of a run in which reservations may be made, if `arrivals` is not 0."""
    count = len(nodes.free) if arrivals else 0
    return ReservationArrays(
        state=np.zeros(4, dtype=np.int64),
        begins=np.full(1, np.inf),
        expected=np.full(arrivals, np.inf),
        ends=np.zeros(arrivals, dtype=np.int64),
        pods=np.zeros(count, dtype=np.int64),
        slots=np.zeros(count, dtype=np.int64),
        opened=np.zeros(count, dtype=np.int64),
        free=np.zeros((count, nodes.free.shape[1]), dtype=np.int64),
        gpu_free=np.zeros((count, nodes.gpu_free.shape[1]), dtype=np.int64),
    )


@called_kernel
def copies_on(nodes: NodeArrays, classes: ClassArrays, c: int, n: int) -> int:
    """Return how many pods of a class fit on a node now."""
    if not fits(nodes, classes, c, n):
        return 0
    count = MANY
    for r in range(classes.request.shape[1]):
        if classes.request[c, r] > 0:
            count = min(count, nodes.free[n, r] // classes.request[c, r])
    requested, milli = classes.gpu_count[c], classes.gpu_milli[c]
    if requested > 0 and not counts_gpus(nodes, classes, c, n):
        shares = 0
        for d in range(nodes.gpu_count[n]):
            shares += max(nodes.gpu_free[n, d], 0) // milli
        # Exact for whole devices and for shares of one.
        count = min(count, shares // requested)
    return int(max(count, 1))


@called_kernel
def fits_together(
    nodes: NodeArrays, classes: ClassArrays, res: ReservationArrays, c: int, members: int, closed: bool
) -> bool:
    """Return whether so many pods of a class fit on the nodes now, if other pods do not matter to them.

    `closed`: reserved nodes are closed to them.
    """
    for n in range(nodes.gpu_count.shape[0]):
        if closed and res.pods[n] > 0:
            continue
        members -= copies_on(nodes, classes, c, n)
        if members <= 0:
            return True
    return False


@inlined_kernel
def expected_end(res: ReservationArrays, running: RunningArrivals, a: int, now: float) -> float:
    """Return when a running pod ends by its estimate.

    One that has outrun its estimate is expected to run for as long again as it has so far.
    """
    if res.expected[a] >= now:
        return float(res.expected[a])
    return float(now + max(now - running.started[a], 1.0))


@inlined_kernel
def _sink(res: ReservationArrays, running: RunningArrivals, place: int, size: int, now: float) -> None:
    a = res.ends[place]
    end = expected_end(res, running, a, now)
    while 2 * place + 1 < size:
        child = 2 * place + 1
        below = expected_end(res, running, res.ends[child], now)
        if child + 1 < size:
            right = expected_end(res, running, res.ends[child + 1], now)
            if right < below:
                child, below = child + 1, right
        if not below < end:
            break
        res.ends[place] = res.ends[child]
        place = child
    res.ends[place] = a


@inlined_kernel
def heap_ends(res: ReservationArrays, running: RunningArrivals, count: int, now: float) -> None:
    """Make `ends` a heap of all pods that run and will end, by their expected ends."""
    for i in range(count):
        res.ends[i] = running.heap[i]
    for i in range(count // 2 - 1, -1, -1):
        _sink(res, running, i, count, now)


@inlined_kernel
def pop_end(res: ReservationArrays, running: RunningArrivals, left: int, now: float) -> int:
    """Return the pod that ends first of `left` ones, and move it behind the heap of the others."""
    a = res.ends[0]
    res.ends[0] = res.ends[left - 1]
    res.ends[left - 1] = a
    if left > 1:
        _sink(res, running, 0, left - 1, now)
    return int(a)


@called_kernel
def foresee(
    res: ReservationArrays,
    running: RunningArrivals,
    count: int,
    size: Floats,
    free: float,
    ends: Floats,
    freed: Floats,
    now: float,
) -> None:
    """Write when the `count` (R) running pods are expected to end to `res.ends`, and what will be free by then.

    `size` [A] is what each pod requests, and `free` what is free now, in one unit. The first R of `ends` [A] and of
    `freed` [A] are the expected ends, ascending, and what is free after each of them.
    """
    heap_ends(res, running, count, now)
    for i in range(count):
        a = pop_end(res, running, count - i, now)
        free += size[a]
        ends[i], freed[i] = expected_end(res, running, a, now), free


@called_kernel
def reserve(
    nodes: NodeArrays,
    classes: ClassArrays,
    running: RunningArrivals,
    count: int,
    res: ReservationArrays,
    c: int,
    members: int,
    now: float,
) -> None:
    """Make a reservation for `members` pods of class `c`, none of which may fit now if it is one.

    `count` pods run and will end. `nodes` are changed and changed back; the reservation is written to `res`.
    """
    missed = res.state[MADE]
    cancel(res)
    res.state[MADE], res.state[MISSED] = 1, missed
    res.begins[0] = np.inf
    together = 0
    if members > 1:
        for n in range(nodes.gpu_count.shape[0]):
            together += copies_on(nodes, classes, c, n)
    heap_ends(res, running, count, now)
    left = count
    while left > 0:
        a = pop_end(res, running, left, now)
        left -= 1
        n = running.slot[a]
        before = copies_on(nodes, classes, c, n) if members > 1 else 0
        remove(nodes, classes, running.class_id[a], n, running.devices[a])
        together += copies_on(nodes, classes, c, n) - before
        if together >= members:
            res.begins[0] = expected_end(res, running, a, now)
            # What ends at the same moment leaves room for others.
            while left > 0 and expected_end(res, running, res.ends[0], now) == res.begins[0]:
                a = pop_end(res, running, left, now)
                left -= 1
                remove(nodes, classes, running.class_id[a], running.slot[a], running.devices[a])
            _take_nodes(nodes, classes, res, c, members, n)
            break
    for i in range(left, count):
        a = res.ends[i]
        place(nodes, classes, running.class_id[a], running.slot[a], running.devices[a])


@inlined_kernel
def _take_nodes(
    nodes: NodeArrays, classes: ClassArrays, res: ReservationArrays, c: int, members: int, first: int
) -> None:
    """Reserve nodes for all members, `first` before others, with what is left of the nodes now."""
    for k in range(-1, nodes.gpu_count.shape[0]):
        n = first if k < 0 else k
        if k == first:
            continue
        taken = min(copies_on(nodes, classes, c, n), members)
        if taken > 0:
            res.pods[n] = taken
            res.slots[res.state[NODES]] = n
            res.state[NODES] += 1
            for r in range(nodes.free.shape[1]):
                res.free[n, r] = nodes.free[n, r]
            for d in range(nodes.gpu_free.shape[1]):
                res.gpu_free[n, d] = nodes.gpu_free[n, d]
        members -= taken
        if members == 0:
            return


@inlined_kernel
def _open(res: ReservationArrays, n: int) -> None:
    for i in range(res.state[OPENED]):
        if res.opened[i] == n:
            return
    res.opened[res.state[OPENED]] = n
    res.state[OPENED] += 1


@called_kernel
def cancel(res: ReservationArrays) -> None:
    """End the reservation."""
    for i in range(res.state[NODES]):
        res.pods[res.slots[i]] = 0
        _open(res, res.slots[i])
    res.state[NODES] = res.state[MADE] = res.state[MISSED] = 0


@inlined_kernel
def fits_any(nodes: NodeArrays, classes: ClassArrays, c: int, slots: Ints, count: int) -> bool:
    """Return whether a pod of a class fits on any of the first `count` nodes of `slots` now."""
    found = False
    for i in range(count):
        found = found or fits(nodes, classes, c, slots[i])
    return found


@inlined_kernel
def _swap(nodes: NodeArrays, res: ReservationArrays, n: int) -> None:
    for r in range(nodes.free.shape[1]):
        nodes.free[n, r], res.free[n, r] = res.free[n, r], nodes.free[n, r]
    for d in range(nodes.gpu_free.shape[1]):
        nodes.gpu_free[n, d], res.gpu_free[n, d] = res.gpu_free[n, d], nodes.gpu_free[n, d]


@called_kernel
def leaves_room(
    nodes: NodeArrays, classes: ClassArrays, res: ReservationArrays, c: int, n: int, other: int, devices: int
) -> bool:
    """Count a pod of class `other` on reserved node `n` for good, if the reserved pods of class `c` still fit there."""
    _swap(nodes, res, n)
    place(nodes, classes, other, n, devices)
    enough = copies_on(nodes, classes, c, n) >= res.pods[n]
    remove(nodes, classes, other, n, devices)
    _swap(nodes, res, n)
    if not enough:
        return False
    # Not `place`, which counts further things of the node itself.
    for r in range(classes.request.shape[1]):
        res.free[n, r] -= classes.request[other, r]
    if counts_gpus(nodes, classes, other, n):
        res.free[n, classes.gpu_column[other]] -= classes.gpu_count[other]
    for d in range(nodes.gpu_count[n]):
        if (devices >> d) & 1:
            res.gpu_free[n, d] -= classes.gpu_milli[other]
    return True
