"""What `deploy/` holds fits the program, and its pods are as locked down as they can be."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

import steersman
from steersman.apps.runtime.http_server import ListenAddress, Probes, WebServer
from steersman.apps.scheduler.metrics import MetricSources, SchedulerMetrics
from steersman.apps.scheduler.process import PORT, LiveScheduler, SchedulerSettings
from steersman.cli.commands.schedule.command import schedule
from steersman.kubernetes.client import Client
from steersman.kubernetes.config import KubeCluster, KubeConfig, KubeUser

DEPLOY = Path(__file__).parents[3] / "deploy"
BASE = DEPLOY / "kustomize" / "base"
OVERLAYS = sorted(DEPLOY.glob("kustomize/overlays/*/kustomization.yaml"))


def objects() -> Iterator[dict[str, Any]]:
    for name in yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]:
        yield from yaml.safe_load_all((BASE / name).read_text())


def one(kind: str) -> dict[str, Any]:
    (found,) = (obj for obj in objects() if obj["kind"] == kind)
    return found


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = one("Deployment")["spec"]["template"]["spec"]
    return spec


def test_base_includes_every_file() -> None:
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    assert sorted([*listed, "kustomization.yaml"]) == sorted(file.name for file in BASE.iterdir())


def test_image_has_this_version() -> None:
    (image,) = yaml.safe_load((BASE / "kustomization.yaml").read_text())["images"]
    assert image == {"name": "steersman", "newTag": steersman.__version__}
    assert f"steersman:{steersman.__version__}" in (DEPLOY / "Containerfile").read_text()


@pytest.mark.parametrize("container", [*pod()["initContainers"], *pod()["containers"]], ids=lambda found: found["name"])
def test_containers_are_unprivileged(container: dict[str, Any]) -> None:
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    resources = container["resources"]
    assert set(resources["requests"]) == {"cpu", "memory"}
    assert set(resources["limits"]) == {"memory"}  # a limit of CPU would throttle decisions
    volumes = {volume["name"]: volume for volume in pod()["volumes"]}
    assert all("emptyDir" in volumes[mount["name"]] for mount in container["volumeMounts"])


def test_pod_runs_as_nobody_with_two_replicas() -> None:
    security = pod()["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert f"USER {security['runAsUser']}:{security['runAsGroup']}" in (DEPLOY / "Containerfile").read_text()
    assert one("Deployment")["spec"]["replicas"] == 2
    assert one("PodDisruptionBudget")["spec"]["minAvailable"] == 1
    assert "--leader-elect" in pod()["containers"][0]["args"]


def test_probes_use_served_paths() -> None:
    (container,) = pod()["containers"]
    assert container["ports"] == [{"name": "metrics", "containerPort": PORT}]
    assert f"--port={PORT}" in container["args"]
    assert one("Service")["spec"]["ports"][0]["port"] == PORT
    probes = [container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]

    async def statuses() -> list[int]:
        endpoints = WebServer(SchedulerMetrics(MetricSources()).registry, Probes(), ListenAddress())
        async with endpoints, aiohttp.ClientSession(f"http://127.0.0.1:{endpoints.port}") as session:
            return [(await session.get(probe["path"])).status for probe in probes]

    assert asyncio.run(statuses()) == [200, 200, 200]


def test_roles_have_no_wildcards_and_minimal_writes() -> None:
    rules = [*one("ClusterRole")["rules"], *one("Role")["rules"]]
    named = {name for rule in rules for name in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])}
    assert "*" not in named
    assert not named & {"secrets", "configmaps", "delete", "deletecollection", "escalate", "bind", "impersonate"}
    for binding in ("ClusterRoleBinding", "RoleBinding"):
        assert [subject["name"] for subject in one(binding)["subjects"]] == [pod()["serviceAccountName"]]


@pytest.mark.parametrize("file", OVERLAYS, ids=lambda file: file.parent.name)
def test_overlays_patch_existing_arguments(file: Path) -> None:
    overlay = yaml.safe_load(file.read_text())
    assert overlay["resources"] == ["../../base"]
    arguments = pod()["containers"][0]["args"]
    for patch in overlay["patches"]:
        operations = yaml.safe_load(patch["patch"])
        for operation in operations if isinstance(operations, list) else ():
            if found := re.fullmatch(r"/spec/template/spec/containers/0/args/(\d)", operation["path"]):
                replaced, by = arguments[int(found[1])], operation["value"]
                assert replaced.split("=")[0] == by.split("=")[0]


def test_container_arguments_are_valid_for_schedule() -> None:
    command, *options = pod()["containers"][0]["args"]
    assert command == schedule.__name__
    known = {f"--{name.replace('_', '-')}" for name in inspect.signature(schedule).parameters}
    assert {option.split("=")[0] for option in options} <= known


def test_image_compiles_kernels_with_existing_functions() -> None:
    tree = ast.parse((DEPLOY / "compile_kernels.py").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert imports
    for node in imports:
        module = importlib.import_module(str(node.module))
        assert all(hasattr(module, name.name) for name in node.names)
    cache = re.search(r"STEERSMAN_CACHE_DIR=(\S+)$", (DEPLOY / "Containerfile").read_text(), re.M)
    assert cache is not None
    assert pod()["initContainers"][0]["command"][2] == f"{cache[1]}/."


def test_scheduler_role_covers_every_watched_resource() -> None:
    client = Client(KubeConfig(Path("none"), "", KubeCluster("http://127.0.0.1:1"), KubeUser(), "default"))
    scheduler = LiveScheduler(client, SchedulerSettings(policy="kube-default"))
    allowed = {
        (group, resource)
        for rule in one("ClusterRole")["rules"]
        if {"list", "watch"} <= set(rule["verbs"])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    groups = {reflector.path: reflector.path.split("/")[2] for reflector in scheduler.cache.reflectors}
    watched = {
        ("" if groups[each.path] == "v1" else groups[each.path], each.resource) for each in scheduler.cache.reflectors
    }
    assert watched == allowed
    few = LiveScheduler(client, SchedulerSettings(policy="fgd")).cache.reflectors
    volumes = {"persistentvolumeclaims", "persistentvolumes", "storageclasses"}
    claims = {"resourceclaims", "deviceclasses", "resourceslices"}
    volumes |= {"csinodes", "csidrivers", "csistoragecapacities"}
    assert {reflector.resource for reflector in few} == {"nodes", "pods", "namespaces"} | volumes | claims
