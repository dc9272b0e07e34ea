"""`evaluate --cluster` compares with the configuration of the cluster's scheduler, where the API tells it."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import LocalCluster
from tests.support.kubernetes import minor

from steersman.policies.kube_scheduler.minors import NEWEST

pytestmark = pytest.mark.e2e

Object = dict[str, Any]
STRATEGY = {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}}
CONFIGURATION: Object = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"pluginConfig": [{"name": "NodeResourcesFit", "args": STRATEGY}]}],
}
CONTAINER = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}


def metadata(name: str, **labels: str) -> Object:
    return {"name": name, "namespace": "kube-system", "labels": labels}


def static_pod() -> Object:
    command = ["kube-scheduler", "--config=/etc/kubernetes/mine.yaml", "--feature-gates=OpportunisticBatching=false"]
    container = {"name": "kube-scheduler", "image": "kube-scheduler", "command": command}
    spec = {"nodeName": "cp", "containers": [container]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata("kube-scheduler-cp", component="kube-scheduler"),
        "spec": spec,
    }


def hosted(configuration: Object) -> list[Object]:
    volume = {"name": "config", "configMap": {"name": "mine"}}
    container = {
        "name": "kube-scheduler",
        "image": "kube-scheduler",
        "command": ["kube-scheduler", "--config", "/etc/mine/scheduler.yaml"],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/mine"}],
    }
    template = {"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [container], "volumes": [volume]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "s"}}, "template": template}
    data = {"scheduler.yaml": json.dumps(configuration)}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("mine"), "data": data},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("hosted"), "spec": spec},
    ]


@pytest.fixture
def filled(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """A cluster with three pods."""
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{i}"}, "spec": {"containers": [CONTAINER]}}
        for i in range(3)
    ]
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    yield cluster
    kinds = "pod/kube-scheduler-cp", "deployment/hosted", "configmap/mine"
    cluster.kubectl("delete", "-n", "kube-system", "--ignore-not-found", "--force", *kinds)


def compared(cluster: LocalCluster, output: Path, *objects: Object) -> tuple[str, set[str]]:
    """Return what a comparison of the cluster says, and the policies that ran."""
    if objects:
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    run = ("evaluate", "--cluster", "--name", cluster.name, "--seeds", "1", "--jobs", "1", "--protocol", "arrivals")
    done = cluster.steersman(*run, "--policy", "kube-default", "fgd", "--output", str(output))
    assert done.returncode == 0, done.stderr
    rows = csv.DictReader((output / "metrics.csv").read_text().splitlines())
    return " ".join(done.stderr.split()), {row["policy"] for row in rows}


@pytest.mark.minors
def test_the_baseline_is_what_the_api_tells(filled: LocalCluster, tmp_path: Path) -> None:
    of_minor = "" if minor() == NEWEST else f"@{minor()}"
    ours = {f"kube-default{of_minor}", "fgd"}
    said, policies = compared(filled, tmp_path / "none")
    assert "the API does not tell which configuration this cluster's scheduler has" in said
    assert policies >= ours
    said, _ = compared(filled, tmp_path / "static", static_pod())
    assert (
        "pod kube-system/kube-scheduler-cp reads /etc/kubernetes/mine.yaml on node cp, which the API does not" in said
    )
    assert "--feature-gates OpportunisticBatching=false are not computed" in said
    said, policies = compared(filled, tmp_path / "hosted", *hosted(CONFIGURATION))
    assert "the baseline is cluster-scheduler, the configuration of Deployment kube-system/hosted" in said
    assert policies >= ours | {f"cluster-scheduler{of_minor}"}
    assert json.loads((tmp_path / "hosted" / "cluster-scheduler.yaml").read_text()) == CONFIGURATION
    said, policies = compared(filled, tmp_path / "extended", *hosted({**CONFIGURATION, "extenders": [{}]}))
    assert "Deployment kube-system/hosted: ConfigMap kube-system/mine" in said
    assert "extenders: are other programs, whose decisions cannot be computed" in said
    assert policies >= ours
    assert not (tmp_path / "extended" / "cluster-scheduler.yaml").exists()
