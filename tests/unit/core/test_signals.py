"""What a signal interrupts, and what it does not."""

import gc
import itertools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from tests.support.large_files import objects

from steersman.core import signals
from steersman.core.errors import InputError
from steersman.core.signals import SIGNALS, SignalState, defer_signals, interruptible
from steersman.policies.heuristics.score_table import empty_score_table
from steersman.workloads.loading import load_workload


@pytest.fixture(autouse=True)
def received() -> Iterator[SignalState]:
    former = {number: signal.getsignal(number) for number in SIGNALS}
    with interruptible() as heard:
        yield heard
    for number, handler in former.items():
        signal.signal(number, handler)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_a_key_that_is_held_down_is_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with pytest.raises(KeyboardInterrupt):
        interrupt()
    for _ in range(50):
        now += 0.9
        interrupt()
    now += 1.1
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_dealing_with_an_interruption_is_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "ONE_REQUEST_SECONDS", -1.0)  # every signal is a request of its own
    told = []
    try:
        try:
            interrupt()
        finally:
            interrupt()
            with defer_signals():
                signal.raise_signal(signal.SIGTERM)
                interrupt()
            told.append("cleaned up")
    except KeyboardInterrupt:
        interrupt()
        try:
            raise ValueError
        except ValueError:
            interrupt()
            told.append("told")
    assert told == ["cleaned up", "told"]
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_the_last_signal_is_the_status(received: SignalState) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupt()
    signal.raise_signal(signal.SIGHUP)
    assert received.status() == 129


def wait() -> None:
    time.sleep(10)


def test_what_llvm_calls_is_interrupted_when_it_has_returned() -> None:
    done = []

    def _raw_object_cache_notify() -> None:
        interrupt()
        done.append("stored")

    _raw_object_cache_notify()
    assert done == ["stored"]
    with pytest.raises(KeyboardInterrupt):
        wait()


def test_an_interruption_that_a_finalizer_swallows_comes_again(capfd: pytest.CaptureFixture[str]) -> None:
    class Thing:
        def __del__(self) -> None:
            interrupt()

    def drop() -> None:
        Thing()
        wait()

    with pytest.raises(KeyboardInterrupt):
        drop()
    assert capfd.readouterr().err == ""


SLOW_IMPORTS = """
import signal, sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "steersman.cli.main":
            print(flush=True)
            time.sleep(60)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Slow())
from steersman.__main__ import main
sys.exit(main())
"""


def test_an_interruption_during_imports_is_no_traceback() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SLOW_IMPORTS], stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert (process.returncode, said) == (130, "interrupted\n")


def test_signals_are_heard_while_a_large_table_is_laid_out() -> None:
    heard: list[float] = []

    def hear(_number: int, _frame: FrameType | None) -> None:
        heard.append(time.monotonic())

    former = signal.signal(signal.SIGALRM, hear)
    began = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    try:
        empty_score_table(5_000, 16_000, 1, (1,), (1.0,))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    ended = time.monotonic()
    assert max(b - a for a, b in itertools.pairwise([began, *heard, ended])) < (ended - began) / 2


def test_the_collector_does_not_look_at_what_is_being_read(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(json.dumps(objects(3_000, 10)))
    (tmp_path / "bad.json").write_text("{}")
    began = []

    def note(phase: str, _: dict[str, int]) -> None:
        began.append(phase)

    gc.callbacks.append(note)
    try:
        load_workload(tmp_path / "w.json", None)
    finally:
        gc.callbacks.remove(note)
    assert began.count("start") <= 1  # when all has been read
    assert gc.isenabled()
    with pytest.raises(InputError):
        load_workload(tmp_path / "bad.json", None)
    assert gc.isenabled()
