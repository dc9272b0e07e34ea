"""The commands of `deploy/`, as a user runs them: in order, combined, again, and removed, on a real API server."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tests.e2e.conftest import STEERSMAN, LocalCluster, until
from tests.e2e.scheduler.test_manifests import admin, rendered, write_kubeconfig

from steersman.kubernetes.client import Client
from steersman.kubernetes.config import KubeUser

pytestmark = pytest.mark.e2e

DEPLOY = Path(__file__).parents[3] / "deploy"
NAMESPACE, BASE, SERVICE = (DEPLOY / "kustomize" / name for name in ("namespace", "base", "service"))
TOKEN = ("create", "secret", "generic", "steersman-service", "-n", "steersman", "--from-literal=token=abc")
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
                "image": "registry.k8s.io/kube-scheduler:v1.36.3",
                "command": ["kube-scheduler", "--kubeconfig=/etc/kubernetes/scheduler.conf", "--leader-elect=true"],
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
    """A cluster without namespaces of ours, which are gone again afterwards."""
    control_plane.must("cluster", "clean", "--name", control_plane.name)
    yield control_plane
    ours = ("steersman", "steersman-telemetry", "steersman-plugin")
    control_plane.kubectl("delete", "namespace", *ours, "--ignore-not-found", "--wait=true")


def names(cluster: LocalCluster, *arguments: str) -> set[str]:
    """Names of objects, each with its kind."""
    return set(cluster.kubectl("get", *arguments, "-o", "name", "--ignore-not-found").split())


def test_scheduler_and_service_are_removed_without_each_other(cluster: LocalCluster) -> None:
    cluster.kubectl("apply", "-k", str(NAMESPACE))
    cluster.kubectl(*TOKEN)
    cluster.kubectl("apply", "-k", str(BASE))
    cluster.kubectl("apply", "-k", str(SERVICE))
    everything = "deployments,services,configmaps,poddisruptionbudgets,networkpolicies,secrets"
    cluster.kubectl("delete", "-k", str(BASE), "--wait=true")
    left = names(cluster, everything, "-n", "steersman")
    assert {"deployment.apps/steersman-service", "service/steersman-service", "secret/steersman-service"} <= left
    assert "deployment.apps/steersman" not in left
    assert names(cluster, "clusterrolebindings", "steersman-service")
    assert not names(cluster, "clusterrolebindings", "steersman")
    cluster.kubectl("apply", "-k", str(BASE))
    cluster.kubectl("delete", "-k", str(SERVICE), "--wait=true")
    assert names(cluster, "deployments", "-n", "steersman") == {"deployment.apps/steersman"}
    cluster.kubectl("delete", "-k", str(BASE), "--wait=true")
    cluster.kubectl("delete", "-k", str(NAMESPACE), "--wait=true")
    assert not names(cluster, "namespaces", "steersman")
    assert not {each for each in names(cluster, "clusterroles") if "steersman" in each}


def test_kustomizations_can_be_combined(cluster: LocalCluster, tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    resources = ("namespace", "base", "service", "overlays/scheduler-name")
    folder = tmp_path / "all"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "resources": [f"../deploy/kustomize/{name}" for name in resources],
            }
        )
    )
    cluster.kubectl("apply", "-k", str(folder))
    cluster.kubectl("apply", "-k", str(folder))
    assert cluster.kubectl("diff", "-k", str(folder)) == ""
    deployments = {"steersman", "steersman-service", "steersman-batch"}
    assert names(cluster, "deployments", "-n", "steersman") == {f"deployment.apps/{name}" for name in deployments}
    # Each Deployment, budget and Service selects its own pods alone.
    until(lambda: len(cluster.kubectl("get", "pods", "-n", "steersman", "-o", "name").split()) >= 4)
    for name in ("steersman", "steersman-batch"):
        selected = cluster.kubectl(
            "get", "pods", "-n", "steersman", "-l", f"app.kubernetes.io/name={name}", "-o", "json"
        )
        accounts = {pod["spec"]["serviceAccountName"] for pod in json.loads(selected)["items"]}
        assert accounts == {name}
    cluster.kubectl("delete", "-k", str(folder), "--wait=true")
    assert not names(cluster, "namespaces", "steersman")


@pytest.mark.parametrize(
    ("before", "folder"),
    [
        ("prometheus/namespace", "latency-probe"),
        ("prometheus/namespace", "prometheus"),
        ("kustomize/namespace", "prometheus/scheduler"),
        ("kustomize/namespace", "kustomize/overlays/example"),
        ("kustomize/namespace", "kustomize/service-tls"),
        (None, "kube-scheduler/second"),
        (None, "admission"),
    ],
)
def test_recipe_is_applied_twice_and_removed(cluster: LocalCluster, before: str | None, folder: str) -> None:
    kept = names(cluster, "namespaces,clusterroles,clusterrolebindings")
    if before is not None:
        cluster.kubectl("apply", "-k", str(DEPLOY / before))
    cluster.kubectl("apply", "-k", str(DEPLOY / folder))
    cluster.kubectl("apply", "-k", str(DEPLOY / folder))
    assert cluster.kubectl("diff", "-k", str(DEPLOY / folder)) == ""
    cluster.kubectl("delete", "-k", str(DEPLOY / folder), "--wait=true")
    if before is not None:
        assert names(cluster, "namespaces") - kept, "what else is in the namespace stays"
        cluster.kubectl("delete", "-k", str(DEPLOY / before), "--wait=true")
    assert names(cluster, "namespaces,clusterroles,clusterrolebindings") <= kept


def test_scheduler_of_another_name_has_the_rights_that_it_needs(cluster: LocalCluster, tmp_path: Path) -> None:
    cluster.kubectl("apply", "-k", str(NAMESPACE))
    objects = rendered(cluster, "overlays/scheduler-name")
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    others = [each for each in objects if each["kind"] != "Deployment"]  # its image does not exist
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(others))

    async def token() -> str:
        path = "/api/v1/namespaces/steersman/serviceaccounts/steersman-batch/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
        async with Client(admin(cluster)) as client:
            return str((await client.create(path, request))["status"]["token"])

    kubeconfig, log = tmp_path / "kubeconfig", tmp_path / "log"
    write_kubeconfig(
        kubeconfig, replace(admin(cluster), user=KubeUser(token=asyncio.run(token())), namespace="steersman")
    )
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "batch-1"}}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(pod | {"spec": _spec("batch", container)}))
    arguments = [
        argument.replace("$(POD_IP)", "127.0.0.1").replace("--port=10269", "--port=0")
        for argument in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    ]
    command = [STEERSMAN, *arguments, "--kubeconfig", str(kubeconfig)]
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, env=cluster.environment) as process:
        try:
            end = time.monotonic() + 240
            while not cluster.kubectl("get", "pod", "batch-1", "-o", "jsonpath={.spec.nodeName}"):
                assert time.monotonic() < end, log.read_text()
                assert process.poll() is None, log.read_text()
                time.sleep(0.5)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    assert not re.search(r"\b403\b|forbidden", log.read_text(), re.IGNORECASE), log.read_text()
    lease = json.loads(cluster.kubectl("get", "lease", "batch", "-n", "steersman", "-o", "json"))
    assert (lease["metadata"]["labels"]["app.kubernetes.io/name"], lease["spec"]["holderIdentity"]) == ("steersman", "")


def _spec(scheduler: str, container: dict[str, object]) -> dict[str, object]:
    return {"schedulerName": scheduler, "containers": [container]}


def test_patched_static_pod_can_read_the_kubeconfig_of_kubeadm(control_plane: LocalCluster, tmp_path: Path) -> None:
    pod = tmp_path / "kube-scheduler.yaml"
    pod.write_text(yaml.safe_dump(STATIC_POD))
    patch = DEPLOY / "kube-scheduler" / "patches" / "kube-scheduler+strategic.yaml"
    patched = yaml.safe_load(
        control_plane.kubectl(
            *("patch", "--local", "-f", str(pod), "--type=strategic", "--patch-file", str(patch), "-o", "yaml")
        )
    )
    (container,) = patched["spec"]["containers"]
    assert container["image"].startswith("steersman-kube-scheduler:")
    assert container["securityContext"]["runAsUser"] == 0, "scheduler.conf is of root, mode 0600"
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts == {"/etc/kubernetes/scheduler.conf", "/etc/steersman"}
    (config,) = (part.removeprefix("--config=") for part in container["command"] if part.startswith("--config="))
    file = yaml.safe_load((DEPLOY / "kube-scheduler" / Path(config).name).read_text())
    assert file["clientConnection"]["kubeconfig"] in mounts
    said = control_plane.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(patched))
    assert "created" in said
