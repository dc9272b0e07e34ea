"""`steersman train` as a process: killed without warning, it goes on to the policy that it would have come to."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from steersman.workloads.formats.kubernetes.objects import write_nodes, write_pods
from steersman.workloads.formats.openb import embedded

pytestmark = pytest.mark.integration

ITERATIONS = "12"
STEERSMAN = str(Path(sys.executable).with_name("steersman"))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A twentieth of the embedded cluster and workload as YAML."""
    folder = tmp_path_factory.mktemp("workload")
    whole = embedded("default")
    write_nodes(whole.nodes[::20], folder / "nodes.yaml")
    write_pods(whole.pods[::20], folder / "pods.yaml")
    return folder


def command(files: Path, output: Path, *more: str) -> list[str]:
    options = ["--nodes", str(files / "nodes.yaml"), "--workload", str(files / "pods.yaml"), "--name", "p"]
    size = ["--population", "4", "--episodes", "1", "--iterations", ITERATIONS, "--validate-every", "2", "--jobs", "2"]
    return [STEERSMAN, "train", *options, *size, "--output", str(output), *more]


def children(pid: int) -> list[str]:
    """The processes that a process has started (Linux)."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def train(files: Path, output: Path, *more: str) -> None:
    done = subprocess.run(command(files, output, *more), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_killed_run_resumes_to_the_same_policy(files, tmp_path):
    train(files, tmp_path / "whole")
    killed = tmp_path / "killed"
    process = subprocess.Popen(command(files, killed), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (killed / "checkpoint.safetensors").exists() and process.poll() is None:
        assert time.monotonic() < deadline, "no checkpoint came"
        time.sleep(0.01)
    workers = children(process.pid)
    workers = children(process.pid)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the run was over before it could be killed"
    deadline = time.monotonic() + 120
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline, "workers outlive the run"
        time.sleep(0.1)
    train(files, killed, "--resume")
    assert (killed / "policy.safetensors").read_bytes() == (tmp_path / "whole" / "policy.safetensors").read_bytes()


def test_a_killed_run_in_an_environment_resumes_to_the_same_policy(tmp_path):
    pytest.importorskip("torch")
    scene = ["--protocol", "deployments", "--node-count", "3", "--node-cpu", "16", "--validation-episodes", "1"]
    size = ["--iterations", "60", "--validate-every", "4", "--hidden", "8", "--rollout", "16", "--name", "p"]

    def run(output: Path, *more: str) -> subprocess.Popen[bytes]:
        command = [STEERSMAN, "train", "--algorithm", "ppo", *scene, *size, "--output", str(output), *more]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    assert run(tmp_path / "whole").wait() == 0
    killed = tmp_path / "killed"
    process = run(killed)
    deadline = time.monotonic() + 240
    while not (killed / "checkpoint.safetensors").exists() and process.poll() is None:
        assert time.monotonic() < deadline, "no checkpoint came"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the run was over before it could be killed"
    assert run(killed, "--resume").wait() == 0
    assert (killed / "policy.safetensors").read_bytes() == (tmp_path / "whole" / "policy.safetensors").read_bytes()


def test_invalid_input_fails_in_one_line(files, tmp_path):
    train(files, tmp_path / "run")
    for more, message in (
        ([], "a run exists already"),
        (["--resume", "--seed", "9"], "--seed is not that of the run in"),
        (["--objective", "speed"], "unknown objective 'speed'"),
        (["--protocol", "arrival"], "is not one of 'inflation', 'arrivals', 'timed'"),
    ):
        done = subprocess.run(command(files, tmp_path / "run", *more), capture_output=True, text=True)
        assert done.returncode in (1, 2)
        (line,) = [line for line in done.stderr.strip().splitlines() if not line.startswith("pods: 408 pods of")]
        assert message in line
