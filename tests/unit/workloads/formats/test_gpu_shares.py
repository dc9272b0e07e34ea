"""Shares of GPUs by other schedulers' annotations and resources, as files have them."""

import json
from typing import Any

import pytest
from tests.support.errors import raises
from tests.support.objects import node_from_object

import steersman
from steersman.cluster.objects.decoding import pod_from_object
from steersman.cluster.objects.gpus import GpuSharing, hami_register, share_milli
from steersman.cluster.objects.manifests import node_to_object, pod_to_object
from steersman.core.errors import InputError
from steersman.workloads.loading import load_workload

GPU = "nvidia.com/gpu"
COUNT = "alibabacloud.com/gpu-count"
MEM = "alibabacloud.com/gpu-mem"
REGISTER = "hami.io/node-nvidia-register"
HAMI = {REGISTER: "GPU-a,10,16000,100,T4,0,true:GPU-b,10,16000,100,T4,0,true:GPU-c,1,1,1,T4,0,false:"}
JSON = {REGISTER: json.dumps([{"id": "GPU-a", "count": 10, "devmem": 24000, "health": True}])}


def node(name="n", labels=None, annotations=None, **offered):
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110", **offered}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": allocatable}}


def pod(name="p", annotations=None, *containers, labels=None, namespace="default", **limits):
    resources = [{"limits": each} for each in containers] or [{"limits": limits}]
    spec = {"containers": [{"name": f"c{i}", "image": "x", "resources": each} for i, each in enumerate(resources)]}
    metadata = {"name": name, "annotations": annotations or {}, "labels": labels or {}, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture
def load(tmp_path):
    def load(*objects: dict[str, Any]):
        path = tmp_path / "case.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
        return load_workload(path, path)

    return load


def share(workload, i=0):
    requests = workload.pods[i].requests
    return requests.gpu_count, requests.gpu_milli, requests.gpu_resource


A100 = node(labels={f"{GPU}.memory": "40960"}, **{GPU: "2"})


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"gpu-fraction": "0.5"}, (1, 500, GPU)),
        ({"gpu-fraction": 0.25}, (1, 250, GPU)),
        ({"gpu-fraction": "0.3333333"}, (1, 333, GPU)),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}, (2, 500, GPU)),
        ({"gpu-memory": "20480"}, (1, 500, GPU)),
        ({"gpu-memory": "10240", "gpu-fraction-num-devices": "2"}, (2, 250, GPU)),
        ({MEM: "10Gi", COUNT: "1"}, (1, 250, COUNT)),
        ({MEM: "10Gi"}, (1, 250, COUNT)),
        ({MEM: "10Gi", COUNT: "2"}, (2, 250, COUNT)),
        ({MEM: "10Gi", COUNT: "2", "alibabacloud.com/gpu-milli": "300"}, (2, 300, COUNT)),
    ],
)
def test_annotations_set_the_gpu_share_of_a_pod(load, annotations, expected):
    assert share(load(A100, pod("p", annotations))) == expected


@pytest.mark.parametrize(
    ("annotations", "limits", "field"),
    [
        ({"gpu-fraction": "1.5"}, {}, "gpu-fraction"),
        ({"gpu-fraction": "x"}, {}, "gpu-fraction"),
        ({"gpu-fraction": "0"}, {}, "gpu-fraction"),
        ({"gpu-memory": "0.5"}, {}, "gpu-memory"),
        ({"gpu-fraction": "0.5", "gpu-memory": "1"}, {}, "gpu-memory"),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}, {}, "gpu-fraction-num-devices"),
        ({"gpu-fraction": "0.5"}, {GPU: "1"}, "containers"),
        ({MEM: "x"}, {}, MEM),
    ],
)
def test_shares_that_no_scheduler_would_take_are_rejected(annotations, limits, field):
    with raises(InputError, field):
        pod_from_object(pod("p", annotations, limits), sharing=GpuSharing())


def test_a_live_cluster_counts_what_kube_scheduler_counts():
    assert pod_from_object(pod("p", {"gpu-fraction": "0.5"})).requests.gpu_count == 0


@pytest.mark.parametrize("quantity", ["0.5", "500m", 0.5, "1500m"])
def test_fractions_of_extended_resources_are_rejected_as_the_api_server_does(quantity):
    with raises(InputError, GPU, "integer"):
        pod_from_object(pod("p", {}, {GPU: quantity}))
    assert pod_from_object(pod("p", {}, {GPU: "2000m"})).requests.gpu_count == 2


def test_a_request_of_an_extended_resource_is_its_limit():
    unequal = pod("p", {}, {GPU: "2"})
    unequal["spec"]["containers"][0]["resources"]["requests"] = {GPU: "1"}
    with raises(InputError, GPU, "requests"):
        pod_from_object(unequal)


