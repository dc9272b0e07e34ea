"""Worker processes that neither hang nor outlive their parent.

The parent talks to each worker by a pipe of its own, in the calling thread. There is no queue, lock or thread in
between that a KeyboardInterrupt or a dying worker could leave in a bad state: a half-written message ends in an end of
file. Workers do not get signals that a terminal sends to all processes; when there is nothing more to do they are
killed.

`concurrent.futures.ProcessPoolExecutor` would be as fast but not do: its workers write into one pipe, which its parent
holds open for writing too. A worker that dies, or is killed after Ctrl-C, while it writes an answer leaves a thread of
the parent that reads the other half forever, and `shutdown` waits for that thread. Workers also outlive a parent that
was killed, and before Python 3.14 there is no public way to end one that is working.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.util import Finalize
from typing import Generic, TypeVar, cast

from steersman.core.early_signals import SIGNALS
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.signals import defer_signals

Task = TypeVar("Task")
Answer = TypeVar("Answer")


def default_jobs() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_jobs(jobs: int) -> None:
    if jobs < 1:
        raise UsageError(f"--jobs must be at least 1, not {jobs}")


def start_worker(work: Callable[..., object], *arguments: object) -> SpawnProcess:
    """Start a process that calls `work`; it ignores requests to end, so the caller has to `kill` it.

    It inherits blocked signals: a handler of its own would come too late for signals sent while it starts.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        # A worker that runs a script again which starts workers: the process that waits for it says what is wrong.
        raise SystemExit(1)
    process = multiprocessing.get_context("spawn").Process(target=_run_worker, args=(work, arguments))
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        resource_tracker.ensure_running()  # a process too; when it is new it unblocks signals, here as well
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
    return process


def kill(processes: Iterable[SpawnProcess]) -> None:
    """Kill processes and wait until they are gone."""
    processes = list(processes)
    with defer_signals():
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


@contextmanager
def background_process(
    on_end: Callable[[int], None], work: Callable[..., object], *arguments: object
) -> Iterator[None]:
    """Run `work` in a process until the block ends; `on_end` gets its exit status if it ends before."""
    process = start_worker(work, *arguments)
    is_over = threading.Event()

    def watch() -> None:
        connection.wait([process.sentinel])
        if not is_over.is_set():
            process.join()  # its status may not be available yet
            on_end(process.exitcode or 0)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
        kill([process])


@contextmanager
def restarted(
    # A `background_process`, given what it calls when the process has ended
    begin: Callable[[Callable[[int], None]], AbstractContextManager[None]],
    on_end: Callable[[float], None],  # called then, in another thread, with the seconds until the next start
    first_seconds: float = 5.0,  # time until the first start again; it doubles with each further one that comes soon
    most_seconds: float = 300.0,  # longest time; a process that ran for longer begins with the first one again
) -> Iterator[None]:
    """Run a background process until the block ends, and start it again when it has ended."""
    is_over, starting, processes = threading.Event(), threading.Lock(), ExitStack()
    seconds, began = first_seconds, time.monotonic()

    def restart(_: int) -> None:
        nonlocal seconds, began
        wait = first_seconds if time.monotonic() - began > most_seconds else seconds
        seconds = min(2 * wait, most_seconds)
        on_end(wait)
        is_over.wait(wait)
        with starting:
            if is_over.is_set():
                return
            processes.close()
            began = time.monotonic()
            with suppress(OSError):  # such as too little memory
                processes.enter_context(begin(restart))
                return
        restart(1)

    processes.enter_context(begin(restart))
    try:
        yield
    finally:
        with starting:
            is_over.set()
        processes.close()


def _run_worker(work: Callable[..., object], arguments: Sequence[object]) -> None:
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    work(*arguments)


def _exit_with_parent() -> None:
    """End this worker when its parent has ended, which cannot stop its workers if it was killed.

    The signal that Linux would send (PR_SET_PDEATHSIG) comes when the thread ends that started the process.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def plain_error(error: BaseException) -> SteersmanError:
    """Return a worker's error in a form that every process can unpickle."""
    match error:
        case SteersmanError():
            message = str(error)
        case MemoryError():
            message = "out of memory; try fewer --jobs"
        case _:
            where = "".join(f"{note}: " for note in getattr(error, "__notes__", ()))
            what = f"{type(error).__name__}: {error}"
            message = f"{where}{what} (--jobs 1 and STEERSMAN_TRACEBACK=1 show where)"
    plain = SteersmanError(message)
    plain.exit_status = getattr(error, "exit_status", SteersmanError.exit_status)
    return plain


