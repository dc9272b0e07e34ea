"""`steersman schedule --learn` in the loop of filling and clearing a cluster: from policies, and from nothing."""

import csv
import hashlib
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import HISTOGRAMS, SCALARS, EventAccumulator
from tests.e2e.conftest import STEERSMAN, LocalCluster, until
from tests.e2e.scheduler.test_schedule import Running, bound, create, pod, scheduling
from tests.support.nightly import by_default

pytestmark = pytest.mark.e2e

DEPLOYMENTS = (
    "--cpu-load 0.5 --memory-load 0.5 --pod-load 0.5 --cluster-resets 2 --interval 0 --wait 1 --replicas 20-30 "
    "--scheduler-name steersman --seed 3"
)


@pytest.fixture(scope="module")
def trained(control_plane: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The policy files of a few hundred decisions on simulated nodes, by network; each is trained once."""
    folder = tmp_path_factory.mktemp("trained")

    @cache
    def train(network: str) -> Path:
        options = "--algorithm dqn --protocol deployments --iterations 12 --gamma 0 --hidden 16 --batch-size 64"
        control_plane.must("train", *options.split(), "--network", network, "--output", str(folder / network))
        return folder / network / "policy.safetensors"

    return train


def check_scheduled(lines: list[dict[str, Any]], rows: list[dict[str, str]]) -> int:
    """Check that every pod of the Deployments was scheduled, each once, and return the number of scheduled pods.

    There may be more than were asked for: a ReplicaSet replaces pods that are deleted before its controller has seen
    that the ReplicaSet itself is deleted.
    """
    pods = [line["pod"] for line in lines if line["event"] == "scheduled"]
    assert len(set(pods)) == len(pods)
    count = Counter(pod.partition("/")[2].rsplit("-", 2)[0] for pod in pods)
    asked: Counter[str] = Counter()
    for row in rows:
        asked[row["name"]] += int(row["pod_count"]) if row["action"] == "add" else 0
    assert count.keys() == asked.keys()
    assert count >= asked
    return len(pods)


@pytest.mark.parametrize("network", by_default(["mlp"], ["mlp", "gnn"]))
def test_network_fills_a_cluster_twice_and_keeps_learning(
    cluster: LocalCluster, trained: Callable[[str], Path], tmp_path: Path, network: str
) -> None:
    policy, learned, record = trained(network), tmp_path / "learned", tmp_path / "record.csv"
    before = policy.read_bytes()
    arguments = ("--policy", str(policy), "--learn", str(learned))
    with scheduling(cluster, tmp_path, *arguments) as running:
        until(lambda: running.said("the agent is ready"), 120)
        cluster.must("workload", "run", "--name", cluster.name, *DEPLOYMENTS.split(), "--output", str(record))
        rows = list(csv.DictReader(record.read_text().splitlines()))
        until(lambda: (learned / "checkpoint.safetensors").exists(), 60)
        count_scheduled = check_scheduled(running.log(), rows)
    assert {row["action"] for row in rows} == {"add", "delete"}
    assert policy.read_bytes() == before, "the file that it began with stays as it is"
    assert (learned / "policy.safetensors").read_bytes() != before
    events = EventAccumulator(str(learned), size_guidance={SCALARS: 0, HISTOGRAMS: 0}).Reload()
    assert {"reward", "loss", "node_variance", "allocation"} <= set(events.Tags()["scalars"])
    assert "actions" in events.Tags()["histograms"]
    assert events.Histograms("actions")[0].histogram_value.num == pytest.approx(5)
    assert count_scheduled >= events.Scalars("steps")[-1].value >= 200


EXPLORATION = "--initial-epsilon 0.9 --minimum-epsilon 0.02 --epsilon-decay 0.99 --use-heuristic"
RATES = {"actor_learning_rate": 0.002, "critic_learning_rate": 0.004}


@pytest.mark.parametrize(
    ("algorithm", "network"),
    [
        pytest.param("dqn", "gnn", marks=pytest.mark.nightly),
        ("actor-critic", "mlp"),
        pytest.param("ppo", "deepsets", marks=pytest.mark.nightly),
    ],
)
def test_untrained_agent_learns_on_the_cluster_it_schedules(
    cluster: LocalCluster, tmp_path: Path, algorithm: str, network: str
) -> None:
    learned, record = tmp_path / "learned", tmp_path / "record.csv"
    options, log, load_log = tmp_path / "options.json", tmp_path / "logs" / "schedule.log", tmp_path / "load.log"
    options.write_text(json.dumps({"batch_size": 100} if algorithm == "dqn" else RATES))
    arguments = ("--learn", str(learned), "--algorithm", algorithm, "--network", network, "--hidden", "16")
    arguments += ("--options", str(options), "--log-file", str(log))
    arguments += tuple(EXPLORATION.split()) if algorithm == "dqn" else ()
    with scheduling(cluster, tmp_path, *arguments) as running:
        until(lambda: running.said("the agent is ready"), 120)
        logged = ("--output", str(record), "--log-file", str(load_log))
        cluster.must("workload", "run", "--name", cluster.name, *DEPLOYMENTS.split(), *logged)
        rows = list(csv.DictReader(record.read_text().splitlines()))
        count_scheduled = check_scheduled(running.log(), rows)
        lines = [line for line in running.get("metrics").splitlines() if line.startswith("steersman_agent_questions")]
    results = {line.split('"')[1]: float(line.split()[-1]) for line in lines if "_total{" in line}
    answered = results["answered"]
    assert sum(results.values()) >= count_scheduled
    assert answered >= 0.5 * count_scheduled
    steps = list(csv.DictReader((learned / "metrics.csv").read_text().splitlines()))[-1]["steps"]
    assert answered + results["infeasible"] >= float(steps) >= 0.8 * answered
    shown = cluster.must("policy", "show", str(learned / "policy.safetensors"), "--format", "json")
    assert f'"algorithm": "{algorithm}"' in shown
    config = json.loads((learned / "run.json").read_text())["config"]
    if algorithm == "dqn":
        assert (config["initial_epsilon"], config["minimum_epsilon"], config["epsilon_decay"]) == (0.9, 0.02, 0.99)
        assert (config["use_heuristic"], config["batch_size"]) == (True, 100)
    else:
        assert RATES.items() <= config.items()
    check_scheduled(lines_of(log), rows)
    scheduled = [line for line in lines_of(log) if line["event"] == "scheduled"]
    (ended,) = [line for line in lines_of(load_log) if line["event"].startswith("made ")]
    assert scheduled[0]["timestamp"] < ended["timestamp"], "one clock"


def test_dqn_learns_from_kube_scheduler_bindings(cluster: LocalCluster, tmp_path: Path) -> None:
    learned, waves = tmp_path / "learned", count()
    warning = "the agent learns from its own decisions alone; other schedulers are not observed"

    def steps(column: str) -> float:
        path = learned / "metrics.csv"
        rows = list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []
        return float(rows[-1][column]) if rows else 0.0

    def bind() -> None:
        """Five pods are bound by each of the two schedulers."""
        i = next(waves)
        ours = [pod(f"ours-{i}-{j}", "10m") for j in range(5)]
        theirs = [pod(f"theirs-{i}-{j}", "10m", schedulerName="default-scheduler") for j in range(5)]
        create(cluster, *ours, *theirs)
        until(lambda: len(bound(cluster)) == 10 * (i + 1))

    with scheduling(cluster, tmp_path, "--learn", str(learned), "--algorithm", "dqn", "--hidden", "16") as running:
        until(lambda: running.said("the agent is ready"), 120)
        until(lambda: bind() or steps("steps_from_others") >= 10, 120)
        assert 10 <= steps("steps_from_others") <= steps("steps")
        (agent,) = children(running.process.pid)
        (observer,) = children(agent)
        os.kill(observer, signal.SIGKILL)
        before = steps("steps")
        until(lambda: bind() or steps("steps") >= before + 15, 60)
        assert [line["level"] for line in running.log() if line["event"] == warning] == ["warning"]
    events = EventAccumulator(str(learned), size_guidance={SCALARS: 0}).Reload()
    assert {"steps_from_others", "dropped_from_others"} <= set(events.Tags()["scalars"])


def test_scheduling_survives_dead_learning_which_resumes_later(
    cluster: LocalCluster, trained: Callable[[str], Path], tmp_path: Path
) -> None:
    policy, learned = trained("mlp"), tmp_path / "learned"
    arguments = ("--policy", str(policy), "--learn", str(learned))
    with scheduling(cluster, tmp_path, *arguments) as running:
        until(lambda: running.said("the agent is ready"), 120)
        create(cluster, *(pod(f"first-{i}", "10m") for i in range(260)))
        until(lambda: (learned / "checkpoint.safetensors").exists(), 90)
        (child,) = children(running.process.pid)
        os.kill(child, signal.SIGKILL)
        until(lambda: running.said("the agent's process has ended; the fallback decides"))
        create(cluster, *(pod(f"second-{i}", "10m") for i in range(10)))
        until(lambda: len(bound(cluster)) == 270)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(30) == 143
    with scheduling(cluster, tmp_path, *arguments) as running:
        until(lambda: running.said("the agent is ready"), 120)
        create(cluster, *(pod(f"third-{i}", "10m") for i in range(260)))
        until(lambda: "continuing at iteration" in (learned / "log.txt").read_text(), 90)
        (child,) = children(running.process.pid)
    until(lambda: not alive(child))
    other = trained("linear")
    done = cluster.steersman("schedule", "--name", cluster.name, "--policy", str(other), "--learn", str(learned))
    assert done.returncode == 1
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .startswith(f"error: {learned / 'checkpoint.safetensors'}: the run has network")
    )


def test_service_learns_from_kube_scheduler_and_reports_its_test(
    cluster: LocalCluster, trained: Callable[[str], Path], tmp_path: Path
) -> None:
    policy, learned, log = trained("mlp"), tmp_path / "learned", tmp_path / "serve.log"
    command = [STEERSMAN, "serve", "--name", cluster.name, "--port", "0", "--policy", str(policy), "--unchecked"]
    with log.open("w") as stream:
        process = subprocess.Popen(
            [*command, "--learn", str(learned)], env=cluster.environment, stdout=stream, stderr=stream
        )
    running = Running(process, log)
    try:
        until(lambda: running.said("watching") or process.poll() is not None, 240)
        until(lambda: running.said("learning"), 120)
        for wave in range(9):  # 2,250 pods that kube-scheduler binds; every fifth is held back
            many = [pod(f"wave-{wave}-{i}", "10m", schedulerName="default-scheduler") for i in range(250)]
            for each in many:
                each["spec"]["containers"][0]["resources"]["requests"]["memory"] = "1Mi"
            create(cluster, *many)
            if wave % 3 == 2:
                until(lambda: len(bound(cluster)) == 750, 120)
                cluster.must("cluster", "clean", "--name", cluster.name)
        until((learned / "exchanges.csv").exists, 240)
        (row,) = csv.DictReader((learned / "exchanges.csv").read_text().splitlines())
        digest = hashlib.sha256((learned / "policy.safetensors").read_bytes()).hexdigest()[:16]
        assert (row["result"], int(row["held_back"]), row["policy"]) in (
            ("exchanged", 400, digest),
            ("kept", 400, digest),
        )
        assert (float(row["low"]) > 0) == (row["result"] == "exchanged")
        is_kept = (learned / "policy.safetensors").read_bytes() == policy.read_bytes()
        assert is_kept == (row["result"] == "kept")
        undone = cluster.steersman("policy", "undo", str(learned))
        assert undone.returncode == (1 if is_kept else 0)
        assert (learned / "policy.safetensors").read_bytes() == policy.read_bytes()
        (child,) = children(process.pid)
        os.kill(child, signal.SIGKILL)
        until(lambda: running.said("the learning process has ended; the policy in use stays"))
        assert running.get("readyz").endswith("readyz check passed\n")
    finally:
        process.terminate()
        process.wait(30)


def lines_of(log: Path) -> list[dict[str, str]]:
    """Return the events of a log file."""
    return [json.loads(line) for line in log.read_text().splitlines()]


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
