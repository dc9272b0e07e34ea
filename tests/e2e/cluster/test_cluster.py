"""`steersman cluster` against a real control plane: what is started, what is in it, and that nothing is left."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import NAME, NODES, STEERSMAN, LocalCluster, until
from tests.support.objects import node_from_object

from steersman.live.local_cluster.control_plane import servers
from steersman.live.local_cluster.nodes import equal_nodes, parse_shape, prepared
from steersman.workloads.formats.openb import parse_nodes

pytestmark = pytest.mark.e2e

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app.kubernetes.io/managed-by: steersman}}
spec:
  replicas: 20
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: main, image: pause, resources: {requests: {cpu: 500m, memory: 1Gi}}}
"""
SHARE = """
apiVersion: v1
kind: Pod
metadata:
  name: share
  annotations: {alibabacloud.com/gpu-count: "1", alibabacloud.com/gpu-milli: "250"}
spec:
  nodeName: with-gpus
  containers: [{name: main, image: pause, resources: {requests: {cpu: "3"}}}]
"""
GPU_NODES = "sn,cpu_milli,memory_mib,gpu,model\nwith-gpus,96000,786432,8,A10\nwithout,64000,262144,0,\n"


def running(cluster: LocalCluster) -> int:
    pods = cluster.objects("pods")
    return sum(1 for pod in pods if pod["status"]["phase"] == "Running" and pod["spec"].get("nodeName"))


def rows(cluster: LocalCluster, name: str = NAME) -> list[dict[str, Any]]:
    return json.loads(cluster.must("top", "--once", "--name", name, "--format", "json"))["nodes"]  # type: ignore[no-any-return]


def test_nodes_are_ready_and_read_back_as_requested(cluster: LocalCluster) -> None:
    listed = cluster.objects("nodes")
    for node in listed:
        labels = node["metadata"]["labels"]  # kube-controller-manager copies two of them under older names
        node["metadata"]["labels"] = {key: labels[key] for key in labels if not key.startswith("beta.")}
    found = sorted((node_from_object(node) for node in listed), key=lambda node: node.name)
    assert found == prepared(equal_nodes(NODES, parse_shape("64cpu,256Gi,110pods")))
    assert cluster.must("top", "--once", "--name", NAME).count("0/256") == NODES
    assert [(row["name"], row["state"]) for row in rows(cluster)] == [(node.name, "") for node in found]


def test_kube_scheduler_binds_pods_and_clean_removes_them(cluster: LocalCluster) -> None:
    cluster.kubectl("create", "namespace", "mine")
    cluster.kubectl("create", "configmap", "keep-me")
    cluster.kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    cluster.kubectl("run", "alone", "--image=pause", "--namespace=mine")
    until(lambda: running(cluster) == 20)
    found = rows(cluster)
    assert sum(int(row["cpu_requested_milli"]) for row in found) == 20 * 500
    assert sum(int(row["memory_requested_bytes"]) for row in found) == 20 << 30
    until(lambda: sum(int(row["pods_there"]) for row in rows(cluster)) == 21)
    shown = cluster.must("top", "--once", "--name", NAME).splitlines()
    assert f"{NODES} nodes, 21 pods" in shown[0]
    status = cluster.must("cluster", "status", "--name", NAME)
    assert f"{NODES} of {NODES} ready" in status
    assert "21 Running" in status
    assert f"export KUBECONFIG={cluster.kubeconfig}" in status
    cleaned = cluster.steersman("cluster", "clean", "--name", NAME)
    assert cleaned.returncode == 0
    assert "deleted 21 pods" in cleaned.stderr
    assert not json.loads(cluster.kubectl("get", "pods,deployments,replicasets", "-A", "-o", "json"))["items"]
    cluster.kubectl("get", "configmap", "keep-me")
    assert not any(row["state"] for row in rows(cluster))
    cluster.kubectl("delete", "namespace", "mine", "--wait=false")
    cluster.kubectl("delete", "configmap", "keep-me")


