"""Simulated nodes have the labels of real ones."""

import pytest
from tests.support.objects import node_from_object

from steersman.cluster.gpu_units import added_labels, with_standard_labels
from steersman.cluster.model import Node
from steersman.live.local_cluster.nodes import equal_nodes, node_object, parse_shape, prepared
from steersman.workloads.formats.openb import parse_nodes
from steersman.workloads.generators.clusters import random_cluster

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("shape", "gpus"),
    [
        ("96cpu,768Gi,8gpu:A100", {"product": "A100", "count": "8", "memory": "40960", "present": "true"}),
        ("96cpu,768Gi,99nvidia.com/gpu:H100", {"product": "H100", "count": "99", "memory": "81559", "present": "true"}),
        ("96cpu,768Gi,4nvidia.com/gpu", {"count": "4", "present": "true"}),
        ("96cpu,768Gi,4nvidia.com/gpu:ZX80", {"product": "ZX80", "count": "4", "present": "true"}),
        ("96cpu,768Gi,4amd.com/gpu:MI300X", {}),
        ("8cpu,32Gi", {}),
    ],
)
def test_a_local_cluster_has_the_labels_of_a_real_one(shape: str, gpus: dict[str, str]) -> None:
    (node,) = prepared(equal_nodes(1, parse_shape(shape)))
    labels = node_object(node, "c")["metadata"]["labels"]
    assert labels["kubernetes.io/os"] == "linux"
    assert labels["kubernetes.io/arch"] == "amd64"
    assert labels["kubernetes.io/hostname"] == node.name
    assert labels["node.kubernetes.io/instance-type"].startswith(("96cpu-768gi", "8cpu-32gi"))
    assert {key.removeprefix(f"{GPU}."): labels[key] for key in labels if key.startswith(GPU)} == gpus
    if "amd" in shape:
        assert labels["amd.com/gpu.product-name"] == "MI300X"
    assert node_from_object(node_object(node, "c")) == node


def test_labels_of_a_file_are_kept() -> None:
    node = with_standard_labels(Node("n", 1000, 1 << 30, labels={"kubernetes.io/arch": "arm64", "rack": "a"}))
    assert (node.labels["kubernetes.io/arch"], node.labels["rack"]) == ("arm64", "a")
    assert "kubernetes.io/arch" not in added_labels(node)
    assert "kubernetes.io/os" in added_labels(node)


def test_openb_and_generated_clusters_have_standard_labels() -> None:
    (node,) = parse_nodes("f", "sn,cpu_milli,memory_mib,gpu,model\nopenb-1,64000,262144,2,V100M32\n")
    assert (node.labels[f"{GPU}.product"], node.labels[f"{GPU}.memory"]) == ("V100M32", "32768")
    assert node.labels["kubernetes.io/hostname"] == "openb-1"
    nodes = random_cluster(3, nodes=(20, 20)).nodes
    assert all(each.labels["kubernetes.io/hostname"] == each.name for each in nodes)
    assert all(each.labels[f"{GPU}.count"] == str(each.gpu_count) for each in nodes if each.gpu_count)
