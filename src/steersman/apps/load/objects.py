"""API objects that a workload creates: Deployments of rows, pods of a trace, and the labels that mark them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from steersman.cluster.model import Pod
from steersman.cluster.objects.decoding import PLACEHOLDER_IMAGE
from steersman.cluster.objects.manifests import Manifest, pod_to_object
from steersman.core.errors import InputError
from steersman.workloads.generators.deployments import Row

DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
REPLICA_SETS = "/apis/apps/v1/namespaces/{}/replicasets"
PODS = "/api/v1/namespaces/{}/pods"
CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "steersman"
RUN = "steersman.dev/run"
"""Label with the id of the run that created an object."""
APP = "app"
"""Label with the name of a Deployment."""

IMAGE = "busybox"
SLEEP = ("sleep", "infinity")
NOTHING = ("true",)
"""Commands of containers and init containers."""

_POD_SETTINGS: Mapping[str, Any] = {
    "terminationGracePeriodSeconds": 0,  # `sleep` needs no graceful shutdown
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
}


def run_labels(run: str) -> dict[str, str]:
    """Return the labels of everything that a run creates."""
    return {MANAGED_BY: MANAGER, RUN: run}


def selector(run: str | None = None) -> str:
    """Return a label selector of everything that a run created; None: that any run created."""
    return f"{MANAGED_BY}={MANAGER},{RUN}" + ("" if run is None else f"={run}")


def deployment_object(
    row: Row, run: str, scheduler_name: str, image: str, annotations: Mapping[str, str] | None = None
) -> Manifest:
    """Return the apps/v1 Deployment of a row, with quantities spelled as in the row, and annotations of its pods."""
    labels = {APP: row.name, **run_labels(run)}
    resources = {
        "requests": {"cpu": row.cpu_request, "memory": row.mem_request},
        "limits": {"cpu": row.cpu_limit, "memory": row.mem_limit},
    }
    container = {"name": "main", "image": image, "command": list(SLEEP), "resources": resources}
    metadata = {"labels": labels} | ({"annotations": dict(annotations)} if annotations else {})
    spec = {"schedulerName": scheduler_name, **_POD_SETTINGS, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": row.name, "labels": labels},
        "spec": {
            "replicas": row.pod_count,
            "selector": {"matchLabels": {APP: row.name, RUN: run}},
            "template": {"metadata": metadata, "spec": spec},
        },
    }


def pod_object(pod: Pod, run: str, image: str, priority_class: str = "") -> Manifest:
    """Return the v1 Pod of a trace's pod, without its times: they decide when it is created and deleted."""
    # Priority 0: the API derives the number from the class, and refuses another one.
    result = pod_to_object(replace(pod, creation_time=None, deletion_time=None, priority=0))
    result["metadata"].setdefault("labels", {}).update(run_labels(run))
    spec: dict[str, Any] = result["spec"]
    for key, command in (("containers", SLEEP), ("initContainers", NOTHING)):
        for container in spec.get(key, ()):
            if container["image"] == PLACEHOLDER_IMAGE:
                container |= {"image": image, "command": list(command)}
    spec.update(_POD_SETTINGS)
    if priority_class:
        spec["priorityClassName"] = priority_class
    return result


def check_name(name: str, file: str, where: str) -> None:
    """Raise InputError if Kubernetes would refuse the name of a Deployment, which is also a label value."""
    if not re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name):
        raise InputError(file, where, "name", f"{name!r} is not a name: expected a-z, 0-9 and - inside, at most 63")
