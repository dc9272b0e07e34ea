"""What `deploy/kustomize/service`, `service-tls` and `deploy/extender` hold fits the program."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import steersman
from steersman.apps.service.config import ServiceConfig, Tls, read_config
from steersman.apps.service.process import Service
from steersman.cli.commands.serve import serve
from steersman.kubernetes.client import Client
from steersman.kubernetes.config import KubeCluster, KubeConfig, KubeUser

DEPLOY = Path(__file__).parents[3] / "deploy"
FOLDER, SECURED, EXTENDER = DEPLOY / "kustomize" / "service", DEPLOY / "kustomize" / "service-tls", DEPLOY / "extender"


def objects() -> Iterator[dict[str, Any]]:
    for name in yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]:
        yield from yaml.safe_load_all((FOLDER / name).read_text())


def one(kind: str) -> dict[str, Any]:
    (found,) = (obj for obj in objects() if obj["kind"] == kind)
    return found


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = one("Deployment")["spec"]["template"]["spec"]
    return spec


def test_every_file_is_used_and_the_image_has_this_version() -> None:
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    used = [*kustomization["resources"], "kustomization.yaml", "configuration.yaml"]
    assert sorted(used) == sorted(file.name for file in FOLDER.iterdir())
    assert kustomization["images"] == [{"name": "steersman", "newTag": steersman.__version__}]
    secured = yaml.safe_load((SECURED / "kustomization.yaml").read_text())
    for each in (kustomization, secured):
        (generated,) = each["configMapGenerator"]
        assert generated["files"] == ["service.yaml=configuration.yaml"]
        assert generated["name"] == next(v["configMap"]["name"] for v in pod()["volumes"] if "configMap" in v)


def test_configurations_parse_and_addresses_agree() -> None:
    plain, secured = (read_config(folder / "configuration.yaml") for folder in (FOLDER, SECURED))
    beside = read_config(EXTENDER / "service.yaml")
    assert (beside.address, beside.deadline_milliseconds) == (
        ServiceConfig().address,
        ServiceConfig().deadline_milliseconds,
    )
    (container,) = pod()["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": plain.port}]
    assert one("Service")["spec"]["ports"][0]["port"] == plain.port == secured.port == beside.port
    (rule,) = one("NetworkPolicy")["spec"]["ingress"]
    assert rule["ports"] == [{"port": "http"}]
    assert {"cidr": "0.0.0.0/0"} not in [each.get("ipBlock") for each in rule["from"]]
    assert plain.token_file == secured.token_file
    (mount,) = (each for each in pod()["containers"][0]["volumeMounts"] if each["name"] == "secret")
    assert plain.token_file.startswith(mount["mountPath"])
    (extender,) = yaml.safe_load((EXTENDER / "kube-scheduler.yaml").read_text())["extenders"]
    assert extender["urlPrefix"] == f"http://127.0.0.1:{beside.port}"
    assert secured.tls == Tls(certificate="/etc/steersman-secret/tls.crt", key="/etc/steersman-secret/tls.key")
    assert secured.token_file == "/etc/steersman-secret/token"


def test_container_arguments_are_valid_for_serve() -> None:
    command, *options = pod()["containers"][0]["args"]
    assert command == serve.__name__
    assert {option.split("=")[0].strip("-") for option in options} <= set(inspect.signature(serve).parameters)


@pytest.mark.parametrize("container", [*pod()["initContainers"], *pod()["containers"]], ids=lambda found: found["name"])
def test_containers_are_unprivileged(container: dict[str, Any]) -> None:
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert set(container["resources"]["limits"]) == {"memory"}
    assert pod()["securityContext"]["runAsNonRoot"] is True


def test_service_account_is_read_only() -> None:
    client = Client(KubeConfig(Path("none"), "", KubeCluster("http://127.0.0.1:1"), KubeUser(), "default"))
    watched = Service(ServiceConfig(policy="kube-default"), client).watched
    assert watched is not None
    asked = set()
    for reflector in watched.cache.reflectors:
        group = reflector.path.split("/")[2]
        asked.add(("" if group == "v1" else group, reflector.resource))
    rules = one("ClusterRole")["rules"]
    assert {(group, kind) for rule in rules for group in rule["apiGroups"] for kind in rule["resources"]} == asked
    assert {tuple(rule["verbs"]) for rule in rules} == {("list", "watch")}
    (subject,) = one("ClusterRoleBinding")["subjects"]
    assert subject["name"] == one("ServiceAccount")["metadata"]["name"] == pod()["serviceAccountName"]
