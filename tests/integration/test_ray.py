"""Commands on a Ray cluster: same results, and what goes wrong is one line and leaves no process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.ray_cluster import WORKER, head, ray_cluster, workers

pytestmark = pytest.mark.integration
pytest.importorskip("ray")

EVALUATE = "evaluate --workload default-small --policy fgd best-fit --protocol inflation --output out --engine"
Cluster = tuple[int, dict[str, str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with ray_cluster() as found:
        yield found


def command(text: str, folder: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-m", "steersman", *text.split()]
    pipe = subprocess.PIPE
    return subprocess.Popen(arguments, stdout=pipe, stderr=pipe, text=True, cwd=folder, env=environment)


def wait_for_runs(process: subprocess.Popen[str]) -> None:
    """Wait until workers work on tasks, which Ray shows in their names."""
    while not any(f"{WORKER}.answer" in each for each in workers()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def wait_for_progress(process: subprocess.Popen[str]) -> None:
    """Wait until runs are finished."""
    assert process.stderr is not None
    assert any(line.startswith("simulating: ") for line in process.stderr), process.poll()


def test_workers_give_equal_results_and_outlive_each_other(cluster: Cluster) -> None:
    checks = [sys.executable, "-m", "tests.support.ray_checks"]
    said = subprocess.run(checks, env=cluster[1], capture_output=True, text=True, timeout=300)
    assert said.stderr.splitlines()[-1:] == ["checked"], said.stderr
    assert not said.stdout
    assert not workers()


def test_interrupted_command_leaves_no_worker(cluster: Cluster, tmp_path: Path) -> None:
    with command(f"{EVALUATE} ray --seeds 5000", tmp_path, cluster[1]) as process:
        wait_for_runs(process)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 130, said
    assert said.splitlines()[-1].startswith("interrupted after")
    assert "Traceback" not in said
    assert not workers()


@pytest.mark.nightly
def test_command_continues_here_after_the_head_stopped(cluster: Cluster, tmp_path: Path) -> None:
    """The last test: the cluster is gone then."""
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    cut.mkdir()
    whole.mkdir()
    with command(f"{EVALUATE} ray --seeds 1000", cut, cluster[1]) as process:
        wait_for_progress(process)
        head(cluster[0]).kill()
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 1, said
    address = cluster[1]["RAY_ADDRESS"]
    assert f"the Ray cluster at {address} has stopped; start it and run the command again" in said
    assert " of 2000 runs" in said
    assert "Traceback" not in said
    for folder, more in ((cut, "--resume"), (whole, "")):
        with command(f"{EVALUATE} local --seeds 1000 {more}", folder, dict(os.environ)) as process:
            said = process.communicate(timeout=300)[1]
        assert process.returncode == 0, said
    names = sorted(path.name for path in (cut / "out").iterdir())
    assert names == ["metrics.csv", "report.html", "results.csv", "summary.csv"]
    for name in names:
        assert (cut / "out" / name).read_bytes() == (whole / "out" / name).read_bytes(), name


@pytest.mark.nightly
def test_cluster_of_a_command_ends_with_it(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    results = {}
    for engine in ("local", "ray"):
        with command(f"{EVALUATE} {engine} --seeds 3 --jobs 2", tmp_path, environment) as process:
            out, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
        results[engine] = out, (tmp_path / "out" / "metrics.csv").read_text()
    assert results["ray"] == results["local"]
    assert not workers()


@pytest.mark.nightly
def test_training_is_that_of_this_machine(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    train = "train --workload default-small --iterations 2 --name one --output {0} --engine {0} --jobs 2"
    for engine in ("local", "ray"):
        with command(train.format(engine), tmp_path, environment) as process:
            said = process.communicate(timeout=600)[1]
        assert process.returncode == 0, said
    trained = [(tmp_path / engine / "policy.safetensors").read_bytes() for engine in ("local", "ray")]
    assert trained[0] == trained[1]
