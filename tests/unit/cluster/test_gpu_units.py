"""What counts as how much of a GPU, by the labels of nodes."""

import pytest
from tests.support.objects import node_from_object

from steersman.cluster.gpu_units import gpu_milli, is_accelerator, is_unclear, mean_milli, requested_milli
from steersman.cluster.model import Requests

GFD, GKE = "nvidia.com/gpu", "cloud.google.com"


def node(labels=None, **gpus):
    """Return a node that offers GPUs; `__` in a name stands for a dash or a dot."""
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110", **{name: str(each) for name, each in gpus.items()}}
    return node_from_object({"metadata": {"name": "n", "labels": labels or {}}, "status": {"allocatable": allocatable}})


def mig(profile):
    return f"nvidia.com/mig-{profile}"


@pytest.mark.parametrize(
    ("labels", "gpus", "milli"),
    [
        ({}, {GFD: 8}, 8000),
        ({f"{GFD}.product": "NVIDIA-A100-SXM4-40GB", f"{GFD}.replicas": "1"}, {GFD: 8}, 8000),
        ({f"{GFD}.product": "Tesla-T4-SHARED", f"{GFD}.replicas": "4", f"{GFD}.count": "1"}, {GFD: 4}, 1000),
        ({f"{GFD}.product": "Tesla-T4", f"{GFD}.replicas": "10"}, {f"{GFD}.shared": 20}, 2000),
        ({f"{GFD}.sharing-strategy": "mps", f"{GFD}.count": "2"}, {GFD: 8}, 2000),
        ({f"{GFD}.replicas": "2"}, {GFD: 100}, 50_000),
        ({f"{GFD}.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", f"{GFD}.count": "56"}, {GFD: 56}, 8000),
        ({f"{GFD}.product": "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb"}, {GFD: 2}, 857),
        ({f"{GFD}.product": "NVIDIA-A30-MIG-1g.6gb"}, {GFD: 4}, 1000),
        ({f"{GFD}.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", f"{GFD}.replicas": "2"}, {GFD: 14}, 1000),
        ({"nvidia.com/mig.strategy": "single", f"{GFD}.slices.ci": "2"}, {GFD: 3}, 857),
        ({"nvidia.com/mig.strategy": "mixed"}, {mig("1g.5gb"): 2, mig("2g.10gb"): 1, mig("3g.20gb"): 1}, 1000),
        ({"nvidia.com/mig.strategy": "mixed"}, {GFD: 4, mig("1g.5gb"): 28}, 8000),
        ({f"{GFD}.product": "NVIDIA-A30"}, {mig("1g.6gb"): 2, mig("2g.12gb"): 1}, 1000),
        ({f"{GFD}.product": "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"}, {mig("1g.24gb"): 4}, 1000),
        ({}, {mig("1g.10gb.me"): 1, mig("1c.3g.20gb"): 1}, 286),
        ({"nvidia.com/mig-1g.5gb.replicas": "2"}, {f"{mig('1g.5gb')}.shared": 14}, 1000),
        ({"cloud.google.com/gke-gpu-partition-size": "1g.5gb"}, {GFD: 7}, 1000),
        ({"cloud.google.com/gke-max-shared-clients-per-gpu": "3"}, {GFD: 3}, 1000),
        ({f"{GKE}/gke-gpu-partition-size": "1g.5gb", f"{GKE}/gke-max-shared-clients-per-gpu": "3"}, {GFD: 21}, 1000),
        ({}, {"aliyun.com/gpu-mem": 30, "aliyun.com/gpu-count": 2}, 2000),
        ({}, {"tencent.com/vcuda-core": 400}, 4000),
        ({}, {"amd.com/gpu": 8}, 8000),
        ({}, {"amd.com/cpx_nps4": 64}, 8000),
        ({}, {"amd.com/spx_nps1": 5, "amd.com/cpx_nps1": 24}, 8000),
        ({"amd.com/gpu.product-name": "AMD_Instinct_MI300A"}, {"amd.com/cpx_nps1": 24}, 4000),
        ({"amd.com/gpu.compute-memory-partition": "cpx_nps4"}, {"amd.com/gpu": 64}, 8000),
        ({"gpu.intel.com/device.count": "2"}, {"gpu.intel.com/i915": 20}, 2000),
        ({"gpu.intel.com/device-id.0300-9a49.count": "1"}, {"gpu.intel.com/xe": 4}, 1000),
        ({}, {"gpu.intel.com/i915": 4}, 4000),
        ({}, {"huawei.com/Ascend910": 8}, 0),
    ],
)
def test_node_gpus_are_the_sum_of_its_units(labels, gpus, milli):
    assert gpu_milli(node(labels, **gpus)) == milli


@pytest.mark.parametrize(
    ("labels", "gpus", "unclear"),
    [
        ({f"{GFD}.product": "Tesla-T4-SHARED"}, {GFD: 4}, True),
        ({f"{GFD}.sharing-strategy": "time-slicing", f"{GFD}.count": "3"}, {GFD: 4}, True),
        ({f"{GFD}.product": "NVIDIA-A100-SXM4-40GB-MIG-INVALID"}, {GFD: 4}, True),
        ({f"{GFD}.product": "Tesla-T4", f"{GFD}.sharing-strategy": "none"}, {GFD: 4}, False),
        ({}, {f"{GFD}.shared": 4}, True),
        ({}, {"amd.com/gpu": 4}, False),
    ],
)
def test_shared_gpus_without_a_number_of_replicas_are_unclear(labels, gpus, unclear):
    assert is_unclear(node(labels, **gpus)) == unclear


def test_request_size_is_the_mean_offer_of_its_resource():
    nodes = [node({f"{GFD}.replicas": "4"}, **{GFD: 4}), node({}, **{GFD: 4}), node({}, **{mig("1g.5gb"): 7})]
    means = mean_milli(nodes)
    one = Requests(gpu_count=1, gpu_milli=1000, gpu_resource=GFD)
    assert requested_milli(one, means) == 625
    assert requested_milli(Requests(extended=((mig("1g.5gb"), 7),)), means) == 1000
    assert requested_milli(Requests(extended=((mig("2g.10gb"), 1),)), means) == 286
    assert requested_milli(Requests(gpu_count=2, gpu_milli=500), {}) == 1000


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("huawei.com/Ascend910", True),
        ("aws.amazon.com/neuroncore", True),
        ("google.com/tpu", True),
        ("volcano.sh/vgpu-number", True),
        ("nvidia.com/GA102GL_A10", True),
        ("alibabacloud.com/gpu-mem", False),
        ("nvidia.com/gpumem", False),
        ("gpu.intel.com/i915_monitoring", False),
        ("amd.com/cpx_nps4", True),
        ("example.com/fpga", False),
        ("smarter-devices/fuse", False),
        ("rdma/hca", False),
    ],
)
def test_accelerators_are_recognised(name, known):
    assert is_accelerator(name) == known
