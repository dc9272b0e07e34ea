"""GPUs of two vendors, 80 replicas of one, and shares on a real control plane: pods get those that they ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import NODES, LocalCluster, until
from tests.e2e.scheduler.test_schedule import bound, create, events, pods, scheduling

from steersman.cluster.model import GPU_RESOURCES, SHARED_GPUS, Pod, PodClass, Requests
from steersman.cluster.objects.gpus import GPU_INDEX_KEY
from steersman.cluster.objects.manifests import node_to_object, pod_to_object
from steersman.live.local_cluster.nodes import parse_shape, prepared
from steersman.workloads.loading import load_workload

pytestmark = pytest.mark.e2e

NVIDIA, AMD = "nvidia.com/gpu", "amd.com/gpu"
SHAPES = {
    "nvidia": f"64cpu,256Gi,8{NVIDIA}:A100",
    "amd": f"64cpu,256Gi,8{AMD}:MI300X",
    "replicas": f"64cpu,256Gi,80{NVIDIA}",
    "shared": "64cpu,256Gi,2gpu:T4",
}
OFFERED = {"nvidia": {NVIDIA}, "amd": {AMD}, "replicas": {NVIDIA}, "shared": {SHARED_GPUS}}


def wanting(name: str, resource: str, count: int, milli: int = 1000, scheduler: str = "steersman") -> Pod:
    requests = Requests(100, 1 << 28, gpu_count=count, gpu_milli=milli, gpu_resource=resource)
    return Pod(name, PodClass(requests), scheduler_name=scheduler)


def all_pods(scheduler: str = "steersman") -> list[Pod]:
    """Pods for exactly all GPUs, and one of each kind too many."""
    found = [wanting(f"nvidia-{i}", NVIDIA, 8, scheduler=scheduler) for i in range(12)]
    found += [wanting(f"amd-{i}", AMD, 4, scheduler=scheduler) for i in range(3)]
    if scheduler == "steersman":  # nobody else knows of shares here
        found += [wanting(f"share-{i}", SHARED_GPUS, 1, 500) for i in range(5)]
    return found


@pytest.fixture
def vendors(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """A cluster with nodes of each kind beside those without GPUs."""
    nodes = prepared([parse_shape(shape).node(name) for name, shape in SHAPES.items()])
    objects = [node_to_object(node) for node in nodes]
    for each in objects:
        each["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
    create(cluster, *objects)
    try:
        yield cluster
    finally:
        cluster.must("cluster", "clean", "--name", cluster.name)
        cluster.kubectl("delete", "node", *SHAPES)


def on_nodes(cluster: LocalCluster, wanted: Sequence[Pod]) -> Counter[tuple[str, str]]:
    """GPU milli by node and name, of the pods that are bound; each must be where it belongs."""
    requests = {pod.name: pod.requests for pod in wanted}
    found: Counter[tuple[str, str]] = Counter()
    for name, node in bound(cluster).items():
        assert requests[name].gpu_resource in OFFERED[node], (name, node)
        found[node, requests[name].gpu_resource] += requests[name].gpu_total_milli
    return found


ALL = {("nvidia", NVIDIA): 8000, ("replicas", NVIDIA): 80_000, ("amd", AMD): 8000, ("shared", SHARED_GPUS): 2000}


@pytest.mark.parametrize("policy", ["steersman", "fgd"])
def test_pods_are_bound_where_their_gpus_are(vendors: LocalCluster, tmp_path: Path, policy: str) -> None:
    wanted = all_pods()
    with scheduling(vendors, tmp_path, "--policy", policy):
        create(vendors, *map(pod_to_object, wanted))
        until(lambda: len(bound(vendors)) == 17)
        until(lambda: len(events(vendors, "FailedScheduling")) == 3)
        assert on_nodes(vendors, wanted) == ALL
        nodes = NODES + len(SHAPES)
        notes = {name.partition("-")[0]: note for name, note in events(vendors, "FailedScheduling").items()}
        assert notes == {
            "nvidia": f"0/{nodes} nodes are available: {nodes} Insufficient {NVIDIA}. "
            f"2 nodes offer {SHARED_GPUS} and {AMD}, not {NVIDIA}.",
            "amd": f"0/{nodes} nodes are available: {nodes} Insufficient {AMD}. "
            f"3 nodes offer {SHARED_GPUS} and {NVIDIA}, not {AMD}.",
            "share": f"0/{nodes} nodes are available: {nodes} Insufficient GPU. "
            f"3 nodes offer {AMD} and {NVIDIA}, not {SHARED_GPUS}.",
        }
    for name, pod in pods(vendors).items():
        has_devices = GPU_INDEX_KEY in pod["metadata"].get("annotations", {})
        assert has_devices == (name.startswith("share") and name in bound(vendors))


def test_a_snapshot_keeps_names_so_that_kube_scheduler_places_its_pods_alike(
    vendors: LocalCluster, tmp_path: Path
) -> None:
    create(vendors, *(pod_to_object(pod) for pod in all_pods("nobody")))
    file = tmp_path / "snapshot.yaml"
    vendors.must("workload", "snapshot", "--name", vendors.name, "--output", str(file))
    kept = load_workload(file, file)
    offers = {node.name: set(node.gpu_resources) | node.counted_gpus.keys() for node in kept.nodes}
    assert {name: offers[name] for name in OFFERED} == OFFERED
    assert not any(offers[name] for name in offers.keys() - OFFERED.keys())
    vendors.must("cluster", "clean", "--name", vendors.name)
    again = [_for_kube_scheduler(pod) for pod in kept.pods]
    assert {name for pod in again for name in _asked(pod)} == {NVIDIA, AMD}
    create(vendors, *again)
    until(lambda: len(bound(vendors)) == 13)
    assert on_nodes(vendors, kept.pods) == {key: milli for key, milli in ALL.items() if key[1] != SHARED_GPUS}
    until(lambda: len(events(vendors, "FailedScheduling")) == 2)


def _for_kube_scheduler(pod: Pod) -> dict[str, Any]:
    written = pod_to_object(pod)
    written["spec"].pop("schedulerName", None)
    return written


def _asked(pod: dict[str, Any]) -> set[str]:
    """Names of GPUs in a pod's object."""
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    return (requests.keys() | pod["metadata"].get("annotations", {}).keys()) & GPU_RESOURCES
