"""One pool of processors, E runs at once, compiled: who goes next is chosen from outside, many times a second.

The rules are those of `steersman/Queue-v0` for jobs of one node whose run times are known. There a decision costs
200 µs of Python around the kernels, which PPO cannot afford; here it costs what the decision itself does.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

PROCESSORS = 256
JOB_INPUTS = ("estimate", "size", "wait", "fits", "delay")
"""As in `steersman.orders.scores.INPUTS`."""
PARTS = np.array([32.0, 64.0, 128.0, 192.0, 256.0])
CONTEXT = ("free", "queue", *(f"delay of {part:.0f}" for part in PARTS), "work")
CRITIC = ("arrivals left", "cost so far", "cost growth", "reference left", "reference so far")
"""Inputs of the critic alone: it may know what comes, since no estimate of what is left changes what is best."""
POINTS = 128
"""Times at which the cost of the reference is known."""

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


class Jobs(NamedTuple):
    """Jobs of all traces, J of them, by trace and time.

    Attributes:
        time: [J] when it arrives, seconds.
        run: [J] run time, seconds.
        size: [J] processors.
    """

    time: Floats
    run: Floats
    size: Floats


class Runs(NamedTuple):
    """The state of E runs of up to n arrivals.

    Attributes:
        arrivals: [E] jobs of the window.
        first: [E] number of the first job.
        arrived: [E] arrivals so far.
        waiting: [E] jobs that wait.
        running: [E] jobs that run.
        over: [E] whether every job has started.
        now: [E] seconds.
        free: [E] processors.
        begun: [E] what the jobs that have started add to the cost.
        cost: [E] cost by now: the sum over jobs of how far the bounded slowdown is above 1.
        queue: [E, n] jobs that wait, in order of arrival.
        ends: [E, n] when running jobs end, ascending.
        held: [E, n] their processors.
        shown: [E, M] the rows of the observation, places in `queue`.
    """

    arrivals: Ints
    first: Ints
    arrived: Ints
    waiting: Ints
    running: Ints
    over: npt.NDArray[np.bool_]
    now: Floats
    free: Floats
    begun: Floats
    cost: Floats
    queue: Ints
    ends: Floats
    held: Floats
    shown: Ints


class Seen(NamedTuple):
    """Observations of E runs.

    Attributes:
        jobs: [E, M, 5] see `JOB_INPUTS`.
        rows: [E] rows that are jobs; the others are 0.
        context: [E, 8] see `CONTEXT`.
        critic: [E, 5] see `CRITIC`.
    """

    jobs: Singles
    rows: Ints
    context: Singles
    critic: Singles


class Reference(NamedTuple):
    """What another order costs in each window that begins at a job.

    Attributes:
        until: [J] when it is over, seconds from the first arrival.
        cost: [J, POINTS] its cost at equally distant times until then; its total is the last.
        weight: [J] by which costs are multiplied.
    """

    until: Floats
    cost: Floats
    weight: Floats


def new_runs(count: int, jobs: int, rows: int) -> Runs:
    """Return E runs without jobs; M rows are shown."""

    def whole() -> Ints:
        return np.zeros(count, dtype=np.int64)

    def real() -> Floats:
        return np.zeros(count)

    return Runs(
        arrivals=np.full(count, jobs, dtype=np.int64),
        first=whole(),
        arrived=whole(),
        waiting=whole(),
        running=whole(),
        over=np.ones(count, dtype=np.bool_),
        now=real(),
        free=real(),
        begun=real(),
        cost=real(),
        queue=np.zeros((count, jobs), dtype=np.int64),
        ends=np.zeros((count, jobs)),
        held=np.zeros((count, jobs)),
        shown=np.zeros((count, rows), dtype=np.int64),
    )


def new_seen(count: int, rows: int) -> Seen:
    """Return empty observations."""
    shapes = [(count, rows, len(JOB_INPUTS)), (count, len(CONTEXT)), (count, len(CRITIC))]
    jobs, context, critic = (np.zeros(shape, dtype=np.float32) for shape in shapes)
    return Seen(jobs, np.zeros(count, dtype=np.int64), context, critic)


@numba.njit(error_model="numpy", cache=True)
def _excess(run: float, wait: float) -> float:
    """Return how far the bounded slowdown is above 1."""
    bound = max(run, 10.0)
    return max(0.0, (wait + run) / bound - 1.0)


@numba.njit(error_model="numpy", cache=True)
def _start(jobs: Jobs, runs: Runs, e: int, place: int) -> None:
    j = runs.queue[e, place]
    for i in range(place, runs.waiting[e] - 1):
        runs.queue[e, i] = runs.queue[e, i + 1]
    runs.waiting[e] -= 1
    runs.free[e] -= jobs.size[j]
    runs.begun[e] += _excess(jobs.run[j], runs.now[e] - jobs.time[j])
    end, at = runs.now[e] + jobs.run[j], runs.running[e]
    # Of jobs that end at once the one that started first ends first.
    while at > 0 and runs.ends[e, at - 1] > end:
        runs.ends[e, at], runs.held[e, at] = runs.ends[e, at - 1], runs.held[e, at - 1]
        at -= 1
    runs.ends[e, at], runs.held[e, at] = end, jobs.size[j]
    runs.running[e] += 1


@numba.njit(error_model="numpy", cache=True)
def _next_event(jobs: Jobs, runs: Runs, e: int) -> None:
    """Go on to the next arrival, or to the next end if that is earlier."""
    j, left = runs.first[e] + runs.arrived[e], runs.arrivals[e] - runs.arrived[e]
    if left > 0 and (runs.running[e] == 0 or jobs.time[j] <= runs.ends[e, 0]):
        runs.now[e] = jobs.time[j]
        runs.queue[e, runs.waiting[e]] = j
        runs.waiting[e] += 1
        runs.arrived[e] += 1
        return
    runs.now[e] = runs.ends[e, 0]
    runs.free[e] += runs.held[e, 0]
    runs.running[e] -= 1
    for i in range(runs.running[e]):
        runs.ends[e, i], runs.held[e, i] = runs.ends[e, i + 1], runs.held[e, i + 1]


@numba.njit(error_model="numpy", cache=True)
def _begins(runs: Runs, e: int, size: float) -> float:
    """Return when so many processors will be free."""
    free, at = runs.free[e], 0
    if free >= size:
        return float(runs.now[e])
    while free + runs.held[e, at] < size:
        free += runs.held[e, at]
        at += 1
    return float(runs.ends[e, at])


@numba.njit(error_model="numpy", cache=True)
def start_next(jobs: Jobs, runs: Runs, e: int, place: int) -> None:
    """Start a waiting job as soon as it fits."""
    j = runs.queue[e, place]
    while runs.free[e] < jobs.size[j]:
        _next_event(jobs, runs, e)
    for i in range(runs.waiting[e]):
        if runs.queue[e, i] == j:
            _start(jobs, runs, e, i)
            break


@numba.njit(error_model="numpy", cache=True)
def advance_to_choice(jobs: Jobs, runs: Runs, e: int) -> None:
    """Go on until several jobs wait, or every job has started."""
    while True:
        while runs.waiting[e] == 0 and runs.arrived[e] < runs.arrivals[e]:
            _next_event(jobs, runs, e)
        if runs.waiting[e] != 1:
            break
        start_next(jobs, runs, e, 0)
    runs.over[e] = runs.waiting[e] == 0


@numba.njit(error_model="numpy", cache=True)
def _update_cost(jobs: Jobs, runs: Runs, e: int) -> None:
    """Write the cost by now."""
    cost = runs.begun[e]
    for i in range(runs.waiting[e]):
        j = runs.queue[e, i]
        cost += _excess(jobs.run[j], runs.now[e] - jobs.time[j])
    runs.cost[e] = cost


@numba.njit(error_model="numpy", cache=True)
def begin_window(jobs: Jobs, runs: Runs, e: int, first: int) -> None:
    """Begin at a job, with an empty pool."""
    runs.first[e], runs.arrived[e], runs.waiting[e], runs.running[e] = first, 0, 0, 0
    runs.now[e], runs.free[e], runs.begun[e] = jobs.time[first], PROCESSORS, 0.0
    advance_to_choice(jobs, runs, e)


@numba.njit(error_model="numpy", cache=True)
def _shortest(jobs: Jobs, runs: Runs, e: int) -> int:
    best = 0
    for i in range(1, runs.waiting[e]):
        if jobs.run[runs.queue[e, i]] < jobs.run[runs.queue[e, best]]:
            best = i
    return best


@numba.njit(error_model="numpy", cache=True)
def _observe(jobs: Jobs, runs: Runs, reference: Reference, seen: Seen, e: int) -> None:
    """Show the waiting jobs in order of age; if there are too many, the shortest."""
    now, free, waiting, rows = runs.now[e], runs.free[e], runs.waiting[e], seen.jobs.shape[1]
    if waiting > rows:
        chosen = np.argsort(jobs.run[runs.queue[e, :waiting]])[:rows]
        chosen.sort()
        runs.shown[e] = chosen
    else:
        runs.shown[e, :waiting] = np.arange(waiting)
    seen.rows[e] = count = min(waiting, rows)
    for row in range(count):
        j = runs.queue[e, runs.shown[e, row]]
        out = seen.jobs[e, row]
        out[0] = (np.log(max(jobs.run[j], 1.0)) - 7.0) / 3.0
        out[1] = (np.log(jobs.size[j] / PROCESSORS) + 3.0) / 2.0
        out[2] = (np.log1p(now - jobs.time[j]) - 6.0) / 3.0
        out[3] = 1.0 if jobs.size[j] <= free else 0.0
        out[4] = np.log1p(_begins(runs, e, jobs.size[j]) - now) / 6.0
    seen.jobs[e, count:] = 0.0
    context, work, growth = seen.context[e], 0.0, 0.0
    for i in range(waiting):
        j = runs.queue[e, i]
        work += jobs.run[j] * jobs.size[j] / PROCESSORS
        growth += 1.0 / max(jobs.run[j], 10.0)
    context[0], context[1] = free / PROCESSORS, (np.log1p(waiting) - 4.0) / 2.0
    for k in range(len(PARTS)):
        context[2 + k] = np.log1p(_begins(runs, e, PARTS[k]) - now) / 6.0
    context[7] = (np.log1p(work) - 8.0) / 3.0
    first = runs.first[e]
    weight, total = reference.weight[first], reference.cost[first, -1]
    place = min((now - jobs.time[first]) / reference.until[first], 1.0) * (POINTS - 1)
    low = min(int(place), POINTS - 2)
    so_far = reference.cost[first, low]
    so_far += (place - low) * (reference.cost[first, low + 1] - so_far)
    critic = seen.critic[e]
    critic[0] = 1.0 - runs.arrived[e] / runs.arrivals[e]
    critic[1] = weight * runs.cost[e]
    # What the queue as it is would cost in an hour.
    critic[2] = np.log1p(weight * growth * 3600.0)
    critic[3] = weight * (total - so_far)
    critic[4] = weight * so_far


@numba.njit(error_model="numpy", parallel=True, cache=True)
def begin(jobs: Jobs, runs: Runs, reference: Reference, seen: Seen, first: Ints, skipped: Ints) -> None:
    """Begin E windows at their first jobs, take the shortest job `skipped` times, both [E], and observe."""
    for e in numba.prange(len(first)):
        begin_window(jobs, runs, e, first[e])
        for _ in range(skipped[e]):
            if not runs.over[e]:
                start_next(jobs, runs, e, _shortest(jobs, runs, e))
                advance_to_choice(jobs, runs, e)
        if runs.over[e]:
            begin_window(jobs, runs, e, first[e])
        _update_cost(jobs, runs, e)
        _observe(jobs, runs, reference, seen, e)


@numba.njit(error_model="numpy", parallel=True, cache=True)
def step(
    jobs: Jobs,
    runs: Runs,
    reference: Reference,
    seen: Seen,
    rows: Ints,
    following: Ints,
    rewards: Floats,
    final: Floats,
) -> None:
    """Take a row in each run, and observe.

    Args:
        jobs: of all traces.
        runs: those that are over stay so.
        reference: of each window.
        seen: output.
        rows: [E] actions.
        following: [E] the first job of the window after one that ends; -1: none.
        rewards: [E] output, growth of the cost times the window's weight, with the other sign.
        final: [E] output, the cost of a window that has just ended; NaN: none has.
    """
    for e in numba.prange(len(rows)):
        rewards[e], final[e] = 0.0, np.nan
        if runs.over[e]:
            continue
        before = runs.cost[e]
        start_next(jobs, runs, e, runs.shown[e, rows[e]])
        advance_to_choice(jobs, runs, e)
        _update_cost(jobs, runs, e)
        rewards[e] = -reference.weight[runs.first[e]] * (runs.cost[e] - before)
        if runs.over[e]:
            final[e] = runs.cost[e]
            if following[e] >= 0:
                begin_window(jobs, runs, e, following[e])
                _update_cost(jobs, runs, e)
        if not runs.over[e]:
            _observe(jobs, runs, reference, seen, e)


@numba.njit(error_model="numpy", parallel=True, cache=True)
def play_shortest(jobs: Jobs, runs: Runs, first: Ints, times: Floats, costs: Floats) -> None:
    """Play windows shortest first; write [E, n] the time and the cost at each choice, the last values repeated."""
    for e in numba.prange(len(first)):
        begin_window(jobs, runs, e, first[e])
        for i in range(times.shape[1]):
            _update_cost(jobs, runs, e)
            times[e, i], costs[e, i] = runs.now[e] - jobs.time[first[e]], runs.cost[e]
            if not runs.over[e]:
                start_next(jobs, runs, e, _shortest(jobs, runs, e))
                advance_to_choice(jobs, runs, e)


def reference_of(jobs: Jobs, traces: Ints, starts: Ints, arrivals: int, pooled: float) -> Reference:
    """Return what shortest first costs in windows of n arrivals.

    Args:
        jobs: of all traces.
        traces: [J] number of each job's trace.
        starts: first jobs of the windows.
        arrivals: n.
        pooled: share of the weight that is the same for all windows of a trace, see `OrderSearchConfig.pooled`.
    """
    count = len(jobs.time)
    until, cost, weight = np.ones(count), np.zeros((count, POINTS)), np.zeros(count)
    for chunk in np.array_split(starts, max(1, len(starts) // 1024)):
        runs = new_runs(len(chunk), arrivals, 1)
        times, costs = np.zeros((len(chunk), arrivals + 1)), np.zeros((len(chunk), arrivals + 1))
        play_shortest(jobs, runs, chunk, times, costs)
        until[chunk] = np.maximum(times[:, -1], 1.0)
        for first, time, values in zip(chunk, times, costs, strict=True):
            cost[first] = np.interp(np.linspace(0.0, until[first], POINTS), time, values)
    for trace in np.unique(traces[starts]):
        own = starts[traces[starts] == trace]
        total = np.maximum(cost[own, -1], 1.0)
        weight[own] = pooled / total.mean() + (1.0 - pooled) / total
    return Reference(until, cost, weight)
