"""`advise --cluster`: the commands of its README.md, and the kube-scheduler that they end in."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.cluster.test_manifest_recipes import STATIC_POD
from tests.e2e.conftest import LocalCluster, until
from tests.e2e.scheduler.test_schedule import bound, create, events
from tests.support.kubernetes import control_plane_programs
from tests.support.servers.plugin_scheduler import free_port

from steersman.cluster.objects.manifests import node_to_object
from steersman.live.local_cluster.nodes import parse_shape, prepared

pytestmark = pytest.mark.e2e

GPUS = [f"gpu-{i}" for i in range(8)]
CORDONED, NOT_READY = "gpu-7", "gpu-6"
RUNNING = {"gpu-0": [1, 1, 1], "gpu-1": [1, 1], "gpu-2": [1], "gpu-3": [4], CORDONED: [1], NOT_READY: [1]}
"""GPUs of the pods of each node of four GPUs; those without pods take two of a Job of three."""
ADVISED = "advised"
EXTRA = "--profiling=false"
"""A flag of `extraArgs` of the cluster's kubeadm configuration."""


def spec(gpus: int, **more: Any) -> dict[str, Any]:
    amounts = {"cpu": str(2 * gpus), "memory": f"{8 * gpus}Gi", "nvidia.com/gpu": str(gpus)}
    container = {"name": "main", "image": "pause", "resources": {"requests": amounts, "limits": amounts}}
    return {"containers": [container], **more}


def pod(name: str, gpus: int, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec(gpus, **more)}


@pytest.fixture
def fragmented(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """Small pods on nodes that the pods of a Job need, one of which waits; a node is cordoned, one is not ready."""
    shape = parse_shape("32cpu,256Gi,110pods,4nvidia.com/gpu:A100")
    nodes = [node_to_object(node) for node in prepared([shape.node(name) for name in GPUS])]
    for each in nodes:
        each["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
    annotations = {"pod-complete.stage.kwok.x-k8s.io/delay": "2h"}
    template = {"metadata": {"annotations": annotations}, "spec": spec(4, restartPolicy="Never")}
    job = {"completions": 3, "parallelism": 3, "template": template}
    create(cluster, *nodes)
    try:
        running = [
            pod(f"{node}-{i}", gpus, nodeName=node) for node, each in RUNNING.items() for i, gpus in enumerate(each)
        ]
        create(cluster, *running)
        until(lambda: len(bound(cluster)) == len(running))
        cluster.kubectl("cordon", CORDONED)
        cluster.kubectl("annotate", "node", NOT_READY, "kwok.x-k8s.io/status=custom")
        condition = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "stopped"}
        patch = json.dumps({"status": {"conditions": [condition]}})
        cluster.kubectl("patch", "node", NOT_READY, "--subresource=status", "--type=strategic", "-p", patch)
        metadata = {"name": "train", "namespace": "default"}
        create(cluster, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job})
        until(lambda: len(bound(cluster)) == len(running) + 2 and events(cluster, "FailedScheduling"))
        yield cluster
    finally:
        cluster.kubectl("delete", "job", "train", "--ignore-not-found")
        cluster.kubectl("delete", "node", *GPUS)


def best_nodes(cluster: LocalCluster, name: str, policy: str) -> set[str]:
    """Return the nodes of equal score where a policy would place a pod of the live cluster."""
    live = ("--kubeconfig", str(cluster.kubeconfig), "--format", "json")
    answer: dict[str, Any] = json.loads(cluster.must("explain", "--pod", name, "--policy", policy, *live))
    equal = [each["node"] for each in answer["runnersUp"] if each["score"] == answer["score"]]
    return {answer["node"], *equal}


