"""The recipe for a dump of one's own cluster, word for word as the documentation has it, on what kubectl prints."""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import LocalCluster, until

from steersman.workloads.loading import load_workload

pytestmark = pytest.mark.e2e

NAME, NODES, GPUS = "recipe", 6, 8
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "compare.md"
CONTROLLER = """
apiVersion: apps/v1
kind: {kind}
metadata: {{name: {name}}}
spec:
  {count}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers:
      - name: main
        image: pause
        resources: {{requests: {{cpu: 100m}}, limits: {{{limits}}}}}
---
"""
OTHERS = """
apiVersion: batch/v1
kind: Job
metadata: {name: batch}
spec:
  completions: 3
  parallelism: 3
  template:
    spec: {restartPolicy: Never, containers: [{name: main, image: pause, resources: {requests: {cpu: 100m}}}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: stuck}
spec:
  completions: 10
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: pause, resources: {limits: {nvidia.com/gpu: "8"}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: alone}
spec: {containers: [{name: main, image: pause, resources: {requests: {cpu: "1"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: static, annotations: {kubernetes.io/config.mirror: "5f"}}
spec: {nodeName: NODE, containers: [{name: main, image: pause, resources: {requests: {cpu: "1"}}}]}
"""


def controller(kind: str, name: str, replicas: int = 0, gpus: int = 0) -> str:
    """A manifest."""
    count = f"replicas: {replicas}\n  {'serviceName: none' if kind == 'StatefulSet' else ''}" if replicas else ""
    return CONTROLLER.format(kind=kind, name=name, count=count, limits=f'nvidia.com/gpu: "{gpus}"' if gpus else "")


@pytest.fixture(scope="module")
def busy(control_plane: LocalCluster) -> Iterator[LocalCluster]:
    """Another cluster, of GPU nodes, on which pods of everything that makes pods run, wait and have finished."""
    exported = control_plane.must("cluster", "up", "--name", NAME, "--count", str(NODES))
    kubeconfig = Path(exported.strip().partition("=")[2])
    cluster = LocalCluster(NAME, control_plane.environment, kubeconfig, control_plane.kubectl_path)
    try:
        names = cluster.kubectl("get", "nodes", "-o", "name").split()
        more = json.dumps({"status": {key: {"nvidia.com/gpu": str(GPUS)} for key in ("capacity", "allocatable")}})
        for name in names:
            cluster.kubectl("patch", name, "--subresource=status", "-p", more)
        cluster.kubectl("apply", "-f", "-", stdin=controller("Deployment", "small", 2 * NODES, 1))
        cluster.kubectl("apply", "-f", "-", stdin=controller("StatefulSet", "store", 2))
        cluster.kubectl("apply", "-f", "-", stdin=controller("DaemonSet", "agent"))
        until(lambda: count(cluster, bound=True) == 2 * NODES + 2 + NODES)
        # A second template leaves a ReplicaSet of no replicas behind.
        change = {"spec": {"template": {"metadata": {"annotations": {"changed": "yes"}}}}}
        cluster.kubectl("patch", "deployment", "small", "-p", json.dumps(change))
        cluster.kubectl("rollout", "status", "deployment", "small", "--timeout=60s")
        cluster.kubectl("apply", "-f", "-", stdin=OTHERS.replace("NODE", names[0].partition("/")[2]))
        time.sleep(1.1)  # times of creation are whole seconds, and the large pods must be the last to come
        cluster.kubectl("apply", "-f", "-", stdin=controller("Deployment", "large", NODES - 2, 8))
        until(lambda: len([pod for pod in pods(cluster) if finished(pod)]) == 3)
        until(lambda: count(cluster, bound=True) == 2 * NODES + 2 + NODES + 2 and count(cluster, bound=False) == NODES)
        yield cluster
    finally:
        cluster.steersman("cluster", "down", "--name", NAME)


def pods(cluster: LocalCluster) -> list[dict[str, Any]]:
    """What the API says that is there."""
    listed: list[dict[str, Any]] = json.loads(cluster.kubectl("get", "pods", "-A", "-o", "json"))["items"]
    return listed


