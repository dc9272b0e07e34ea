"""Why pods are refused in a run: the words of kube-scheduler, as `explain` has them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cluster_dump import Object, node, pod
from tests.unit.workloads.test_account import cluster, run

from steersman.cluster.constraints.reasons import format_unschedulable
from steersman.live.service.scoring.explanation import explain_pod
from steersman.policies.registry import resolve
from steersman.workloads.workload import RunningPods

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
SELF = {"labelSelector": {"matchLabels": {"app": "x"}}}


def zoned(name: str, zone: str, gpus: int = 0, **spec: Any) -> Object:
    return node(name, gpus, labels={HOST: name, **({ZONE: zone} if zone else {})}, **spec)


def affinity(kind: str, key: str = HOST, app: str = "x") -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def spread(key: str = ZONE, **more: Any) -> dict[str, Any]:
    hard = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", **SELF, **more}
    return {"topologySpreadConstraints": [hard]}


def requesting(name: str, requests: dict[str, str], **more: Any) -> Object:
    result = pod(name, **more)
    result["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": requests}
    return result


def with_port(name: str, **more: Any) -> Object:
    result = pod(name, **more)
    result["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return result


TAINT = [{"key": "gpu", "effect": "NoSchedule"}]
CASES: dict[str, tuple[list[Object], str]] = {
    "host ports": (
        [node("a"), node("b", unschedulable=True), with_port("on-a", on="a"), with_port("next")],
        "1 node(s) didn't have free ports for the requested pod ports, 1 node(s) were unschedulable",
    ),
    "anti-affinity": (
        [zoned("a", ""), pod("on-a", on="a", app="x"), pod("next", **affinity("podAntiAffinity"))],
        "1 node(s) didn't match pod anti-affinity rules",
    ),
    "anti-affinity of another": (
        [zoned("a", ""), pod("on-a", on="a", **affinity("podAntiAffinity", app="next")), pod("next")],
        "1 node(s) didn't satisfy existing pods anti-affinity rules",
    ),
    "affinity": (
        [zoned("a", ""), zoned("b", "", taints=TAINT), pod("next", **affinity("podAffinity", app="none"))],
        "1 node(s) didn't match pod affinity rules, 1 node(s) had untolerated taint(s)",
    ),
    "spread": (
        [
            *(zoned("a", "a"), zoned("b", "b", taints=TAINT), zoned("c", "")),
            *(pod("on-a", on="a", app="x"), pod("next", app="x", **spread())),
        ],
        "1 node(s) didn't match pod topology spread constraints, 1 node(s) didn't match pod topology spread "
        "constraints (missing required label), 1 node(s) had untolerated taint(s)",
    ),
    "a resource that no node offers": (
        [node("a"), requesting("next", {"cpu": "1", "example.com/fpga": "1", "example.com/tpu": "2"})],
        "1 Insufficient example.com/fpga, 1 Insufficient example.com/tpu",
    ),
    "several resources": (
        [node("a"), requesting("next", {"cpu": "99", "memory": "600Gi", "nvidia.com/gpu": "9"})],
        "1 Insufficient cpu, 1 Insufficient memory, 1 Insufficient nvidia.com/gpu",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_reason_matches_kube_scheduler_and_explain(case: str) -> None:
    objects, expected = CASES[case]
    result = run(cluster(*objects, running=RunningPods.FROM_NOW), "kube-default")
    assert result.placements is not None
    nodes = sum(each["kind"] == "Node" for each in objects)
    reasons = dict(zip(result.placements.pod, result.placements.reason, strict=True))
    assert reasons["next"] == f"0/{nodes} nodes are available: {expected}."
    written = cluster(*objects, running=RunningPods.AS_WRITTEN)
    number = next(i for i, each in enumerate(written.pods) if each.name == "next")
    refused = explain_pod(resolve("kube-default"), written, number).refused
    assert format_unschedulable(nodes, refused) == f"0/{nodes} nodes are available: {expected}."


def test_a_gpu_pod_of_one_kind_beside_nodes_of_another_names_both() -> None:
    other = node("b", 0)
    other["status"]["allocatable"]["amd.com/gpu"] = "4"
    plain = node("c", 0)
    result = run(cluster(other, plain, pod("next", gpus=1)))
    assert result.placements is not None
    assert result.placements.reason == [
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. 1 node offers amd.com/gpu, not nvidia.com/gpu."
    ]
    shared = pod("next")
    shared["metadata"]["annotations"] = {"alibabacloud.com/gpu-count": "1", "alibabacloud.com/gpu-milli": "500"}
    result = run(cluster(node("a"), node("b"), shared))
    assert result.placements is not None
    assert result.placements.reason == [
        "0/2 nodes are available: 2 Insufficient GPU. 2 nodes offer nvidia.com/gpu, not alibabacloud.com/gpu-count."
    ]


def test_contradicting_terms_are_one_reason_for_all_nodes() -> None:
    both = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in "ab"]
    required = {"nodeSelectorTerms": [{"matchFields": both}]}
    wanted = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    result = run(cluster(node("a"), node("b"), pod("next", **wanted)))
    assert result.placements is not None
    assert result.placements.reason == ["0/2 nodes are available: pod affinity terms conflict."]


def test_reason_describes_the_time_of_refusal() -> None:
    """The first is refused by what runs then, and the pod that comes next in its place changes nothing about it."""
    objects = [node("a", 2), pod("big", gpus=3, at=1), pod("small", gpus=2, at=2), pod("late", gpus=1, at=3)]
    objects[1]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "63"
    result = run(cluster(*objects))
    assert result.placements is not None
    assert result.placements.reason == [
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        "",
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
    ]