@pytest.mark.minors
def test_the_advised_file_is_installed_decides_as_forecast_and_is_removed(
    fragmented: LocalCluster, tmp_path: Path
) -> None:
    cluster, advice, etc = fragmented, tmp_path / "advice", tmp_path / "etc" / "kubernetes"
    kubeconfig = ("--kubeconfig", str(cluster.kubeconfig))
    said = " ".join(cluster.must("advise", "--cluster", *kubeconfig, "--output", str(advice)).split())
    assert said.startswith("Change one file: kube-scheduler's configuration in")
    assert f"{CORDONED} is cordoned" in said
    assert f"{NOT_READY} is not ready" in said
    assert "today's configuration is taken to be kube-default" in said
    record = json.loads((advice / "advice.json").read_text())
    assert [each["setting"] for each in record["settings"]] == ["as it is now", "empty"]

    # The commands of the page, on a copy of what kubeadm writes.
    page = (advice / "README.md").read_text().replace("/etc/kubernetes", str(etc)).replace("sudo ", "")
    manifest = etc / "manifests" / "kube-scheduler.yaml"
    manifest.parent.mkdir(parents=True)
    before = json.loads(json.dumps(STATIC_POD))
    before["spec"]["containers"][0]["command"].append(EXTRA)
    manifest.write_text(yaml.safe_dump(before))
    manifest.chmod(0o600)
    written = manifest.read_bytes()

    def follow(commands: str) -> None:
        path = os.pathsep.join((str(cluster.kubectl_path.parent), os.environ["PATH"]))
        environment = {"PATH": path, "HOME": str(tmp_path)}  # of root, without a kubeconfig
        subprocess.run(["bash", "-e", "-c", commands], cwd=advice, env=environment, check=True, timeout=60)

    install = re.search(r"\*\*kubeadm\*\*.*\n\n((?:    .+\n)+)", page)
    assert install is not None
    follow(install[1])
    patched = yaml.safe_load(manifest.read_text())
    command = patched["spec"]["containers"][0]["command"]
    assert EXTRA in command
    mounts = {each["mountPath"] for each in patched["spec"]["containers"][0]["volumeMounts"]}
    file = Path(next(part for part in command if part.startswith("--config=")).removeprefix("--config="))
    installed = Path(str(file).replace("/etc/kubernetes", str(etc)))
    assert str(file.parent) in mounts
    assert manifest.stat().st_mode & 0o777 == installed.stat().st_mode & 0o777 == 0o600

    # The cluster's own scheduler goes on, so that name and Lease are others than those of kubeadm's.
    settings = yaml.safe_load(installed.read_text().replace("/etc/kubernetes", str(etc)))
    settings["profiles"][0]["schedulerName"] = ADVISED
    settings["leaderElection"] = {"resourceName": ADVISED}
    installed.write_text(json.dumps(settings))
    (etc / "scheduler.conf").write_text(cluster.kubeconfig.read_text())
    cluster.kubectl("delete", "job", "train")
    until(lambda: not any(each.startswith("train") for each in bound(cluster)))
    create(cluster, pod("next", 1, schedulerName=ADVISED))
    forecast = best_nodes(cluster, "next", str(advice / "scheduler.yaml"))
    assert forecast.isdisjoint(best_nodes(cluster, "next", "kube-default"))
    _, *flags = (part.replace("/etc/kubernetes", str(etc)) for part in command)
    program = control_plane_programs() / "kube-scheduler"
    run = [program, *flags, f"--secure-port={free_port()}", "--bind-address=127.0.0.1"]
    log = tmp_path / "log"
    with log.open("wb") as out, subprocess.Popen(run, cwd=tmp_path, stdout=out, stderr=out) as process:
        try:
            until(lambda: "next" in bound(cluster) or process.poll() is not None)
            assert bound(cluster).get("next") in forecast, log.read_text()
        finally:
            process.kill()
            cluster.kubectl("delete", "lease", ADVISED, "-n", "kube-system", "--ignore-not-found")
    assert re.search("acquired lease", log.read_text(), re.IGNORECASE), "the page says to look for it"

    back = re.search(r"^- kubeadm: `(.+)`$", page, re.MULTILINE)
    assert back is not None
    follow(back[1])
    assert manifest.read_bytes() == written
