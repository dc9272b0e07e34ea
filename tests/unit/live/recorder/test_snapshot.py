"""`workload snapshot`: what the cluster is as a workload, nothing secret in it, and without names if asked for."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.errors import raises
from tests.support.nightly import examples
from tests.support.servers.fake_api_server import failing
from tests.support.servers.live_cluster import NODES, PODS, LiveDouble, node, on_double, pod, with_double
from tests.unit.cluster.constraints import test_inter_pod

from steersman.cluster.model import Node, Pod, PodClass, Requests, Requirement
from steersman.cluster.state import ClusterState
from steersman.core.errors import InputError, SteersmanError
from steersman.kubernetes.client import Client
from steersman.live.recorder import snapshot
from steersman.live.recorder.snapshot import anonymised
from steersman.live.runtime.listing import read_nodes
from steersman.orders.order import recurring_owner
from steersman.workloads.loading import load_workload
from steersman.workloads.workload import RunningPods, SpreadSelectors, Workload

SETS = "/apis/apps/v1/namespaces/default/statefulsets"
SYSTEM = PODS.replace("default", "kube-system")
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def full(double: LiveDouble) -> None:
    """A cluster with all that there is."""
    double.bind_after = None
    gpu = node("gpu-node", zone="a")
    gpu["status"]["allocatable"] |= {"alibabacloud.com/gpu-count": "2", "alibabacloud.com/gpu-milli": "2000"}
    gpu["metadata"] |= {
        "labels": {"alibabacloud.com/gpu-card-model": "A", "zone": "a"},
        "annotations": {"secret": "s1"},
    }
    gpu["spec"] = {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}
    gpu["status"] |= {"nodeInfo": {"machineID": "secret-2"}}
    double.put(NODES, gpu)
    double.put(NODES, node("plain"))
    late = pod("late", on="plain", app="web")
    late["metadata"]["creationTimestamp"] = "2024-05-01T12:00:30Z"
    late["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "web", "controller": True}]
    double.put(PODS, late)
    double.put(PODS, pod("waits", app="web"))
    held = pod("held", on="gpu-node")
    held["metadata"]["annotations"] = {
        "alibabacloud.com/gpu-count": "1",
        "alibabacloud.com/gpu-milli": "500",
        "alibabacloud.com/gpu-index": "1",
        "secret": "s3",
    }
    container = held["spec"]["containers"][0]
    container |= {"env": [{"name": "PASSWORD", "value": "secret-4"}], "args": ["--token=secret-5"]}
    held["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": "secret-6"}}]
    double.put(PODS, held)
    mirror = pod("static", on="plain")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    double.put(SYSTEM, mirror)
    double.put(PODS, {**pod("done", on="plain"), "status": {"phase": "Succeeded"}})
    services = "/api/v1/namespaces/default/services"
    double.put(services, {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}}})
    double.put(services, {"metadata": {"name": "nobody"}, "spec": {"selector": {"app": "gone"}}})
    double.put(
        "/apis/apps/v1/namespaces/default/replicasets",
        {
            "metadata": {"name": "other"},
            "spec": {"replicas": 9, "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {}}},
        },
    )
    expression = {"key": "app", "operator": "In", "values": ["web", "shop"]}
    for name, more in (("some", expression), ("none", expression | {"values": ["shop"]})):
        selector = {"matchExpressions": [more]}
        double.put(SETS, {"metadata": {"name": name}, "spec": {"replicas": 1, "selector": selector}})


def taken(output: Path, *, free: bool = False, anonymise: bool = False) -> Workload:
    """What a snapshot reads back as."""

    async def test(double: LiveDouble, client: Client) -> None:
        full(double)
        found = await snapshot.take_snapshot(client, "mine", free=free)
        snapshot.write_snapshot(anonymised(found, await snapshot.identity(client)) if anonymise else found, output)

    on_double(test)
    return load_workload(output, output, running=RunningPods.AS_WRITTEN)


@pytest.mark.parametrize("name", ["mine.yaml", "mine"])
def test_a_snapshot_reads_back_as_the_cluster(tmp_path, name):
    found = taken(tmp_path / name)
    assert [node.name for node in found.nodes] == ["gpu-node", "plain"]
    assert (found.nodes[0].gpu_count, found.nodes[0].gpu_model, found.nodes[0].taints[0].key) == (2, "A", "gpu")
    # Those that run come first, in the order of their creation.
    assert [pod.name for pod in found.pods] == ["held", "static", "late", "waits"]
    assert [pod.constraints.node_name for pod in found.pods] == ["gpu-node", "plain", "plain", ""]
    assert [pod.creation_time for pod in found.pods] == [0.0, 0.0, 30.0, 0.0]
    assert (found.pods[0].gpu_devices, found.pods[0].requests.gpu_milli) == ((1,), 500)
    assert (found.pods[2].owner, found.pods[2].labels) == ("ReplicaSet/web", {"app": "web"})
    assert found.services == SpreadSelectors(
        (("default", (("app", "web"),)),), (("default", (Requirement("app", "In", ("shop", "web")),)),)
    )


@with_double
async def test_resource_slice_devices_count(double: LiveDouble, client: Client) -> None:
    full(double)
    waiting = pod("by-class")
    implicit = "deviceclass.resource.kubernetes.io/gpu"
    waiting["spec"]["containers"][0]["resources"] = {"limits": {implicit: "1"}}
    double.put(PODS, waiting)
    api = "/apis/resource.k8s.io/v1"
    double.put(
        f"{api}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "nvidia.com/gpu"}}
    )
    spec = {
        "driver": "gpu.example.com",
        "nodeName": "plain",
        "pool": {"name": "plain", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
    }
    double.put(f"{api}/resourceslices", {"metadata": {"name": "plain"}, "spec": spec})
    found = await snapshot.take_snapshot(client, "mine")
    assert {each.name: each.gpu_count for each in found.nodes} == {"gpu-node": 2, "plain": 2}
    (by_class,) = (each for each in found.pods if each.name == "by-class")
    assert (by_class.requests.gpu_count, by_class.requests.gpu_resource) == (1, "nvidia.com/gpu")
    assert by_class.constraints.node_features == found.nodes[1].features == (implicit,)


@with_double
async def test_disruption_budgets_are_read_where_they_may_be(double: LiveDouble, client: Client) -> None:
    full(double)
    spec, status = {"selector": {"matchLabels": {"app": "web"}}}, {"disruptionsAllowed": 2}
    double.put(BUDGETS, {"metadata": {"name": "web"}, "spec": spec, "status": status})
    assert (await snapshot.take_snapshot(client, "mine")).budgets == ()
    (budget,) = (await snapshot.take_snapshot(client, "mine", budgets=True)).budgets
    assert (budget.namespace, budget.name, budget.allowed) == ("default", "web", 2)
    double.fault = failing(403, "poddisruptionbudgets")
    found = await snapshot.take_snapshot(client, "mine", budgets=True)
    assert found.budgets == ()
    assert found.warnings[-1].startswith("no permission to list PodDisruptionBudgets; whom kube-scheduler preempts")


@with_double
async def test_invalid_objects_are_skipped_with_a_warning(double: LiveDouble, client: Client) -> None:
    full(double)
    double.put(NODES, node("odd", cpu="much"))
    for name in ("odd", "strange"):
        bad = pod(name)
        bad["metadata"]["annotations"] = {"alibabacloud.com/gpu-count": "many"}
        double.put(SYSTEM, bad)
    found = await snapshot.take_snapshot(client, "mine")
    assert [each.name for each in found.nodes] == ["gpu-node", "plain"]
    assert len(found.pods) == 4
    nodes, pods, *_ = found.warnings
    assert nodes.startswith("1 nodes make no sense and are left out: the cluster, Node odd, status.")
    assert pods.startswith("2 pods make no sense and are left out: such as the cluster, Pod kube-system/odd, ")
    assert "gpu-count" in pods


def test_snapshot_contains_no_secrets(tmp_path):
    taken(tmp_path / "mine.yaml")
    text = (tmp_path / "mine.yaml").read_text()
    for secret in ("secret", "s1", "s3", "PASSWORD", "token", "uid-"):
        assert secret not in text


def test_freed_snapshot_unbinds_all_but_static_pods(tmp_path):
    found = taken(tmp_path / "mine.yaml", free=True)
    assert [(pod.name, pod.constraints.node_name) for pod in found.pods] == [
        ("held", ""),
        ("static", "plain"),
        ("late", ""),
        ("waits", ""),
    ]
    assert found.pods[0].gpu_devices == ()


def test_names_can_be_anonymised(tmp_path):
    found = taken(tmp_path / "mine.yaml", anonymise=True)
    text = (tmp_path / "mine.yaml").read_text()
    for name in ("gpu-node", "plain", "held", "waits", "kube-system", "web", "busybox", "default"):
        assert name not in text
    again = taken(tmp_path / "again.yaml", anonymise=True)
    assert (again.nodes, again.pods) == (found.nodes, found.pods)
    assert (found.nodes[0].gpu_model, found.pods[0].constraints.node_name) == ("A", found.nodes[0].name)
    ((namespace, selected),) = found.services.selectors
    assert (namespace, dict(selected)) == (found.pods[2].namespace, found.pods[2].labels)
    ((_, (requirement,)),) = found.services.expressions
    assert found.pods[2].labels["app"] in requirement.values


def test_anonymised_owners_stay_owners():
    """Runs of a CronJob are those of one owner still; an annotation may name an owner without a kind."""
    owners = ("Job/backup-29384720", "Job/backup-29384721", "Job/other-7", "team", "")
    pods = tuple(Pod(f"p{i}", PodClass(Requests(100)), owner=owner) for i, owner in enumerate(owners))
    found = anonymised(Workload("w", (Node("n", 1000, 1 << 30),), pods), "secret").pods
    first, second, other, team, nobody = (recurring_owner(each.owner) for each in found)
    assert first == second != other
    assert found[0].owner != found[1].owner
    assert team not in ("", "team")
    assert nobody == ""


@given(st.data())
@settings(max_examples=examples(25))
def test_anonymised_constraints_are_equivalent(data):
    nodes = [data.draw(test_inter_pod.nodes(name)) for name in test_inter_pod.NAMES[: data.draw(st.integers(1, 5))]]
    pods = [data.draw(test_inter_pod.pods(f"p{i}")) for i in range(data.draw(st.integers(1, 6)))]
    workload = Workload("w", tuple(nodes), tuple(pods))
    masked = anonymised(workload, "key")
    one, other = ClusterState(workload.nodes), ClusterState(masked.nodes)
    for plain, hidden in zip(workload.pods, masked.pods, strict=True):
        ids = [(state.class_id(p.pod_class), state.labels_id(p)) for state, p in ((one, plain), (other, hidden))]
        here, there = one.mask(*ids[0]), other.mask(*ids[1])
        assert here.tolist() == there.tolist()
        if here.any():
            slot = data.draw(st.sampled_from(here.nonzero()[0].tolist()))
            one.place(plain.name, ids[0][0], slot, labels_id=ids[0][1])
            other.place(hidden.name, ids[1][0], slot, labels_id=ids[1][1])
    assert anonymised(workload, "key") == masked
    assert anonymised(workload, "another").nodes[0].name != masked.nodes[0].name


@with_double
async def test_missing_permissions_are_reported_and_an_empty_cluster_rejected(
    double: LiveDouble, client: Client, tmp_path
):
    with raises(SteersmanError):
        await snapshot.take_snapshot(client, "mine")
    with raises(SteersmanError):
        await read_nodes(client)
    double.put(NODES, node("n"))
    with raises(SteersmanError):
        await snapshot.take_snapshot(client, "mine")
    full(double)
    double.fault = failing(403, "statefulsets")
    found = await snapshot.take_snapshot(client, "mine")
    assert "no permission to list StatefulSets; default topology spread does not know theirs" in found.warnings
    with raises(InputError, "cluster.yaml"):
        snapshot.write_snapshot(found, tmp_path / "mine.csv")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text(json.dumps({}))
    with raises(InputError):
        snapshot.write_snapshot(found, tmp_path / "mine")
    assert not (tmp_path / "mine.csv").exists()
