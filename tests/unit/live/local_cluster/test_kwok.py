"""KWOK's controller in clusters that exist: what is created there, and the process beside it."""

import json
import os
import stat
from pathlib import Path

import pytest
import yaml
from tests.support.errors import error_of, raises
from tests.support.servers.live_cluster import with_double

from steersman.cli.main import main
from steersman.core.errors import SteersmanError, UsageError
from steersman.kubernetes.config import load
from steersman.live.local_cluster import kwok

COMPOSE = Path(__file__).parents[4] / "deploy" / "compose"
KUBECONFIG = """
apiVersion: v1
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority: ca.crt}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: here, context: {cluster: c, user: u}}, {name: there, context: {cluster: c}}]
current-context: here
"""


@pytest.fixture(autouse=True)
def _own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("STEERSMAN_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    return load(file, None)


def created(double):
    return {each["kind"] for (_, name), each in double.objects.items() if name == kwok.NAME}


def program(tmp_path, text):
    """A program that stands for KWOK's controller."""
    file = tmp_path / "kwok"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


@with_double
async def test_everything_is_installed_once_replaced_and_removed(double, client):
    assert await kwok.install(client, "kwok:1") == len(kwok.COLLECTIONS)
    assert created(double) == set(kwok.COLLECTIONS)
    assert await kwok.install(client, "kwok:2") == len(kwok.COLLECTIONS)
    deployment = double.objects[kwok.COLLECTIONS["Deployment"], kwok.NAME]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "kwok:2"
    assert await kwok.remove(client) == len(kwok.COLLECTIONS)
    assert created(double) == set()
    assert await kwok.remove(client) == 0


@pytest.mark.parametrize("kind", kwok.COLLECTIONS)
@with_double
async def test_foreign_objects_are_kept(double, client, kind):
    spec = {"replicas": 0, "template": {"metadata": {"labels": {}}}}
    theirs = {"kind": kind, "metadata": {"name": kwok.NAME, "labels": {"app": kwok.NAME}}, "spec": spec}
    double.put(kwok.COLLECTIONS[kind], theirs)
    with raises(SteersmanError, kind, kwok.NAME):
        await kwok.install(client, "kwok:1")
    assert created(double) == {kind}
    assert await kwok.remove(client) == 0
    assert created(double) == {kind}


def test_controller_role_is_minimal():
    objects = {each["kind"]: each for each in kwok.manifests("kwok:1")}
    rules = objects["ClusterRole"]["rules"]
    allowed = {(kind, verb) for rule in rules for kind in rule["resources"] for verb in rule["verbs"]}
    assert {("nodes/status", "patch"), ("pods/status", "patch"), ("pods", "delete"), ("leases", "create")} <= allowed
    assert not {verb for kind, verb in allowed if kind == "nodes"} - {"get", "list", "watch"}
    assert not any("*" in pair for pair in allowed)
    spec = objects["Deployment"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    volume = spec["volumes"][0]["configMap"]["name"]
    assert volume == objects["ConfigMap"]["metadata"]["name"]
    stages = [each["metadata"]["name"] for each in yaml.safe_load_all(objects["ConfigMap"]["data"]["stages.yaml"])]
    assert stages == ["node-initialize", "node-heartbeat-with-lease", "pod-ready", "pod-complete", "pod-delete"]
    assert container["args"][0] == f"--config={container['volumeMounts'][0]['mountPath']}/stages.yaml"


def test_a_process_is_started_once_and_stopped(tmp_path, config):
    log = kwok.start(config, program(tmp_path, 'echo "$@"; sleep 60'))
    try:
        assert kwok.is_running(config)
        with raises(SteersmanError, "https://127.0.0.1:1"):
            kwok.start(config, program(tmp_path, "sleep 60"))
        said = log.read_text()
        assert "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake" in said
        copied = kwok.folder_of(config) / "kubeconfig"
        assert stat.S_IMODE(copied.stat().st_mode) == 0o600
        again = load(copied, None)
        assert (again.cluster, again.user.token) == (config.cluster, "secret")
        assert again.cluster.certificate_authority == str(tmp_path / "ca.crt")
    finally:
        assert kwok.stop(config)
    assert not kwok.is_running(config)
    assert not copied.exists(), "credentials do not stay"
    assert not kwok.stop(config)


def test_early_exit_is_reported_with_its_reason(tmp_path, config):
    with raises(SteersmanError, "no stages found"):
        kwok.start(config, program(tmp_path, "echo no stages found; exit 1"))
    assert not kwok.is_running(config)


def test_foreign_process_is_not_stopped(config):
    folder = kwok.folder_of(config)
    folder.mkdir(parents=True)
    (folder / kwok.PID).write_text(str(os.getpid()))
    assert not kwok.stop(config)
    (folder / kwok.PID).write_text("nonsense")
    assert not kwok.is_running(config)


def test_clusters_have_processes_of_their_own(tmp_path, config):
    there = load(tmp_path / "kubeconfig", "there")
    assert kwok.folder_of(config) != kwok.folder_of(there)


def test_manifests_are_printed_for_kubectl(capsys):
    assert main(["cluster", "kwok", "install", "--image", "kwok:1", "--print"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert json.loads(json.dumps(printed)) == kwok.manifests("kwok:1")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["install"], "--yes"),
        (["install", "--image", "kwok:1"], "--yes"),
        (["install", "--print"], "--image"),
        (["remove"], "--yes"),
    ],
)
def test_nothing_is_done_to_a_cluster_without_consent(capsys, config, arguments, named):
    given = ["cluster", "kwok", *arguments, "--kubeconfig", str(config.source)]
    error_of(capsys, UsageError.exit_status, given, named)


def test_the_compose_file_and_its_kubeconfig_agree():
    (service,) = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"].values()
    (port,) = service["ports"]
    address, outside, inside = port.replace("${KWOK_PORT:-8080}", "8080").split(":")
    assert (address, inside) == ("127.0.0.1", "8080"), "an API server without users is for this machine alone"
    assert load(COMPOSE / "kubeconfig.yaml", None).cluster.server == f"http://{address}:{outside}"
    assert "KWOK_CLUSTER_IMAGE:?" in service["image"]
