"""A live cluster as a workload: the same figures as from what kubectl dumps, and nothing is written."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import LocalCluster, until

KINDS = "nodes,pods,services,replicasets,statefulsets,deployments,daemonsets,jobs,cronjobs,priorityclasses"
RUN = ("--policy", "kube-default", "fgd", "best-fit", "--seeds", "42-43", "--jobs", "1")


def template(cpu: str, **more: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu, "memory": "512Mi"}}}
    return {"metadata": {"labels": {"app": cpu}}, "spec": {"containers": [container], **more}}


def objects() -> list[dict[str, Any]]:
    """Something of every kind, one of it too large for any node."""

    def made(version: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}

    def selected(cpu: str) -> dict[str, Any]:
        return {"selector": {"matchLabels": {"app": cpu}}, "template": template(cpu)}

    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
    }
    job = template("3", restartPolicy="Never", priorityClassName="urgent")
    return [
        urgent,
        made("apps/v1", "Deployment", "web", {"replicas": 6, **selected("1500m")}),
        made("apps/v1", "Deployment", "huge", {"replicas": 2, **selected("900")}),
        made("apps/v1", "StatefulSet", "store", {"replicas": 3, "serviceName": "store", **selected("2")}),
        made("apps/v1", "DaemonSet", "agent", selected("100m")),
        made("batch/v1", "Job", "batch", {"parallelism": 2, "completions": 2, "template": job}),
        made("v1", "Service", "store", {"selector": {"app": "2"}, "ports": [{"port": 80}]}),
    ]


@pytest.fixture
def filled(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The cluster with these objects, whose pods were made and, but for those that are too large, bound."""
    manifests = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects()})
    cluster.kubectl("apply", "-f", "-", stdin=manifests)

    def settled() -> bool:
        items = json.loads(cluster.kubectl("get", KINDS, "-o", "json"))["items"]
        status = {(each["kind"], each["metadata"]["name"]): each.get("status", {}) for each in items}
        agents = status["DaemonSet", "agent"]
        leaving = [each for each in items if each["metadata"].get("deletionTimestamp")]
        return (
            not leaving
            and status["Deployment", "web"].get("readyReplicas") == 6
            and status["Deployment", "huge"].get("replicas") == 2
            and status["StatefulSet", "store"].get("readyReplicas") == 3
            and 0 < agents.get("desiredNumberScheduled", 0) == agents.get("numberReady")
            and status["Job", "batch"].get("active", 0) + status["Job", "batch"].get("succeeded", 0) == 2
        )

    try:
        until(settled)
        yield cluster
    finally:
        cluster.kubectl("delete", "--wait=false", "-f", "-", stdin=manifests)


def figures(folder: Path, file: str) -> list[dict[str, str]]:
    """The rows of a result file without the workload's name."""
    with (folder / file).open(newline="") as lines:
        return [{key: value for key, value in row.items() if key != "workload"} for row in csv.DictReader(lines)]


def test_live_cluster_and_dump_evaluate_alike(filled: LocalCluster, tmp_path: Path) -> None:
    def there() -> dict[str, Any]:
        """What objects are to be; what becomes of them (status) goes on by itself."""
        items = json.loads(filled.kubectl("get", KINDS, "-A", "-o", "json"))["items"]
        fields = ("namespace", "name", "labels", "annotations", "generation")
        return {
            each["metadata"]["uid"]: ({name: each["metadata"].get(name) for name in fields}, each.get("spec"))
            for each in items
            if each["kind"] != "Node"
        }

    def run(workload: tuple[str, ...], name: str) -> str:
        return filled.must("evaluate", *workload, *RUN, "--output", str(tmp_path / name))

    dump = tmp_path / "dump.json"
    shown = {}
    for running in ((), ("--from-now",), ("--pinned",)):
        before = there()
        shown[running] = run(("--cluster", "--kubeconfig", str(filled.kubeconfig), *running), "live")
        assert there() == before
        dump.write_text(filled.kubectl("get", KINDS, "-A", "-o", "json"))
        run(("--nodes", str(dump), "--pods", str(dump), *running), "dumped")
        for file in ("metrics.csv", "summary.csv", "results.csv"):
            assert figures(tmp_path / "live", file) == figures(tmp_path / "dumped", file), (file, running)
        policies = {row["policy"] for row in figures(tmp_path / "live", "summary.csv")}
        assert policies == {"kube-default", "fgd", "best-fit", "as it is"}
    context = filled.kubectl("config", "current-context").strip()
    assert all(f"on {context} (arrivals)" in each for each in shown.values())
    bound = {
        row["policy"]: row["mean"]
        for row in figures(tmp_path / "live", "summary.csv")
        if row["metric"] == "pods_failed"
    }
    assert set(bound.values()) == {"2"}  # those that are too large


def test_other_commands_take_a_live_cluster(filled: LocalCluster, tmp_path: Path) -> None:
    live = ("--cluster", "--kubeconfig", str(filled.kubeconfig))
    filled.must("simulate", *live, "--policy", "fgd", "--protocol", "arrivals", "--output", str(tmp_path / "run"))
    with (tmp_path / "run" / "placements.csv").open(newline="") as lines:
        outcomes = [row["outcome"] for row in csv.DictReader(lines)]
    assert outcomes.count("failed") == 2
    prepared = tmp_path / "mine.safetensors"
    refused = filled.steersman("fit", "policy", *live, "--policy", "steersman", "--output", str(prepared))
    assert "its nodes or pods have no GPU; policies are fitted to GPUs; expected a rule" in refused.stderr
    assert not prepared.exists()
    filled.must("fit", "policy", *live, "--policy", "fgd", "--output", str(prepared))
    assert prepared.exists()
    refused = filled.steersman("simulate", *live, "--context", "nowhere", "--policy", "fgd", "--output", "run")
    assert refused.returncode != 0
    assert refused.stderr.count("\n") == 1
    assert "nowhere" in refused.stderr