def test_second_cluster_with_nodes_of_a_file_is_removed_entirely(cluster: LocalCluster, tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(GPU_NODES)
    arguments = ["--nodes-from", str(tmp_path / "nodes.csv"), "--servers-per-rack", "1", "--racks-per-zone", "2"]
    name = "other"
    exported = cluster.must("cluster", "up", "--name", name, *arguments, "--reference-node", "--kwok-taint")
    assert exported.startswith("export KUBECONFIG=")
    kubeconfig = Path(exported.strip().partition("=")[2])
    folder = kubeconfig.parent
    other = LocalCluster(name, cluster.environment, kubeconfig, cluster.kubectl_path)
    try:
        control, *gpu_nodes = (
            node_from_object(node) for node in json.loads(other.kubectl("get", "nodes", "-o", "json"))["items"]
        )
        assert [taint.key for taint in control.taints] == ["node-role.kubernetes.io/control-plane"]
        for found, read in zip(gpu_nodes, parse_nodes("", GPU_NODES), strict=True):
            assert (found.cpu_milli, found.memory_bytes) == (read.cpu_milli, read.memory_bytes)
            assert (found.gpu_count, found.gpu_model) == (read.gpu_count, read.gpu_model)
            assert [taint.key for taint in found.taints] == ["kwok.x-k8s.io/node"]
        other.kubectl("apply", "-f", "-", stdin=SHARE)
        row = next(row for row in rows(other, name) if row["name"] == "with-gpus")
        assert (row["gpus"], row["gpu_model"], row["gpu_requested_milli"]) == (8, "A10", 250)
        assert (row["cpu_requested_milli"], row["rack"], row["zone"]) == (3000, "rack-0", "zone-0")

        again = other.steersman("cluster", "up", "--name", name)
        assert again.returncode == 1
        assert "is up already" in again.stderr
        assert servers.running(folder).keys() == set(servers.SERVERS)
        os.kill(servers.running(folder)["kube-scheduler"], signal.SIGKILL)
        until(lambda: "kube-scheduler" not in servers.running(folder))
        partial = other.steersman("cluster", "status", "--name", name)
        assert partial.returncode == 1
        assert "of which kube-scheduler stopped running" in partial.stdout
        assert "kube-scheduler stopped running; 'steersman cluster down" in partial.stderr
        os.kill(servers.running(folder)["kube-apiserver"], signal.SIGKILL)
        until(lambda: "kube-apiserver" not in servers.running(folder))
        silent = other.steersman("cluster", "nodes", "remove", "--count", "1", "--name", name)
        assert silent.returncode == 1
        assert silent.stderr.startswith(f"error: cluster '{name}' does not respond")
        assert silent.stderr.count("\n") == 1
    finally:
        before = servers.running(folder)
        down = other.steersman("cluster", "down", "--name", name)
    assert before
    assert down.returncode == 0, down.stderr
    assert servers.running(folder) == {}
    assert [path.name for path in folder.parent.iterdir() if not path.name.startswith(".")] == [NAME]
    assert "there is no cluster" in other.steersman("cluster", "down", "--name", name).stderr


def test_nodes_are_added_and_removed_while_the_cluster_runs(cluster: LocalCluster) -> None:
    def names() -> list[str]:
        return sorted(row["name"] for row in rows(cluster))

    before = names()
    try:
        shapes = ("--node-shape", "8cpu,32Gi:2", "--node-shape", "gpu=96cpu,768Gi,8gpu:A100")
        cluster.must("cluster", "nodes", "add", "--name", NAME, *shapes)
        added = ["gpu-0000", f"node-{NODES:04}", f"node-{NODES + 1:04}"]
        assert names() == sorted([*before, *added])
        assert next(row for row in rows(cluster) if row["name"] == "gpu-0000")["gpus"] == 8
        cluster.must("cluster", "nodes", "remove", "gpu-0000", "--name", NAME)
        refused = cluster.steersman("cluster", "nodes", "remove", "gpu-0000", "--name", NAME)
        assert (refused.returncode, "no such node" in refused.stderr) == (2, True)
        listed = cluster.must("cluster", "kubectl", "--name", NAME, "get", "nodes", "-o", "name")
        assert sorted(listed.split()) == [f"node/{name}" for name in names()]
    finally:
        cluster.must("cluster", "nodes", "remove", "--count", str(len(names()) - len(before)), "--name", NAME)
    assert names() == before


def test_kubectl_completes_our_commands(cluster: LocalCluster) -> None:
    path = os.pathsep.join((str(STEERSMAN.parent), os.environ["PATH"]))
    asked = [cluster.kubectl_path, "__complete", "steersman", "simulate", "--policy", "gpu-"]
    done = subprocess.run(asked, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[:2] == ["gpu-clustering", "gpu-packing"]


def test_existing_cluster_keeps_all_but_our_nodes(cluster: LocalCluster) -> None:
    cluster.kubectl("run", "theirs", "--image=pause")
    place = ["--kubeconfig", str(cluster.kubeconfig)]
    cluster.must("cluster", "up", "--name", "guest", *place)
    try:
        refused = cluster.steersman("cluster", "clean", "--name", "guest")
        assert refused.returncode == 2
        assert "--yes" in refused.stderr
        assert "existing cluster" in cluster.must("cluster", "status", "--name", "guest")
    finally:
        cluster.must("cluster", "down", "--name", "guest")
    occupied = cluster.steersman("cluster", "up", "--name", "guest", *place, "--count", "2", "--yes")
    assert occupied.returncode == 1
    assert "already exists" in occupied.stderr
    shapes = ("--count", "1", "--node-shape", "a=8cpu,32Gi:2", "--node-shape", "b=64cpu,256Gi,110pods")
    cluster.must("cluster", "up", "--name", "guest", *place, *shapes, "--reference-node", "--yes")
    added = {row["name"]: row["cpu_milli"] for row in rows(cluster)}
    assert len(added) == NODES + 4
    assert [added[name] for name in ("a-0000", "a-0001", "b-0000")] == [8000, 8000, 64000]
    cluster.must("cluster", "down", "--name", "guest")
    assert len(rows(cluster)) == NODES
    assert "theirs" in cluster.kubectl("get", "pods")


def test_interrupted_start_leaves_nothing(cluster: LocalCluster) -> None:
    folder = cluster.kubeconfig.parent.parent / "broken-off"
    command = [STEERSMAN, "cluster", "up", "--name", "broken-off", "--count", "500"]
    process = subprocess.Popen(command, env=cluster.environment, stderr=subprocess.PIPE, text=True)
    until(lambda: "kube-apiserver" in servers.running(folder))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.splitlines()[-1] == "interrupted"
    assert servers.running(folder) == {}
    assert not folder.exists()
