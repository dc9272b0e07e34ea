"""`steersman cluster up --telemetry`: Prometheus knows what the simulated nodes use, and policies decide by it."""

import json
import os
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.e2e.conftest import LocalCluster, until
from tests.e2e.scheduler.test_schedule import scheduling
from tests.e2e.telemetry.prometheus import programs

from steersman.live.local_cluster.control_plane import servers
from steersman.prometheus.configuration import DEFAULT_FEATURES

pytestmark = pytest.mark.e2e

NAME = "measured"
NODES = 4
NGINX = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: nginx}
spec:
  replicas: 2
  selector: {matchLabels: {app: nginx}}
  template:
    metadata: {labels: {app: nginx}}
    spec:
      containers:
      - {name: nginx, image: nginx, resources: {requests: {cpu: 250m, memory: 256Mi}}}
"""
LIMITS = ("--annotation", "latencySoftConstraint=35", "--annotation", "latencyHardConstraint=500")


@pytest.fixture(scope="module")
def measured(control_plane: LocalCluster) -> Iterator[LocalCluster]:
    """A cluster of four nodes with telemetry, every second."""
    environment = control_plane.environment | {"PATH": f"{programs()}{os.pathsep}{os.environ['PATH']}"}
    folder = control_plane.kubeconfig.parent.with_name(NAME)
    made = LocalCluster(NAME, environment, folder / "kubeconfig", control_plane.kubectl_path)
    shape = ("--node-shape", "8cpu,32Gi", "--count", str(NODES))
    try:
        made.must("cluster", "up", "--name", NAME, "--telemetry", "--scrape-interval", "1", *shape)
        yield made
    finally:
        before = servers.running(folder)
        made.must("cluster", "down", "--name", NAME)
        assert {"prometheus", "exporters"} <= before.keys()
        assert not servers.running(folder)
        assert not folder.exists()


def telemetry_file(cluster: LocalCluster) -> Path:
    return cluster.kubeconfig.parent / "telemetry.yaml"


def ask(cluster: LocalCluster, query: str, label: str = "instance") -> dict[str, float]:
    """What Prometheus answers, by a label."""
    url = yaml.safe_load(telemetry_file(cluster).read_text())["prometheus"]["url"]
    path = urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(f"{url}/api/v1/query?{path}", timeout=10) as answer:
        found = json.loads(answer.read())["data"]["result"]
    return {each["metric"].get(label, ""): float(each["value"][1]) for each in found}


def value(cluster: LocalCluster, name: str) -> float:
    """The truth of the model, as it was last scraped; -1: it was not."""
    return next(iter(ask(cluster, f"steersman_simulated_{name}").values()), -1.0)


def test_all_default_queries_are_answered_for_every_node(measured: LocalCluster) -> None:
    status = measured.must("cluster", "status", "--name", NAME)
    assert f"Telemetry:  {telemetry_file(measured)}" in status
    assert "Prometheus: http://127.0.0.1:" in status
    for name, feature in DEFAULT_FEATURES.items():
        if name != "running_pods":  # kube-state-metrics has no series of nodes without pods
            until(lambda query=feature.query: len(ask(measured, query)) == NODES)
            assert len(ask(measured, feature.sampled_at)) == NODES, name
    cpu = ask(measured, DEFAULT_FEATURES["cpu_used_percent"].query)
    assert all(0 < share < 10 for share in cpu.values()), cpu
    latency = ask(measured, DEFAULT_FEATURES["latency_milliseconds"].query)
    assert max(latency.values()) > 10 > min(latency.values())


def test_node_use_is_measured_and_decided_by(measured: LocalCluster, tmp_path: Path) -> None:
    manifest = tmp_path / "nginx.yaml"
    manifest.write_text(NGINX)
    run = ("workload", "run", "--name", NAME, "--manifest", str(manifest), "--copies", "10", "--interval", "0.2")
    with scheduling(measured, tmp_path, "--policy", "p0", "--telemetry", str(telemetry_file(measured))):
        options = ("--scheduler-name", "steersman", "--pause", "4", "--cycles", "1", "--output", str(tmp_path / "c"))
        measured.must(*run, *options, *LIMITS)
        assert value(measured, "connections_maximum") >= 20
        peak = ask(measured, "max_over_time(steersman_simulated_connections_maximum[20s])", "job")
        assert peak["cluster"] > 30
    assert value(measured, "placed_limited_total") == 20
    assert value(measured, "placed_beyond_hard_avoidably_total") == 0
    until(lambda: value(measured, "empty_nodes") == NODES)
    rows = (tmp_path / "c").read_text().splitlines()
    assert rows[1] == "nginx-1,2,250m,250m,256Mi,256Mi,add"
    assert len(rows) == 1 + 10 + 10


def test_added_and_removed_nodes_appear_and_vanish(measured: LocalCluster) -> None:
    def seen() -> int:
        return len(ask(measured, "node_netstat_Tcp_CurrEstab"))

    measured.must("cluster", "nodes", "add", "--name", NAME, "--count", "2", "--node-shape", "8cpu,32Gi")
    until(lambda: seen() == NODES + 2)
    measured.must("cluster", "nodes", "remove", "--name", NAME, "--count", "2")
    until(lambda: seen() == NODES)


def test_dead_process_is_reported(measured: LocalCluster) -> None:
    pid_file = measured.kubeconfig.parent / "telemetry" / "exporters.pid"
    pid_file.rename(pid_file.with_suffix(".aside"))
    try:
        status = measured.steersman("cluster", "status", "--name", NAME)
    finally:
        pid_file.with_suffix(".aside").rename(pid_file)
    assert status.returncode == 1
    assert "exporters stopped running" in status.stderr


def test_without_prometheus_nothing_is_started(control_plane: LocalCluster, tmp_path: Path) -> None:
    environment = control_plane.environment | {"PATH": str(tmp_path)}
    bare = LocalCluster("bare", environment, tmp_path, control_plane.kubectl_path)
    for arguments, problem in (
        (("--telemetry",), "no program 'prometheus' on the PATH; 'apt-get install prometheus' installs it"),
        (("--scrape-interval", "1"), "--scrape-interval belongs to --telemetry"),
    ):
        refused = bare.steersman("cluster", "up", "--name", "bare", *arguments)
        assert refused.returncode in (1, 2)
        assert problem in refused.stderr
        assert refused.stderr.count("\n") == 1
    assert not control_plane.kubeconfig.parent.with_name("bare").exists()
