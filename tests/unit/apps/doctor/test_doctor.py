"""`steersman doctor`: what it finds in nodes and pods."""

from __future__ import annotations

import json
from typing import Any

import pytest

from steersman.apps.doctor.examination import configuration_findings, version_finding
from steersman.apps.doctor.findings import Finding, Verdict, node_findings, pod_findings
from steersman.apps.runtime.cluster_schedulers import FoundScheduler
from steersman.cluster.objects.api.decoding import node_from_json, pod_from_json
from steersman.cluster.objects.decoding import node_from_object


def node(name: str, labels: dict[str, str] | None = None, **resources: str) -> dict[str, Any]:
    """A node with 8 CPUs and these further resources; `gpu` is nvidia.com/gpu."""
    named = {key.replace("gpu", "nvidia.com/gpu") if key == "gpu" else key: value for key, value in resources.items()}
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", **named}
    return {"metadata": {"name": name, "labels": labels or {}}, "status": {"allocatable": amounts, "capacity": amounts}}


def found(*nodes: dict[str, Any]) -> dict[str, Finding]:
    """Findings of nodes by subject."""
    typed = [node_from_json(json.dumps(each).encode()) for each in nodes]
    return {each.subject: each for each in node_findings([node_from_object(each) for each in nodes], typed)}


def pod(name: str, scheduler: str, node_name: str = "", phase: str = "Pending") -> Any:
    spec = {"schedulerName": scheduler, "nodeName": node_name, "containers": [{"name": "c"}]}
    metadata = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}
    return pod_from_json(json.dumps({"metadata": metadata, "spec": spec, "status": {"phase": phase}}).encode())


@pytest.mark.parametrize(
    ("minor", "verdict"),
    [("33+", Verdict.WARNING), ("34", Verdict.OK), ("37", Verdict.OK), ("38", Verdict.WARNING)],
)
def test_minors_that_are_not_tested_are_named(minor: str, verdict: Verdict) -> None:
    finding = version_finding({"major": "1", "minor": minor, "gitVersion": f"v1.{minor}"})
    assert finding.verdict is verdict
    assert finding.text.startswith(f"Kubernetes v1.{minor}")


def test_gpus_with_a_model_are_fine() -> None:
    findings = found(node("a", {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "A100"}, gpu="4"))
    assert {each.verdict for each in findings.values()} == {Verdict.OK}
    assert findings["GPUs"].text == "4 nvidia.com/gpu"


def test_cluster_without_nodes_is_a_problem() -> None:
    assert found()["nodes"].verdict is Verdict.PROBLEM


@pytest.mark.parametrize("label", ["nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present"])
@pytest.mark.parametrize("resources", [{}, {"gpu": "0"}])
def test_gpu_node_without_its_device_plugin_is_a_problem(label: str, resources: dict[str, str]) -> None:
    assert found(node("a", {label: "true"}, **resources))["device plugin"].verdict is Verdict.PROBLEM
    assert "device plugin" not in found(node("a", {label: "false"}, **resources))


def test_partitioned_gpus_are_offered_by_the_device_plugin() -> None:
    assert "device plugin" not in found(node("a", {"nvidia.com/gpu.present": "true"}, **{"nvidia.com/mig-1g.5gb": "7"}))


def test_nodes_without_a_label_of_the_model_are_named() -> None:
    finding = found(*(node(f"gpu-{i}", gpu="1") for i in range(5)))["GPU models"]
    assert finding.verdict is Verdict.WARNING
    assert finding.text.endswith("5 nodes with GPUs: gpu-0, gpu-1, gpu-2 and 2 more")


@pytest.mark.parametrize("name", ["huawei.com/Ascend910", "aws.amazon.com/neuroncore", "google.com/tpu"])
def test_devices_that_are_plain_numbers_are_named(name: str) -> None:
    findings = found(node("a", **{name: "8"}))
    assert findings["resources"].text.startswith(f"{name} of 1 node ")
    assert findings["GPUs"].verdict is Verdict.WARNING


def test_pods_that_wait_for_nobody_are_a_problem() -> None:
    pods = [pod("a", "batch"), pod("b", "batch"), pod("c", "default-scheduler"), pod("d", "other", "node")]
    (_, problem) = pod_findings(pods, ())
    assert problem.verdict is Verdict.PROBLEM
    assert problem.text.startswith("2 pods waiting for scheduler 'batch'")
    assert len(list(pod_findings(pods, ["batch"]))) == 1, "a scheduler that holds a lease runs"
    assert len(list(pod_findings([pod("a", "batch", phase="Succeeded")], ()))) == 1


PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: packed}]
"""


@pytest.mark.parametrize(
    ("scheduler", "verdict", "text"),
    [
        (FoundScheduler("pod kube-system/kube-scheduler-a", "a"), Verdict.OK, "has none: kube-default computes"),
        (
            FoundScheduler("pod kube-system/kube-scheduler-a", "a", "/etc/scheduler.yaml"),
            Verdict.WARNING,
            "does not show: /etc/scheduler.yaml on node a",
        ),
        (
            FoundScheduler("Deployment x/second", "", "/etc/c.yaml", "", "ConfigMap x/second", PROFILE),
            Verdict.OK,
            "has ConfigMap x/second, profiles packed",
        ),
        (
            FoundScheduler(
                "Deployment x/second", "", "/etc/c.yaml", "", "ConfigMap x/second", f"{PROFILE}extenders: [{{}}]"
            ),
            Verdict.WARNING,
            "cannot compute: ConfigMap x/second, document 1, line 2, extenders",
        ),
    ],
)
def test_configuration_of_the_clusters_scheduler_is_named(
    scheduler: FoundScheduler, verdict: Verdict, text: str
) -> None:
    (finding,) = configuration_findings([scheduler], "1.36")
    assert finding.verdict is verdict
    assert text in finding.text


def test_unknown_configuration_is_a_warning() -> None:
    (finding,) = configuration_findings([], "1.36")
    assert finding.verdict is Verdict.WARNING
    assert "--baseline" in finding.remedy
