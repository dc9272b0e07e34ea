"""Pods made from templates in a file are those that kube-controller-manager makes and kube-apiserver stores."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.conftest import LocalCluster, until

from steersman.cluster.model import Pod
from steersman.workloads.formats.kubernetes.expansion import Expanded
from steersman.workloads.formats.kubernetes.objects import Objects
from steersman.workloads.formats.yaml_documents import Document

Object = dict[str, Any]

TEAM = "templates"
NOBODY = "nobody"
"""Scheduler of all pods: none, so they stay as they were made."""
UNKNOWN_VALUES = (
    "pod-template-hash",
    "controller-revision-hash",
    "controller-uid",
    "batch.kubernetes.io/controller-uid",
)
"""Labels whose values are equal for the same pods, and not the real ones."""
LOST = [{"key": f"node.kubernetes.io/{key}", "effect": "NoExecute"} for key in ("not-ready", "unreachable")]


def container(name: str = "main", **resources: Any) -> Object:
    return {"name": name, "image": "busybox", **({"resources": resources} if resources else {})}


def template(name: str, *containers: Object, **spec: Any) -> Object:
    spec = {"schedulerName": NOBODY, "containers": list(containers) or [container()], **spec}
    return {"metadata": {"labels": {"app": name}}, "spec": spec}


def made(version: str, kind: str, name: str, spec: Object | None = None, **more: Any) -> Object:
    scope = {} if kind in ("PriorityClass", "RuntimeClass", "Namespace") else {"namespace": TEAM}
    content = {"apiVersion": version, "kind": kind, "metadata": {"name": name, **scope}, **more}
    return content if spec is None else content | {"spec": spec}


def selected(name: str, made_of: Object, **more: Any) -> Object:
    return {"selector": {"matchLabels": {"app": name}}, "template": made_of, **more}


def classes() -> list[Object]:
    """What admission reads."""
    scheduling = {
        "nodeSelector": {"sandbox": "yes"},
        "tolerations": [{"key": "sandbox", "operator": "Exists", "effect": "NoSchedule"}],
    }
    overhead = {"podFixed": {"cpu": "250m", "memory": "64Mi"}}
    kata = made("node.k8s.io/v1", "RuntimeClass", "kata", handler="kata", overhead=overhead, scheduling=scheduling)
    limits = [
        {"type": "Container", "default": {"memory": "1Gi"}, "defaultRequest": {"cpu": "300m"}, "max": {"cpu": "4"}},
        {"type": "Pod", "max": {"cpu": "16"}},
    ]
    return [
        made("v1", "Namespace", TEAM),
        made("scheduling.k8s.io/v1", "PriorityClass", "templates-usual", value=1000, globalDefault=True),
        made("scheduling.k8s.io/v1", "PriorityClass", "templates-high", value=5000),
        kata,
        made("v1", "LimitRange", "defaults", {"limits": limits}),
    ]


def controllers() -> list[Object]:
    """Controllers of every kind, with what each adds to its pods."""
    never = {"restartPolicy": "Never"}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "indexed"}},
        "matchLabelKeys": ["job-name", "batch.kubernetes.io/job-completion-index"],
    }
    requested = container(requests={"cpu": "1"}, limits={"memory": "2Gi"})
    first = {"initContainers": [container("first"), container("sidecar") | {"restartPolicy": "Always"}]}
    own = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]
    claims = [
        {
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
    ]
    named = template("named", container())
    named["metadata"]["labels"]["pod-template-hash"] = "mine"
    linux = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [linux]}}}
    parallel = {"podManagementPolicy": "Parallel", "replicas": 2}
    indexed = template("indexed", **never, topologySpreadConstraints=[spread])
    system = template("cni", hostNetwork=True, priorityClassName="system-node-critical")
    alone = template("alone", requested, priorityClassName="templates-high", runtimeClassName="kata")
    return [
        made("apps/v1", "Deployment", "web", selected("web", template("web", requested), replicas=3)),
        made("apps/v1", "Deployment", "bare", selected("bare", template("bare", **first, tolerations=own), replicas=2)),
        made("apps/v1", "Deployment", "kata", selected("kata", template("kata", runtimeClassName="kata"), replicas=2)),
        made("apps/v1", "ReplicaSet", "named", selected("named", named, replicas=2)),
        made(
            "v1",
            "ReplicationController",
            "old",
            {"replicas": 2, "selector": {"app": "old"}, "template": template("old")},
        ),
        made("apps/v1", "StatefulSet", "pg", selected("pg", template("pg"), **parallel, volumeClaimTemplates=claims)),
        made("apps/v1", "StatefulSet", "late", selected("late", template("late"), **parallel, ordinals={"start": 7})),
        made("batch/v1", "Job", "plain", {"parallelism": 2, "completions": 2, "template": template("plain", **never)}),
        made(
            "batch/v1",
            "Job",
            "indexed",
            {"parallelism": 3, "completions": 3, "completionMode": "Indexed", "template": indexed},
        ),
        made("batch/v1", "Job", "paused", {"suspend": True, "template": template("paused", **never)}),
        made("apps/v1", "DaemonSet", "agent", selected("agent", template("agent", affinity=affinity, tolerations=own))),
        made("apps/v1", "DaemonSet", "cni", selected("cni", system)),
        made("v1", "Pod", "alone", alone["spec"] | {"nodeSelector": {"a": "b"}}),
    ]


def expanded(objects: list[Object]) -> Expanded:
    found = Objects([Document({"apiVersion": "v1", "kind": "List", "items": objects}, "objects", "")])
    assert not found.problems()
    result = found.expanded(found.nodes())
    assert not result.problems
    assert not result.warnings
    return result


def comparable(result: Expanded) -> Counter[str]:
    """Everything that placing a pod depends on, by the pod's controller; random parts of names are left out."""
    return Counter(_comparable(pod, result) for pod in result.pods)


