"""What a signal interrupts, and what it does not."""

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.large_files import objects

import steersman
from steersman.core import signals
from steersman.core.early_signals import SIGNALS
from steersman.core.errors import InputError
from steersman.core.signals import SignalState, defer_signals, interruptible
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


def test_repeated_ctrl_c_is_one_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_interruption_handling_is_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_exit_status_is_the_last_signal(received: SignalState) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupt()
    signal.raise_signal(signal.SIGHUP)
    assert received.status() == 129


def wait() -> None:
    time.sleep(10)


def test_interruption_swallowed_by_a_finalizer_is_raised_again(capfd: pytest.CaptureFixture[str]) -> None:
    class Thing:
        def __del__(self) -> None:
            interrupt()

    def drop() -> None:
        Thing()
        wait()

    with pytest.raises(KeyboardInterrupt):
        drop()
    assert capfd.readouterr().err == ""


SIGNAL_AT_IMPORT = """
import signal, sys
number, module = int(sys.argv.pop(1)), sys.argv.pop(1)
class At:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            signal.raise_signal(number)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, At())
from steersman.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(
    "module", ["steersman.cli.main", "typer", "steersman.policies.decision.description", "steersman.simulation.run"]
)
def test_signal_during_imports_exits_with_one_line(module: str, number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SIGNAL_AT_IMPORT, str(number.value), module]
    arguments = ["simulate", "--workload", "default-small", "--policy", "fgd", "--output", "out"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "interrupted\n")


IN_AN_EXEC = """
import signal
exec("signal.raise_signal(signal.{name})")
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_within_an_exec_exits_with_one_line(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "within_exec.py").write_text(IN_AN_EXEC.format(name=number.name))
    command = "simulate --workload default-small --policy within_exec:Policy --output out"
    done = subprocess.run(
        [sys.executable, "-m", "steersman", *command.split()],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
    )
    assert (done.returncode, done.stderr) == (128 + number, "interrupted\n")


AT_THE_END = """
import atexit, signal, sys
atexit.register(signal.raise_signal, {number})
from steersman.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_after_the_command_exits_with_one_line(number: signal.Signals) -> None:
    command = [sys.executable, "-c", AT_THE_END.format(number=number.value), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (128 + number, "interrupted\n")
    assert done.stdout.startswith("steersman ")


def test_ignored_signals_stay_ignored() -> None:
    ignore = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n{AT_THE_END}"
    command = [sys.executable, "-c", ignore.format(number=signal.SIGHUP.value), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_little_is_imported_before_signals_are_handled() -> None:
    script = "import steersman.core.early_signals, sys; print(*sys.modules)"
    source = Path(steersman.__file__).parents[1]  # -S: what the environment's own .pth files import does not count
    command = [sys.executable, "-S", "-c", script]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": str(source)}
    )
    slow = {"typing", "contextlib", "importlib.abc", "importlib.util", "threading", "numpy"}
    assert not slow & set(done.stdout.split())


def test_garbage_collection_is_paused_while_reading(tmp_path: Path) -> None:
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
