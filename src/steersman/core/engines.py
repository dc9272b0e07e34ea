"""Engines that work on the tasks of a command: processes on this machine, or actors on a Ray cluster.

As with joblib's `parallel_config`, a block chooses the engine of everything in it:

    with use_engine(Engine.RAY, jobs) as jobs:
        run_experiment(experiment, jobs=jobs)

Why not `joblib.Parallel` with Ray's backend: it refuses `return_as`, so no result comes before the last one. There
would be no progress, and nothing to keep of what was interrupted. A worker that dies ends all, unless Ray repeats its
tasks, on the same actor alone. It knows no `prepare`.
"""

from __future__ import annotations

import enum
import logging
import os
import secrets
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, Generic
from urllib.parse import urlsplit

from steersman.core.early_signals import SIGNALS
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.extras import require_extra
from steersman.core.processes import Answer, Task, Workers, check_jobs, default_jobs, plain_error
from steersman.core.signals import defer_signals
from steersman.version import __version__

ADDRESS = "RAY_ADDRESS"
CONNECT_SECONDS = 5.0
CHECK_SECONDS = 2.0  # between two looks whether the head is there; Ray itself ends the process 60 s after the head
MOST_DEATHS = 3  # workers that may die on the same task: it is the reason then
STARTING = -1  # what a worker that starts does, in place of a task's position

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_raylet_start_wait_time_s": "120",  # 30 are too few on a busy machine
    "RAY_worker_niceness": "0",  # as processes of the other engine
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else Ray warns that it will do this one day
}
ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Lets Ray bind to 127.0.0.1, as it does on other systems, instead of all of this machine's addresses."""
ELSEWHERE = {"RAY_gcs_server_port_wait_time_s": "1"}
"""Lets Ray try to connect once, half a minute long, instead of twenty times."""


class ClusterLostError(SteersmanError):
    """The head of the cluster has stopped, so that no task can be finished there."""


class RayCluster:
    """A cluster that this process is connected to."""

    def __init__(self, ray: Any, address: str) -> None:
        self.ray, self.address = ray, address
        self._checked = time.monotonic()
        self._relays: list[tuple[Any, Callable[[str], None]]] = []

    def cores(self) -> int:
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def check(self) -> None:
        """Look now and then whether the head is there, and what workers said. Raises ClusterLostError: it is not."""
        now = time.monotonic()
        if now - self._checked < CHECK_SECONDS:
            return
        self._checked = now
        if not _answers(self.address):
            raise self.lost()
        self.relay()

    def relayed(self, say: Callable[[str], None]) -> Callable[[str], None]:
        """Return a function for workers, whose texts `say` gets in this process."""
        texts = self.ray.remote(num_cpus=0)(_Texts).remote()
        self._relays.append((texts, say))
        return partial(_add, self.ray, texts)

    def relay(self) -> None:
        for texts, say in self._relays:
            with suppress(self.ray.exceptions.RayError):  # its machine is gone, and the progress with it
                for text in self.ray.get(texts.take.remote()):
                    say(text)

    def lost(self) -> ClusterLostError:
        return ClusterLostError(
            f"the Ray cluster at {self.address} has stopped; start it and run the command again, or use --engine local"
        )


