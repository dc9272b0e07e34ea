"""`steersman workload` on a real API server, with kube-scheduler at work."""

import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
from tests.e2e.conftest import STEERSMAN, LocalCluster

from steersman.workloads.generators.deployments import read_rows
from steersman.workloads.loading import load_workload
from steersman.workloads.workload import RunningPods

LOADS = ("--cpu-load", "0.1", "--memory-load", "0.5", "--pod-load", "0.5", "--cluster-resets", "2")
DEPLOYMENTS = ("--replicas", "5-12", "--cpu-requests", "500m,1,2", "--memory-requests", "1Gi,2Gi")
FILL = (*LOADS, "--wait", "1", "--scheduler-name", "default-scheduler")


def workload(cluster: LocalCluster, *arguments: str) -> str:
    """A sub-command on the cluster, which has to succeed; what it said."""
    done = cluster.steersman("workload", *arguments, "--name", cluster.name)
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stderr


def names(cluster: LocalCluster, kind: str) -> list[str]:
    """The objects of a kind in the namespace."""
    return cluster.kubectl("get", kind, "--output", "name").split()


def test_killed_run_resumes_and_matches_the_simulator(cluster: LocalCluster, tmp_path: Path) -> None:
    output = tmp_path / "run.csv"
    fill = (*FILL, *DEPLOYMENTS)
    command = [STEERSMAN, "workload", "run", *fill, "--interval", "1", "--name", cluster.name, "--output", output]
    with subprocess.Popen(command, env=cluster.environment, stderr=subprocess.DEVNULL) as running:
        until = time.monotonic() + 60
        while not (output.exists() and len(output.read_text().splitlines()) > 3) and time.monotonic() < until:
            time.sleep(0.1)
        running.send_signal(signal.SIGKILL)
    assert 2 <= len(read_rows(output)) < 12
    assert names(cluster, "deployments")
    assert "steersman-workload" in "".join(names(cluster, "configmaps"))
    refused = cluster.steersman("workload", "run", *fill, "--name", cluster.name)
    assert refused.returncode == 1
    assert "--resume continues it" in refused.stderr
    workload(cluster, "run", "--resume", "--output", str(output))
    cluster.must(
        *("workload", "generate", "--node-count", "10", *LOADS, *DEPLOYMENTS),
        *("--output", str(tmp_path / "made"), "--csv", str(tmp_path / "made.csv")),
    )
    assert output.read_bytes() == (tmp_path / "made.csv").read_bytes()
    cluster.must("workload", "generate", "--replay", str(output), "--output", str(tmp_path / "again"))
    assert (tmp_path / "again/pods.yaml").read_bytes() == (tmp_path / "made/pods.yaml").read_bytes()
    made = [int(row.pod_count) for row in read_rows(output) if row.action == "add"]
    again = ("--interval", "0", "--wait", "0", "--scheduler-name", "default-scheduler")
    assert f"made {len(made)} Deployments of {sum(made)} pods" in workload(cluster, "replay", str(output), *again)
    for kind in ("deployments", "replicasets", "pods"):
        assert not names(cluster, kind), kind
    assert "steersman-workload" not in "".join(names(cluster, "configmaps"))


def test_kube_scheduler_is_recorded_while_deployments_change(cluster: LocalCluster, tmp_path: Path) -> None:
    seen, rows, policy = tmp_path / "seen", tmp_path / "rows.csv", tmp_path / "policy"
    command = [STEERSMAN, "workload", "record", "--output", seen, "--name", cluster.name]
    command += ["--view", "cluster", "--objective", "balance"]
    with subprocess.Popen(command, env=cluster.environment, stderr=subprocess.PIPE, text=True) as recording:
        assert recording.stderr is not None
        assert "recording default-scheduler" in recording.stderr.readline()
        said = workload(cluster, "run", *FILL, "--interval", "0", "--namespace", "kube-public", "--output", str(rows))
        recording.send_signal(signal.SIGINT)
        assert recording.wait(120) == 0, recording.stderr.read()
    pods = int(said.split(" of ")[-1].split()[0])
    found = load_workload(seen / "nodes.yaml", seen / "pods.yaml")
    assert len(found.nodes) == 10
    # A ReplicaSet that is deleted before its controller hears of it may make its pods once more.
    again = len(found.pods) - pods
    assert 0 <= again <= pods
    with np.load(seen / "transitions.npz") as arrays:
        count = len(arrays["actions"])
        assert 0.95 * pods <= count <= len(found.pods)
        assert arrays["before.nodes"].shape == (count, 10, 28)
        assert (arrays["before.mask"][np.arange(count), arrays["actions"]] == 1).all()
        # The cluster was cleared twice, and nothing else ends an episode.
        assert 2 <= arrays["terminated"].sum() <= 2 + again
        assert (arrays["rewards"] > 0).all()
    algorithm = ("--algorithm", "dqn", "--protocol", "deployments", "--iterations", "1", "--hidden", "8")
    cluster.must("train", *algorithm, "--recording", str(seen / "transitions.npz"), "--output", str(policy))


def test_trace_is_replayed_and_snapshot_is_evaluated(cluster: LocalCluster, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    lines = [f"stays-{i},2000,4096,0,0,,0," for i in range(150)]
    lines += [f"goes-{i},1000,1024,1,500,,{i},{3600 + i}" for i in range(30)]
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time"
    trace.write_text("\n".join([header, *lines]) + "\n")
    said = workload(cluster, "replay", str(trace), "--speed", "3600", "--scheduler-name", "default-scheduler")
    assert "created 180 pods, deleted 30" in said
    there = cluster.objects("pods")
    assert sorted(pod["metadata"]["name"] for pod in there) == sorted(f"stays-{i}" for i in range(150))
    for more in ((), ("--free", "--anonymise")):
        file = tmp_path / f"mine{len(more)}.yaml"
        workload(cluster, "snapshot", "--output", str(file), *more)
        found = load_workload(file, file, running=RunningPods.PINNED)
        assert (len(found.nodes), len(found.pods)) == (10, 150)
        assert all(bool(pod.constraints.node_name) is not bool(more) for pod in found.pods)
        output = tmp_path / f"compared{len(more)}"
        cluster.must(
            *("simulate", "--nodes", str(file), "--pods", str(file), "--protocol", "arrivals", "--pinned"),
            *("--policy", "most-allocated", "--output", str(output)),
        )
        placements = (output / "placements.csv").read_text()
        assert placements.count(",bound,") == 150
        used = {line.split(",")[3] for line in placements.splitlines()[1:]}
        # Pinned, they stay where they are; freed, the policy packs them onto few nodes: 300 of 640 CPUs.
        assert len(used) == (5 if more else 10)
    workload(cluster, "replay", "--clean")
    assert not names(cluster, "pods")


def test_another_cluster_is_left_alone(cluster: LocalCluster, tmp_path: Path) -> None:
    copy = tmp_path / "kubeconfig"
    shutil.copy(cluster.kubeconfig, copy)
    refused = cluster.steersman("workload", "run", "--kubeconfig", str(copy))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: this would create and delete Deployments at https://127.0.0.1:")
    assert not names(cluster, "deployments")
    assert not names(cluster, "pods")