def test_open_simulator_nodes_state_total_gpu_memory(load):
    shared = node(**{COUNT: "2", MEM: "32560Mi"})
    assert share(load(shared, pod("p", {MEM: "4000Mi", COUNT: "1"}))) == (1, 246, COUNT)


@pytest.mark.parametrize(
    ("register", "containers", "expected"),
    [
        (HAMI, [{GPU: 1, f"{GPU}mem": 4000, f"{GPU}cores": 30}], (1, 300, GPU)),
        (HAMI, [{GPU: 1, f"{GPU}mem": 8000}], (1, 500, GPU)),
        (HAMI, [{GPU: 1, f"{GPU}mem-percentage": 20}], (1, 200, GPU)),
        (HAMI, [{f"{GPU}mem": 4000}], (1, 250, GPU)),
        (HAMI, [{GPU: 2, f"{GPU}mem": 4000}], (2, 250, GPU)),
        (HAMI, [{GPU: 1, f"{GPU}mem": 4000}, {"cpu": "1"}, {GPU: 1, f"{GPU}mem": 4000}], (2, 250, GPU)),
        (HAMI, [{GPU: 1, f"{GPU}cores": 30}], (1, 1000, GPU)),
        (HAMI, [{GPU: 2}], (2, 1000, GPU)),
        (JSON, [{GPU: 1, f"{GPU}mem": 6000}], (1, 250, GPU)),
    ],
)
def test_hami_shares_refer_to_registered_gpus(load, register, containers, expected):
    workload = load(node(annotations=register, **{GPU: "20"}), pod("p", {}, *containers))
    assert share(workload) == expected
    assert workload.pods[0].requests.extended == ()
    assert workload.nodes[0].gpu_count == (2 if register is HAMI else 1)
    assert not workload.warnings


def test_unequal_shares_of_a_pod_are_reported(load):
    equal, unequal = [{GPU: 1, f"{GPU}mem": 4000}] * 2, [{GPU: 1, f"{GPU}mem": 4000}, {GPU: 1, f"{GPU}mem": 8000}]
    hami = node(annotations=HAMI, **{GPU: "20"})
    assert not any("unequal" in each for each in load(hami, pod("p", {}, *equal)).warnings)
    workload = load(hami, pod("p", {}, *unequal))
    assert workload.pods[0].requests.gpu_milli == 500
    assert any("containers of a pod have unequal shares of GPUs" in each for each in workload.warnings)


def test_hami_node_with_many_replicas_counts_physical_gpus(load):
    workload = load(node(annotations=HAMI, **{GPU: "200"}), pod("p", {}, {GPU: 1, f"{GPU}mem": 4000}))
    assert (workload.nodes[0].gpu_count, workload.nodes[0].counted_gpus) == (2, {})


def test_excessive_gpu_memory_fits_nowhere(load):
    workload = load(A100, pod("p", {"gpu-memory": "50000"}))
    assert workload.pods[0].requests.extended == ((f"{GPU}mem", 50000),)


def test_unclear_shares_are_named(load):
    warned = load(node(**{GPU: "1"}), pod("p", {"gpu-memory": "4000"})).warnings
    assert any(f"the label {GPU}.memory says it" in line for line in warned)
    small = node("m", labels={f"{GPU}.memory": "16384"}, **{GPU: "1"})
    workload = load(A100, small, pod("p", {"gpu-memory": "8192"}), pod("q", {"gpu-memory": "20480"}))
    assert [share(workload, i)[1] for i in (0, 1)] == [500, 500]
    assert any("GPUs have 16384 and 40960 MiB" in line for line in workload.warnings)
    warned = load(node(**{GPU: "1"}), pod("p", {}, {GPU: 1, f"{GPU}mem": 4000})).warnings
    assert any(f"requests {GPU}mem, which no node offers" in line for line in warned)


def test_kai_reservations_are_counted_once(load):
    group = {"runai-gpu-group": "g1"}
    pods = [pod(f"p{i}", {"gpu-fraction": "0.5"}, labels=group) for i in range(2)]
    holds = pod("r", labels=group, namespace="kai-resource-reservation", **{GPU: 1})
    for each in (*pods, holds):
        each["spec"]["nodeName"] = "n"
    workload = load(node(**{GPU: "1"}), *pods, holds)
    assert [each.name for each in workload.pods] == ["p0", "p1"]
    assert sum(workload.gpu_demand) == 1000
    assert any("pods with which KAI reserves shared GPUs are left out (1)" in line for line in workload.warnings)


