"""API objects that a workload makes: Deployments of a row, pods of a trace; and what tells them from all others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from steersman.cluster.manifests import Manifest, pod_to_object
from steersman.cluster.model import Pod
from steersman.cluster.objects import PLACEHOLDER_IMAGE
from steersman.errors import InputError
from steersman.workloads.deployments import Row

DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
REPLICA_SETS = "/apis/apps/v1/namespaces/{}/replicasets"
PODS = "/api/v1/namespaces/{}/pods"
CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "steersman"
RUN = "steersman/run"
"""Label with the id of the run that made an object."""
APP = "app"
"""Label with the name of a Deployment."""

IMAGE = "busybox"
SLEEP = ("sleep", "infinity")
NOTHING = ("true",)
"""Commands of containers: of those that stay, and of those that end before."""

_POD_SETTINGS: Mapping[str, Any] = {
    "terminationGracePeriodSeconds": 0,  # `sleep` has nothing to bring to an end
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
}


def run_labels(run: str) -> dict[str, str]:
    """The labels of whatever a run makes."""
    return {MANAGED_BY: MANAGER, RUN: run}


def selector(run: str | None = None) -> str:
    """A label selector of all that a run made; None: that any run made."""
    return f"{MANAGED_BY}={MANAGER},{RUN}" + ("" if run is None else f"={run}")


def deployment_object(row: Row, run: str, scheduler_name: str, image: str) -> Manifest:
    """An apps/v1 Deployment of a row, whose quantities are spelt as there."""
    labels = {APP: row.name, **run_labels(run)}
    resources = {
        "requests": {"cpu": row.cpu_request, "memory": row.mem_request},
        "limits": {"cpu": row.cpu_limit, "memory": row.mem_limit},
    }
    container = {"name": "main", "image": image, "command": list(SLEEP), "resources": resources}
    spec = {"schedulerName": scheduler_name, **_POD_SETTINGS, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": row.name, "labels": labels},
        "spec": {
            "replicas": row.pod_count,
            "selector": {"matchLabels": {APP: row.name, RUN: run}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def pod_object(pod: Pod, run: str, image: str, priority_class: str = "") -> Manifest:
    """A v1 Pod of a trace. Its times are not in it: they are when it is created and deleted."""
    found = pod_to_object(replace(pod, creation_time=None, deletion_time=None, priority=0))
    found["metadata"].setdefault("labels", {}).update(run_labels(run))
    spec: dict[str, Any] = found["spec"]
    for key, command in (("containers", SLEEP), ("initContainers", NOTHING)):
        for container in spec.get(key, ()):
            if container["image"] == PLACEHOLDER_IMAGE:
                container |= {"image": image, "command": list(command)}
    spec.update(_POD_SETTINGS)
    if priority_class:
        spec["priorityClassName"] = priority_class
    return found


def check_name(name: str, file: str, where: str) -> None:
    """Raise InputError if Kubernetes would refuse the name of a Deployment, which is a label's value, too."""
    if not re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name):
        raise InputError(file, where, "name", f"{name!r} is no name: a-z, 0-9 and - inside, at most 63, are right")
