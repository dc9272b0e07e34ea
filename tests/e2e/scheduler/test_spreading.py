"""A live `kube-default` spreads the pods of a Service over zones as kube-scheduler does, without being asked to."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import NODES, LocalCluster, until
from tests.e2e.scheduler.test_schedule import bound, create, pod, scheduling

pytestmark = pytest.mark.e2e

ZONE = "topology.kubernetes.io/zone"
SMALL = 2
"""Nodes of zone b; the others are of zone a."""
HEARD_SECONDS = 1.0
"""In which a watch has told of a Service."""


@pytest.fixture
def zones(cluster: LocalCluster) -> Iterator[dict[str, str]]:
    """Node -> zone."""
    names = cluster.node_names()
    where = {name: "b" if i < SMALL else "a" for i, name in enumerate(sorted(names))}
    for zone in ("a", "b"):
        cluster.kubectl("label", "nodes", "--overwrite", *(n for n in where if where[n] == zone), f"{ZONE}={zone}")
    yield where
    cluster.kubectl("label", "nodes", "--all", f"{ZONE}-")
    cluster.kubectl("delete", "service,replicaset", "-l", "app=web", "--ignore-not-found")


def placed(cluster: LocalCluster, zones: dict[str, str], scheduler: str, count: int, app: str = "web") -> Counter[str]:
    """Zone -> of so many new pods how many were bound there; they are gone afterwards."""
    made = [large(cluster, pod(f"{app}-{i}", schedulerName=scheduler)) for i in range(count)]
    for each in made:
        each["metadata"]["labels"] = {"app": app}
    create(cluster, *made)
    until(lambda: len(bound(cluster)) == count)
    found = Counter(zones[node] for node in bound(cluster).values())
    cluster.kubectl("delete", "pods", "--all", "--grace-period=0", "--force")
    until(lambda: not bound(cluster))
    return found


def large(cluster: LocalCluster, obj: dict[str, Any]) -> dict[str, Any]:
    """The pod with a fortieth of a node, which is enough for full nodes to be told from empty ones."""
    cpu = cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[0].status.allocatable.cpu}")
    obj["spec"]["containers"][0]["resources"]["requests"] = {"cpu": f"{int(cpu) * 25}m"}
    return obj


def service(app: str) -> dict[str, object]:
    spec = {"selector": {"app": app}, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": app, "labels": {"app": app}}, "spec": spec}


def test_pods_of_a_service_are_spread_over_zones_as_kube_scheduler_spreads_them(
    cluster: LocalCluster, zones: dict[str, str], tmp_path: Path
) -> None:
    with scheduling(cluster, tmp_path, "--policy", "kube-default") as running:
        until(lambda: running.said("scheduling"))
        # Whoever begins to lead lists anew; a watch that is forbidden would not have come so far.
        assert 'steersman_watch_restarts_total{resource="replicasets"} 1.0' in running.get("metrics")
        assert placed(cluster, zones, "steersman", NODES) == {"a": NODES - SMALL, "b": SMALL}
        create(cluster, service("web"))
        time.sleep(HEARD_SECONDS)
        spread = placed(cluster, zones, "steersman", NODES)
        assert spread["b"] > SMALL
        assert placed(cluster, zones, "steersman", NODES, app="other") == {"a": NODES - SMALL, "b": SMALL}
        assert placed(cluster, zones, "default-scheduler", NODES) == spread
        cluster.kubectl("delete", "service", "web")
        time.sleep(HEARD_SECONDS)
        assert placed(cluster, zones, "steersman", NODES) == {"a": NODES - SMALL, "b": SMALL}
        assert not [line for line in running.log() if line["level"] in ("warning", "error")]


def test_pods_of_a_replica_set_are_spread_without_a_service(
    cluster: LocalCluster, zones: dict[str, str], tmp_path: Path
) -> None:
    template = large(cluster, pod("web"))
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "replicas": NODES,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": template["spec"]},
        },
    }
    with scheduling(cluster, tmp_path, "--policy", "kube-default"):
        create(cluster, replica_set)
        until(lambda: len(bound(cluster)) == NODES)
        found = Counter(zones[node] for node in bound(cluster).values())
        assert found["b"] > SMALL
        cluster.kubectl("delete", "replicaset", "web", "--cascade=foreground", "--timeout=60s")
