"""Take a live cluster as a workload: what scheduling reads of its nodes, pods and Services, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from steersman.apps.runtime.decoding import ALL_PODS, NODES, decode_objects, documents, example
from steersman.apps.runtime.device_lists import list_device_offers
from steersman.cluster.constraints.node import holds
from steersman.cluster.model import Pod
from steersman.cluster.objects.api.decoding import valid_pod
from steersman.cluster.objects.api.pods import LivePod
from steersman.cluster.objects.manifests import Manifest, node_to_object, pod_to_object
from steersman.core.atomic_files import new_folder, replacing
from steersman.core.errors import InputError, SteersmanError
from steersman.kubernetes.client import ApiError, Client
from steersman.kubernetes.selectors import SELECTING
from steersman.kubernetes.watch import REFUSALS
from steersman.workloads.annotation_warnings import annotation_warnings
from steersman.workloads.files import YAML_SUFFIXES
from steersman.workloads.formats.kubernetes.devices import offer_warnings
from steersman.workloads.formats.kubernetes.objects import Objects, write_workload
from steersman.workloads.formats.kubernetes.spread_selectors import services_to_objects
from steersman.workloads.formats.yaml_documents import write_documents
from steersman.workloads.recorded import belongs_to_node
from steersman.workloads.workload import SpreadSelectors, Workload


async def take_snapshot(client: Client, name: str, *, free: bool = False) -> Workload:
    """Return the cluster as it is: running pods first, in order of creation, then waiting ones.

    Args:
        client: connection to the cluster.
        name: name of the workload.
        free: whether running pods lose their nodes; those of DaemonSets and static ones keep them.

    Raises:
        InputError: a Service or controller makes no sense.
        SteersmanError: the cluster has no nodes or no pods, or the API refuses to list them.
    """
    nodes = decode_objects(documents(await client.list(NODES), "Node"))
    listed = await client.list(ALL_PODS)
    there = decode_objects(documents(listed, "Pod"))
    odd = tuple(
        f"{len(found.problems)} {what} make no sense and are left out: {example(found.problems)}"
        for what, found in (("nodes", nodes), ("pods", there))
        if found.problems
    )
    if not nodes.nodes:
        raise SteersmanError("the cluster has no nodes")
    stored = {pod.key: pod for pod in map(valid_pod, listed.items)}
    pods = [_as_pod(pod, stored[f"{pod.namespace}/{pod.name}"], free=free) for pod in there.pods]
    start = min((pod.creation_time or 0.0 for pod in pods), default=0.0)
    pods = [replace(pod, creation_time=(pod.creation_time or start) - start) for pod in pods]
    pods.sort(key=lambda pod: (not stored[f"{pod.namespace}/{pod.name}"].node, pod.creation_time or 0.0))
    if not pods:
        raise SteersmanError("the cluster has no pods that have not finished")
    services, missing = await _services(client, pods)
    offers = await list_device_offers(client, {node.name for node in nodes.nodes})
    devices = offer_warnings(offers, pods)
    pods = [offers.pod(pod) for pod in pods]
    warnings = (*odd, *there.warnings, *missing, *devices, *annotation_warnings(pods))
    return Workload(name, tuple(map(offers.node, nodes.nodes)), tuple(pods), services, warnings)


async def identity(client: Client) -> str:
    """Return a secret that identifies the cluster for as long as it exists and is not written into snapshots."""
    value = await client.get("/api/v1/namespaces/kube-system")
    return str(value["metadata"]["uid"])


def is_file(output: Path) -> bool:
    """Return whether the name is that of a YAML file, else of a folder. Raises InputError: of neither."""
    if output.name.endswith((".yaml", ".yml")):
        return True
    if output.name.endswith((*YAML_SUFFIXES, ".csv", ".gz")):
        raise InputError(output, "", "", "is not the name of a YAML file or folder; expected one such as cluster.yaml")
    return False


def write_snapshot(workload: Workload, output: Path) -> None:
    """Write a workload: one file if the name ends like YAML, else a new folder of nodes, pods and services.

    Raises:
        InputError: it cannot be written, or the folder exists.
    """
    if is_file(output):
        with replacing(output) as part:
            write_documents(part, _objects(workload))
    else:
        with new_folder(output) as folder:
            write_workload(workload, folder)


def _objects(workload: Workload) -> Iterator[Manifest]:
    yield from map(node_to_object, workload.nodes)
    yield from services_to_objects(workload.services)
    yield from map(pod_to_object, workload.pods)


def _as_pod(pod: Pod, stored: LivePod, *, free: bool) -> Pod:
    created = datetime.fromisoformat(stored.metadata.creation_timestamp or "").timestamp()
    pod = replace(pod, creation_time=created, deletion_time=None)
    if not free or belongs_to_node(pod):
        return pod
    return replace(pod.unbound(), gpu_devices=())


async def _services(client: Client, pods: Sequence[Pod]) -> tuple[SpreadSelectors, tuple[str, ...]]:
    listed, refused = [], []
    for each in SELECTING:
        try:
            listed += documents(await client.list(each.path), each.kind, each.version)
        except ApiError as error:
            if error.status not in REFUSALS:
                raise
            refused.append(f"no permission to list {each.kind}s; default topology spread does not know theirs")
    labels: dict[str, list[Mapping[str, str]]] = {}
    for pod in pods:
        labels.setdefault(pod.namespace, []).append(pod.labels)
    everything = Objects(listed).services()
    by_labels = (
        each
        for each in everything.selectors
        if any(set(each[1]) <= set(there.items()) for there in labels.get(each[0], ()))
    )
    by_requirements = (
        each
        for each in everything.expressions
        if any(all(holds(one, there) for one in each[1]) for there in labels.get(each[0], ()))
    )
    return SpreadSelectors(tuple(by_labels), tuple(by_requirements)), tuple(refused)