@contextmanager
def connected(jobs: int | None) -> Iterator[RayCluster]:
    """Connect to the cluster at RAY_ADDRESS, or to one on this machine that ends with the block."""
    require_extra("--engine ray", "ray", "ray")
    address = os.environ.get(ADDRESS, "")
    # Ray itself would try for minutes.
    if address and not _answers(address):
        raise SteersmanError(
            f"no Ray cluster answers at {ADDRESS}={address}; start it, or unset {ADDRESS} to use this machine"
        )
    own = ON_LOOPBACK | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ.update(SETTINGS | (ELSEWHERE if address else own))  # before the import, which reads them
    import ray

    options: dict[str, Any] = {"address": address} if address else {"num_cpus": jobs or default_jobs()}
    if not address:
        options["include_dashboard"] = False
    # Ray replaces the handlers of signals.
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        try:
            context: Any = ray.init(**options, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as error:  # of many types, as of other versions of Python and Ray on the cluster
            where = f"the Ray cluster at {address} cannot be used" if address else "Ray cannot be started"
            raise SteersmanError(f"{where}: {_first_line(error).partition(' Last ')[0]}") from None
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        # As Ray's debugger does: news of workers that died would come between the results on standard output.
        ray._private.worker._worker_logs_enabled = False
        yield RayCluster(ray, address or context.address_info["gcs_address"])
    finally:
        with defer_signals():
            ray.shutdown()


def _host_and_port(address: str) -> tuple[str, int]:
    with suppress(ValueError):
        parts = urlsplit(address if "://" in address else f"//{address}")
        if not parts.scheme and parts.hostname and parts.port:
            return parts.hostname, parts.port
    raise UsageError(f"{ADDRESS}={address}: expected host:port of a cluster's head")


def _answers(address: str) -> bool:
    try:
        socket.create_connection(_host_and_port(address), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


class _Texts:
    """What workers said, in an actor of its own."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, text: str) -> None:
        self._texts.append(text)

    def take(self) -> list[str]:
        taken, self._texts = self._texts, []
        return taken


def _add(ray: Any, texts: Any, text: str) -> None:
    ray.get(texts.add.remote(text))  # before the answer, after which nobody listens


class _Actor(Generic[Task, Answer]):
    """What a worker is: `prepare` and the function that it returned."""

    def prepare(self, prepare: Callable[[], Callable[[Task], Answer]]) -> SteersmanError | str:
        """Prepare for tasks; return the version of this package, or what went wrong."""
        try:
            self._work = prepare()
        except BaseException as error:
            return plain_error(error)
        return __version__

    def answer(self, task: Task) -> Answer | SteersmanError:
        """Return the answer of a task, or what went wrong."""
        try:
            return self._work(task)
        except BaseException as error:
            return plain_error(error)


class RayWorkers(Generic[Task, Answer]):
    """Actors on a Ray cluster that each work on one task at a time, like `core.processes.Workers`.

    A worker that dies is replaced, and its task is done again. Those that find no room wait for it; the others do the
    tasks meanwhile.

    Args:
        prepare: called first in each actor; returns the function from task to answer. All three are pickled.
    """

    def __init__(self, cluster: RayCluster, jobs: int, prepare: Callable[[], Callable[[Task], Answer]]) -> None:
        self._cluster, self._jobs, self._prepare = cluster, jobs, prepare
        self._idle: list[Any] = []
        self._busy: dict[Any, tuple[Any, int | None, Any]] = {}
        self._start: Callable[[], None] | None = None

    def __enter__(self) -> RayWorkers[Task, Answer]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answers(self, tasks: Iterable[Task]) -> Iterator[tuple[int, Answer]]:
        """Yield the position of each task and its answer, in order of completion."""
        try:
            yield from self._exchange(enumerate(tasks))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with defer_signals():
            for actor in [*self._idle, *(actor for actor, _, _ in self._busy.values())]:
                self._cluster.ray.kill(actor)
            self._idle, self._busy, self._start = [], {}, None

    def _exchange(self, tasks: Iterator[tuple[int, Task]]) -> Iterator[tuple[int, Answer]]:
        ray = self._cluster.ray
        if self._start is None:
            self._start = self._starter()
            for _ in range(self._jobs):
                self._start()
        again: deque[tuple[int, Task]] = deque()
        deaths: dict[int, int] = {}
        while True:
            while self._idle and (following := again.popleft() if again else next(tasks, None)) is not None:
                actor = self._idle.pop()
                self._busy[actor.answer.remote(following[1])] = (actor, *following)
            if not again and all(position is None for _, position, _ in self._busy.values()) and self._idle:
                self._cluster.relay()
                return
            ready, _ = ray.wait(list(self._busy), timeout=CHECK_SECONDS)
            self._cluster.check()
            for reference in ready:
                actor, position, task = self._busy.pop(reference)
                try:
                    answer = ray.get(reference)
                except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError) as error:
                    ray.kill(actor)  # one that cannot be reached may live
                    self._replace(position, error, deaths)
                    if position is not None:
                        again.append((position, task))
                    continue
                except ray.exceptions.RayError as error:  # what was sent cannot be unpickled there
                    raise SteersmanError(f"a worker has not what a task needs: {_last_line(error)}") from None
                self._idle.append(actor)
                if isinstance(answer, SteersmanError):
                    raise answer
                if position is not None:
                    yield position, answer
                elif answer != __version__:
                    raise SteersmanError(
                        f"a worker has steersman {answer}, and this is {__version__}; install the same"
                    )
                else:
                    deaths.pop(STARTING, None)

    def _starter(self) -> Callable[[], None]:
        ray = self._cluster.ray
        kind = ray.remote(num_cpus=1)(_Actor)
        prepare = ray.put(self._prepare)  # once for all actors

        def start() -> None:
            actor = kind.remote()
            self._busy[actor.prepare.remote(prepare)] = (actor, None, None)

        return start

    def _replace(self, position: int | None, error: Exception, deaths: dict[int, int]) -> None:
        key = STARTING if position is None else position
        deaths[key] = deaths.get(key, 0) + 1
        if not _answers(self._cluster.address):
            raise self._cluster.lost() from None
        if deaths[key] == MOST_DEATHS:
            if position is None:
                raise SteersmanError(f"{MOST_DEATHS} workers died while they started: {_last_line(error)}") from None
            hint = "perhaps for lack of memory; try fewer --jobs"
            raise SteersmanError(f"{MOST_DEATHS} workers died on the same task, {hint}") from None
        assert self._start is not None
        self._start()


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _last_line(error: Exception) -> str:
    """Return what went wrong on another machine; the lines before are where."""
    return str(error).strip().rpartition("\n")[2].strip() or type(error).__name__


_cluster: RayCluster | None = None  # the one of the innermost `use_engine`; None: processes on this machine


class Engine(enum.StrEnum):
    """What works on the tasks of a command."""

    LOCAL = "local"
    RAY = "ray"


TaskWorkers = Workers[Task, Answer] | RayWorkers[Task, Answer]


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
    return default_jobs() if _cluster is None else _cluster.cores()


def runs_here(jobs: int) -> bool:
    return jobs <= 1 and _cluster is None


def relayed(say: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that workers may call with a line of progress; `say`, of a module, shows it."""
    return say if _cluster is None else _cluster.relayed(say)


def make_workers(jobs: int, prepare: Callable[[], Callable[[Task], Answer]]) -> TaskWorkers[Task, Answer]:
    """Return workers of the engine that is used; arguments as of `core.processes.Workers`."""
    return Workers(jobs, prepare) if _cluster is None else RayWorkers(_cluster, jobs, prepare)
