"""Hard limits of latency in kube-scheduler: they restrict where a pod goes first, and never evict another pod."""

import time
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import LocalCluster, until
from tests.e2e.scheduler.test_schedule import Running, bound, create, pods
from tests.e2e.telemetry.prometheus import Node, telemetry
from tests.e2e.telemetry.test_telemetry import endpoint, fresh, serving
from tests.support.servers.plugin_scheduler import SCHEDULER, configuration, plugged, profile, scheduler_program

pytestmark = pytest.mark.e2e
__all__ = ["scheduler_program"]

NEAR = 3
LOW, HIGH = "low", "high"


def web(name: str, priority: str, node: str = "", **annotations: str) -> dict[str, Any]:
    """A pod that shares its node with no other pod of these."""
    alone = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    spec: dict[str, Any] = {
        "schedulerName": SCHEDULER,
        "priorityClassName": priority,
        "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": "500m"}}}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [alone]}},
    }
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}, "annotations": annotations},
        "spec": spec,
    }


def priority_class(name: str, value: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def _configuration(cluster: LocalCluster, service: Running) -> dict[str, Any]:
    """A policy in kube-scheduler's process, and a service that is asked about limits alone."""
    args = {"policy": "best-fit", "endpoint": endpoint(service), "timeout": "2s"}
    return configuration(cluster.kubeconfig, [profile(args)])


def test_a_limit_evicts_no_pod_while_another_node_is_free(
    cluster: LocalCluster, scheduler_program: Path, tmp_path: Path
) -> None:
    names = cluster.node_names()
    near, far = names[:NEAR], set(names[NEAR:])
    create(cluster, priority_class(LOW, 1), priority_class(HIGH, 1000))
    try:
        create(cluster, *(web(f"low-{i}", LOW, node) for i, node in enumerate(near)))
        nodes = {name: Node(latency={"rome": 20.0 if name in near else 150.0}) for name in names}
        with telemetry(tmp_path / "telemetry", nodes) as measured:
            file = tmp_path / "telemetry.yaml"
            file.write_text(measured.configuration())
            with (
                serving(cluster, tmp_path, "--policy", "best-fit", "--telemetry", str(file)) as service,
                plugged(scheduler_program, tmp_path, _configuration(cluster, service)) as scheduler,
            ):
                until(lambda: fresh(service, "latency_milliseconds", len(names)))
                create(cluster, web("urgent", HIGH, latencyHardConstraint="100"))
                until(lambda: "urgent" in bound(cluster))
                assert bound(cluster)["urgent"] in far
                # The service knows that the near nodes' pods keep it away, too, so nothing is tried there first.
                assert scheduler.metrics("latency_limits_total") == {'outcome="kept_by_no_node"': 1}
                time.sleep(2)  # an eviction would be seen by now
                left = pods(cluster)
                assert all(
                    f"low-{i}" in left and not left[f"low-{i}"]["metadata"].get("deletionTimestamp")
                    for i in range(NEAR)
                )
                # Where no node is free at all, preemption is as without a limit.
                create(
                    cluster,
                    *(web(f"other-{i}", LOW, node) for i, node in enumerate(far - set(bound(cluster).values()))),
                )
                create(cluster, web("last", HIGH, latencyHardConstraint="100"))
                until(lambda: "last" in bound(cluster))
    finally:
        cluster.kubectl("delete", "priorityclasses", LOW, HIGH)
