"""Rollouts one decision deep: the best jobs by a network's scores are each tried on possible futures.

A future is a stretch of the trace's own past, at about the same time of day; it may lie before the window. Every
candidate is played on the same futures. It takes the next place in the queue, and the network decides from then on,
until every job has started. A job other than the network's choice goes next if it is cheaper by more than the standard
error of the difference. Futures may overlap, which that error ignores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from studies.queues.pool import Jobs, Runs, advance_to_choice, begin_window, new_runs, start_next
from studies.queues.queue_network import ChoiceInputs, choose, known_inputs, new_inputs, play_to_end
from studies.queues.random_numbers import uniform

DAY = 86_400.0

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    """Options of rollouts.

    Attributes:
        candidates: jobs that are tried, those with the lowest scores.
        futures: on which each of them is tried, at least 2.
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

    @property
    def days(self) -> int:
        """Return how many days ago a future must lie at least, so that all of it is past."""
        return math.ceil((self.seconds + self.jitter) / DAY)


class RolloutArrays(NamedTuple):
    """What rollouts need, compiled.

    Attributes:
        trace_first: [E] the first job of each run's trace.
        days: see `RolloutConfig`.
        seconds: of arrivals in a future.
        jitter: seconds by which the time of day may differ.
        margin: standard errors by which another job must be better.
        random: [E, 1] see `studies.queues.random_numbers`.
    """

    trace_first: Ints
    days: int
    seconds: float
    jitter: float
    margin: float
    random: npt.NDArray[np.uint64]


@numba.njit(error_model="numpy")
def draw_future(
    jobs: Jobs, known: Singles, runs: Runs, e: int, ahead: RolloutArrays, future: Jobs, inputs: Singles
) -> int:
    """Write a future: the jobs that wait, and then those that arrive. Return how many there are.

    Args:
        jobs: of all traces.
        known: [2, J] see `known_inputs`.
        runs: see `Runs`.
        e: the run.
        ahead: see `RolloutArrays`.
        future: output.
        inputs: output, [2, n] as `known`.
    """
    now, count = runs.now[e], runs.waiting[e]
    for i in range(count):
        j = runs.queue[e, i]
        future.time[i], future.run[i], future.size[i] = jobs.time[j], jobs.run[j], jobs.size[j]
        inputs[0, i], inputs[1, i] = known[0, j], known[1, j]
    first, end = ahead.trace_first[e], runs.first[e] + runs.arrived[e]
    choices = math.floor((now - ahead.jitter - jobs.time[first]) / DAY) - ahead.days + 1
    days = ahead.days + math.floor(uniform(ahead.random, e, 0) * choices)
    then = now - days * DAY + (2.0 * uniform(ahead.random, e, 0) - 1.0) * ahead.jitter
    j = first + np.searchsorted(jobs.time[first:end], then, side="right")
    while count < len(future.time) and j < end and jobs.time[j] <= then + ahead.seconds:
        future.time[count], future.run[count] = jobs.time[j] - then + now, jobs.run[j]
        future.size[count] = jobs.size[j]
        inputs[0, count], inputs[1, count] = known[0, j], known[1, j]
        count += 1
        j += 1
    return int(count)


@numba.njit(error_model="numpy")
def _cost_of(
    runs: Runs,
    e: int,
    place: int,
    future: Jobs,
    known: Singles,
    count: int,
    copies: Runs,
    weights: Singles,
    inputs: ChoiceInputs,
) -> float:
    """Return what a future of so many jobs costs if the job at a place of the queue goes next."""
    waiting, running = runs.waiting[e], runs.running[e]
    copies.arrivals[e], copies.first[e], copies.arrived[e] = count, 0, waiting
    copies.waiting[e], copies.running[e], copies.over[e] = waiting, running, False
    copies.now[e], copies.free[e], copies.begun[e] = runs.now[e], runs.free[e], 0.0
    for i in range(waiting):
        copies.queue[e, i] = i
    for i in range(running):
        copies.ends[e, i], copies.held[e, i] = runs.ends[e, i], runs.held[e, i]
    start_next(future, copies, e, place)
    advance_to_choice(future, copies, e)
    play_to_end(future, known, copies, e, weights, inputs)
    return float(copies.begun[e])


@numba.njit(error_model="numpy")
def candidates_of(jobs: Jobs, runs: Runs, e: int, scores: Singles, places: Ints) -> int:
    """Write the places of the jobs with the lowest scores, one for each run time and size; return how many."""
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


@numba.njit(error_model="numpy")
def cheapest(costs: Floats, found: int, margin: float) -> int:
    """Return the candidate that is cheapest by more than `margin` standard errors, else the first; [K, M] costs."""
    futures = costs.shape[1]
    best, gain = 0, 0.0
    for c in range(1, found):
        difference = costs[c] - costs[0]
        mean = difference.mean()
        error = math.sqrt(((difference - mean) ** 2).sum() / (futures - 1) / futures)
        if mean + margin * error < gain:
            best, gain = c, mean + margin * error
    return best


@numba.njit(error_model="numpy", parallel=True)
def _play(
    jobs: Jobs,
    known: Singles,
    runs: Runs,
    copies: Runs,
    firsts: Ints,
    weights: Singles,
    ahead: RolloutArrays,
    shape: tuple[int, int],
) -> None:
    for e in numba.prange(len(firsts)):
        room = copies.queue.shape[1]
        inputs = new_inputs(room)
        future, future_inputs = Jobs(np.empty(room), np.empty(room), np.empty(room)), np.empty((2, room), np.float32)
        places, costs = np.empty(shape[0], np.int64), np.empty(shape)
        begins = jobs.time[ahead.trace_first[e]] + ahead.days * DAY + ahead.jitter
        begin_window(jobs, runs, e, firsts[e])
        while not runs.over[e]:
            place = choose(jobs, known, runs, e, weights, inputs)
            if runs.now[e] >= begins:
                found = candidates_of(jobs, runs, e, inputs.scores, places)
                if found > 1:
                    for m in range(shape[1]):
                        count = draw_future(jobs, known, runs, e, ahead, future, future_inputs)
                        for c in range(found):
                            costs[c, m] = _cost_of(
                                runs, e, places[c], future, future_inputs, count, copies, weights, inputs
                            )
                    place = places[cheapest(costs, found, ahead.margin)]
            start_next(jobs, runs, e, place)
            advance_to_choice(jobs, runs, e)


def play_rollouts(
    jobs: Jobs, firsts: Ints, trace_first: Ints, arrivals: int, weights: Floats, config: RolloutConfig
) -> Floats:
    """Return [F] mean bounded slowdowns with rollouts, which begin when there is a past to draw futures from.

    Args:
        jobs: of all traces.
        firsts: [F] the first jobs of windows.
        trace_first: [F] the first jobs of their traces.
        arrivals: jobs of a window.
        weights: [W] of the network.
        config: options.
    """
    runs = new_runs(len(firsts), arrivals, 1)
    seeds = [np.random.default_rng((config.seed, int(first))).integers(1 << 63) for first in firsts]
    ahead = RolloutArrays(
        np.asarray(trace_first),
        config.days,
        config.seconds,
        config.jitter,
        config.margin,
        np.array(seeds, dtype=np.uint64)[:, None],
    )
    # A future may have more jobs than the window.
    copies = new_runs(len(firsts), 4 * arrivals, 1)
    shape = (config.candidates, config.futures)
    _play(jobs, known_inputs(jobs), runs, copies, firsts, weights.astype(np.float32), ahead, shape)
    return runs.begun / arrivals + 1.0