class Workers(Generic[Task, Answer]):
    """Processes that each work on one task at a time.

    They start with the first tasks and stay for further ones until `close`, or until an error.

    Args:
        prepare: called first in each process; returns the function from task to answer. All three are pickled.
        niceness: added to the processes' niceness, see `os.nice`.
    """

    def __init__(self, jobs: int, prepare: Callable[[], Callable[[Task], Answer]], niceness: int = 0) -> None:
        self._jobs, self._prepare, self._niceness = jobs, prepare, niceness
        self._members: list[tuple[SpawnProcess, Connection]] = []
        self._end: Finalize | None = None

    def __enter__(self) -> Workers[Task, Answer]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        if self._end is not None:
            return
        self._members = []
        # Also when this object is not closed: at exit Python waits for processes that wait for tasks.
        self._end = Finalize(self, _close, (self._members,), exitpriority=0)
        for _ in range(self._jobs):
            # An interrupt between start and list would leave a process that nobody ends.
            with defer_signals():
                ours, theirs = multiprocessing.Pipe()
                self._members.append((start_worker(_serve, theirs, self._niceness), ours))
                # With a copy of its own the parent would never see an end of file when the worker dies.
                theirs.close()
        with self._raise_if_worker_died():
            for _, pipe in self._members:
                pipe.send(self._prepare)

    def answers(self, tasks: Iterable[Task]) -> Iterator[tuple[int, Answer]]:
        """Yield the position of each task and its answer, in order of completion."""
        try:
            self.start()
            yield from self._exchange(enumerate(tasks))
        # Also when the caller stops iterating: the workers may still work on tasks that nobody wants.
        except BaseException:
            self.close()
            raise

    def answer(self, task: Task) -> Answer:
        """Return the answer of one task; processes that have ended are not restarted."""
        ((_, answer),) = self._exchange(enumerate([task]))
        return answer

    def close(self) -> None:
        if self._end is not None:
            self._end()
            self._end = None

    def _exchange(self, tasks: Iterator[tuple[int, Task]]) -> Iterator[tuple[int, Answer]]:
        busy: dict[Connection, int] = {}

        def give(pipe: Connection) -> None:
            following = next(tasks, None)
            if following is not None:
                busy[pipe], task = following
                with self._raise_if_worker_died():
                    pipe.send(task)

        for _, pipe in self._members:
            give(pipe)
        while busy:
            with self._raise_if_worker_died():
                ready = cast("list[Connection]", connection.wait(list(busy)))
            for pipe in ready:
                with self._raise_if_worker_died():
                    answer = pipe.recv()
                if isinstance(answer, SteersmanError):
                    raise answer
                position = busy.pop(pipe)
                give(pipe)
                yield position, answer

    @contextmanager
    def _raise_if_worker_died(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError):
            # The exit status of `start_worker` in a worker.
            if any(_exit_status(process) == 1 for process, _ in self._members):
                raise SteersmanError(
                    "a worker process ended while it started, which runs a script again; put what a script does under "
                    '`if __name__ == "__main__":`'
                ) from None
            hint = "; try fewer --jobs" if self._jobs > 1 else ""
            raise SteersmanError(f"a worker process died, perhaps for lack of memory{hint}") from None


async def ask_process(
    work: Callable[[Task], Answer], task: Task, *, seconds: float | None = None, niceness: int = 0
) -> Answer:
    """Return the result of `work` on a task in a process of its own, without blocking the event loop.

    Args:
        work: function of a module; pickled, as the task is.
        seconds: timeout after which the process is killed, None: none. It is also killed when the caller is cancelled.
        niceness: added to the process's niceness, see `os.nice`.
    """
    with Workers(1, partial(_return, work), niceness) as worker:
        try:
            worker.start()  # not in the thread, which runs on for a moment after the process was killed
        except OSError as error:
            raise SteersmanError(f"no process could be started: {error}") from None
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.to_thread(worker.answer, task)
        except TimeoutError:
            raise SteersmanError(f"the process took longer than {seconds:g} s and was ended") from None


def _return(work: Callable[[Task], Answer]) -> Callable[[Task], Answer]:
    return work


def _exit_status(process: SpawnProcess) -> int:
    """Return the exit status of a process that may be about to end, 0 if it does not."""
    # Its pipe closes a moment before it can be waited for.
    process.join(1.0)
    return process.exitcode or 0


def _close(members: list[tuple[SpawnProcess, Connection]]) -> None:
    kill(process for process, _ in members)
    for _, pipe in members:
        pipe.close()


def _serve(pipe: Connection, niceness: int) -> None:
    """Receive `prepare` in a worker, then answer tasks until one fails; the error is an answer too."""
    try:
        os.nice(niceness)
        work = pipe.recv()()
        while True:
            pipe.send(work(pipe.recv()))
    except BaseException as error:
        with suppress(OSError):  # the parent has gone
            pipe.send(plain_error(error))
