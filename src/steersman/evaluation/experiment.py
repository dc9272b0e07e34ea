"""An experiment: every workload by every policy by every seed, over processes, in one order whatever these do."""

from __future__ import annotations

import multiprocessing
import pickle
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from pathlib import Path

import numpy as np

from steersman.errors import SteersmanError, UsageError
from steersman.evaluation.interrupts import undisturbed
from steersman.evaluation.summary import ALL
from steersman.processes import become_worker
from steersman.simulation.result import FinalNodes, Protocol, RunResult
from steersman.simulation.run import Simulator
from steersman.workloads.workload import Workload

OnRun = Callable[[int, int], None]
"""Called after each run with how many are done and how many there are."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """What is run: the product of workloads, policies and seeds.

    Attributes:
        workloads: their names are unique.
        policies: names that `steersman.policies.registry.resolve` knows, unique.
        seeds: unique. A run is a function of its workload, policy, seed, protocol and ratio alone.
        ratio: arrived GPU demand over GPU capacity (`inflation` only).
        load: demand over capacity of generated arrivals (`timed` only), None: the times of the trace.

    Raises:
        UsageError: something is empty or there twice, or one of several workloads has the name of their mean.
    """

    workloads: tuple[Workload, ...]
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    protocol: Protocol = "inflation"
    ratio: float = 1.3
    load: float | None = None

    def __post_init__(self) -> None:
        _check_unique("workload", [workload.name for workload in self.workloads])
        _check_unique("policy", list(self.policies))
        _check_unique("seed", [str(seed) for seed in self.seeds])
        if len(self.workloads) > 1 and ALL in [workload.name for workload in self.workloads]:
            raise UsageError(f"a workload is called {ALL}, as the mean over all workloads is; rename its file")

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return len(self.workloads) * len(self.policies) * len(self.seeds)


class InterruptionError(SteersmanError):
    """Ctrl-C: `finished` holds the runs that were done, in the experiment's order, of `total`; `kept` says where."""

    exit_status = 130

    def __init__(self, finished: list[RunResult], total: int, kept: str = "") -> None:
        where = f"; the finished ones are in {kept}" if kept else ""
        super().__init__(f"interrupted after {len(finished)} of {total} runs{where}")
        self.finished = finished
        self.total = total


@dataclass(frozen=True, slots=True)
class _Task:
    position: int
    workload: int
    policy: str
    seed: int
    keep_nodes: bool


@dataclass(frozen=True, slots=True)
class _Failure:
    """An error of a worker, in a form that every process can read."""

    message: str
    exit_status: int


def run_experiment(experiment: Experiment, *, jobs: int = 1, on_run: OnRun | None = None) -> list[RunResult]:
    """Run all of it, workload by workload, policy by policy, seed by seed; the result is in that order.

    `final_nodes` is kept for the first seed of a workload and policy and empty for the others, `placements` is None.

    Args:
        experiment: what to run.
        jobs: processes; 1 stays in this one. Compiled kernels should be in numba's cache before (`warm_up`).
        on_run: progress.

    Raises:
        SteersmanError: a run failed; the others are stopped.
        InterruptionError: Ctrl-C; it holds what was finished.
    """
    tasks = list(_tasks(experiment))
    done: dict[int, RunResult] = {}

    def collect(task: _Task, run: RunResult) -> None:
        done[task.position] = run
        if on_run is not None:
            on_run(len(done), len(tasks))

    try:
        if min(jobs, len(tasks)) <= 1:
            bench = _Bench(experiment, lambda index: experiment.workloads[index])
            for task in tasks:
                collect(task, bench.run(task))
        else:
            _run_in_processes(experiment, tasks, min(jobs, len(tasks)), collect)
    except KeyboardInterrupt:
        raise InterruptionError([done[position] for position in sorted(done)], len(tasks)) from None
    return [done[task.position] for task in tasks]


def _check_unique(what: str, values: Sequence[str]) -> None:
    if not values:
        raise UsageError(f"there is no {what}; give at least one")
    for value in values:
        if values.count(value) > 1:
            raise UsageError(f"the {what} {value} is there twice; results could not tell them apart")


