"""Engines that work on the tasks of a command: processes on this machine, or a Ray cluster.

As with joblib's `parallel_config`, a block chooses the engine of everything in it:

    with use_engine(Engine.RAY, jobs) as jobs:
        run_experiment(experiment, jobs=jobs)
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Protocol, TypeVar

from steersman.core.errors import UsageError
from steersman.core.processes import Answer, Workers, check_jobs, default_jobs
from steersman.core.ray_cluster import RayCluster, RayWorkers, connected

Task = TypeVar("Task", contravariant=True)
Result = TypeVar("Result", covariant=True)

_cluster: RayCluster | None = None
"""The one of the innermost `use_engine`; None: processes on this machine."""


class Engine(enum.StrEnum):
    """What works on the tasks of a command."""

    LOCAL = "local"
    RAY = "ray"


class TaskWorkers(Protocol[Task, Result]):
    """Workers that each work on one task at a time; see `core.processes.Workers`."""

    def __enter__(self) -> TaskWorkers[Task, Result]:
        """Return the workers."""

    def __exit__(self, *_: object) -> None:
        """Stop them."""

    def answers(self, tasks: Iterable[Task]) -> Iterator[tuple[int, Result]]:
        """Yield the position of each task and its answer, in order of completion. Raises SteersmanError: one failed."""

    def close(self) -> None:
        """Stop them."""


@contextmanager
def use_engine(engine: Engine | str, jobs: int | None = None) -> Iterator[int]:
    """Let an engine work on all tasks of the block; yield its number of workers.

    Args:
        engine: `local`, or `ray`: the cluster at RAY_ADDRESS, without that one of this block on this machine.
        jobs: number of workers; None: all cores of this machine or of that cluster.
    """
    global _cluster
    known = [each.value for each in Engine]
    if engine not in known:
        raise UsageError(f"engine {engine!r}: expected {' or '.join(known)}")
    if jobs is not None:
        check_jobs(jobs)
    outer = _cluster
    with connected(jobs) if engine == Engine.RAY else nullcontext() as _cluster:
        try:
            yield jobs or available_workers()
        finally:
            _cluster = outer


def available_workers() -> int:
    """Return how many workers the engine has room for: the cores of this machine, or those of the cluster."""
    return default_jobs() if _cluster is None else _cluster.cores()


def runs_here(jobs: int) -> bool:
    return jobs <= 1 and _cluster is None


def relayed(say: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that workers may call with a line of progress; `say`, of a module, shows it."""
    return say if _cluster is None else _cluster.relayed(say)


def make_workers(jobs: int, prepare: Callable[[], Callable[[Task], Answer]]) -> TaskWorkers[Task, Answer]:
    """Return workers of the engine that is used; arguments as of `core.processes.Workers`."""
    return Workers(jobs, prepare) if _cluster is None else RayWorkers(_cluster, jobs, prepare)
