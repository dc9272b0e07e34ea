"""`steersman doctor`: what it finds in nodes and pods."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest
from tests.support.errors import raises
from tests.support.objects import node_from_object
from tests.support.servers.fake_prometheus import ONE, Answer, Prometheus, answering, collector, vector

from steersman.cluster.account import account_of
from steersman.cluster.objects.api.metadata import StoredMeta
from steersman.cluster.objects.fields import node_from_json, pod_from_json
from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import ApiError, Client, Listed
from steersman.kubernetes.lease import HeldLease, LeaseHolder
from steersman.live.doctor import (
    Finding,
    Verdict,
    _metric_findings,
    configuration_findings,
    examine,
    leader_findings,
    node_findings,
    pod_findings,
    version_finding,
)
from steersman.live.runtime.cluster_schedulers import FoundScheduler
from steersman.live.runtime.listing import version_of


def node(name: str, labels: dict[str, str] | None = None, **resources: str) -> dict[str, Any]:
    """A node with 8 CPUs and these further resources; `gpu` is nvidia.com/gpu."""
    named = {key.replace("gpu", "nvidia.com/gpu") if key == "gpu" else key: value for key, value in resources.items()}
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", **named}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, "labels": labels or {}}, "status": status}


def found(*nodes: dict[str, Any]) -> dict[str, Finding]:
    """Findings of nodes by subject."""
    typed = [node_from_json(json.dumps(each).encode()) for each in nodes]
    account = account_of([node_from_object(each) for each in nodes], ())
    return {each.subject: each for each in node_findings(account, typed)}


def pod(name: str, scheduler: str, node_name: str = "", phase: str = "Pending") -> Any:
    spec = {"schedulerName": scheduler, "nodeName": node_name, "containers": [{"name": "c"}]}
    metadata = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}
    return pod_from_json(json.dumps({"metadata": metadata, "spec": spec, "status": {"phase": phase}}).encode())


@pytest.mark.parametrize(
    ("minor", "verdict"),
    [("33+", Verdict.WARNING), ("34", Verdict.OK), ("37", Verdict.OK), ("38", Verdict.WARNING)],
)
def test_minors_that_are_not_tested_are_named(minor: str, verdict: Verdict) -> None:
    finding = version_finding(version_of({"major": "1", "minor": minor, "gitVersion": f"v1.{minor}"}))
    assert finding.verdict is verdict
    assert finding.text.startswith(f"Kubernetes v1.{minor}")


@pytest.mark.parametrize("answer", [{}, {"version": "2.53.0"}, {"major": "", "minor": "", "gitVersion": ""}])
def test_an_answer_without_a_version_is_of_another_server(answer: dict[str, str]) -> None:
    with raises(SteersmanError, "GET /version: the answer does not name the version", "correct the server"):
        version_of(answer)


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
    (_, unknown) = pod_findings(pods, None)
    assert unknown.verdict is Verdict.WARNING, "it may hold a lease that cannot be listed"
    assert "has no lease" not in unknown.text
    assert "leases cannot be listed" in unknown.remedy


def lease(namespace: str, name: str, scheduler: str = "", seconds_ago: float = 1.0, holder: str = "pod") -> HeldLease:
    notes = {"steersman.dev/scheduler": scheduler} if scheduler else None
    renewed = NOW - timedelta(seconds=seconds_ago)
    return HeldLease(StoredMeta(name, namespace, annotations=notes), LeaseHolder(holder, renewed))


NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("leases", "places"),
    [
        ([lease("a", "steersman", "steersman"), lease("b", "steersman", "steersman")], "a/steersman, b/steersman"),
        ([lease("a", "one", "steersman"), lease("a", "two", "steersman")], "a/one, a/two"),
        ([lease("a", "batch", "batch"), lease("kube-system", "batch")], "a/batch, kube-system/batch"),
        ([lease("a", "steersman", "steersman"), lease("b", "steersman", "steersman", 3600)], ""),
        ([lease("a", "steersman", "steersman"), lease("b", "steersman", "steersman", holder="")], ""),
        ([lease("a", "steersman", "steersman"), lease("a", "batch", "batch")], ""),
        ([lease("a", "controller"), lease("b", "controller")], ""),
    ],
)
def test_two_schedulers_of_one_name_are_a_problem(leases: list[HeldLease], places: str) -> None:
    found = list(leader_findings(leases, {"batch"}, NOW))
    assert [each.verdict for each in found] == [Verdict.PROBLEM] * bool(places)
    assert not places or found[0].text.endswith(f"by the leases {places}")


DOUBLE = vector(({"instance": "n0", "job": "a"}, 10.0, 7), ({"instance": "n0", "job": "b"}, 10.0, 9))
"""Two series of the one node."""


class Api:
    """An API server: objects by path, or the status of an error."""

    def __init__(self, **answers: Any) -> None:
        share = {"alibabacloud.com/gpu-count": "1", "alibabacloud.com/gpu-milli": "500"}
        metadata = {"name": "p", "namespace": "default", "uid": "p", "resourceVersion": "1", "annotations": share}
        spec = {"schedulerName": "batch", "containers": [{"name": "c"}]}
        self.answers = {"nodes": [node("a")], "pods": [{"metadata": metadata, "spec": spec, "status": {}}], **answers}

    async def get(self, path: str) -> dict[str, str]:
        assert path == "/version"
        return {"gitVersion": "v1.37.2-vendor"}

    async def create(self, _path: str, _review: object) -> dict[str, Any]:
        return {"status": {"allowed": True}}

    async def list(self, path: str, _query: Any = None) -> Listed:
        # The pods of kube-system are those of kube-scheduler, which none shows here.
        name = path.rpartition("/")[2].replace("validatingadmissionpolicies", "policies")
        answer = None if "kube-system" in path else self.answers.get(name)
        if isinstance(answer, int):
            raise ApiError(f"GET {path}", answer, "", "no")
        return Listed([msgspec.Raw(json.dumps(each).encode()) for each in answer or ()], "1")


def examined(**answers: Any) -> dict[str, Finding]:
    return {each.subject: each for each in asyncio.run(examine(cast("Client", Api(**answers))))}


def test_nodes_that_are_not_counted_are_named_with_the_reason() -> None:
    cordoned, tainted, broken = node("a7", gpu="8"), node("l3", gpu="1"), node("b", gpu="4")
    cordoned["spec"] = {"unschedulable": True}
    tainted["spec"] = {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}
    broken["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    findings = examined(nodes=[node("a", gpu="4"), broken, cordoned, tainted, node("x", cpu="many")])
    left_out = "a7 is cordoned, l3 is not ready, x is invalid"
    assert findings["nodes"].text == f"2 of 5 nodes counted with 8 of 17 GPUs: {left_out}"
    assert findings["readiness"].text == "not ready, without a taint that says so: b"
    assert findings["GPUs"].text == "8 nvidia.com/gpu"
    assert examined(pods=[])["nodes"].text == "1 node"
    assert examined(nodes=[node("x", cpu="many")])["nodes"].text == "0 of 1 node counted: x is invalid"


def test_policies_of_any_release_are_found() -> None:
    policies = [{"metadata": {"name": f"mine-steersman-{each}"}} for each in ("gpu-mixing", "gpu-annotations")]
    assert examined(policies=policies)["admission"].verdict is Verdict.OK
    assert examined(policies=policies[:1])["admission"].text.endswith("are missing: gpu-annotations")
    assert "upgrade" in examined(policies=404)["admission"].remedy
    assert "cannot be read" in examined(policies=403)["admission"].text


def test_leases_that_cannot_be_listed_are_no_proof() -> None:
    assert examined(leases=[])["schedulers"].verdict is Verdict.PROBLEM
    assert examined(leases=403)["schedulers"].verdict is Verdict.WARNING
    assert "schedulers" not in examined(leases=[{"metadata": {"name": "batch"}}])


@pytest.mark.parametrize(
    ("answer", "remedy"),
    [
        (lambda _: (401, b"Unauthorized"), "prometheus.url, its token or its authority"),
        (lambda _: (404, b"404 page not found"), "prometheus.url, its token or its authority"),
        (lambda _: (400, {"status": "error", "error": "parse error"}), f"features.{next(iter(ONE))}"),
        (answering(DOUBLE, DOUBLE), f"features.{next(iter(ONE))}"),
    ],
)
def test_what_answers_instead_of_prometheus_is_told_from_a_wrong_query(answer: Answer, remedy: str) -> None:
    async def ask() -> list[Finding]:
        async with Prometheus() as server:
            server.answer = answer
            return list(await _metric_findings(collector(server), [node_from_object(node("n0"))]))

    (finding,) = asyncio.run(ask())
    assert (finding.verdict, finding.remedy) == (Verdict.PROBLEM, f"correct {remedy}")


def test_nodes_that_cannot_be_read_have_a_remedy_for_the_reason() -> None:
    assert "rights" in examined(nodes=403)["nodes"].remedy
    assert "rights" not in examined(nodes=500)["nodes"].remedy


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
