"""What a cluster's API tells of the configuration of its kube-schedulers.

kubeadm, kind and RKE2 run kube-scheduler as a static pod, whose flags the API shows, but not the file that `--config`
names. A Deployment may have it in a ConfigMap. K3s notes its own arguments at the node.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from posixpath import relpath
from typing import Any

import msgspec

from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import ApiError, Client
from steersman.kubernetes.watch import REFUSALS
from steersman.policies.kube_scheduler.configuration import read_content
from steersman.policies.kube_scheduler.profile import KubeProfile

STATIC_PODS = "/api/v1/namespaces/kube-system/pods"
STATIC_SELECTOR = {"labelSelector": "component=kube-scheduler"}
DEPLOYMENTS = "/apis/apps/v1/deployments"
NODES = "/api/v1/nodes"
NODE_ARGUMENTS = "k3s.io/node-args"
SCHEDULER_ARGUMENT = "--kube-scheduler-arg"
CONFIG, GATES = "config", "feature-gates"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FoundScheduler:
    """A kube-scheduler that the API tells of."""

    name: str  # who it is, such as `pod kube-system/kube-scheduler-a`
    node: str = ""  # where its file is; "" if that does not matter
    file: str = ""  # path of `--config`; "" without that flag
    gates: str = ""  # value of `--feature-gates`
    source: str = ""  # the ConfigMap that has the file, such as `ConfigMap kube-system/scheduler`; "" if none has
    content: str = ""  # text of the configuration; "" if it cannot be read


async def find_schedulers(client: Client) -> list[FoundScheduler]:
    """Return the kube-schedulers of a cluster, those that may not be read left out."""
    found = [_of_pod(each) for each in await _listed(client, STATIC_PODS, STATIC_SELECTOR)]
    for deployment in await _listed(client, DEPLOYMENTS):
        found += [each async for each in _of_deployment(client, deployment)]
    for node in await _listed(client, NODES):
        found += _of_node(node)
    return found


def read_profiles(scheduler: FoundScheduler, minor: str) -> dict[str, KubeProfile]:
    """Return the profiles of a scheduler's configuration by `schedulerName`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scheduler.yaml"
        file.write_text(scheduler.content, encoding="utf-8")
        try:
            return read_content(file, minor)[1]
        except SteersmanError as error:
            raise SteersmanError(str(error).replace(str(file), scheduler.source)) from None


def flags_of(arguments: list[str]) -> dict[str, str]:
    """Return the values of the flags of a command line by their names; a flag without a value is left out."""
    flags = {}
    for i, argument in enumerate(arguments):
        name, equals, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-"):
            continue
        following = arguments[i + 1] if i + 1 < len(arguments) else "-"
        if equals or not following.startswith("-"):
            flags[name] = value if equals else following
    return flags


def _of_pod(pod: Json) -> FoundScheduler:
    metadata, spec = pod["metadata"], pod["spec"]
    flags = flags_of(_arguments(spec["containers"][0]))
    name = f"pod {metadata['namespace']}/{metadata['name']}"
    return FoundScheduler(name, spec.get("nodeName", ""), flags.get(CONFIG, ""), flags.get(GATES, ""))


async def _of_deployment(client: Client, deployment: Json) -> AsyncIterator[FoundScheduler]:
    """Yield the containers of a Deployment that are schedulers: they have the flag, and are called so."""
    metadata, spec = deployment["metadata"], deployment["spec"]["template"]["spec"]
    for container in spec.get("containers", ()):
        arguments = _arguments(container)
        flags = flags_of(arguments)
        said = " ".join((metadata["name"], container.get("name", ""), container.get("image", ""), *arguments[:1]))
        if CONFIG not in flags or "scheduler" not in said:
            continue
        name, file = f"Deployment {metadata['namespace']}/{metadata['name']}", flags[CONFIG]
        where = mounted(spec, container, file)
        if where is None:
            yield FoundScheduler(name, "", file, flags.get(GATES, ""))
            continue
        config_map, key = where
        data = await _config_map(client, metadata["namespace"], config_map)
        source = f"ConfigMap {metadata['namespace']}/{config_map}"
        yield FoundScheduler(name, "", file, flags.get(GATES, ""), source, str(data.get(key, "")))


def mounted(spec: Json, container: Json, file: str) -> tuple[str, str] | None:
    """Return the ConfigMap and its key that a path in a container is of; None if it is of another volume."""
    volumes = {each["name"]: each for each in spec.get("volumes", ())}
    for mount in sorted(container.get("volumeMounts", ()), key=lambda each: -len(each["mountPath"])):
        below = relpath(file, mount["mountPath"])
        if below.startswith(".."):
            continue
        path = mount.get("subPath", "") if below == "." else "/".join(filter(None, (mount.get("subPath"), below)))
        volume = volumes.get(mount["name"], {})
        for source in (volume, *volume.get("projected", {}).get("sources", ())):
            if "configMap" not in source:
                continue
            keys = {item["path"]: item["key"] for item in source["configMap"].get("items") or ()}
            if not keys or path in keys:
                return source["configMap"]["name"], keys.get(path, path)
        return None
    return None


def _of_node(node: Json) -> Iterator[FoundScheduler]:
    """Yield the scheduler of a server of K3s; that of RKE2 is a static pod."""
    name = node["metadata"]["name"]
    text = (node["metadata"].get("annotations") or {}).get(NODE_ARGUMENTS)
    try:
        arguments = json.loads(text) if text else []
    except ValueError:
        return
    if not isinstance(arguments, list) or arguments[:1] != ["server"]:
        return
    given = [f"--{value}" for value in _values(list(map(str, arguments)), SCHEDULER_ARGUMENT)]
    flags = flags_of(given)
    yield FoundScheduler(f"K3s on node {name}", name, flags.get(CONFIG, ""), flags.get(GATES, ""))


def _values(arguments: list[str], flag: str) -> Iterator[str]:
    for i, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == flag and equals:
            yield value
        elif argument == flag and i + 1 < len(arguments):
            yield arguments[i + 1]


def _arguments(container: Json) -> list[str]:
    return [*map(str, container.get("command") or ()), *map(str, container.get("args") or ())]


async def _listed(client: Client, path: str, query: dict[str, str] | None = None) -> list[Json]:
    try:
        return [msgspec.json.decode(each) for each in (await client.list(path, query)).items]
    except ApiError as error:
        if error.status not in REFUSALS:
            raise
        return []


async def _config_map(client: Client, namespace: str, name: str) -> Mapping[str, Any]:
    try:
        found = await client.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}")
    except ApiError as error:
        if error.status not in REFUSALS:
            raise
        return {}
    return found.get("data") or {}
