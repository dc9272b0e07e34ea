"""Commands on live clusters: which cluster they act on, what they refuse, and how a signal ends them."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from tests.support.errors import error_of, raises
from tests.support.servers.fake_api_server import in_jumping_time

from steersman.cli.main import main
from steersman.cli.options.cluster import find_cluster
from steersman.core.cache import cache_root
from steersman.core.errors import SteersmanError, UsageError
from steersman.kubernetes.client import ApiError, UnreachableError
from steersman.live.load.live_cluster import find_target
from steersman.live.local_cluster import record
from steersman.live.local_cluster.record import ClusterBackend, ClusterRecord
from steersman.live.runtime.tasks import BackgroundTasks, retry_transient, run, run_concurrently

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: u, user: {{}}}}]
contexts: [{{name: mine, context: {{cluster: c, user: u}}}}, {{name: other, context: {{cluster: c, user: u}}}}]
current-context: mine
"""
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, with a kubeconfig that leads nowhere beside it."""
    monkeypatch.setenv("STEERSMAN_CACHE_DIR", str(cache_root()))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("STEERSMAN_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kubeconfig").write_text(KUBECONFIG.format(port=1))
    return tmp_path


def make_local(
    home: Path, way: ClusterBackend = ClusterBackend.BINARIES, context: str = "mine", name: str = "steersman"
) -> Path:
    """A cluster that `cluster up` knows."""
    folder = record.folder_of(name)
    folder.mkdir(parents=True)
    (folder / "kubeconfig").write_text((home / "kubeconfig").read_text())
    record.write(ClusterRecord(name, way, str(folder / "kubeconfig"), context, ready=True))
    return folder / "kubeconfig"


def test_cluster_is_chosen_by_option_kubeconfig_or_local_cluster(home, monkeypatch):
    with raises(SteersmanError):
        find_target()
    local = make_local(home)
    assert find_target().config.source == local
    assert find_target().is_local
    assert find_target(home / "kubeconfig").config.source == home / "kubeconfig"
    assert not find_target(home / "kubeconfig").is_local
    assert not find_target(local, "other").is_local
    monkeypatch.setenv("KUBECONFIG", str(home / "kubeconfig"))
    assert find_target().config.source == home / "kubeconfig"
    assert find_target(name="steersman").config.source == local
    monkeypatch.setenv("KUBECONFIG", str(local))
    assert find_target().is_local
    with raises(UsageError):
        find_target(home / "kubeconfig", name="steersman")
    with raises(SteersmanError, "'x'"):
        find_target(name="x")


def test_users_cluster_precedes_a_stale_local_one(home, capsys):
    local = make_local(home)
    find_cluster(None, None, None)
    said = capsys.readouterr().err
    assert said.startswith("using the cluster of 'steersman cluster up' at http://127.0.0.1:1: ")
    assert said.count("\n") == 1
    (home / ".kube").mkdir()
    default = home / ".kube" / "config"
    default.write_text(KUBECONFIG.format(port=2))
    assert find_cluster(None, None, None).config.source == default
    assert find_cluster(None, None, "steersman").config.source == local
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("command", ["schedule", "serve"])
def test_long_running_commands_log_their_cluster(capsys, command):
    arguments = ("--policy", "best-fit", "--kubeconfig", "kubeconfig", "--port", "0", "--log-format", "json")
    assert main([command, *arguments]) == 1  # nobody answers there
    logged = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    found = next(each for each in logged if each["event"] == "cluster")
    assert (found["context"], found["server"], found["source"]) == ("mine", "http://127.0.0.1:1", "kubeconfig")


def test_foreign_cluster_is_not_changed_without_yes(home, capsys, monkeypatch):
    (home / "pods.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,0,0\n")
    monkeypatch.setenv("KUBECONFIG", str(make_local(home, ClusterBackend.KUBECONFIG)))
    for arguments in (
        ("run", "--name", "steersman"),
        ("run", "--kubeconfig", "kubeconfig"),
        ("run", "--clean"),
        ("replay", "pods.csv"),
        ("replay", "--clean"),
    ):
        said = "which steersman did not start; --yes if that is meant"
        error_of(capsys, 2, ["workload", *arguments], "error: this would ", said)
        assert main(["workload", *arguments, "--yes"]) == 1
        assert "127.0.0.1:1 (context 'mine' in " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem", "status"),
    [
        (("run", "--cpu-load", "0"), "--cpu-load 0.0 is out of range", 2),
        (("run", "--seed", "1", "--seeds", "1-2"), "--seed and --seeds exclude each other", 2),
        (("run", "--replicas", "many"), "--replicas many: expected a number such as 10 or a range", 2),
        (("run",), "cannot be reached", 1),
        (("run", "--name", "else"), "no cluster 'else'", 1),
        (("replay",), "replay needs a FILE", 2),
        (("replay", "missing.csv"), "missing.csv: no such file or folder", 1),
        (("replay", "twice.csv", "twice.csv"), "pod default/p is in several of these files", 2),
        (("replay", "twice.csv", "--speed", "0"), "--speed must be above 0, such as 3600 for an hour in a second", 2),
        (("record", "--output", "new", "--view", "x"), "unknown view 'x'", 2),
        (("record", "--output", "new", "--objective", "x"), "x", 2),
        (("record", "--output", "state"), "exists already and is not an empty folder", 1),
        (("record", "--output", "new"), "cannot be reached", 1),
        (("snapshot", "--output", "new.yaml"), "cannot be reached", 1),
    ],
)
def test_invalid_input_fails_in_one_line_and_leaves_nothing(home, capsys, monkeypatch, arguments, problem, status):
    monkeypatch.setenv("KUBECONFIG", str(make_local(home)))
    (home / "twice.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,0,0\n")
    before = sorted(home.iterdir())
    error_of(capsys, status, ["workload", *arguments], problem)
    assert sorted(home.iterdir()) == before


def test_signal_cancels_the_command_which_may_still_succeed():
    ended: list[str] = []

    async def stubborn() -> str:
        asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            ended.append("in order")
            return "what there is"
        return "too late"

    async def usual() -> None:
        await stubborn()
        raise asyncio.CancelledError

    before = signal.getsignal(signal.SIGINT)
    assert run(stubborn()) == "what there is"
    with pytest.raises(KeyboardInterrupt):
        run(usual())
    assert ended == ["in order", "in order"]
    assert signal.getsignal(signal.SIGINT) is before


@in_jumping_time
async def test_transient_api_errors_are_retried_and_rejections_are_not():
    answers: list[Exception | int] = [UnreachableError("away"), ApiError("x", 503, "", ""), 7]
    asked = 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert await retry_transient(ask) == 7
    answers += [ApiError("x", 403, "Forbidden", "no")]
    with raises(ApiError):
        await retry_transient(ask)
    assert asked == 4

    async def never() -> None:
        raise UnreachableError("away")

    start = asyncio.get_running_loop().time()
    with pytest.raises(UnreachableError):
        await retry_transient(never, patience=30)
    assert 30 <= asyncio.get_running_loop().time() - start < 40


@in_jumping_time
async def test_failing_background_task_ends_the_block_and_cancels_others():
    stopped: list[str] = []

    async def fail() -> None:
        await asyncio.sleep(1)
        raise SteersmanError("it broke")

    async def last() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            stopped.append("last")

    with raises(SteersmanError):
        async with BackgroundTasks(fail(), last()):
            await asyncio.sleep(500)
    assert asyncio.get_running_loop().time() < 2
    async with BackgroundTasks(last()):
        await asyncio.sleep(0)
    assert stopped == ["last", "last"]


@in_jumping_time
async def test_jobs_run_concurrently_and_the_first_failure_stops_the_rest():
    done: list[int] = []

    async def job(i: int) -> None:
        await asyncio.sleep(1)
        if i == 5:
            raise SteersmanError("five")
        done.append(i)

    await run_concurrently([lambda i=i: job(i) for i in range(5)], 2)
    assert (done, round(asyncio.get_running_loop().time())) == ([0, 1, 2, 3, 4], 3)
    with raises(SteersmanError):
        await run_concurrently([lambda i=i: job(i) for i in range(4, 20)], 2)
    assert done == [0, 1, 2, 3, 4, 4]


def test_shadow_without_write_access_or_a_cluster_fails(home, capsys):
    (home / "was").mkdir()
    (home / "was" / "decisions.csv").write_text("of last week")
    shadow = ["schedule", "--shadow", "--policy", "fgd", "--kubeconfig", "kubeconfig", "--output"]
    error_of(capsys, 1, [*shadow, "was"], "was: exists already and is not an empty folder")
    assert (home / "was" / "decisions.csv").read_text() == "of last week"
    assert main([*shadow, "new"]) == 1
    assert "cannot be reached" in capsys.readouterr().err
