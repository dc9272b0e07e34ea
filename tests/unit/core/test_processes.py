"""Worker processes: every task is answered, whatever goes wrong is one error, and no process is left."""

import errno
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.errors import raises
from tests.support.nightly import examples

from steersman.core.early_signals import SIGNALS
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.processes import Workers, background_process, check_jobs, kill, restarted, start_worker
from steersman.core.signals import defer_signals, interruptible


def times(factor: int) -> Callable[[int], int]:
    return partial(int.__mul__, factor)


def caller() -> Callable[[Callable[[], Any]], Any]:
    return call


def call(task: Callable[[], Any]) -> Any:
    return task()


def fail(error: BaseException, note: str = "") -> None:
    if note:
        error.add_note(note)
    raise error


@pytest.fixture(scope="module")
def doubling() -> Iterator[Workers[int, int]]:
    with Workers(2, partial(times, 2)) as workers:
        yield workers


@given(st.lists(st.integers(), max_size=20))
@settings(max_examples=examples(30), deadline=None)
def test_every_task_is_answered_once(doubling: Workers[int, int], tasks: list[int]) -> None:
    answers = list(doubling.answers(tasks))
    assert sorted(answers) == [(position, 2 * task) for position, task in enumerate(tasks)]


def test_workers_are_reused_and_ignore_signals() -> None:
    before = set(multiprocessing.active_children())
    with Workers(2, caller) as workers:
        assert list(workers.answers([])) == []
        started = set(multiprocessing.active_children()) - before
        assert len(started) == 2
        for process in started:  # perhaps before they have begun
            for number in SIGNALS:
                os.kill(process.pid or 0, number)
        for _ in range(2):
            answers = dict(workers.answers([os.getpid] * 9))
            assert set(answers) == set(range(9))
            assert set(answers.values()) <= {process.pid for process in started}
        assert set(multiprocessing.active_children()) == before | started
    assert set(multiprocessing.active_children()) == before


@pytest.mark.parametrize(
    ("task", "message", "status"),
    [
        (partial(fail, UsageError("no such policy")), "no such policy", 2),
        (partial(fail, ValueError("odd"), "seed 7"), "seed 7: ValueError: odd (--jobs 1 and ", 1),
        (partial(fail, KeyboardInterrupt()), "KeyboardInterrupt: ", 1),
        (partial(fail, SystemExit(0)), "SystemExit: 0", 1),
        (partial(fail, MemoryError()), "out of memory; try fewer --jobs", 1),
        (threading.Lock, "TypeError: cannot pickle", 1),
        (partial(os._exit, 0), "a worker process died", 1),
    ],
)
def test_any_task_failure_is_one_error(task: Callable[[], Any], message: str, status: int) -> None:
    before = set(multiprocessing.active_children())
    workers = Workers(2, caller)
    with pytest.raises(SteersmanError) as raised:
        list(workers.answers([partial(time.sleep, 60), task]))
    assert str(raised.value).startswith(message)
    assert raised.value.exit_status == status
    assert set(multiprocessing.active_children()) == before


