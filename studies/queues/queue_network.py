"""A small network over the whole queue of one pool: evolution plays thousands of windows a minute with it.

The score of a waiting job is a quadratic form of its inputs, whose linear part depends on the state of the queue, and a
layer of units x / (1 + |x|) over both. The lowest goes first, the oldest on ties.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from steersman.agents.evolution.orders import OrderSearchConfig, Scene, WeightSearch
from studies.queues.pool import PROCESSORS, Jobs, Runs, begin_window, new_runs, take, to_choice

JOB = ("estimate", "size", "wait", "fits", "delay", "rest")
"""Inputs of a waiting job: the first five are those of `steersman.orders.scores.INPUTS`; `rest`: the share of the pool
that stays free if it starts now, 0 if it does not fit."""
PARTS = (64, 128, 256)
STATE = ("free", "waiting", "pressure", "work", "fitting", *(f"delay of {part}" for part in PARTS))
"""Inputs of the state: free share of the pool; jobs that wait; by how much their bounded slowdowns grow in an hour; the
time in which the whole pool would do their work; the share of them that fits now; the delays of jobs of these sizes."""
INPUTS, STATES = len(JOB), len(STATE)
QUADRATIC = INPUTS * (INPUTS + 1) // 2
LINEAR = INPUTS * (1 + STATES) + QUADRATIC
UNIT = INPUTS + STATES + 2
"""Weights of a unit: of its inputs, its bias, and that of its output."""

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Rows = tuple[Singles, Singles, Singles, Singles, Singles, Singles]


def size_of(units: int) -> int:
    """Return the number of weights of a network with so many units."""
    return LINEAR + units * UNIT


def first_weights(units: int, rng: np.random.Generator, std: float = 0.5) -> Floats:
    """Return weights of which only the estimate counts: shortest first. Units have random inputs."""
    weights = np.zeros(size_of(units))
    weights[0] = 1.0
    drawn = rng.normal(0.0, std, (units, UNIT))
    drawn[:, -1] = 0.0
    weights[LINEAR:] = drawn.reshape(-1)
    return weights


@numba.njit(error_model="numpy", cache=True)
def _delays(runs: Runs, e: int, delays: Singles) -> None:
    """Write [257] the input `delay` of each size."""
    free = runs.free[e]
    low = int(free) + 1
    delays[:low] = 0.0
    for i in range(runs.running[e]):
        free += runs.held[e, i]
        high = int(free) + 1
        delays[low:high] = np.log1p(runs.ends[e, i] - runs.now[e]) / 6.0
        low = high


@numba.njit(error_model="numpy", cache=True)
def _observe(jobs: Jobs, known: Singles, runs: Runs, e: int, x: Singles, state: Singles, delays: Singles) -> None:
    """Write the inputs of a choice.

    Args:
        jobs: of all traces.
        known: [2, J] the inputs estimate and size of each job.
        runs: see `pool.Runs`.
        e: the run.
        x: [6, n] output, inputs of the waiting jobs, see `JOB`.
        state: [8] output, see `STATE`.
        delays: [257] output, see `_delays`.
    """
    _delays(runs, e, delays)
    now, free, waiting = runs.now[e], runs.free[e], runs.waiting[e]
    growth, work, fitting = 0.0, 0.0, 0.0
    for i in range(waiting):
        j = runs.queue[e, i]
        run, size = jobs.run[j], jobs.size[j]
        growth += 1.0 / max(run, 10.0)
        work += run * size
        fits = 1.0 if size <= free else 0.0
        fitting += fits
        x[0, i], x[1, i] = known[0, j], known[1, j]
        x[2, i] = (np.log1p(now - jobs.time[j]) - 6.0) / 3.0
        x[3, i], x[4, i], x[5, i] = fits, delays[int(size)], fits * (free - size) / PROCESSORS
    state[0], state[1] = free / PROCESSORS, (np.log1p(waiting) - 4.0) / 2.0
    state[2], state[3] = (np.log1p(growth * 3600.0) - 3.0) / 3.0, (np.log1p(work / PROCESSORS) - 8.0) / 3.0
    state[4] = fitting / waiting
    for k in range(len(PARTS)):
        state[5 + k] = delays[PARTS[k]]


@numba.njit(error_model="numpy", fastmath=True, cache=True)
def _add_form(rows: Rows, linear: Singles, weights: Singles, at: int, scores: Singles) -> None:
    """Write the quadratic form."""
    x0, x1, x2, x3, x4, x5 = rows
    a0, a1, a2, a3, a4, a5 = linear[0], linear[1], linear[2], linear[3], linear[4], linear[5]
    q = weights[at : at + QUADRATIC]
    q0, q1, q2, q3, q4, q5, q6, q7, q8, q9 = q[0], q[1], q[2], q[3], q[4], q[5], q[6], q[7], q[8], q[9]
    r0, r1, r2, r3, r4, r5, r6, r7, r8, r9 = q[10], q[11], q[12], q[13], q[14], q[15], q[16], q[17], q[18], q[19]
    r10 = q[20]
    for i in range(len(scores)):
        u0, u1, u2, u3, u4, u5 = x0[i], x1[i], x2[i], x3[i], x4[i], x5[i]
        total = u0 * (a0 + q0 * u0) + u1 * (a1 + q1 * u0 + q2 * u1) + u2 * (a2 + q3 * u0 + q4 * u1 + q5 * u2)
        total += u3 * (a3 + q6 * u0 + q7 * u1 + q8 * u2 + q9 * u3)
        total += u4 * (a4 + r0 * u0 + r1 * u1 + r2 * u2 + r3 * u3 + r4 * u4)
        scores[i] = total + u5 * (a5 + r5 * u0 + r6 * u1 + r7 * u2 + r8 * u3 + r9 * u4 + r10 * u5)


@numba.njit(error_model="numpy", fastmath=True, cache=True)
def _add_unit(rows: Rows, weights: Singles, at: int, bias: float, scores: Singles) -> None:
    x0, x1, x2, x3, x4, x5 = rows
    b, o, one = np.float32(bias), weights[at + UNIT - 1], np.float32(1.0)
    w0, w1, w2, w3, w4, w5 = (
        weights[at],
        weights[at + 1],
        weights[at + 2],
        weights[at + 3],
        weights[at + 4],
        weights[at + 5],
    )
    for i in range(len(scores)):
        total = b + w0 * x0[i] + w1 * x1[i] + w2 * x2[i] + w3 * x3[i] + w4 * x4[i] + w5 * x5[i]
        scores[i] += o * total / (one + abs(total))


@numba.njit(error_model="numpy", cache=True)
def score(weights: Singles, x: Singles, state: Singles, linear: Singles, scores: Singles, count: int) -> None:
    """Write the scores of waiting jobs.

    Args:
        weights: [75 + 16 U] of each job input, its own and those of its products with the state; of the products of
            job inputs, the lower triangle; of each unit.
        x: [6, n] see `JOB`.
        state: [8] see `STATE`.
        scores: [n] output.
        count: jobs that wait.
    """
    rows = (x[0, :count], x[1, :count], x[2, :count], x[3, :count], x[4, :count], x[5, :count])
    own = scores[:count]
    at = 0
    for k in range(INPUTS):
        linear[k] = weights[at]
        for m in range(STATES):
            linear[k] += weights[at + 1 + m] * state[m]
        at += 1 + STATES
    _add_form(rows, linear, weights, at, own)
    at += QUADRATIC
    while at < len(weights):
        bias = weights[at + INPUTS + STATES]
        for m in range(STATES):
            bias += weights[at + INPUTS + m] * state[m]
        _add_unit(rows, weights, at, bias, own)
        at += UNIT


class Inputs(NamedTuple):
    """Arrays of one choice among up to n jobs.

    Attributes:
        jobs: [6, n] see `JOB`.
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


