"""KWOK's controller for a cluster that exists: as a Deployment in it, or as a process of this machine.

It keeps nodes with the annotation `kwok.x-k8s.io/node: fake` ready and lets their pods run; all other nodes and pods
are left alone. It reads its rules from a file, so no custom resources are needed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from steersman.cluster.objects.manifests import Manifest
from steersman.core.atomic_files import replacing
from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import Client
from steersman.kubernetes.config import KubeConfig
from steersman.live.local_cluster.control_plane import servers
from steersman.live.local_cluster.control_plane.servers import stages
from steersman.live.local_cluster.nodes import KWOK_KEY
from steersman.live.local_cluster.record import state_root
from steersman.live.runtime.tasks import get_if_exists

NAME, NAMESPACE = "kwok-controller", "kube-system"
MANAGED_BY = {"app.kubernetes.io/managed-by": "steersman"}
PORT, LEASE_SECONDS = 10247, 40
ARGUMENTS = (
    f"--manage-nodes-with-annotation-selector={KWOK_KEY}=fake",
    f"--disregard-status-with-annotation-selector={servers.UNPLAYED}",
    f"--node-lease-duration-seconds={LEASE_SECONDS}",
    "--v=WARN",  # else every renewal of a lease is a line
)
ROLE_RULES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("", ("events",), ("create", "delete", "get", "list", "patch", "update", "watch")),
    ("", ("nodes",), ("get", "list", "watch")),
    ("", ("nodes/status", "pods/status"), ("patch", "update")),
    ("", ("pods",), ("delete", "get", "list", "patch", "update", "watch")),
    ("coordination.k8s.io", ("leases",), ("create", "get", "list", "patch", "update", "watch")),
)
"""What the controller may do, as in KWOK's own role without its custom resources: group, resources, verbs."""
RBAC = "/apis/rbac.authorization.k8s.io/v1"
COLLECTIONS = {
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "ConfigMap": f"/api/v1/namespaces/{NAMESPACE}/configmaps",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Deployment": f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
}
"""Where the objects of `manifests` are created, in this order."""
PROBE_SECONDS, STARTED_SECONDS, STOP_SECONDS = 10, 2.0, 10.0
PID, KUBECONFIG, LOG, STAGES = "kwok.pid", "kubeconfig", "kwok.log", "stages.yaml"
STAGES_FOLDER = "/etc/kwok"


