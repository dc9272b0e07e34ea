"""The chart of `deploy/helm` on a real API server: installed, upgraded, rolled back, removed; its accounts at work."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.conftest import STEERSMAN, LocalCluster, until
from tests.e2e.plugin.test_plugin import prepared
from tests.e2e.scheduler.test_manifests import FOR_EVERYBODY, RIGHTS, admin, write_kubeconfig
from tests.e2e.scheduler.test_schedule import create, pod, pods
from tests.e2e.service.test_manifests import RIGHTS as READER_RIGHTS
from tests.support.chart.helm import ALL, CHART, RELEASE, helm, helm_program
from tests.support.servers.plugin_scheduler import plugged, scheduler_program

from steersman.kubernetes.client import Client
from steersman.kubernetes.config import KubeConfig, KubeUser

pytestmark = pytest.mark.e2e
__all__ = ["scheduler_program"]

NAMESPACE = "steersman"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"
EVERYWHERE = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
IN_NAMESPACE = (
    "deployments,daemonsets,replicasets,pods,services,configmaps,secrets,serviceaccounts,roles,rolebindings,"
    "poddisruptionbudgets,networkpolicies"
)


@dataclass(frozen=True)
class Release:
    """A release of the chart in a namespace that enforces restricted pod security."""

    cluster: LocalCluster
    home: Path

    def helm(self, *arguments: str | Path) -> str:
        """Run Helm, which has to succeed; what it printed."""
        done = helm(*arguments, "--namespace", NAMESPACE, home=self.home, kubeconfig=self.cluster.kubeconfig)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def apply(self, command: str, *settings: str) -> None:
        self.helm(command, RELEASE, CHART, *(f"--set={each}" for each in settings))

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.cluster.kubectl("get", kind, name, "--namespace", NAMESPACE, "-o", "json")
        )
        return found

    def arguments(self, deployment: str) -> list[str]:
        """Arguments of a Deployment's container, with addresses and ports of this machine."""
        (container,) = self.get("deployment", deployment)["spec"]["template"]["spec"]["containers"]
        return [re.sub(r"--port=\d+", "--port=0", each.replace("$(POD_IP)", "127.0.0.1")) for each in container["args"]]

    def account(self, name: str) -> KubeConfig:
        """Who a component's pods are."""

        async def ask() -> str:
            path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}/token"
            request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
            async with Client(admin(self.cluster)) as client:
                return str((await client.create(path, request))["status"]["token"])

        return replace(admin(self.cluster), user=KubeUser(token=asyncio.run(ask())), namespace=NAMESPACE)

    def names(self) -> set[str]:
        """What the cluster has of the release, each with its kind."""
        label = ("-l", f"app.kubernetes.io/instance={RELEASE}", "-o", "name")
        return {
            *self.cluster.kubectl("get", EVERYWHERE, *label).split(),
            *self.cluster.kubectl("get", IN_NAMESPACE, "--namespace", NAMESPACE, *label).split(),
            *self.cluster.kubectl("get", "rolebindings", "--namespace", "kube-system", *label).split(),
            *self.cluster.kubectl("get", "secrets", "--namespace", NAMESPACE, "-l", "owner=helm", "-o", "name").split(),
        }


@pytest.fixture
def release(cluster: LocalCluster, tmp_path: Path) -> Iterator[Release]:
    """No release, yet; what a test makes is gone afterwards."""
    helm_program()
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("label", "namespace", NAMESPACE, RESTRICTED)
    made = Release(cluster, tmp_path)
    yield made
    made.helm("uninstall", RELEASE, "--ignore-not-found")
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=true")


@pytest.mark.minors
def test_release_is_installed_upgraded_rolled_back_and_removed(release: Release) -> None:
    release.apply("install", *ALL)
    workloads = {"", "-service", "-plugin", "-dashboard"}
    assert {f"deployment.apps/steersman{each}" for each in workloads} <= release.names()
    assert "daemonset.apps/steersman-latency-probe" in release.names()
    # Pods exist, so the namespace's pod security lets them pass: 2 + 2 + 2 + 1, and one for each node.
    until(lambda: sum(each.startswith("pod/") for each in release.names()) >= 7 + len(release.cluster.node_names()))
    first = release.get("deployment", "steersman")["spec"]["template"]

    release.apply("upgrade", *ALL, "scheduler.policy.name=fgd")
    upgraded = release.get("deployment", "steersman")["spec"]["template"]
    assert "--policy=fgd" in upgraded["spec"]["containers"][0]["args"]
    assert upgraded["metadata"]["annotations"] != first["metadata"]["annotations"]
    selected = ("-l", "app.kubernetes.io/component=scheduler", "--namespace", NAMESPACE, "-o", "name")
    until(lambda: len(release.cluster.kubectl("get", "replicasets", *selected).split()) == 2)

    release.helm("rollback", RELEASE)
    assert release.get("deployment", "steersman")["spec"]["template"] == first
    revisions = [
        (each["revision"], each["status"]) for each in json.loads(release.helm("history", RELEASE, "-o", "json"))
    ]
    assert revisions == [(1, "superseded"), (2, "superseded"), (3, "deployed")]

    release.helm("uninstall", RELEASE)
    until(lambda: not release.names())