@numba.njit(error_model="numpy", cache=True)
def new_inputs(count: int) -> Inputs:
    """Return arrays for up to n waiting jobs."""
    x, state, delays = np.empty((6, count), np.float32), np.empty(8, np.float32), np.empty(257, np.float32)
    return Inputs(x, state, delays, np.empty(6, np.float32), np.empty(count, np.float32))


@numba.njit(error_model="numpy", cache=True)
def choose(jobs: Jobs, known: Singles, runs: Runs, e: int, weights: Singles, inputs: Inputs) -> int:
    """Write the scores, and return the place of the job that goes next."""
    _observe(jobs, known, runs, e, inputs.jobs, inputs.state, inputs.delays)
    score(weights, inputs.jobs, inputs.state, inputs.linear, inputs.scores, runs.waiting[e])
    best = 0
    for i in range(1, runs.waiting[e]):
        if inputs.scores[i] < inputs.scores[best]:
            best = i
    return best


@numba.njit(error_model="numpy", cache=True)
def finish(jobs: Jobs, known: Singles, runs: Runs, e: int, weights: Singles, inputs: Inputs) -> None:
    """Play a run to its end."""
    while not runs.over[e]:
        take(jobs, runs, e, choose(jobs, known, runs, e, weights, inputs))
        to_choice(jobs, runs, e)