def _tasks(experiment: Experiment) -> Iterator[_Task]:
    position = 0
    for workload in range(len(experiment.workloads)):
        for policy in experiment.policies:
            for seed in experiment.seeds:
                yield _Task(position, workload, policy, seed, keep_nodes=seed == experiment.seeds[0])
                position += 1


class _Bench:
    """Where runs are made: the experiment's settings, and a simulator of the workload that the last run was about."""

    def __init__(self, experiment: Experiment, load: Callable[[int], Workload]) -> None:
        self._experiment = experiment
        self._load = load
        self._index = -1
        self._simulator: Simulator | None = None

    def run(self, task: _Task) -> RunResult:
        """One run."""
        if self._simulator is None or self._index != task.workload:
            self._simulator = None  # two large workloads at once need not fit
            self._simulator, self._index = Simulator(self._load(task.workload)), task.workload
        settings = self._experiment
        run = self._simulator.run(
            task.policy, protocol=settings.protocol, seed=task.seed, ratio=settings.ratio, load=settings.load
        )
        return run if task.keep_nodes else replace(run, final_nodes=_NO_NODES)


GRACE_SECONDS = 0.2
"""A request to end that goes to all processes may be seen in the death of a worker first."""

_NO_NODES = FinalNodes((), (), np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0))


def _run_in_processes(
    experiment: Experiment, tasks: list[_Task], jobs: int, collect: Callable[[_Task, RunResult], None]
) -> None:
    """Run tasks in `jobs` spawned processes, each of which loads a workload when it first meets it."""
    before = set(multiprocessing.active_children())
    folder = tempfile.mkdtemp(prefix="steersman-")
    try:
        for index, workload in enumerate(experiment.workloads):
            Path(folder, str(index)).write_bytes(pickle.dumps(workload, protocol=pickle.HIGHEST_PROTOCOL))
        settings = replace(experiment, workloads=tuple(replace(w, nodes=(), pods=()) for w in experiment.workloads))
        with _interrupts_blocked():
            pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start_worker, (settings, folder))
        try:
            with _interrupts_blocked():
                futures: dict[Future[RunResult | _Failure], _Task] = {pool.submit(_work, task): task for task in tasks}
            for future in as_completed(futures):
                outcome = future.result()
                if isinstance(outcome, _Failure):
                    error = SteersmanError(outcome.message)
                    error.exit_status = outcome.exit_status
                    raise error
                collect(futures.pop(future), outcome)
        except BrokenProcessPool:
            time.sleep(GRACE_SECONDS)
            raise SteersmanError("a worker process died, perhaps for want of memory; try fewer --jobs") from None
        except BaseException:
            with undisturbed():
                pool.shutdown(wait=False, cancel_futures=True)
                for worker in set(multiprocessing.active_children()) - before:
                    worker.terminate()
                pool.shutdown(wait=True)
            raise
        pool.shutdown(wait=True)
    finally:
        with undisturbed():
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes started inside inherit blocked signals: what a terminal sends to all processes is for the parent.

    SIGTERM is not among them: it is how the parent, or a pool that is broken, ends its workers.
    """
    blocked = {signal.SIGINT, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    resource_tracker.ensure_running()  # a process too; it unblocks SIGINT, here as well
    signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)


class _Worker:
    """What a worker process has."""

    bench: _Bench


def _start_worker(experiment: Experiment, folder: str) -> None:
    become_worker()
    # Written by the parent of this very process, into a folder that only its user may enter.
    _Worker.bench = _Bench(experiment, lambda index: pickle.loads(Path(folder, str(index)).read_bytes()))


def _work(task: _Task) -> RunResult | _Failure:
    try:
        return _Worker.bench.run(task)
    except SteersmanError as error:
        return _Failure(str(error), error.exit_status)
    except MemoryError:
        return _Failure("out of memory; try fewer --jobs", SteersmanError.exit_status)
    except BaseException as error:  # whatever it is, the parent must be able to read it
        what = f"{type(error).__name__}: {error}"
        message = f"policy {task.policy!r}, seed {task.seed}: {what} (--jobs 1 and STEERSMAN_TRACEBACK=1 show where)"
        return _Failure(message, SteersmanError.exit_status)
