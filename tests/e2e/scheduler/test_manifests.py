"""The chart's scheduler against a real API server, which takes it; it may do what it must, and no more."""

import asyncio
import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.conftest import STEERSMAN, LocalCluster
from tests.support.chart.helm import find, template

from steersman.kubernetes.client import ApiError, Client
from steersman.kubernetes.config import KubeConfig, KubeUser, load
from steersman.kubernetes.events import EventRecorder, ObjectReference
from steersman.kubernetes.lease import APP_LABEL, POLICY_KEY, LeaderElection, Lease

pytestmark = pytest.mark.e2e

NAMESPACE = "steersman"
FOR_EVERYBODY = ("authorization.k8s.io", "authentication.k8s.io", "certificates.k8s.io")
"""Groups in which every service account may do something, in the last one since Kubernetes 1.37."""
RESTRICTED = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
}
RIGHTS = {
    ("", "nodes", ("list", "watch"), ()),
    ("", "pods", ("get", "list", "watch"), ()),
    ("", "namespaces", ("list", "watch"), ()),
    ("", "persistentvolumeclaims", ("list", "patch", "watch"), ()),
    ("", "persistentvolumes", ("list", "patch", "watch"), ()),
    ("storage.k8s.io", "storageclasses", ("list", "watch"), ()),
    ("storage.k8s.io", "csinodes", ("list", "watch"), ()),
    ("storage.k8s.io", "csidrivers", ("list", "watch"), ()),
    ("storage.k8s.io", "csistoragecapacities", ("list", "watch"), ()),
    ("resource.k8s.io", "resourceclaims", ("create", "get", "list", "watch"), ()),
    ("resource.k8s.io", "resourceclaims/status", ("update",), ()),
    ("resource.k8s.io", "resourceclaims/binding", ("update",), ()),
    ("resource.k8s.io", "resourceslices", ("list", "watch"), ()),
    ("resource.k8s.io", "deviceclasses", ("list", "watch"), ()),
    ("", "pods/binding", ("create",), ()),
    ("", "pods/status", ("patch",), ()),
    ("", "services", ("list", "watch"), ()),
    ("", "replicationcontrollers", ("list", "watch"), ()),
    ("apps", "replicasets", ("list", "watch"), ()),
    ("apps", "statefulsets", ("list", "watch"), ()),
    ("events.k8s.io", "events", ("create", "patch"), ()),
    ("coordination.k8s.io", "leases", ("create",), ()),
    ("coordination.k8s.io", "leases", ("get", "update"), ("steersman",)),
}


@pytest.fixture(scope="module")
def deployed(control_plane: LocalCluster) -> Iterator[LocalCluster]:
    """A cluster with what the chart renders, without pods, whose image does not exist."""
    with applied(control_plane, *template()) as cluster:
        yield cluster


@contextmanager
def applied(cluster: LocalCluster, *objects: dict[str, Any]) -> Iterator[LocalCluster]:
    """Create objects in a namespace that enforces restricted pod security, but none with pods."""
    objects = tuple(each for each in objects if each["kind"] not in ("Deployment", "Pod"))
    cluster.must("cluster", "clean", "--name", cluster.name)
    text = yaml.safe_dump_all([RESTRICTED, *map(in_its_namespace, objects)])
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    yield cluster
    cluster.kubectl("delete", "-f", "-", stdin=text)


