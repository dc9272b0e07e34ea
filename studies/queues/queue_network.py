"""A small network over the whole queue of one pool: evolution plays thousands of windows a minute with it.

The score of a waiting job is a quadratic form of its inputs plus a layer of units x / (1 + |x|). The units and the
linear part of the form also see the state of the queue. The lowest score goes first, the oldest job on ties.

Numba's own cache would miss changes of `pool`, so that these kernels are compiled in each process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from steersman.agents.evolution.orders import OrderSearchConfig, Scene, WeightSearch, first_weights
from studies.queues.pool import (
    JOB_INPUTS,
    PROCESSORS,
    Jobs,
    Runs,
    advance_to_choice,
    begin_window,
    new_runs,
    start_next,
)

JOB = (*JOB_INPUTS, "free after")
"""Inputs of a waiting job; `free after`: the share of the pool that stays free if it starts now, 0 if it does not
fit."""
DELAYS_OF = (64, 128, 256)
STATE = ("free", "waiting", "pressure", "work", "fitting", *(f"delay of {size}" for size in DELAYS_OF))
"""Inputs of the state: free share of the pool; jobs that wait; by how much their bounded slowdowns grow in an hour; the
time in which the whole pool would do their work; the share of them that fits now; the delays of jobs of these sizes."""
INPUTS, STATES = len(JOB), len(STATE)
QUADRATIC = INPUTS * (INPUTS + 1) // 2
FORM = INPUTS * (1 + STATES) + QUADRATIC
"""Weights of the quadratic form."""
UNIT = INPUTS + STATES + 2
"""Weights of a unit: of its inputs, its bias, and that of its output."""

Floats = npt.NDArray[np.float64]
Single = np.float32
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


def weight_count(units: int) -> int:
    """Return the number of weights of a network with so many units."""
    return FORM + units * UNIT


def shortest_first(units: int, rng: np.random.Generator) -> Floats:
    """Return weights of which only the estimate counts."""
    return first_weights(FORM, units, UNIT, rng)


class ChoiceInputs(NamedTuple):
    """Arrays of one choice among up to n jobs.

    Attributes:
        jobs: [n, 6] see `JOB`.
        state: [8] see `STATE`.
        delays: [257] the input `delay` of each size.
        linear: [6] weights of the job inputs in this state.
        scores: [n] the lowest goes first.
    """

    jobs: Singles
    state: Singles
    delays: Singles
    linear: Singles
    scores: Singles


@numba.njit(error_model="numpy")
def new_inputs(count: int) -> ChoiceInputs:
    """Return arrays for up to n waiting jobs."""
    single = np.float32
    x, state, delays = np.empty((count, INPUTS), single), np.empty(STATES, single), np.empty(PROCESSORS + 1, single)
    return ChoiceInputs(x, state, delays, np.empty(INPUTS, single), np.empty(count, single))


@numba.njit(error_model="numpy")
def _write_delays(runs: Runs, e: int, delays: Singles) -> None:
    """Write [257] the input `delay` of each size."""
    free = runs.free[e]
    low = int(free) + 1
    delays[:low] = 0.0
    for i in range(runs.running[e]):
        free += runs.held[e, i]
        high = int(free) + 1
        delays[low:high] = np.log1p(runs.ends[e, i] - runs.now[e]) / 6.0
        low = high


@numba.njit(error_model="numpy")
def _observe(jobs: Jobs, known: Singles, runs: Runs, e: int, inputs: ChoiceInputs) -> None:
    """Write the inputs of a choice in run `e`; `known` [2, J]: see `known_inputs`."""
    x, state, delays = inputs.jobs, inputs.state, inputs.delays
    _write_delays(runs, e, delays)
    now, free, waiting = runs.now[e], runs.free[e], runs.waiting[e]
    growth, work, fitting = 0.0, 0.0, 0.0
    for i in range(waiting):
        j = runs.queue[e, i]
        run, size = jobs.run[j], jobs.size[j]
        growth += 1.0 / max(run, 10.0)
        work += run * size
        fits = 1.0 if size <= free else 0.0
        fitting += fits
        x[i, 0], x[i, 1] = known[0, j], known[1, j]
        x[i, 2] = (np.log1p(now - jobs.time[j]) - 6.0) / 3.0
        x[i, 3], x[i, 4], x[i, 5] = fits, delays[int(size)], fits * (free - size) / PROCESSORS
    state[0], state[1] = free / PROCESSORS, (np.log1p(waiting) - 4.0) / 2.0
    state[2], state[3] = (np.log1p(growth * 3600.0) - 3.0) / 3.0, (np.log1p(work / PROCESSORS) - 8.0) / 3.0
    state[4] = fitting / waiting
    for k in range(len(DELAYS_OF)):
        state[5 + k] = delays[DELAYS_OF[k]]


@numba.njit(error_model="numpy")
def _state_term(weights: Singles, first: int, bias: int, state: Singles) -> Single:
    """Return a bias plus what the state adds, whose weights begin at `first`."""
    total: Single = weights[bias]
    for k in range(STATES):
        total += weights[first + k] * state[k]
    return total


@numba.njit(error_model="numpy")
def score(weights: Singles, inputs: ChoiceInputs, count: int) -> None:
    """Write the scores of waiting jobs.

    Args:
        weights: [75 + 16 U] of each job input, its own and those of its products with the state; of the products of
            job inputs, the lower triangle; of each unit, those of its inputs, its bias, and that of its output.
        inputs: `jobs` and `state` are read.
        count: jobs that wait.
    """
    x, linear, scores = inputs.jobs, inputs.linear, inputs.scores
    for k in range(INPUTS):
        own = k * (1 + STATES)
        linear[k] = _state_term(weights, own + 1, own, inputs.state)
    for i in range(count):
        total, at = np.float32(0.0), INPUTS * (1 + STATES)
        for k in range(INPUTS):
            part = linear[k]
            for m in range(k + 1):
                part += weights[at] * x[i, m]
                at += 1
            total += part * x[i, k]
        scores[i] = total
    for unit in range(FORM, len(weights), UNIT):
        bias = _state_term(weights, unit + INPUTS, unit + INPUTS + STATES, inputs.state)
        for i in range(count):
            total = bias
            for k in range(INPUTS):
                total += weights[unit + k] * x[i, k]
            scores[i] += weights[unit + UNIT - 1] * total / (np.float32(1.0) + abs(total))


@numba.njit(error_model="numpy")
def choose(jobs: Jobs, known: Singles, runs: Runs, e: int, weights: Singles, inputs: ChoiceInputs) -> int:
    """Write the scores, and return the place of the job that goes next."""
    _observe(jobs, known, runs, e, inputs)
    score(weights, inputs, runs.waiting[e])
    best = 0
    for i in range(1, runs.waiting[e]):
        if inputs.scores[i] < inputs.scores[best]:
            best = i
    return best


@numba.njit(error_model="numpy")
def play_to_end(jobs: Jobs, known: Singles, runs: Runs, e: int, weights: Singles, inputs: ChoiceInputs) -> None:
    """Play a run to its end."""
    while not runs.over[e]:
        start_next(jobs, runs, e, choose(jobs, known, runs, e, weights, inputs))
        advance_to_choice(jobs, runs, e)


@numba.njit(error_model="numpy", parallel=True)
def _play(jobs: Jobs, known: Singles, runs: Runs, firsts: Ints, candidates: Singles) -> None:
    for e in numba.prange(runs.queue.shape[0]):
        begin_window(jobs, runs, e, firsts[e % len(firsts)])
        play_to_end(jobs, known, runs, e, candidates[e // len(firsts)], new_inputs(runs.queue.shape[1]))


def known_inputs(jobs: Jobs) -> Singles:
    """Return [2, J] the inputs estimate and size of each job."""
    estimate, size = np.log(np.maximum(jobs.run, 1.0)), np.log(jobs.size / PROCESSORS)
    return np.stack([(estimate - 7.0) / 3.0, (size + 3.0) / 2.0]).astype(np.float32)


def play(jobs: Jobs, firsts: Ints, arrivals: int, candidates: Floats) -> Floats:
    """Return [C, F] mean bounded slowdowns.

    Args:
        jobs: of all traces.
        firsts: [F] the first jobs of windows.
        arrivals: jobs of a window.
        candidates: [C, W] weights of networks.
    """
    runs = new_runs(len(candidates) * len(firsts), arrivals, 1)
    _play(jobs, known_inputs(jobs), runs, firsts, candidates.astype(np.float32))
    return runs.begun.reshape(len(candidates), len(firsts)) / arrivals + 1.0


class NetworkSearch(WeightSearch):
    """Search for the weights of a network, compared with shortest first. The delay is always an input.

    Args:
        jobs: of all traces.
        traces: number of traces, which are played in turn.
        first_job: returns the first job of a window from the number of a trace and a seed.
        arrivals: jobs of a window.
        config: options.
    """

    def __init__(
        self,
        jobs: Jobs,
        traces: int,
        first_job: Callable[[int, int], int],
        arrivals: int,
        config: OrderSearchConfig,
    ) -> None:
        self.jobs, self.first_job, self.arrivals = jobs, first_job, arrivals
        super().__init__(traces, config, shortest_first(config.hidden, np.random.default_rng((config.seed, 1))))

    def costs(self, scenes: Sequence[Scene], candidates: Sequence[Floats | None]) -> Floats:
        """Return [C, S] costs, see `WeightSearch`."""
        # Without outputs of its units the first network is shortest first.
        weights = np.stack([self._first if each is None else each for each in candidates])
        firsts = np.array([self.first_job(which, seed) for which, seed, _ in scenes])
        return play(self.jobs, firsts, self.arrivals, weights)
