"""`steersman evaluate` as a user runs it: processes, Ctrl-C, the same bytes whatever the processes."""

import contextlib
import csv
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from importlib import resources
from pathlib import Path

import pytest

DATA = Path(str(resources.files("steersman.data.openb")))
FILES = (
    "--nodes",
    str(DATA / "openb_node_list_gpu_node.csv.gz"),
    "--pods",
    str(DATA / "openb_pod_list_default.csv.gz"),
    "--protocol",
    "inflation",  # by the data it would be in timed, too, which takes longer
)
PATIENCE_SECONDS = 180

pytestmark = pytest.mark.integration


def command(*arguments: str) -> list[str]:
    # A shell starts what it runs in the background with Ctrl-C ignored, and `nohup` SIGHUP; the command leaves that so.
    heard = "import signal; [signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGHUP)]"
    program = f"{heard}; import sys; from steersman.cli.main import main; sys.exit(main())"
    return [sys.executable, "-c", program, *arguments]


def evaluate(output: Path, *more: str) -> subprocess.CompletedProcess[str]:
    arguments = command("evaluate", *FILES, "--output", str(output), *more)
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Kernels in the cache, so that what follows takes seconds."""
    evaluate(tmp_path_factory.mktemp("warm") / "out", "--policy", "fgd", "random", "--seeds", "1", "--jobs", "1")


def test_same_seeds_give_the_same_bytes_for_any_number_of_processes(tmp_path: Path) -> None:
    runs = ("--policy", "best-fit", "fgd", "random", "--seeds", "42-43")
    one = evaluate(tmp_path / "a" / "out", *runs, "--jobs", "1")
    two = evaluate(tmp_path / "b" / "out", *runs, "--jobs", "2")
    assert one.stdout == two.stdout
    names = sorted(path.name for path in (tmp_path / "a" / "out").iterdir())
    assert names == ["metrics.csv", "report.html", "results.csv", "summary.csv"]
    for name in names:
        assert (tmp_path / "a" / "out" / name).read_bytes() == (tmp_path / "b" / "out" / name).read_bytes(), name


def start(output: Path, jobs: int, temporary: Path | None = None, seeds: str = "0-4999") -> subprocess.Popen[str]:
    """An evaluation of minutes, in a process group of its own as a terminal gives it, that has finished some runs."""
    arguments = command("evaluate", *FILES, "--output", str(output), "--policy", "fgd", "--seeds", seeds)
    running = subprocess.Popen(
        [*arguments, "--jobs", str(jobs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(temporary or output.parent)},
    )
    assert running.stderr is not None
    for line in running.stderr:
        if line.startswith("simulating: "):
            return running
        assert not line.startswith("error"), line
    raise AssertionError("it ended without a run")


def wait_until_gone(group: int) -> None:
    """Until no process of the group is left."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.killpg(group, signal.SIGKILL)
    pytest.fail("processes are left over")


def by_folder(output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = command("evaluate", "--output", str(output), "--resume", *options)
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("jobs", "number", "times", "status"),
    [
        (1, signal.SIGINT, 1, 130),
        (2, signal.SIGINT, 1, 130),
        (2, signal.SIGINT, 20, 130),
        (2, signal.SIGTERM, 3, 143),
        (2, signal.SIGHUP, 1, 129),
    ],
)
def test_ctrl_c_keeps_finished_runs(tmp_path: Path, jobs: int, number: int, times: int, status: int) -> None:
    output, temporary = tmp_path / "a" / "out", tmp_path / "b"
    output.parent.mkdir()
    temporary.mkdir()
    running = start(output, jobs, temporary)
    for _ in range(times):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, number)  # a terminal sends it to every process
        time.sleep(0.05)
    printed, said = running.communicate(timeout=120)
    assert running.returncode == status
    wait_until_gone(running.pid)
    partial = output / "results.partial.csv"
    assert sorted(output.iterdir()) == [output / "command.json", partial, output / "results.partial.msgpack.gz"]
    assert [path.name for path in output.parent.iterdir()] == ["out"]
    with partial.open(newline="") as file:
        runs = Counter(row["seed"] for row in csv.DictReader(file))
    assert runs
    assert set(runs.values()) == {131}  # whole runs only
    last = said.splitlines()[-1]
    kept = f"the finished ones are in {partial}; to continue: steersman evaluate --output {output} --resume"
    assert last == f"interrupted after {len(runs)} of 5000 runs; {kept}"
    assert "Traceback" not in said
    assert "resource_tracker" not in said
    assert printed == ""
    assert not list(temporary.iterdir())