def in_its_namespace(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object in the namespace of the release, unless it has another one. Cluster-scoped objects ignore it."""
    if obj["kind"].startswith(("Cluster", "Validating")):
        return obj
    return {**obj, "metadata": {"namespace": NAMESPACE, **obj["metadata"]}}


def server_takes(cluster: LocalCluster, objects: list[dict[str, Any]]) -> None:
    """Assert that the API server would take every object."""
    apply = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
    assert len(cluster.kubectl(*apply, stdin=yaml.safe_dump_all(map(in_its_namespace, objects))).splitlines()) == len(
        objects
    )


def admin(cluster: LocalCluster) -> KubeConfig:
    return load(cluster.kubeconfig)


def with_token(cluster: LocalCluster) -> KubeConfig:
    """Who the scheduler's pods are."""

    async def ask() -> str:
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/steersman/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
        async with Client(admin(cluster)) as client:
            found = await client.create(path, request)
            return str(found["status"]["token"])

    return replace(admin(cluster), user=KubeUser(token=asyncio.run(ask())), namespace=NAMESPACE)


@pytest.mark.parametrize("settings", [(), ("scheduler.schedulerName=batch", "scheduler.policy.file.secret=mine")])
def test_the_server_takes_the_manifests(deployed: LocalCluster, settings: tuple[str, ...]) -> None:
    server_takes(deployed, template(*settings))


def test_pods_satisfy_restricted_pod_security(deployed: LocalCluster) -> None:
    made = find(template(), "Deployment", "steersman")["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **made, "metadata": {**made["metadata"], "name": "as-deployed"}}

    async def create(obj: dict[str, Any]) -> None:
        async with Client(admin(deployed)) as client:
            await client.create(f"/api/v1/namespaces/{NAMESPACE}/pods", obj, {"dryRun": "All"})

    asyncio.run(create(pod))
    pod["spec"] = {**pod["spec"], "securityContext": {}}
    with pytest.raises(ApiError, match="violates PodSecurity"):  # so the namespace is what refuses
        asyncio.run(create(pod))


def test_service_account_has_minimal_rights(deployed: LocalCluster) -> None:
    config = with_token(deployed)

    async def rights(namespace: str) -> set[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
        async with Client(config) as client:
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
            path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
            found = await client.create(path, {**review, "spec": {"namespace": namespace}})
        return {
            (group, resource, tuple(sorted(rule["verbs"])), tuple(rule.get("resourceNames") or ()))
            for rule in found["status"]["resourceRules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            if group not in FOR_EVERYBODY
        }

    assert asyncio.run(rights("kube-system")) == RIGHTS
    assert asyncio.run(rights("default")) == {rule for rule in RIGHTS if rule[1] != "leases"}


def test_service_account_may_lead_and_write_events(deployed: LocalCluster) -> None:
    deployed.kubectl("run", "waits", "--image=pause", "--overrides", json.dumps({"spec": {"schedulerName": "nobody"}}))
    uid = json.loads(deployed.kubectl("get", "pod", "waits", "-o", "json"))["metadata"]["uid"]

    config = with_token(deployed)

    async def story() -> None:
        async with Client(config) as client:
            annotations = {POLICY_KEY: "fgd"}
            election = LeaderElection(client, Lease("kube-system", "steersman", dict([APP_LABEL]), annotations))

            async def lead() -> None:
                pod = ObjectReference("default", "waits", uid)
                async with EventRecorder(client) as recorder:
                    for _ in range(3):
                        recorder.record(pod, "FailedScheduling", "0/10 nodes are available", "Warning")
                        await asyncio.sleep(0.5)
                assert (recorder.failed, recorder.dropped) == (0, 0)
                await asyncio.sleep(2.5)  # a renewal

            await election.run(lead)
            with pytest.raises(ApiError, match="forbidden"):
                await LeaderElection(client, Lease("kube-system", "another")).run(lead)

    asyncio.run(story())
    lease = json.loads(deployed.kubectl("get", "lease", "steersman", "-n", "kube-system", "-o", "json"))
    assert lease["spec"]["holderIdentity"] == ""
    # A scheduler of another test may have annotated it, too.
    assert lease["metadata"]["annotations"][POLICY_KEY] == "fgd"
    events = json.loads(deployed.kubectl("get", "events.v1.events.k8s.io", "-o", "json"))["items"]
    (event,) = (event for event in events if event["regarding"].get("uid") == uid)
    assert event["series"]["count"] == 3
    described = deployed.kubectl("describe", "pod", "waits")
    assert "FailedScheduling" in described
    assert "0/10 nodes are available" in described


def test_scheduler_runs_as_its_service_account_with_deployed_arguments(deployed: LocalCluster, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, with_token(deployed))
    for index, cpu in enumerate(("1", "1", "1", "1", "9999")):
        container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
        spec = {"schedulerName": "steersman", "containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{index}"}, "spec": spec}
        deployed.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    deployment = find(template(), "Deployment", "steersman")
    arguments = [
        argument.replace("$(POD_IP)", "127.0.0.1").replace("--port=10269", "--port=0")
        for argument in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    ]
    command = [STEERSMAN, *arguments, "--kubeconfig", str(kubeconfig)]
    log = tmp_path / "log"
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, env=deployed.environment) as process:
        try:
            end = time.monotonic() + 180
            while not placed(deployed):
                assert time.monotonic() < end, log.read_text()
                assert process.poll() is None, log.read_text()
                time.sleep(0.5)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    assert not re.search(r"\b403\b|forbidden", log.read_text(), re.IGNORECASE), log.read_text()
    assert "Traceback" not in log.read_text(), log.read_text()
    events = deployed.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}").split()
    assert {"Scheduled", "FailedScheduling"} <= set(events)
    lease = json.loads(deployed.kubectl("get", "lease", "steersman", "-n", "kube-system", "-o", "json"))
    assert lease["spec"]["holderIdentity"] == ""
    assert lease["spec"]["leaseTransitions"] >= 1


def write_kubeconfig(file: Path, config: KubeConfig) -> None:
    cluster = {
        "server": config.cluster.server,
        "certificate-authority": config.cluster.certificate_authority or None,
        "certificate-authority-data": config.cluster.certificate_authority_data or None,
    }
    content = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": config.user.token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": config.namespace}}],
        "current-context": "x",
    }
    file.write_text(yaml.safe_dump(content))


def placed(cluster: LocalCluster) -> bool:
    """Whether the pods that fit are bound, and the one that does not says why."""
    pods = cluster.objects("pods")
    bound = [pod for pod in pods if pod["spec"]["schedulerName"] == "steersman" and pod["spec"].get("nodeName")]
    (large,) = (pod for pod in pods if pod["metadata"]["name"] == "p4")
    return len(bound) == 4 and any(
        each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable"
        for each in large["status"].get("conditions") or ()
    )
