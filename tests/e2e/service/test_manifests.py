"""The chart's score service against a real API server, which takes it; the service may look, and no more."""

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.conftest import LocalCluster
from tests.e2e.scheduler.test_manifests import FOR_EVERYBODY, NAMESPACE, admin, applied, server_takes, write_kubeconfig
from tests.e2e.scheduler.test_schedule import pod
from tests.e2e.service.test_service import PATIENT, ask, started
from tests.support.chart.helm import find, template

from steersman.kubernetes.client import Client
from steersman.kubernetes.config import KubeConfig, KubeUser

pytestmark = pytest.mark.e2e

SERVICE = ("scheduler.enabled=false", "service.enabled=true")
LOOK = ("list", "watch")
RIGHTS = {
    *(("", kind, LOOK) for kind in ("nodes", "pods", "namespaces", "services", "replicationcontrollers")),
    *(("resource.k8s.io", kind, LOOK) for kind in ("resourceclaims", "resourceslices", "deviceclasses")),
    *(("apps", kind, LOOK) for kind in ("replicasets", "statefulsets")),
}


@pytest.fixture(scope="module")
def deployed(control_plane: LocalCluster) -> Iterator[LocalCluster]:
    """A cluster with what the chart renders, without pods, whose image does not exist."""
    with applied(control_plane, *template(*SERVICE)) as cluster:
        yield cluster


@pytest.mark.parametrize("settings", [SERVICE, (*SERVICE, "service.tls.enabled=true")], ids=["http", "https"])
def test_the_server_takes_the_manifests(deployed: LocalCluster, settings: tuple[str, ...]) -> None:
    objects = template(*settings)
    server_takes(deployed, objects)
    pods = find(objects, "Deployment", "steersman-service")["spec"]["template"]
    made = {"apiVersion": "v1", "kind": "Pod", **pods, "metadata": {**pods["metadata"], "name": "as-deployed"}}

    async def create() -> None:  # where pod security is restricted
        async with Client(admin(deployed)) as client:
            await client.create(f"/api/v1/namespaces/{NAMESPACE}/pods", made, {"dryRun": "All"})

    asyncio.run(create())


def as_service(cluster: LocalCluster) -> KubeConfig:
    """Who the service's pods are."""

    async def ask_for() -> str:
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/steersman-service/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
        async with Client(admin(cluster)) as client:
            return str((await client.create(path, request))["status"]["token"])

    return replace(admin(cluster), user=KubeUser(token=asyncio.run(ask_for())), namespace=NAMESPACE)


def test_service_account_is_read_only(deployed: LocalCluster) -> None:
    config = as_service(deployed)

    async def rights() -> set[tuple[str, str, tuple[str, ...]]]:
        async with Client(config) as client:
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
            path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
            found = await client.create(path, {**review, "spec": {"namespace": NAMESPACE}})
        return {
            (group, resource, tuple(sorted(rule["verbs"])))
            for rule in found["status"]["resourceRules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            if group not in FOR_EVERYBODY
        }

    assert asyncio.run(rights()) == RIGHTS


def test_service_runs_as_its_account_with_deployed_configuration(deployed: LocalCluster, tmp_path: Path) -> None:
    kubeconfig, config = tmp_path / "kubeconfig", tmp_path / "service.yaml"
    write_kubeconfig(kubeconfig, as_service(deployed))
    objects = template(*SERVICE)
    data = find(objects, "ConfigMap", "steersman-service")["data"]
    (tmp_path / "token").write_text("abc\n")
    config.write_text(data["service.yaml"].replace("/etc/steersman-secret", str(tmp_path)))
    (container,) = find(objects, "Deployment", "steersman-service")["spec"]["template"]["spec"]["containers"]
    probe = container["readinessProbe"]["httpGet"]["path"]
    options = (*PATIENT, "--kubeconfig", kubeconfig, "--config", config, "--address", "127.0.0.1")
    with started(deployed, tmp_path, *options) as running:
        found = ask(running, "/v1/suggestions", {"pod": pod("wanted", "1")}, token="abc")
        assert found["node"] in json.dumps(deployed.kubectl("get", "nodes", "-o", "name"))
        port = next(line["port"] for line in running.log() if line["event"] == "listening")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{probe}", timeout=10) as answer:
            assert answer.status == 200
        assert [line for line in running.log() if line["level"] != "info"] == []  # a refused watch is a warning
