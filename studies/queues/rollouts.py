"""Rollouts one decision deep: the jobs that a network likes best are tried on what may come, which is what has come.

A future is a stretch of the trace's own past at the same time of day; the past may go further back than the window
does. Each candidate is played on the same futures, by the network, until every job has started. Another job than the
network's goes next if it is cheaper by more than the standard error of the difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from studies.queues.pool import Jobs, Runs, begin_window, new_runs, take, to_choice
from studies.queues.queue_network import Inputs, choose, finish, known_inputs, new_inputs

DAY = 86_400.0

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    """Options of rollouts.

    Attributes:
        candidates: jobs that are tried, the network's best ones.
        futures: on which each of them is tried.
        seconds: of arrivals in a future.
        jitter: seconds by which the time of day may differ.
        margin: standard errors by which another job must be better.
        seed: of the futures.
    """

    candidates: int = 4
    futures: int = 16
    seconds: float = 24 * 3600.0
    jitter: float = 2 * 3600.0
    margin: float = 1.0
    seed: int = 1


@numba.njit(error_model="numpy", cache=True)
def imagine(
    jobs: Jobs, known: Singles, runs: Runs, e: int, begins: int, limits: Floats, future: Jobs, of_future: Singles
) -> int:
    """Write a future: the jobs that wait, and then those that arrive. Return how many there are.

    Args:
        jobs: of all traces.
        known: [2, J] see `known_inputs`.
        runs: see `Runs`.
        e: the run.
        begins: the first job of its trace.
        limits: seconds of arrivals, and by which the time of day may differ.
        future: output.
        of_future: output, [2, n] as `known`.
    """
    now, count = runs.now[e], runs.waiting[e]
    for i in range(count):
        j = runs.queue[e, i]
        future.time[i], future.run[i], future.size[i] = jobs.time[j], jobs.run[j], jobs.size[j]
        of_future[0, i], of_future[1, i] = known[0, j], known[1, j]
    # So many days ago that all of it is past.
    days = np.ceil((limits[0] + limits[1]) / DAY)
    further = max(np.floor((now - limits[1] - jobs.time[begins]) / DAY) - days, 0.0)
    days += np.floor(np.random.random() * (further + 1.0))
    then = max(now - days * DAY + (2.0 * np.random.random() - 1.0) * limits[1], jobs.time[begins])
    j = begins + np.searchsorted(jobs.time[begins : runs.first[e] + runs.arrived[e]], then, side="right")
    while count < len(future.time) and j < runs.first[e] + runs.arrived[e] and jobs.time[j] <= then + limits[0]:
        future.time[count], future.run[count] = jobs.time[j] - then + now, jobs.run[j]
        future.size[count] = jobs.size[j]
        of_future[0, count], of_future[1, count] = known[0, j], known[1, j]
        count += 1
        j += 1
    return int(count)


@numba.njit(error_model="numpy", cache=True)
def _try(
    runs: Runs, e: int, place: int, future: Jobs, known: Singles, count: int, copy: Runs, weights: Singles, own: Inputs
) -> float:
    """Return what a future costs if a job goes next."""
    waiting, running = runs.waiting[e], runs.running[e]
    copy.arrivals[0], copy.first[0], copy.arrived[0] = count, 0, waiting
    copy.waiting[0], copy.running[0], copy.over[0] = waiting, running, False
    copy.now[0], copy.free[0], copy.begun[0] = runs.now[e], runs.free[e], 0.0
    for i in range(waiting):
        copy.queue[0, i] = i
    for i in range(running):
        copy.ends[0, i], copy.held[0, i] = runs.ends[e, i], runs.held[e, i]
    take(future, copy, 0, place)
    to_choice(future, copy, 0)
    finish(future, known, copy, 0, weights, own)
    return float(copy.begun[0])


@numba.njit(error_model="numpy", cache=True)
def _candidates(jobs: Jobs, runs: Runs, e: int, scores: Singles, places: Ints) -> int:
    """Write the places of the jobs with the lowest scores, of equal ones the oldest; return how many."""
    found = 0
    while found < len(places):
        best = -1
        for i in range(runs.waiting[e]):
            if best >= 0 and scores[i] >= scores[best]:
                continue
            j, is_new = runs.queue[e, i], True
            for k in range(found):
                other = runs.queue[e, places[k]]
                if jobs.run[other] == jobs.run[j] and jobs.size[other] == jobs.size[j]:
                    is_new = False
                    break
            if is_new:
                best = i
        if best < 0:
            break
        places[found] = best
        found += 1
    return found


@numba.njit(error_model="numpy", cache=True)
def _cheapest(costs: Floats, found: int, margin: float) -> int:
    """Return the candidate that is cheapest by more than `margin` standard errors, else the first; [K, M] costs."""
    best, gain = 0, 0.0
    for c in range(1, found):
        difference = costs[c] - costs[0]
        bound = difference.mean() + margin * difference.std() / np.sqrt(costs.shape[1])
        if bound < gain:
            best, gain = c, bound
    return best


@numba.njit(error_model="numpy", parallel=True, cache=True)
def _play(
    jobs: Jobs,
    known: Singles,
    runs: Runs,
    copies: Runs,
    firsts: Ints,
    begins: Ints,
    weights: Singles,
    shape: tuple[int, int],
    limits: Floats,
    seed: int,
) -> None:
    for e in numba.prange(len(firsts)):
        np.random.seed(seed + firsts[e])
        room = copies.queue.shape[1]
        own = new_inputs(room)
        future, of_future = Jobs(np.empty(room), np.empty(room), np.empty(room)), np.empty((2, room), np.float32)
        copy = Runs(
            copies.arrivals[e : e + 1],
            copies.first[e : e + 1],
            copies.arrived[e : e + 1],
            copies.waiting[e : e + 1],
            copies.running[e : e + 1],
            copies.over[e : e + 1],
            copies.now[e : e + 1],
            copies.free[e : e + 1],
            copies.begun[e : e + 1],
            copies.cost[e : e + 1],
            copies.queue[e : e + 1],
            copies.ends[e : e + 1],
            copies.held[e : e + 1],
            copies.shown[e : e + 1],
            copies.overtaking,
        )
        places, costs = np.empty(shape[0], np.int64), np.empty(shape)
        begin_window(jobs, runs, e, firsts[e])
        while not runs.over[e]:
            place = choose(jobs, known, runs, e, weights, own)
            if runs.now[e] - jobs.time[begins[e]] > 2.0 * limits[0]:
                found = _candidates(jobs, runs, e, own.scores, places)
                if found > 1:
                    for m in range(shape[1]):
                        count = imagine(jobs, known, runs, e, begins[e], limits, future, of_future)
                        for c in range(found):
                            costs[c, m] = _try(runs, e, places[c], future, of_future, count, copy, weights, own)
                    place = places[_cheapest(costs, found, limits[2])]
            take(jobs, runs, e, place)
            to_choice(jobs, runs, e)


def play_rollouts(
    jobs: Jobs, firsts: Ints, begins: Ints, arrivals: int, overtaking: bool, weights: Floats, config: RolloutConfig
) -> Floats:
    """Return [F] mean bounded slowdowns with rollouts.

    Args:
        jobs: of all traces.
        firsts: [F] the first jobs of windows.
        begins: [F] the first jobs of their traces.
        arrivals: jobs of a window.
        overtaking: see `pool.Runs`.
        weights: [W] of the network.
        config: options.
    """
    runs = new_runs(len(firsts), arrivals, 1, overtaking)
    # A future may have more jobs than the window.
    copies = new_runs(len(firsts), 4 * arrivals, 1, overtaking)
    limits = np.array([config.seconds, config.jitter, config.margin])
    shape = (config.candidates, config.futures)
    single = weights.astype(np.float32)
    _play(jobs, known_inputs(jobs), runs, copies, firsts, begins, single, shape, limits, config.seed)
    return runs.begun / arrivals + 1.0
