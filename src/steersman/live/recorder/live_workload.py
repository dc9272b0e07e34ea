"""Read the workload of a live cluster: the objects that `kubectl get` would dump, listed through the API."""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from steersman.kubernetes.client import MISSING, ApiError, Client
from steersman.kubernetes.selectors import SELECTING
from steersman.kubernetes.watch import REFUSALS
from steersman.live.runtime.listing import ALL_PODS, NODES, documents
from steersman.workloads.formats.yaml_documents import Document
from steersman.workloads.loading import workload_of_objects
from steersman.workloads.workload import RunningPods, Workload


class Resource(NamedTuple):
    """Kind of objects that belongs to a workload."""

    kind: str
    version: str
    path: str

    @property
    def name(self) -> str:
        """Plural as in RBAC rules and kubectl, such as `deployments`."""
        return self.path.rpartition("/")[2]


REQUIRED = (Resource("Node", "v1", NODES), Resource("Pod", "v1", ALL_PODS))  # kinds without which there is no workload
OPTIONAL = (
    *(Resource(each.kind, each.version, each.path) for each in SELECTING),
    Resource("Deployment", "apps/v1", "/apis/apps/v1/deployments"),
    Resource("DaemonSet", "apps/v1", "/apis/apps/v1/daemonsets"),
    Resource("Job", "batch/v1", "/apis/batch/v1/jobs"),
    Resource("CronJob", "batch/v1", "/apis/batch/v1/cronjobs"),
    Resource("Namespace", "v1", "/api/v1/namespaces"),
    Resource("LimitRange", "v1", "/api/v1/limitranges"),
    Resource("RuntimeClass", "node.k8s.io/v1", "/apis/node.k8s.io/v1/runtimeclasses"),
    Resource("PriorityClass", "scheduling.k8s.io/v1", "/apis/scheduling.k8s.io/v1/priorityclasses"),
    Resource("DeviceClass", "resource.k8s.io/v1", "/apis/resource.k8s.io/v1/deviceclasses"),
    Resource("ResourceSlice", "resource.k8s.io/v1", "/apis/resource.k8s.io/v1/resourceslices"),
    Resource("ResourceClaim", "resource.k8s.io/v1", "/apis/resource.k8s.io/v1/resourceclaims"),
    Resource("PersistentVolumeClaim", "v1", "/api/v1/persistentvolumeclaims"),
    Resource("PersistentVolume", "v1", "/api/v1/persistentvolumes"),
    Resource("StorageClass", "storage.k8s.io/v1", "/apis/storage.k8s.io/v1/storageclasses"),
    Resource("PodDisruptionBudget", "policy/v1", "/apis/policy/v1/poddisruptionbudgets"),
)
"""Kinds left out with a warning where the API refuses to list them, or does not have them."""
SINCE_134 = ("resource.k8s.io/v1",)
"""API versions that older clusters do not have, so that they cannot have such objects either."""


async def read_workload(
    client: Client, name: str, running: RunningPods = RunningPods.FREE, *, lives: bool = False
) -> Workload:
    """Return the workload of a cluster's objects, as `workloads.loading` makes it of the same objects.

    Nothing is written. Invalid objects are left out with a warning, as are kinds that may not be listed.
    """
    required = {resource: await _list(client, resource) for resource in REQUIRED}
    others: list[Document] = []
    refused = []
    for resource in OPTIONAL:
        try:
            others += await _list(client, resource)
        except ApiError as error:
            if error.status not in REFUSALS:
                raise
            if error.status != MISSING or resource.version not in SINCE_134:
                refused.append(resource.name)
    warnings = [f"no permission to list {', '.join(refused)}; they are left out"] if refused else []
    return workload_of_objects(name, [*chain(*required.values()), *others], warnings, running=running, lives=lives)


async def _list(client: Client, resource: Resource) -> list[Document]:
    return documents(await client.list(resource.path), resource.kind, resource.version)