def manifests(image: str) -> list[Manifest]:
    """Return the objects of the controller: service account, rules, role, binding and Deployment."""
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    rules = [
        {"apiGroups": [group], "resources": list(kinds), "verbs": list(verbs)} for group, kinds, verbs in ROLE_RULES
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME}
    probe = {"httpGet": {"path": "/healthz", "port": PORT}, "periodSeconds": PROBE_SECONDS}
    container = {
        "name": NAME,
        "image": image,
        "args": [
            f"--config={STAGES_FOLDER}/{STAGES}",
            *ARGUMENTS,
            "--node-ip=$(POD_IP)",
            f"--server-address=0.0.0.0:{PORT}",
        ],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "livenessProbe": {**probe, "failureThreshold": 6},
        "readinessProbe": probe,
        "volumeMounts": [{"name": "stages", "mountPath": STAGES_FOLDER, "readOnly": True}],
    }
    labels = {"app": NAME}
    # It must not land on a node that it simulates itself.
    real = [{"matchExpressions": [{"key": "type", "operator": "NotIn", "values": ["kwok"]}]}]
    pod = {
        "serviceAccountName": NAME,
        "containers": [container],
        "volumes": [{"name": "stages", "configMap": {"name": NAME}}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": real}}},
    }
    template = {"metadata": {"labels": {**labels, **MANAGED_BY}}, "spec": pod}
    deployment = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return [
        _object("v1", "ServiceAccount"),
        _object("v1", "ConfigMap", data={STAGES: stages()}),
        _object("rbac.authorization.k8s.io/v1", "ClusterRole", rules=rules),
        _object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", roleRef=role, subjects=[subject]),
        _object("apps/v1", "Deployment", spec=deployment),
    ]


def _object(version: str, kind: str, **content: Any) -> Manifest:
    namespaced = {"namespace": NAMESPACE} if "/namespaces/" in COLLECTIONS[kind] else {}
    metadata = {"name": NAME, **namespaced, "labels": {"app": NAME, **MANAGED_BY}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}


async def install(client: Client, image: str) -> int:
    """Create the objects of the controller, or replace those of an earlier installation; return their number.

    Raises:
        SteersmanError: an object of that name is somebody else's; nothing was changed.
        ApiError: the API server refuses an object.
    """
    objects = manifests(image)
    existing = [await get_if_exists(client, f"{COLLECTIONS[each['kind']]}/{NAME}") for each in objects]
    for found, each in zip(existing, objects, strict=True):
        if found is not None and not _is_ours(found):
            raise SteersmanError(
                f"{each['kind']} {NAME} is there already, and steersman did not create it; KWOK may run in this cluster"
            )
    for found, each in zip(existing, objects, strict=True):
        collection = COLLECTIONS[each["kind"]]
        if found is None:
            await client.create(collection, each)
        else:
            # roleRef is immutable.
            await client.patch(f"{collection}/{NAME}", {key: each[key] for key in each if key != "roleRef"})
    return len(objects)


async def remove(client: Client) -> int:
    """Delete the objects that `install` created, and return their number."""
    count = 0
    # The Deployment first, since it uses all others.
    for kind in reversed(COLLECTIONS):
        found = await get_if_exists(client, f"{COLLECTIONS[kind]}/{NAME}")
        if found is not None and _is_ours(found):
            await client.delete(f"{COLLECTIONS[kind]}/{NAME}")
            count += 1
    return count


def _is_ours(found: Mapping[str, Any]) -> bool:
    labels = found["metadata"].get("labels") or {}
    return MANAGED_BY.items() <= labels.items()


# As a process ---------------------------------------------------------------------------------------------------------

_started: list[subprocess.Popen[bytes]] = []
"""Processes that are meant to outlive this one; Python warns of those that nothing refers to."""


def folder_of(config: KubeConfig) -> Path:
    """Return the folder of the process for a cluster."""
    digest = hashlib.sha256(f"{config.cluster.server}\n{config.context}".encode()).hexdigest()[:16]
    return state_root() / "kwok" / digest


def start(config: KubeConfig, program: Path) -> Path:
    """Start the controller as a process that goes on when this one ends; return its log file."""
    folder = folder_of(config)
    if is_running(config):
        raise SteersmanError(f"KWOK runs for {config.cluster.server} already (process {_pid(folder)})")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    kubeconfig, log = folder / KUBECONFIG, folder / LOG
    with replacing(kubeconfig) as part:
        # Before the credentials are written, so that they are never readable for others.
        part.touch(mode=0o600)
        part.write_bytes(msgspec.json.encode(_kubeconfig(config)))  # JSON is YAML
    (folder / STAGES).write_text(stages(), encoding="utf-8")
    command = [str(program), f"--kubeconfig={kubeconfig}", f"--config={folder / STAGES}", *ARGUMENTS]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    (folder / PID).write_text(str(process.pid), encoding="ascii")
    _started.append(process)
    try:
        # A wrong argument or kubeconfig ends it within this time.
        process.wait(STARTED_SECONDS)
    except subprocess.TimeoutExpired:
        return log
    raise servers.failure("KWOK's controller did not start", log, folder)


def stop(config: KubeConfig, kill: Callable[[int, int], None] = os.kill) -> bool:
    """Stop the process for a cluster; return False if there is none. Raises SteersmanError: it does not end."""
    folder, until = folder_of(config), time.monotonic() + STOP_SECONDS
    if not is_running(config):
        return False
    while is_running(config):
        if time.monotonic() > until:
            raise SteersmanError(f"KWOK's controller does not end (process {_pid(folder)})")
        kill(_pid(folder), 15)
        time.sleep(0.1)
    for name in (PID, KUBECONFIG):
        (folder / name).unlink(missing_ok=True)
    return True


def is_running(config: KubeConfig) -> bool:
    """Return whether the process for a cluster runs: a process of its recorded id was started with its files."""
    folder = folder_of(config)
    pid = _pid(folder)
    return pid > 0 and f"{folder}{os.sep}" in servers.command_line(pid)


def _pid(folder: Path) -> int:
    try:
        return int((folder / PID).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def _kubeconfig(config: KubeConfig) -> dict[str, Any]:
    def filled(part: Any) -> dict[str, Any]:
        content: dict[str, Any] = msgspec.to_builtins(part)
        return {key: value for key, value in content.items() if value not in ("", None, False)}

    name = "cluster"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": filled(config.cluster)}],
        "users": [{"name": name, "user": filled(config.user)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
