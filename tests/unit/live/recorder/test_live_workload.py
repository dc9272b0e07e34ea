"""The workload of a live cluster is that of the same objects in a file, save what may not be listed, which is said."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.errors import raises
from tests.support.servers.fake_api_server import failing
from tests.support.servers.live_cluster import NODES, PODS, LiveDouble, node, pod, with_double

from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import ApiError, Client
from steersman.live.recorder.live_workload import OPTIONAL, REQUIRED, Resource, read_workload
from steersman.workloads.formats.yaml_documents import Document
from steersman.workloads.loading import load_workload, workload_of_objects
from steersman.workloads.workload import RunningPods

TEMPLATE = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {
        "priorityClassName": "urgent",
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}],
    },
}
ON_B = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]}
SELECTOR = {"matchLabels": {"app": "web"}}


def collection(resource: Resource) -> str:
    """Where objects of a kind are put that live in a namespace."""
    if resource.name in ("nodes", "persistentvolumes", "priorityclasses", "runtimeclasses", "storageclasses"):
        return resource.path
    return f"{resource.path.rpartition('/')[0]}/namespaces/default/{resource.name}"


def full(double: LiveDouble) -> None:
    """A cluster with an object of every kind, pods that run, wait and have finished."""
    double.bind_after = None
    for name in ("a", "b", "c"):
        double.put(NODES, node(name, zone=name))
    double.put(PODS, pod("runs", on="b", app="web"))
    waits = pod("waits", app="shop")
    waits["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "persistentvolumeclaim"}}]
    double.put(PODS, waits)
    double.put(PODS, {**pod("done", on="a"), "status": {"phase": "Succeeded"}})
    specs: dict[str, Any] = {
        "Service": {"selector": {"app": "web"}},
        "ReplicationController": {"replicas": 1, "selector": {"app": "web"}, "template": TEMPLATE},
        "ReplicaSet": {"replicas": 2, "selector": SELECTOR, "template": TEMPLATE},
        "StatefulSet": {"replicas": 3, "selector": SELECTOR, "template": TEMPLATE},
        "DaemonSet": {"selector": SELECTOR, "template": TEMPLATE},
        "Job": {"completions": 2, "template": TEMPLATE},
        "CronJob": {"schedule": "@daily", "jobTemplate": {"spec": {"template": TEMPLATE}}},
        "PersistentVolumeClaim": {"accessModes": ["ReadWriteOnce"], "volumeName": "persistentvolume"},
        "PersistentVolume": {"accessModes": ["ReadWriteOnce"], "nodeAffinity": {"required": ON_B}},
        "LimitRange": {"limits": []},
        "PodDisruptionBudget": {"minAvailable": 1, "selector": SELECTOR},
    }
    for resource in OPTIONAL:
        if resource.kind in specs:
            double.put(
                collection(resource), {"metadata": {"name": resource.kind.lower()}, "spec": specs[resource.kind]}
            )
    double.put("/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": "fast"}, "provisioner": "x/disks"})
    double.put("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "urgent"}, "value": 7})


def dump(double: LiveDouble, file: Path) -> None:
    """What `kubectl get nodes,pods,... -A -o json` writes."""
    items = []
    for resource in (*REQUIRED, *OPTIONAL):
        for (path, _), found in double.objects.items():
            if path == collection(resource):
                items.append({"apiVersion": resource.version, "kind": resource.kind, **found})
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


@pytest.mark.parametrize("running", RunningPods)
@with_double
async def test_live_workload_equals_the_file_workload(
    double: LiveDouble, client: Client, tmp_path: Path, running: RunningPods
) -> None:
    full(double)
    dump(double, tmp_path / "prod.json")
    double.requests.clear()
    found = await read_workload(client, "prod", running)
    assert {method for method, _ in double.requests} == {"GET"}
    dumped = load_workload(tmp_path / "prod.json", tmp_path / "prod.json", running=running)
    assert (found.recorded, found.from_now, found.understood) == (dumped.recorded, dumped.from_now, dumped.understood)
    assert (" 1 running, " in found.understood) == (running is not RunningPods.REPLAYED)
    assert any(found.recorded) == (running not in (RunningPods.AS_WRITTEN, RunningPods.REPLAYED))
    assert (found.name, found.nodes, found.pods, found.services) == ("prod", dumped.nodes, dumped.pods, dumped.services)
    said = [warning.partition(": ")[2] for warning in found.warnings]
    assert said == [warning.partition(": ")[2] for warning in dumped.warnings]
    assert found.services.selectors
    (waits,) = [each for each in found.pods if each.name == "waits"]
    assert [nodes for _, nodes in waits.constraints.volume_refusals] == [("a", "c")]
    names = [each.name for each in found.pods]
    assert {"runs", "waits"} <= set(names)
    assert "done" not in names
    assert sum(name.startswith("daemonset") for name in names) == 3
    assert next(each.priority for each in found.pods if each.name.startswith("statefulset")) == 7


@pytest.mark.parametrize("status", [403, 404])
@with_double
async def test_forbidden_kinds_are_skipped_with_one_line(double: LiveDouble, client: Client, status: int) -> None:
    full(double)
    double.fault = failing(status, "daemonsets", "poddisruptionbudgets", "persistentvolumeclaims")
    found = await read_workload(client, "prod")
    (said,) = [warning for warning in found.warnings if "permission" in warning]
    assert said == (
        "prod: no permission to list daemonsets, persistentvolumeclaims, poddisruptionbudgets; they are left out"
    )
    assert not [each for each in found.pods if each.name.startswith("daemonset")]


@pytest.mark.parametrize("resource", REQUIRED)
@with_double
async def test_without_nodes_or_pods_there_is_no_workload(
    double: LiveDouble, client: Client, resource: Resource
) -> None:
    full(double)
    double.fault = failing(403, resource.path)
    with pytest.raises(ApiError, match=resource.path):
        await read_workload(client, "prod")


@with_double
async def test_empty_cluster_error_names_what_is_missing(double: LiveDouble, client: Client) -> None:
    with raises(SteersmanError):
        await read_workload(client, "prod")
    double.put(NODES, node("a"))
    with raises(SteersmanError):
        await read_workload(client, "prod")
    found = await read_workload(client, "prod", RunningPods.FROM_NOW, lives=True)
    assert (len(found.nodes), found.pods) == (1, ())


@with_double
async def test_invalid_pod_is_skipped_with_a_warning(double: LiveDouble, client: Client) -> None:
    full(double)
    bad = pod("odd")
    bad["metadata"]["annotations"] = {"alibabacloud.com/gpu-count": "many"}
    double.put(PODS, bad)
    found = await read_workload(client, "prod")
    assert "odd" not in [each.name for each in found.pods]
    assert found.warnings[0].startswith("prod: left out: the cluster, Pod default/odd, metadata.annotations")


def test_objects_of_any_origin_make_a_workload() -> None:
    documents = [Document({"apiVersion": "v1", "kind": "Node", **node("a")}, "here", "")]
    with raises(SteersmanError):
        workload_of_objects("mine", documents)
    documents.append(Document({"apiVersion": "v1", "kind": "Pod", **pod("p")}, "here", ""))
    found = workload_of_objects("mine", documents, ("read by hand",))
    assert (found.name, len(found.nodes), len(found.pods)) == ("mine", 1, 1)
    assert found.warnings == ("mine: read by hand",)
