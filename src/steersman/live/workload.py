"""Read the workload of a live cluster: the objects that `kubectl get` would dump, listed through the API."""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from steersman.errors import InputError
from steersman.kube.client import ApiError, Client
from steersman.kube.needed import REFUSALS
from steersman.kube.selectors import SELECTING
from steersman.live.reading import ALL_PODS, NODES, documents, example, understood
from steersman.workloads.loading import workload_of_objects
from steersman.workloads.workload import Running, Workload
from steersman.workloads.yamlfile import Document


class Resource(NamedTuple):
    """A kind of objects that says what runs in a cluster.

    Attributes:
        kind, version: of the objects.
        path: of their collection, over all namespaces.
    """

    kind: str
    version: str
    path: str

    @property
    def name(self) -> str:
        """The plural as rights and kubectl spell it, such as `deployments`."""
        return self.path.rpartition("/")[2]


REQUIRED = (Resource("Node", "v1", NODES), Resource("Pod", "v1", ALL_PODS))
"""Without these there is no workload."""
OPTIONAL = (
    *(Resource(each.kind, each.version, each.path) for each in SELECTING),
    Resource("Deployment", "apps/v1", "/apis/apps/v1/deployments"),
    Resource("DaemonSet", "apps/v1", "/apis/apps/v1/daemonsets"),
    Resource("Job", "batch/v1", "/apis/batch/v1/jobs"),
    Resource("CronJob", "batch/v1", "/apis/batch/v1/cronjobs"),
    Resource("Namespace", "v1", "/api/v1/namespaces"),
    Resource("PriorityClass", "scheduling.k8s.io/v1", "/apis/scheduling.k8s.io/v1/priorityclasses"),
    Resource("PersistentVolumeClaim", "v1", "/api/v1/persistentvolumeclaims"),
    Resource("PodDisruptionBudget", "policy/v1", "/apis/policy/v1/poddisruptionbudgets"),
)
"""Left out with a warning where the API does not let us list them, or does not have them."""


async def read_workload(client: Client, name: str, running: Running = Running.FREE) -> Workload:
    """Return the workload that the objects of a cluster make, as `workloads.loading` makes it of the same objects.

    Nothing is written. Nodes and pods that make no sense are left out with a warning, kinds that may not be listed too.

    Args:
        client: of the cluster.
        name: of the workload, such as the name of the context.
        running: what becomes of pods that run.

    Raises:
        SteersmanError: nodes or pods may not be listed or there are none; a controller makes no sense.
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
            refused.append(resource.name)
    warnings = [f"no permission to list {', '.join(refused)}; they are left out"] if refused else []
    try:
        return workload_of_objects(name, [*chain(*required.values()), *others], warnings, running=running)
    except InputError:  # somebody's odd pod is no reason not to look at all others
        kept = {resource: understood(found) for resource, found in required.items()}
    for resource, each in kept.items():
        if each.problems:
            many = f"{len(each.problems)} {resource.name} make no sense and are left out"
            warnings.append(f"{many}: {example(each.problems)}")
    sound = [found.document for each in kept.values() for found in each.objects.objects]
    return workload_of_objects(name, [*sound, *others], warnings, running=running)


async def _list(client: Client, resource: Resource) -> list[Document]:
    return documents(await client.list(resource.path), resource.kind, resource.version)
