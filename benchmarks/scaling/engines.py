"""How many workers of a Ray cluster evaluate as fast as so many times one, and where that ends."""

from __future__ import annotations

import heapq
import math
import os
import pickle
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median

import numpy as np
import numpy.typing as npt

from steersman.agents.configs import EvolutionConfig
from steersman.agents.evolution.simulations import Candidates, SimulationTask, _open_evaluator
from steersman.core.engines import TaskWorkers, make_workers, use_engine
from steersman.policies.heuristics import heuristic
from steersman.policies.kinds import heuristic_as_linear
from steersman.policies.learned_weights import FEATURES
from steersman.policies.linear import LinearPolicy
from steersman.workloads.formats.openb import embedded
from steersman.workloads.workload import Workload

Result = dict[str, float | str | bool]
Floats = npt.NDArray[np.float64]

# Fewer show that it works.
EVALUATIONS = int(os.environ.get("STEERSMAN_BENCHMARK_EVALUATIONS", "10000"))
CANDIDATES = 20
"""Evaluations of a task: candidates that play the same episode."""
ROUNDS = 5
"""Times that one worker and two take turns."""
KEEP = 24
WORKERS = (1, 2, 4, 8, 16, 32, 64)


def ray_scaling() -> Result:
    """Compare one worker of a Ray cluster with two, alternated in one run, and model up to 64.

    `efficiency` is the time of one worker over twice that of two, whose median over the rounds counts. The model plays
    the same tasks on up to 64 workers: the command hands out one task after the other (`handling_milliseconds`: sent,
    answered and merged, measured with tasks that do nothing), and a worker computes it for as long as it took here.
    That gives `speedup_64`; `generation_64` is that of evolution with its default options, where each part of an
    episode also plays the reference, and all wait for the last one.
    """
    tasks = _tasks()
    prepare = partial(_open_evaluator, (_workload(),), SimulationTask(), "fgd")
    with make_workers(2, prepare) as local:
        expected = _answers(local, tasks)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    answers: dict[int, list[Floats]] = {1: [], 2: []}
    # Room for all of them; they take turns, so that no more than two compute.
    with use_engine("ray", 4), ExitStack() as stack:
        idle = make_workers(1, _idle)
        groups = {jobs: make_workers(jobs, prepare) for jobs in (1, 2)}
        for workers in (idle, *groups.values()):
            stack.enter_context(workers)
        for workers in (idle, *groups.values()):
            _answers(workers, tasks[:8])  # all are there then
        begin = time.perf_counter()
        _answers(idle, tasks)
        handling = (time.perf_counter() - begin) / len(tasks)
        for part in np.array_split(np.arange(len(tasks)), ROUNDS):
            for jobs, workers in groups.items():
                begin = time.perf_counter()
                answers[jobs] += _answers(workers, [tasks[i] for i in part])
                seconds[jobs].append(time.perf_counter() - begin)
    is_equal = all(np.array_equal(a, b) for each in answers.values() for a, b in zip(each, expected, strict=True))
    computing = sum(seconds[1]) / len(tasks) - handling
    speedups = {f"speedup_{n}": round(_speedup(len(tasks), computing, handling, n), 1) for n in WORKERS}
    generation = {f"generation_{n}": round(_generation(computing / (CANDIDATES + 1), handling, n), 1) for n in WORKERS}
    return {
        "evaluations": len(tasks) * CANDIDATES,
        "efficiency": round(median(a / (2 * b) for a, b in zip(seconds[1], seconds[2], strict=True)), 3),
        "equal_to_local": is_equal,
        "evaluation_milliseconds": round(1000 * computing / (CANDIDATES + 1), 2),
        "handling_milliseconds": round(1000 * handling, 2),
        "task_bytes": len(pickle.dumps(tasks[0])),
        **speedups,
        **generation,
    }


def _workload() -> Workload:
    whole = embedded("default")
    return Workload("small", whole.nodes[::KEEP], whole.pods[::KEEP])


def _tasks() -> list[Candidates]:
    """Return tasks of evolution: candidates near FGD, an episode each."""
    rng = np.random.default_rng(1)

    def candidate() -> LinearPolicy:
        weights = heuristic_as_linear(heuristic("fgd")).weights
        weights[:, : 2 * FEATURES] += rng.normal(0.0, 0.1, (len(weights), 2 * FEATURES))
        return LinearPolicy("candidate", weights)

    return [(0, seed, [candidate() for _ in range(CANDIDATES)]) for seed in range(EVALUATIONS // CANDIDATES)]


def _idle() -> Callable[[Candidates], Floats]:
    """Return what does nothing with a task."""
    return _nothing


def _nothing(task: Candidates) -> Floats:
    return np.zeros(len(task[2]))


def _answers(workers: TaskWorkers[Candidates, Floats], tasks: Sequence[Candidates]) -> list[Floats]:
    answers = dict(workers.answers(tasks))
    return [answers[position] for position in range(len(tasks))]


def _generation(evaluation: float, handling: float, workers: int) -> float:
    """Return how much faster workers play a generation of evolution than one does (`Evolution._play`)."""
    config = EvolutionConfig()

    def seconds(jobs: int) -> float:
        parts = min(jobs, config.population)
        tasks = config.episodes * parts
        return _seconds(tasks, evaluation * (math.ceil(config.population / parts) + 1), handling, jobs)

    return seconds(1) / seconds(workers)


def _speedup(tasks: int, computing: float, handling: float, workers: int) -> float:
    """Return how much faster workers do tasks than one does."""
    return _seconds(tasks, computing, handling, 1) / _seconds(tasks, computing, handling, workers)


def _seconds(tasks: int, computing: float, handling: float, workers: int) -> float:
    """Return the time of tasks, of which the command hands out one after the other, each to the worker free first."""
    ends = [(0.0, worker) for worker in range(workers)]
    head = 0.0
    for _ in range(tasks):
        free, worker = heapq.heappop(ends)
        head = max(head, free) + handling
        heapq.heappush(ends, (head + computing, worker))
    return max(end for end, _ in ends)