def test_a_component_is_removed_without_the_others(release: Release) -> None:
    release.apply("install", "service.enabled=true")
    release.apply("upgrade", "service.enabled=true", "scheduler.enabled=false")
    left = {each for each in release.names() if not each.startswith(("pod/", "replicaset", "secret/"))}
    assert left
    assert {each.rpartition("/")[2] for each in left} == {"steersman-service", "steersman-gpu-annotations"}


@pytest.mark.parametrize("account", ["steersman", "steersman-service", "steersman-dashboard"])
def test_accounts_have_minimal_rights(release: Release, account: str) -> None:
    release.apply("install", *ALL)
    config = release.account(account)

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

    expected = RIGHTS if account == "steersman" else {(*rule, ()) for rule in READER_RIGHTS}
    assert asyncio.run(rights("kube-system")) == expected
    assert asyncio.run(rights("default")) == {rule for rule in expected if rule[1] != "leases"}


def lease(release: Release, name: str) -> Any:
    return json.loads(release.cluster.kubectl("get", "lease", name, "--namespace", "kube-system", "-o", "json"))


@pytest.mark.parametrize("name", ["steersman", "batch"])
def test_scheduler_binds_pods_with_the_account_and_arguments_of_the_release(
    release: Release, tmp_path: Path, name: str
) -> None:
    release.apply("install", f"scheduler.schedulerName={name}", "scheduler.policy.name=fgd")
    kubeconfig, log = tmp_path / "kubeconfig", tmp_path / "log"
    write_kubeconfig(kubeconfig, release.account("steersman"))
    create(release.cluster, pod("wanted", "1", schedulerName=name))
    command = [STEERSMAN, *release.arguments("steersman"), "--kubeconfig", str(kubeconfig)]
    environment = release.cluster.environment
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environment) as process:
        try:
            until(lambda: pods(release.cluster)["wanted"]["spec"].get("nodeName") or process.poll() is not None, 240)
            assert process.poll() is None, log.read_text()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    assert not re.search(r"\b403\b|forbidden", log.read_text(), re.IGNORECASE), log.read_text()
    assert lease(release, name)["spec"]["holderIdentity"] == ""


def test_plugin_binds_pods_with_the_account_and_configuration_of_the_release(
    release: Release, scheduler_program: Path, tmp_path: Path
) -> None:
    release.apply("install", "scheduler.enabled=false", "plugin.enabled=true", "plugin.policy.file.configMap=p")
    text = release.get("configmap", "steersman-plugin")["data"]["kube-scheduler.yaml"]
    settings = yaml.safe_load(text.replace("/etc/steersman-policy", str(tmp_path)))
    (tmp_path / "policy.safetensors").write_bytes(prepared())
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, release.account("steersman-plugin"))
    settings["clientConnection"] = {"kubeconfig": str(kubeconfig)}
    with plugged(scheduler_program, tmp_path, settings) as scheduler:
        create(release.cluster, *(pod(f"wanted-{i}", schedulerName="steersman-plugin") for i in range(5)))
        until(lambda: all(each["spec"].get("nodeName") for each in pods(release.cluster).values()))
        assert scheduler.count("decisions_total", 'outcome="scored"') == 5
        assert not re.search(r"is forbidden|cannot (list|get)", scheduler.log()), scheduler.log()
    assert lease(release, "steersman-plugin")["spec"]["holderIdentity"]


def test_second_release_of_one_scheduler_name_is_refused_in_any_namespace(release: Release, tmp_path: Path) -> None:
    release.apply("install")
    options = ("--namespace", "default", "--set=fullnameOverride=second")
    done = helm("install", "second", CHART, *options, home=tmp_path, kubeconfig=release.cluster.kubeconfig)
    assert done.returncode == 1
    assert 'Role "steersman-leads-steersman" in namespace "kube-system" exists' in done.stderr