def _comparable(pod: Pod, result: Expanded) -> str:
    owner = result.owners.get((pod.namespace, pod.name))
    ordered = ("StatefulSet", "Pod")
    name = pod.name if owner is None or owner[0] in ordered else ""
    labels = {key: "?" if key in UNKNOWN_VALUES and value != "mine" else value for key, value in pod.labels.items()}
    tolerations = sorted(dataclasses.astuple(each) for each in set(pod.constraints.tolerations))
    constraints = dataclasses.asdict(dataclasses.replace(pod.constraints, tolerations=()))
    limits = pod.cpu_limit_milli, pod.memory_limit_bytes
    parts = (owner, name, sorted(labels.items()), tolerations, constraints, pod.requests, pod.priority, limits)
    return f"{parts} {pod.scheduler_name} {pod.namespace}"


@pytest.fixture
def filled(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The cluster with these objects."""
    gone = ["delete", "--ignore-not-found", "--wait=true", "namespace/templates", "priorityclass/templates-usual"]
    gone += ["priorityclass/templates-high", "runtimeclass/kata"]
    try:
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": classes()}))
        until(lambda: "default" in cluster.kubectl("get", "serviceaccounts", "-n", TEAM, "-o", "name"))
        everything = {"apiVersion": "v1", "kind": "List", "items": controllers()}
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(everything))
        yield cluster
    finally:
        cluster.kubectl(*gone)


def test_template_pods_match_kube_controller_manager(filled: LocalCluster) -> None:
    def listed(kinds: str) -> list[Object]:
        found: list[Object] = json.loads(filled.kubectl("get", kinds, "-n", TEAM, "-o", "json"))["items"]
        return found

    nodes = json.loads(filled.kubectl("get", "nodes", "-o", "json"))["items"]
    lost = json.loads(json.dumps(nodes[0]))
    lost["metadata"]["name"], lost["spec"]["taints"] = "lost", [*LOST, {"key": "sandbox", "effect": "NoSchedule"}]
    from_file = expanded([*nodes, *classes(), *controllers()])
    until(lambda: len(listed("pods")) == len(from_file.pods))
    stored = [*nodes, lost, *classes(), *listed("deployments,replicasets,statefulsets,daemonsets,jobs,pods")]
    # A node that is not ready makes every pod's default tolerations count; no daemon goes there.
    live, made_of_files = comparable(expanded(stored)), comparable(expanded([*nodes, lost, *classes(), *controllers()]))
    assert made_of_files == live
    assert sum(live.values()) == 21 + 2 * len(nodes)
