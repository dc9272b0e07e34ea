"""How many workers of a Ray cluster evaluate as fast as so many times one, and where that ends."""

from __future__ import annotations

import heapq
import os
import pickle
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

import numpy as np
import numpy.typing as npt

from steersman.agents.evolution.simulations import Candidates, SimulationTask, _open_evaluator, fgd_weights
from steersman.core.engines import TaskWorkers, make_workers, use_engine
from steersman.policies.gpu_state.gpu_features import FEATURES
from steersman.policies.linear import LinearPolicy
from steersman.workloads.formats.openb.traces import embedded
from steersman.workloads.workload import Workload

Result = dict[str, float | str | bool]
Floats = npt.NDArray[np.float64]

EVALUATIONS = int(os.environ.get("STEERSMAN_BENCHMARK_EVALUATIONS", "10000"))
CANDIDATES = 10
"""Evaluations of a task: candidates that play the same episode."""
ROUNDS = 5
"""Times that one worker and two take turns."""
KEEP = 8
WORKERS = (1, 2, 4, 8, 16, 32, 64)


def ray_scaling() -> Result:
    """Compare one worker of a Ray cluster with two, alternated in one run, and model up to 64.

    `efficiency` is the time of one worker over twice that of two, whose median over the rounds counts. The model plays
    the same tasks on up to 64 workers: the head hands out one task after the other (`handling_seconds`, measured with
    tasks that do nothing), and a worker computes it for as long as it took here. That gives `speedup_64`.
    """
    tasks = _tasks()
    prepare = partial(_open_evaluator, (_workload(),), SimulationTask(), "fgd")
    with make_workers(2, prepare) as local:
        expected = _answers(local, tasks)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    answers: dict[int, list[Floats]] = {1: [], 2: []}
    with use_engine("ray", 2):
        with make_workers(1, _idle) as workers:
            _answers(workers, tasks[:1])  # the first task waits for the worker
            handling = _seconds(workers, tasks) / len(tasks)
        for part in np.array_split(np.arange(len(tasks)), ROUNDS):
            chosen = [tasks[i] for i in part]
            for jobs in (1, 2):
                with make_workers(jobs, prepare) as workers:
                    _answers(workers, tasks[: 4 * jobs])  # both are there then
                    begin = time.perf_counter()
                    answers[jobs] += _answers(workers, chosen)
                    seconds[jobs].append(time.perf_counter() - begin)
    is_equal = all(np.array_equal(a, b) for each in answers.values() for a, b in zip(each, expected, strict=True))
    computing = sum(seconds[1]) / len(tasks) - handling
    speedups = {f"speedup_{n}": round(_speedup(len(tasks), computing, handling, n), 1) for n in WORKERS}
    return {
        "evaluations": len(tasks) * CANDIDATES,
        "efficiency": round(median(a / (2 * b) for a, b in zip(seconds[1], seconds[2], strict=True)), 3),
        "equal_to_local": is_equal,
        "evaluation_milliseconds": round(1000 * computing / CANDIDATES, 2),
        "handling_milliseconds": round(1000 * handling, 2),
        "task_bytes": len(pickle.dumps(tasks[0])),
        **speedups,
    }


def _workload() -> Workload:
    whole = embedded("default")
    return Workload("small", whole.nodes[::KEEP], whole.pods[::KEEP])


def _tasks() -> list[Candidates]:
    """Return tasks of evolution: candidates near FGD, an episode each."""
    rng = np.random.default_rng(1)

    def candidate() -> LinearPolicy:
        weights = fgd_weights()
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


def _seconds(workers: TaskWorkers[Candidates, Floats], tasks: Sequence[Candidates]) -> float:
    begin = time.perf_counter()
    _answers(workers, tasks)
    return time.perf_counter() - begin


def _speedup(tasks: int, computing: float, handling: float, workers: int) -> float:
    """Return how much faster workers are than one: a head that handles one task at a time, then hands out the next."""
    ends = [(0.0, worker) for worker in range(workers)]
    head = 0.0
    for _ in range(tasks):
        free, worker = heapq.heappop(ends)
        head = max(head, free) + handling
        heapq.heappush(ends, (head + computing, worker))
    return tasks * (computing + handling) / max(end for end, _ in ends)