def finished(pod: dict[str, Any]) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def count(cluster: LocalCluster, *, bound: bool) -> int:
    """How many pods that have not finished have a node, or none."""
    living = (pod for pod in pods(cluster) if not finished(pod) and "deletionTimestamp" not in pod["metadata"])
    return sum(1 for pod in living if bool(pod["spec"].get("nodeName")) is bound)


def understood(sentence: str) -> dict[str, int]:
    """The numbers of the sentence about the pods by the word that follows."""
    words = "pods|owners|running|waiting|pinned|finished"
    return {word: int(number) for number, word in re.findall(rf"\b(\d+) ({words})\b", sentence)}


def test_the_recipe_compares_policies_on_what_kubectl_prints(busy: LocalCluster, tmp_path: Path) -> None:
    section = PAGE.read_text().partition("From a dump:\n")[2].partition("\n## ")[0]
    block = itertools.takewhile(lambda line: line.startswith("    "), section.strip("\n").splitlines())
    recipe = "\n".join(block)
    assert recipe.count("kubectl get") == 2
    assert "steersman evaluate" in recipe
    environment = busy.environment | {
        "KUBECONFIG": str(busy.kubeconfig),
        "PATH": os.pathsep.join([str(busy.kubectl_path.parent), str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    done = subprocess.run(
        ["bash", "-ec", recipe], cwd=tmp_path, env=environment, text=True, capture_output=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("pods: ")]
    everything = pods(busy)
    assert understood(sentence) == {
        "pods": sum(1 for pod in everything if not finished(pod)),
        "owners": 5,  # small, large, store, agent, stuck; batch has finished
        "running": count(busy, bound=True),
        "waiting": count(busy, bound=False),
        "pinned": NODES + 1,
        "finished": sum(1 for pod in everything if finished(pod)),
    }
    assert f"pinned (DaemonSets {NODES}, static 1)" in sentence
    with (tmp_path / "comparison" / "summary.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "gpu_allocation_percent"]
    allocated = {row["policy"]: float(row["mean"]) for row in rows}
    held = sum(
        int(container["resources"].get("limits", {}).get("nvidia.com/gpu", 0))
        for pod in everything
        if pod["spec"].get("nodeName") and not finished(pod)
        for container in pod["spec"]["containers"]
    )
    assert held == 2 * NODES
    assert allocated["as it is"] == pytest.approx(100 * held / (NODES * GPUS), abs=0.01)
    assert allocated["fgd"] > allocated["kube-default"] + 10
    assert "as it is" in done.stdout
    report = (tmp_path / "comparison" / "report.html").read_text()
    assert "as it is" in report
    assert sentence.partition(": ")[2] in report


def test_other_dumps_are_read_alike(busy: LocalCluster, tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(busy.kubectl("get", "nodes", "-o", "yaml"))
    every = ["pods", "deployments", "statefulsets", "daemonsets", "jobs", "replicasets", "services", "cronjobs"]
    sentences = {}
    for i, kinds in enumerate((every, every[:5], every[:2], every[:1], every[::-1])):
        dump = tmp_path / f"pods-{i}.yaml"
        dump.write_text(busy.kubectl("get", ",".join(kinds), "-A", "-o", "yaml"))
        assert "managedFields" not in dump.read_text()  # kubectl leaves it out unless asked
        sentences[",".join(kinds)] = load_workload(tmp_path / "nodes.yaml", dump).understood
    shown = busy.kubectl("get", ",".join(every), "-A", "-o", "yaml", "--show-managed-fields")
    assert "managedFields" in shown
    (tmp_path / "managed.yaml").write_text(shown)
    sentences["managed"] = load_workload(tmp_path / "nodes.yaml", tmp_path / "managed.yaml").understood
    assert len(set(sentences.values())) == 1, sentences
    for more in ((), ("--anonymise",)):
        snapshot = tmp_path / f"snapshot{len(more)}.yaml"
        busy.must("workload", "snapshot", *more, "--output", str(snapshot), "--name", NAME)
        again = load_workload(snapshot, snapshot)
        assert understood(again.understood) | {"finished": 3} == understood(sentences["managed"])
        assert sum(where is not None for where in again.recorded) == count(busy, bound=True)
