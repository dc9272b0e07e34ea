"""What a signal interrupts, and what it does not."""

import gc
import itertools
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

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


NODES, PODS = 5_000, 20_000


def objects(pods: int, nodes: int) -> dict[str, Any]:
    """Nodes and pods of which no two ask for the same, in one list as kubectl writes them."""
    draw = random.Random(1)
    found: list[dict[str, Any]] = []
    for i in range(nodes):
        held = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(draw.choice((0, 2, 4, 8)))}
        found.append(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{i}"}, "status": {"allocatable": held}}
        )
    for i in range(pods):
        asked = {"cpu": f"{1000 + i}m", "memory": f"{draw.randrange(1, 9000)}Mi", "nvidia.com/gpu": str(i % 3)}
        spec = {"containers": [{"name": "c", "resources": {"requests": asked, "limits": asked}}]}
        found.append({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{i}"}, "spec": spec})
    return {"apiVersion": "v1", "kind": "List", "items": found}


def table(pods: int) -> str:
    """The same pods as CSV."""
    draw = random.Random(1)
    rows = (
        f"p{i},{1000 + i},{draw.randrange(1, 9000)},{i % 3},{(0, draw.randrange(10, 1000, 10), 1000)[i % 3]},"
        for i in range(pods)
    )
    return "\n".join(["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec", *rows])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 20,000 distinct pods and 5,000 nodes: `w.json`, `w.yaml` and `nodes.csv` with `pods.csv`."""
    folder = tmp_path_factory.mktemp("large")
    found = objects(PODS, NODES)
    (folder / "w.json").write_text(json.dumps(found))
    # Lines of flow mappings: written at once, and read as any other YAML.
    items = "".join(f"- {json.dumps(each)}\n" for each in found["items"])
    (folder / "w.yaml").write_text(f"apiVersion: v1\nkind: List\nitems:\n{items}")
    (folder / "pods.csv").write_text(table(PODS))
    nodes = "\n".join(f"n{i},64000,262144,{2 * (i % 5)},T4" for i in range(NODES))
    (folder / "nodes.csv").write_text(f"sn,cpu_milli,memory_mib,gpu,model\n{nodes}\n")
    return folder


CSV = "--nodes nodes.csv --pods pods.csv"
JSON, YAML = (f"--nodes w.{suffix} --pods w.{suffix}" for suffix in ("json", "yaml"))
COMMANDS = {
    f"workload convert {YAML} --to openb --lossy --output out": (2.5,),
    f"evaluate {JSON} --policy fgd steersman --seeds 1 --protocol arrivals --jobs 1 --output out": (2.0, 6.0),
    f"simulate {CSV} --policy steersman --protocol arrivals --output out": (3.0, 5.0),
    f"policy prepare {CSV} --policy steersman --output out.safetensors": (4.0,),
    f"policy fit {JSON} --output out.safetensors": (6.0,),
    f"explain {JSON} --pod p19999 --policy steersman": (5.0,),
    "train --nodes nodes.csv --workload pods.csv --algorithm evolution --output out": (5.0,),
}
"""Commands that work on the large files, and after how many seconds they are asked to end."""


@pytest.mark.parametrize(
    ("command", "after", "number"),
    [  # some by Ctrl-C, some by kill
        (command, after, number)
        for (command, moments), number in zip(
            COMMANDS.items(), itertools.cycle((signal.SIGINT, signal.SIGTERM)), strict=False
        )
        for after in moments
    ],
)
def test_a_command_ends_soon_whatever_it_does_with_large_files(
    command: str, after: float, number: signal.Signals, files: Path, tmp_path: Path
) -> None:
    for each in files.iterdir():
        (tmp_path / each.name).symlink_to(each)
    arguments = [sys.executable, "-m", "steersman", *command.split()]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        arguments,
        stdout=pipe,
        stderr=pipe,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
        env=os.environ | {"PYTHONFAULTHANDLER": "1"},
    ) as process:
        time.sleep(after)
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        worked = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        former = resource.getrusage(resource.RUSAGE_CHILDREN)
        process.send_signal(number)
        asked = time.monotonic()
        said = process.communicate(timeout=120)[1]
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Wall time is that of a machine that may be busy with other tests.
    assert ended.ru_utime + ended.ru_stime - former.ru_utime - former.ru_stime - worked < 2
    assert time.monotonic() - asked < 10
    assert process.returncode == 128 + number, said
    assert said.splitlines()[-1].startswith("interrupted")
    assert "Traceback" not in said
    assert not {path.name for path in tmp_path.iterdir()} - {path.name for path in files.iterdir()}


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
