"""KWOK in a cluster that steersman did not start: a real control plane whose own controller of KWOK was stopped."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.e2e.conftest import LocalCluster, until

from steersman.live.local_cluster import kwok
from steersman.live.local_cluster.control_plane import servers

pytestmark = pytest.mark.e2e
NAME = "without-kwok"


@pytest.fixture
def foreign(control_plane: LocalCluster, tmp_path: Path) -> Iterator[tuple[LocalCluster, list[str]]]:
    """The cluster, and the options that name it by a kubeconfig that is not steersman's."""
    control_plane.must("cluster", "up", "--name", NAME, "--count", "0")
    folder = control_plane.kubeconfig.parents[1] / NAME
    cluster = LocalCluster(NAME, control_plane.environment, folder / "kubeconfig", control_plane.kubectl_path)
    try:
        os.kill(servers.running(folder)["kwok-controller"], signal.SIGKILL)
        file = tmp_path / "kubeconfig"
        file.write_bytes(cluster.kubeconfig.read_bytes())
        options = ["--kubeconfig", str(file), "--yes"]
        yield cluster, options
        cluster.steersman("cluster", "kwok", "remove", *options)
    finally:
        control_plane.steersman("cluster", "down", "--name", NAME)


def test_local_kwok_process_simulates_nodes(foreign: tuple[LocalCluster, list[str]]) -> None:
    cluster, options = foreign
    cluster.must("cluster", "kwok", "install", *options)
    again = cluster.steersman("cluster", "kwok", "install", *options)
    assert (again.returncode, "runs for" in again.stderr) == (1, True)
    cluster.must("cluster", "nodes", "add", "--count", "3", *options)
    cluster.kubectl("run", "web", "--image=pause")

    def is_running() -> bool:
        pod = json.loads(cluster.kubectl("get", "pod", "web", "-o", "json"))
        return bool(pod["status"]["phase"] == "Running" and pod["spec"].get("nodeName"))

    until(is_running)
    cluster.must("cluster", "nodes", "remove", "--count", "3", *options[:2])
    assert not cluster.objects("nodes")
    cluster.must("cluster", "kwok", "remove", *options)
    assert "was not installed" in cluster.steersman("cluster", "kwok", "remove", *options).stderr


def test_the_api_server_takes_the_manifests(foreign: tuple[LocalCluster, list[str]]) -> None:
    cluster, options = foreign
    printed = cluster.must("cluster", "kwok", "install", "--image", "kwok:v0.8.0", "--print")
    cluster.kubectl("apply", "--dry-run=server", "--filename", "-", stdin=printed)
    cluster.must("cluster", "kwok", "install", "--image", "kwok:v0.8.0", *options)
    user = f"system:serviceaccount:{kwok.NAMESPACE}:{kwok.NAME}"
    for verb, resource, subresource in (
        ("patch", "nodes", "status"),
        ("patch", "pods", "status"),
        ("delete", "pods", ""),
        ("create", "leases.coordination.k8s.io", ""),
    ):
        part = [f"--subresource={subresource}"] if subresource else []
        assert cluster.kubectl("auth", "can-i", verb, resource, *part, "--as", user).strip() == "yes", (verb, resource)
    found = cluster.kubectl("get", "deployment", kwok.NAME, "--namespace", kwok.NAMESPACE, "-o", "yaml")
    assert yaml.safe_load(found)["spec"]["replicas"] == 1
    assert f"{len(kwok.COLLECTIONS)} objects" in cluster.steersman("cluster", "kwok", "remove", *options).stderr
