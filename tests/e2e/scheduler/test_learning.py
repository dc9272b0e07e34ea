"""`steersman schedule --learn` in the loop of filling and clearing a cluster: from policies, and from nothing."""

import csv
import os
import signal
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import HISTOGRAMS, SCALARS, EventAccumulator
from tests.e2e.conftest import LocalCluster, until
from tests.e2e.scheduler.test_schedule import bound, create, pod, scheduling

pytestmark = pytest.mark.e2e

DEPLOYMENTS = (
    "--cpu-load 0.5 --memory-load 0.5 --pod-load 0.5 --resets 2 --interval 0 --wait 1 --replicas 20-30 "
    "--scheduler-name steersman --seed 3"
)


def trained(cluster: LocalCluster, folder: Path, network: str) -> Path:
    """A policy of a few hundred decisions on simulated nodes."""
    options = "--algorithm dqn --protocol deployments --iterations 12 --discount 0 --hidden 16 --batch-size 64"
    cluster.must("train", *options.split(), "--network", network, "--output", str(folder / network))
    return folder / network / "policy.safetensors"


@pytest.mark.parametrize("network", ["mlp", "gnn"])
def test_a_network_fills_a_cluster_twice_and_goes_on_learning(
    cluster: LocalCluster, tmp_path: Path, network: str
) -> None:
    policy, learned, record = trained(cluster, tmp_path, network), tmp_path / "learned", tmp_path / "record.csv"
    before = policy.read_bytes()
    arguments = ("--policy", str(policy), "--learn", str(learned))
    with scheduling(cluster, tmp_path, *arguments) as running:
        until(lambda: running.said("learning"), 120)
        cluster.must("workload", "run", "--name", cluster.name, *DEPLOYMENTS.split(), "--output", str(record))
        rows = list(csv.DictReader(record.read_text().splitlines()))
        made = sum(int(row["pod_count"]) for row in rows if row["action"] == "add")
        until(lambda: (learned / "checkpoint.safetensors").exists(), 60)
        assert sum(line["event"] == "scheduled" for line in running.log()) == made
    assert {row["action"] for row in rows} == {"add", "delete"}
    assert policy.read_bytes() == before, "the file that it began with stays as it is"
    assert (learned / "policy.safetensors").read_bytes() != before
    events = EventAccumulator(str(learned), size_guidance={SCALARS: 0, HISTOGRAMS: 0}).Reload()
    assert {"reward", "loss", "node_variance", "allocation"} <= set(events.Tags()["scalars"])
    assert "actions" in events.Tags()["histograms"]
    assert events.Histograms("actions")[0].histogram_value.num == pytest.approx(5)
    assert made >= events.Scalars("steps")[-1].value >= 200


@pytest.mark.parametrize(("algorithm", "network"), [("dqn", "gnn"), ("actor-critic", "mlp"), ("ppo", "deepsets")])
def test_an_agent_learns_from_nothing_where_it_schedules(
    cluster: LocalCluster, tmp_path: Path, algorithm: str, network: str
) -> None:
    learned, record = tmp_path / "learned", tmp_path / "record.csv"
    arguments = ("--learn", str(learned), "--algorithm", algorithm, "--network", network, "--hidden", "16")
    with scheduling(cluster, tmp_path, *arguments) as running:
        until(lambda: running.said("learning"), 120)
        cluster.must("workload", "run", "--name", cluster.name, *DEPLOYMENTS.split(), "--output", str(record))
        rows = list(csv.DictReader(record.read_text().splitlines()))
        made = sum(int(row["pod_count"]) for row in rows if row["action"] == "add")
        assert sum(line["event"] == "scheduled" for line in running.log()) == made
        lines = [line for line in running.get("metrics").splitlines() if line.startswith("steersman_agent_questions")]
    results = {line.split('"')[1]: float(line.split()[-1]) for line in lines if "_total{" in line}
    answered = results["answered"]
    assert sum(results.values()) >= made
    assert answered >= 0.5 * made
    steps = list(csv.DictReader((learned / "metrics.csv").read_text().splitlines()))[-1]["steps"]
    assert answered >= float(steps) >= 0.8 * answered
    shown = cluster.must("policy", "show", str(learned / "policy.safetensors"), "--format", "json")
    assert f'"algorithm": "{algorithm}"' in shown.stdout


def test_scheduling_goes_on_when_learning_dies_and_learning_goes_on_at_the_next_start(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    policy, learned = trained(cluster, tmp_path, "mlp"), tmp_path / "learned"
    arguments = ("--policy", str(policy), "--learn", str(learned))
    with scheduling(cluster, tmp_path, *arguments) as running:
        until(lambda: running.said("learning"), 120)
        create(cluster, *(pod(f"first-{i}", "10m") for i in range(260)))
        until(lambda: (learned / "checkpoint.safetensors").exists(), 90)
        (child,) = children(running.process.pid)
        os.kill(child, signal.SIGKILL)
        until(lambda: running.said("the agent's process has ended; scheduling continues by a rule"))
        create(cluster, *(pod(f"second-{i}", "10m") for i in range(10)))
        until(lambda: len(bound(cluster)) == 270)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(30) == 143
    with scheduling(cluster, tmp_path, *arguments) as running:
        until(lambda: running.said("learning"), 120)
        create(cluster, *(pod(f"third-{i}", "10m") for i in range(260)))
        until(lambda: "continuing at iteration" in (learned / "log.txt").read_text(), 90)
        (child,) = children(running.process.pid)
    until(lambda: not alive(child))
    other = trained(cluster, tmp_path, "linear")
    done = cluster.steersman("schedule", "--name", cluster.name, "--policy", str(other), "--learn", str(learned))
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith(f"error: {learned / 'run.json'}: the run has network")


def children(pid: int) -> list[int]:
    """The learning process of a scheduler: its child that multiprocessing spawned to work."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            command, status = (folder / "cmdline").read_bytes(), (folder / "stat").read_text()
        except OSError:
            continue
        if b"spawn_main" in command and int(status.rsplit(") ", 1)[1].split()[1]) == pid:
            found.append(int(folder.name))
    return found


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False