def die_while_answering() -> bytes:
    """Let the process be killed, as for lack of memory, when a part of its answer is written."""

    def send_half(pipe: Connection, answer: bytes) -> None:
        os.write(pipe.fileno(), answer[: len(answer) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    Connection._send = send_half  # type: ignore[attr-defined]
    return bytes(1000)


def test_death_of_a_worker_during_its_answer_is_reported() -> None:
    """`concurrent.futures` waits here for the other half for ever."""
    before = set(multiprocessing.active_children())
    with raises(SteersmanError):
        list(Workers(2, caller).answers([partial(time.sleep, 60), die_while_answering]))
    assert set(multiprocessing.active_children()) == before


def test_error_does_not_advise_fewer_than_one_job() -> None:
    with raises(SteersmanError):
        list(Workers(1, caller).answers([partial(os._exit, 0)]))


def test_workers_restart_after_an_error() -> None:
    with Workers(1, caller) as workers:
        with pytest.raises(SteersmanError):
            list(workers.answers([partial(fail, SteersmanError("once"))]))
        assert list(workers.answers([os.cpu_count])) == [(0, os.cpu_count())]


def test_preparation_error_is_reported() -> None:
    with raises(SteersmanError, "ValueError"):
        list(Workers(2, partial(fail, ValueError("no arena"))).answers([1]))


def test_abandoned_workers_end() -> None:
    before = set(multiprocessing.active_children())
    workers = Workers(1, caller)
    for _ in workers.answers([os.getpid]):
        pass
    assert set(multiprocessing.active_children()) != before
    del workers
    assert set(multiprocessing.active_children()) == before


@pytest.mark.parametrize("after", [0.0, 0.02, 0.3])
def test_repeated_signals_are_one_interruption(after: float) -> None:
    before = set(multiprocessing.active_children())

    def send() -> None:
        time.sleep(after)
        for _ in range(20):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.005)

    def work() -> None:
        with Workers(2, caller) as workers:
            sender.start()
            list(workers.answers([partial(time.sleep, 60)] * 4))

    former = {number: signal.getsignal(number) for number in SIGNALS}
    sender = threading.Thread(target=send)
    try:
        with interruptible():
            with pytest.raises(KeyboardInterrupt):
                work()
            assert set(multiprocessing.active_children()) == before
            sender.join()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def test_protected_block_ends_before_an_interruption() -> None:
    done = []

    def work() -> None:
        with defer_signals():
            signal.raise_signal(signal.SIGINT)
            with defer_signals():
                signal.raise_signal(signal.SIGINT)
            done.append("all of it")
        done.append("what follows")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_unexpected_end_of_a_background_process_is_reported() -> None:
    before = set(multiprocessing.active_children())
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()
    with background_process(ended.put, os._exit, 3):
        assert ended.get(timeout=30) == 3
    with background_process(ended.put, time.sleep, 60):
        (process,) = set(multiprocessing.active_children()) - before
    assert process.exitcode == -signal.SIGKILL
    time.sleep(0.1)
    assert ended.empty()
    assert set(multiprocessing.active_children()) == before


def test_unresponsive_worker_is_killed() -> None:
    process = start_worker(time.sleep, 60)
    os.kill(process.pid or 0, signal.SIGTERM)
    process.join(0.2)
    assert process.is_alive()
    kill([process])
    assert process.exitcode == -signal.SIGKILL


def test_a_number_of_processes_below_1_is_rejected() -> None:
    check_jobs(1)
    for jobs in (0, -1):
        with raises(UsageError, f"--jobs must be at least 1, not {jobs}"):
            check_jobs(jobs)


@pytest.mark.parametrize("status", [0, 1])
def test_background_process_that_ends_is_started_again(status: int) -> None:
    waits, starts, unreleased = list[float](), list[float](), list[int]()

    @contextmanager
    def begin(on_exit: Callable[[int], None]) -> Iterator[None]:
        unreleased.append(1)
        starts.append(time.monotonic())
        with background_process(on_exit, sys.exit, status):
            yield
        unreleased.pop()

    with restarted(begin, waits.append, first_seconds=0.05, most_seconds=600.0):
        end = time.monotonic() + 60
        while len(starts) < 4 and time.monotonic() < end:
            time.sleep(0.02)
        assert len(unreleased) == 1, "what a process that has ended used is released"
    assert waits[:3] == [0.05, 0.1, 0.2]
    assert starts[3] - starts[2] >= 0.2
    count = len(starts)
    time.sleep(0.6)
    assert len(starts) == count, "none is started after the block"


def test_process_that_cannot_be_started_again_is_tried_later() -> None:
    waits, starts = list[float](), list[bool]()

    @contextmanager
    def begin(on_exit: Callable[[int], None]) -> Iterator[None]:
        starts.append(True)
        if len(starts) in (2, 3):
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        with background_process(on_exit, sys.exit, 1):
            yield

    with restarted(begin, waits.append, first_seconds=0.05, most_seconds=600.0):
        end = time.monotonic() + 60
        while len(starts) < 5 and time.monotonic() < end:
            time.sleep(0.02)
    assert len(starts) >= 5
    assert waits[:3] == [0.05, 0.1, 0.2]


def test_process_that_is_restarted_ends_with_the_block() -> None:
    started = threading.Event()

    @contextmanager
    def begin(on_exit: Callable[[int], None]) -> Iterator[None]:
        with background_process(on_exit, time.sleep, 600):
            started.set()
            yield

    began = time.monotonic()
    with restarted(begin, lambda _: None):
        assert started.is_set()
    assert time.monotonic() - began < 60
