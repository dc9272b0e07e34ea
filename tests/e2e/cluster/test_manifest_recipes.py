"""The commands of `deploy/` without Helm, as a user runs them: in order, again, and removed, on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.e2e.conftest import LocalCluster

pytestmark = pytest.mark.e2e

DEPLOY = Path(__file__).parents[3] / "deploy"
STATIC_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "kube-scheduler", "namespace": "kube-system"},
    "spec": {
        "hostNetwork": True,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "kube-scheduler",
                "image": "registry.k8s.io/kube-scheduler:v1.37.2",
                "command": [
                    "kube-scheduler",
                    "--authentication-kubeconfig=/etc/kubernetes/scheduler.conf",
                    "--authorization-kubeconfig=/etc/kubernetes/scheduler.conf",
                    "--bind-address=127.0.0.1",
                    "--kubeconfig=/etc/kubernetes/scheduler.conf",
                    "--leader-elect=true",
                ],
                "volumeMounts": [
                    {"name": "kubeconfig", "mountPath": "/etc/kubernetes/scheduler.conf", "readOnly": True}
                ],
            }
        ],
        "volumes": [{"name": "kubeconfig", "hostPath": {"path": "/etc/kubernetes/scheduler.conf"}}],
    },
}
"""What kubeadm writes for kube-scheduler, as far as patches touch it."""


@pytest.fixture
def cluster(control_plane: LocalCluster) -> Iterator[LocalCluster]:
    """A cluster without a namespace of ours, which is gone again afterwards."""
    control_plane.must("cluster", "clean", "--name", control_plane.name)
    yield control_plane
    control_plane.kubectl("delete", "namespace", "steersman-telemetry", "--ignore-not-found", "--wait=true")


def names(cluster: LocalCluster, *arguments: str) -> set[str]:
    """Names of objects, each with its kind."""
    return set(cluster.kubectl("get", *arguments, "-o", "name", "--ignore-not-found").split())


def test_prometheus_is_applied_twice_and_removed(cluster: LocalCluster) -> None:
    kept = names(cluster, "namespaces,clusterroles,clusterrolebindings")
    folder, namespace = DEPLOY / "prometheus", DEPLOY / "prometheus" / "namespace"
    cluster.kubectl("apply", "-k", str(namespace))
    cluster.kubectl("apply", "-k", str(folder))
    cluster.kubectl("apply", "-k", str(folder))
    assert cluster.kubectl("diff", "-k", str(folder)) == ""
    cluster.kubectl("delete", "-k", str(folder), "--wait=true")
    assert names(cluster, "namespaces") - kept, "what else is in the namespace stays"
    cluster.kubectl("delete", "-k", str(namespace), "--wait=true")
    assert names(cluster, "namespaces,clusterroles,clusterrolebindings") <= kept


def test_patched_static_pod_can_read_the_kubeconfig_of_kubeadm(control_plane: LocalCluster, tmp_path: Path) -> None:
    pod = tmp_path / "kube-scheduler.yaml"
    pod.write_text(yaml.safe_dump(STATIC_POD))
    patch = DEPLOY / "kube-scheduler" / "patches" / "kube-scheduler+json.yaml"
    patched = yaml.safe_load(
        control_plane.kubectl(
            *("patch", "--local", "-f", str(pod), "--type=json", "--patch-file", str(patch), "-o", "yaml")
        )
    )
    (container,) = patched["spec"]["containers"]
    assert container["image"].startswith("steersman-kube-scheduler:")
    assert container["securityContext"]["runAsUser"] == 0, "scheduler.conf is of root, mode 0600"
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts == {"/etc/kubernetes/scheduler.conf", "/etc/steersman"}
    assert patched["spec"]["containers"][0]["command"][1:-1] == STATIC_POD["spec"]["containers"][0]["command"][1:]
    (config,) = (part.removeprefix("--config=") for part in container["command"] if part.startswith("--config="))
    file = yaml.safe_load((DEPLOY / "kube-scheduler" / Path(config).name).read_text())
    assert file["clientConnection"]["kubeconfig"] in mounts
    said = control_plane.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(patched))
    assert "created" in said
