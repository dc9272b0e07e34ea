"""A lower bound on waits under any order, even one that knows all arrivals, on a cluster that is one node.

The Lagrangian relaxation of time-indexed schedules: GPUs have a price at each moment, and every pod starts where its
weighted wait and the price of what it takes are least. The cost of the pods less the price of all GPUs is a bound for
any prices; see Dyer and Wolsey, "Formulating the single machine sequencing problem with release dates as a mixed
integer program" (Discrete Applied Mathematics 26, 1990). Prices are constant in intervals, and found by subgradients.
"""

from __future__ import annotations

import math

import numba
import numpy as np
import numpy.typing as npt

INTERVALS, STEPS = 400, 600
PATIENCE = 8
"""Steps without a better bound after which they are halved."""

Floats = npt.NDArray[np.float64]


def least_weighted_wait(
    arrival: Floats, duration: Floats, size: Floats, weight: Floats, capacity: float, reached: float, last: float
) -> float:
    """Return a lower bound on the sum of weighted waits.

    Args:
        arrival: [A] seconds.
        duration: [A] seconds that a pod runs, in one piece.
        size: [A] what it takes of the capacity.
        weight: [A] of its wait.
        capacity: of the cluster.
        reached: the sum of weighted waits of any order, which decides how long steps are.
        last: GPUs cost nothing from this time on.
    """
    time = np.linspace(float(arrival.min()), max(last, float(arrival.min()) + 1.0), INTERVALS + 1)
    pods = np.stack([arrival, duration, size, weight])
    price, best, best_price, step, waited = np.zeros(INTERVALS), 0.0, np.zeros(INTERVALS), 1.0, 0
    paid, ramps, taken = np.empty(INTERVALS + 1), np.empty((2, INTERVALS + 2)), np.empty(INTERVALS)
    for _ in range(STEPS):
        bound = _lagrangian_bound(time, price, pods, capacity, paid, ramps, taken)
        if bound > best * (1.0 + 1e-4):
            best, best_price, waited = bound, price, 0
        elif (waited := waited + 1) == PATIENCE:
            price, step, waited = best_price, step / 2.0, 0
            continue
        slope = taken - capacity * np.diff(time)
        slope[(price == 0.0) & (slope < 0.0)] = 0.0
        if not slope.any():
            break
        price = np.maximum(0.0, price + step * max(reached - bound, 0.0) / float(slope @ slope) * slope)
    return max(best, 0.0)


@numba.njit(error_model="numpy", cache=True)
def _paid_by(time: Floats, paid: Floats, moment: float) -> float:
    """Return what one unit of capacity costs from the first time to a moment."""
    last = len(time) - 1
    place = (moment - time[0]) / (time[1] - time[0])
    if place <= 0.0:
        return 0.0
    if place >= last:
        return float(paid[last])
    i = int(place)
    return float(paid[i] + (place - i) * (paid[i + 1] - paid[i]))


@numba.njit(error_model="numpy", cache=True)
def _lagrangian_bound(
    time: Floats, price: Floats, pods: Floats, capacity: float, paid: Floats, ramps: Floats, taken: Floats
) -> float:
    """Return the bound of prices.

    A pod's cost is linear between the times at which it begins or ends where an interval does, so that it is least at
    its arrival or at one of those.

    Args:
        time: [T + 1] where intervals begin, and where the last one ends.
        price: [T] of a unit of capacity for a second.
        pods: [4, A] arrival, duration, size and weight.
        capacity: of the cluster.
        paid: [T + 1] scratch: the price of a unit of capacity from the first time to each.
        ramps: [2, T + 2] scratch: from an interval on, what is taken grows by a line of this height and slope.
        taken: [T] output: what the pods take of the capacity in each interval, in units times seconds.
    """
    count, width = len(price), time[1] - time[0]
    paid[0] = 0.0
    for i in range(count):
        paid[i + 1] = paid[i] + price[i] * width
    ramps[:] = 0.0
    total = -capacity * paid[count]
    for a in range(pods.shape[1]):
        arrival, duration, size, weight = pods[0, a], pods[1, a], pods[2, a], pods[3, a]
        least, start = (
            size * (_paid_by(time, paid, arrival + duration) - _paid_by(time, paid, arrival)),
            arrival,
        )
        for ends in range(2):
            for k in range(count + 1):
                begin = time[k] - ends * duration
                waiting = weight * (begin - arrival)
                if waiting >= least:
                    break
                if begin > arrival:
                    cost = waiting + size * (_paid_by(time, paid, begin + duration) - _paid_by(time, paid, begin))
                    if cost < least:
                        least, start = cost, begin
        total += least
        for ends in range(2):
            moment, rise = start + ends * duration, size * (1 - 2 * ends)
            k = min(count + 1, max(0, math.ceil((moment - time[0]) / width)))
            ramps[0, k] -= rise * moment
            ramps[1, k] += rise
    height, slope = ramps[0, 0], ramps[1, 0]
    for i in range(count):
        before = height + slope * time[i]
        height += ramps[0, i + 1]
        slope += ramps[1, i + 1]
        taken[i] = height + slope * time[i + 1] - before
    return float(total)