def test_killed_evaluation_continues_to_the_same_bytes(tmp_path: Path) -> None:
    """What was finished is written each minute, here after each run."""
    cut, whole, runs = tmp_path / "cut" / "out", tmp_path / "whole" / "out", ("--policy", "fgd", "--seeds", "0-79")
    python, _, program, *words = command("evaluate", *FILES, "--output", str(cut), *runs, "--jobs", "2")
    often = "from steersman.cli import comparison; comparison.KEEP_SECONDS = comparison.KEEP_SHARE = 0.0; "
    cut.parent.mkdir()
    finished, stored = cut / "results.partial.msgpack.gz", set()
    for arguments in (words, ["evaluate", "--output", str(cut), "--resume"]):
        before = finished.stat().st_mtime_ns if finished.exists() else 0
        process = [python, "-c", often + program, *arguments]
        running = subprocess.Popen(process, stderr=subprocess.DEVNULL, start_new_session=True)
        end = time.monotonic() + PATIENCE_SECONDS
        while not finished.exists() or finished.stat().st_mtime_ns == before:
            assert running.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < end
            time.sleep(0.01)
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        stored.add((cut / "command.json").read_text())
    assert len(stored) == 1, "what continues is the command that began"
    continued = by_folder(cut)
    assert continued.stdout == evaluate(whole, *runs).stdout
    assert "results.csv" in (names := {path.name for path in whole.iterdir()})
    assert {path.name: path.read_bytes() for path in cut.iterdir() if not path.name.startswith(".")} == {
        name: (whole / name).read_bytes() for name in names
    }


@pytest.mark.parametrize("jobs", [1, 2])
def test_interrupted_evaluation_continues_to_the_same_bytes(tmp_path: Path, jobs: int) -> None:
    cut, whole = tmp_path / "cut" / "out", tmp_path / "whole" / "out"
    running = start(cut, jobs, tmp_path, seeds="0-79")
    os.killpg(running.pid, signal.SIGINT)
    said = running.communicate(timeout=120)[1]
    assert running.returncode == 130, said
    runs = ("--policy", "fgd", "--jobs", "2", "--seeds")
    refused = command("evaluate", *FILES, "--output", str(cut), *runs, "0-78", "--resume")
    done = subprocess.run(refused, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: --seeds is not that of the run in {cut}; leave it out, ")
    assert len(done.stderr.splitlines()) == 1
    continued = by_folder(cut, "--jobs", "2")
    assert continued.stdout == evaluate(whole, *runs, "0-79").stdout
    names = sorted(path.name for path in cut.iterdir())
    assert names == ["metrics.csv", "report.html", "results.csv", "summary.csv"]
    for name in names:
        assert (cut / name).read_bytes() == (whole / name).read_bytes(), name


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    running = start(tmp_path / "out", 2)
    running.kill()
    running.communicate()
    wait_until_gone(running.pid)
    assert {each.name for each in (tmp_path / "out").iterdir()} <= {"run.lock"}, "nothing half-written"


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("raise SteersmanError('no luck with this cluster')", "no luck with this cluster"),
        ("sys.exit(0)", "policy 'faulty' failed: SystemExit: 0 (faulty.py, line 6)"),
        ("raise KeyboardInterrupt", "policy 'faulty:Faulty', seed "),
    ],
)
def test_an_error_in_a_worker_fails_in_one_line(tmp_path: Path, statement: str, told: str) -> None:
    module = tmp_path / "faulty.py"
    module.write_text(
        "import sys\n"
        "from steersman.core.errors import SteersmanError\n"
        "class Faulty:\n"
        "    name = 'faulty'\n"
        "    def prepare(self, state, mix, seed):\n"
        f"        {statement}\n"
        "    def scores(self, state, class_id, feasible):\n"
        "        raise NotImplementedError\n"
    )
    arguments = command("evaluate", *FILES, "--output", str(tmp_path / "out"), "--policy", "faulty:Faulty")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [*arguments, "--seeds", "1-4", "--jobs", "2"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if not line.startswith("compiling ")]  # on a slow machine
    assert len(said) == 1
    assert said[0].startswith(f"error: {told}")
    assert not (tmp_path / "out").exists()