@numba.njit(error_model="numpy", parallel=True, cache=True)
def _play(jobs: Jobs, known: Singles, runs: Runs, firsts: Ints, candidates: Singles) -> None:
    for e in numba.prange(runs.queue.shape[0]):
        begin_window(jobs, runs, e, firsts[e % len(firsts)])
        finish(jobs, known, runs, e, candidates[e // len(firsts)], new_inputs(runs.queue.shape[1]))


def known_inputs(jobs: Jobs) -> Singles:
    """Return [2, J] the inputs estimate and size of each job."""
    estimate, size = np.log(np.maximum(jobs.run, 1.0)), np.log(jobs.size / PROCESSORS)
    return np.stack([(estimate - 7.0) / 3.0, (size + 3.0) / 2.0]).astype(np.float32)


def play(jobs: Jobs, firsts: Ints, arrivals: int, overtaking: bool, candidates: Floats) -> Floats:
    """Return [C, F] mean bounded slowdowns.

    Args:
        jobs: of all traces.
        firsts: [F] the first jobs of windows.
        arrivals: jobs of a window.
        overtaking: see `pool.Runs`.
        candidates: [C, W] weights of networks.
    """
    runs = new_runs(len(candidates) * len(firsts), arrivals, 1, overtaking)
    _play(jobs, known_inputs(jobs), runs, firsts, candidates.astype(np.float32))
    return runs.begun.reshape(len(candidates), len(firsts)) / arrivals + 1.0


class NetworkSearch(WeightSearch):
    """Search for the weights of a network, compared with shortest first.

    Args:
        jobs: of all traces.
        traces: number of traces, which are played in turn.
        first: returns the first job of a window from the number of a trace and a seed.
        arrivals: jobs of a window.
        overtaking: see `pool.Runs`.
        config: options.
    """

    def __init__(
        self,
        jobs: Jobs,
        traces: int,
        first: Callable[[int, int], int],
        arrivals: int,
        overtaking: bool,
        config: OrderSearchConfig,
    ) -> None:
        self.jobs, self.first, self.arrivals, self.overtaking = jobs, first, arrivals, overtaking
        super().__init__(traces, config, first_weights(config.hidden, np.random.default_rng((config.seed, 1))))

    def costs(self, scenes: Sequence[Scene], candidates: Sequence[Floats | None]) -> Floats:
        """Return [C, S] costs, see `WeightSearch`."""
        # Without outputs of its units the first network is shortest first.
        weights = np.stack([self._first if each is None else each for each in candidates])
        firsts = np.array([self.first(which, seed) for which, seed, _ in scenes])
        return play(self.jobs, firsts, self.arrivals, self.overtaking, weights)