def test_controller_annotations_do_not_apply_to_pods(load):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    owner = {"name": "rs", "annotations": {MEM: "4Gi"}}
    workload = load(A100, {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": owner, "spec": spec})
    assert any(f"ReplicaSet rs has the annotation {MEM}" in line for line in workload.warnings)


def test_shares_round_trip():
    sharing = GpuSharing((16000,), hami=True)
    fraction = pod("p", {"gpu-fraction": "0.3", "gpu-fraction-num-devices": "2"})
    for content in (fraction, pod("p", {}, {f"{GPU}mem": 4000})):
        read = pod_from_object(content, sharing=sharing)
        assert pod_from_object(pod_to_object(read), sharing=sharing) == read
    read = node_from_object(node(annotations=HAMI, **{GPU: "20"}))
    assert (read.physical_gpus, read.gpu_memory_mib) == (2, 16000)
    assert node_from_object(node_to_object(read)) == read


def test_invalid_hami_annotations_are_ignored():
    for text in ("", "x", "[", "[1]", "a,b,c:", '[{"devmem": "x"}]', "GPU,1,x,1,T,0,true:"):
        assert hami_register({REGISTER: text}) == (0, 0)


def test_as_many_shares_fit_as_there_are_parts():
    for whole in (16280, 40960, 24564):
        for part in range(100, whole, 997):
            milli = share_milli(part, whole)
            assert 1000 // milli == whole // part or whole // part > 30


def placed(workload):
    found = steersman.simulate(workload, "kube-default", protocol="arrivals", record=True).placements
    return {name: where for name, where in zip(found.pod, found.node, strict=True) if where}


@pytest.mark.parametrize(
    ("memory", "number", "per_card", "amount", "fits"),
    [
        ("aliyun.com/gpu-mem", "aliyun.com/gpu-count", 23, 10, 2),
        ("aliyun.com/gpu-mem", "aliyun.com/gpu-count", 15, 15, 1),
        ("aliyun.com/gpu-mem", "aliyun.com/gpu-count", 23, 24, 0),
        ("volcano.sh/gpu-memory", "volcano.sh/gpu-number", 16_160, 4000, 4),
    ],
)
def test_memory_of_gpus_is_that_of_each(load, memory, number, per_card, amount, fits):
    cards = node(**{memory: str(3 * per_card), number: "3"})
    pods = [pod(f"p{i}", None, {memory: str(amount)}) for i in range(3 * fits + 1)]
    workload = load(cards, *pods)
    assert len(placed(workload)) == 3 * fits
    assert workload.gpu_capacity == 3000
    # What no GPU has is a request of the resource, which no node offers alone.
    assert dict(workload.pods[0].requests.extended) == ({} if fits else {"nvidia.com/gpumem": amount})


def test_containers_of_a_pod_share_one_gpu(load):
    cards = node(**{"aliyun.com/gpu-mem": "32", "aliyun.com/gpu-count": "2"})
    half = {"aliyun.com/gpu-mem": "5"}
    workload = load(cards, *(pod(f"p{i}", None, half, half) for i in range(3)))
    assert [share(workload, i) for i in range(3)] == [(1, 625, COUNT)] * 3
    assert len(placed(workload)) == 2


def test_memory_without_a_number_of_gpus_is_counted(load):
    workload = load(node(**{"aliyun.com/gpu-mem": "92"}), pod("p", None, {"aliyun.com/gpu-mem": "30"}))
    assert dict(workload.pods[0].requests.extended) == {"aliyun.com/gpu-mem": 30}
    assert placed(workload) == {"p": "n"}


def hami_node(name, model, labels=None):
    register = json.dumps([{"id": f"GPU-{name}", "count": 10, "devmem": 24_000, "type": model, "health": True}])
    return node(name, labels, {REGISTER: register}, **{GPU: "10"})


@pytest.mark.parametrize(
    ("annotations", "where"),
    [
        ({"nvidia.com/use-gputype": "t4"}, {"t4"}),
        ({"nvidia.com/use-gputype": "Tesla T4, H100"}, {"t4"}),
        ({"nvidia.com/use-gputype": "V100"}, {"v100"}),
        ({"nvidia.com/nouse-gputype": "Tesla,A100"}, {"v100"}),
        ({"nvidia.com/nouse-gputype": "A100,T4,V100"}, set()),
        ({"nvidia.com/use-gputype": "H100"}, set()),
        ({"nvidia.com/use-gputype": "A100,T4", "nvidia.com/nouse-gputype": "T4"}, {"a100"}),
        ({}, {"a100", "t4", "v100"}),
    ],
)
def test_hami_chooses_by_the_type_of_gpus(load, annotations, where):
    nodes = (
        hami_node("a100", "NVIDIA-NVIDIA A100-SXM4-40GB"),
        hami_node("t4", "NVIDIA-Tesla T4"),
        hami_node("v100", "NVIDIA", {f"{GPU}.product": "V100-SXM2-16GB"}),
    )
    workload = load(*nodes, *(pod(f"p{i}", annotations, {GPU: "1"}) for i in range(3)))
    found = placed(workload)
    assert set(found.values()) == where
    assert len(found) == len(where)
