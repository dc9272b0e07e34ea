"""Random clusters: what is drawn makes sense, covers what it promises, and is the same for the same seed."""

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.errors import raises
from tests.support.nightly import examples

from steersman.cli.main import main
from steersman.cluster.constraints.node import allowed_nodes
from steersman.cluster.model import GPU_MILLI
from steersman.core.errors import UsageError
from steersman.workloads.generators.clusters import Distribution, random_cluster
from steersman.workloads.loading import load_workload

SMALL = (5, 40)


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 1 << 32), distribution=st.sampled_from(Distribution))
def test_every_pod_fits_on_some_empty_node(seed: int, distribution: Distribution) -> None:
    workload = random_cluster(seed, distribution=distribution, nodes=SMALL)
    assert SMALL[0] <= len(workload.nodes) <= SMALL[1]
    assert any(pod.requests.gpu_count for pod in workload.pods)
    for pod_class in {pod.pod_class for pod in workload.pods}:
        asked = pod_class.requests
        fits = [
            allowed
            and asked.cpu_milli <= node.cpu_milli
            and asked.memory_bytes <= node.memory_bytes
            and asked.gpu_count <= node.gpu_count
            for node, allowed in zip(workload.nodes, allowed_nodes(workload.nodes, pod_class.constraints), strict=True)
        ]
        assert any(fits), pod_class


def test_same_seed_same_workload() -> None:
    assert random_cluster(7, nodes=SMALL) == random_cluster(7, nodes=SMALL)
    assert random_cluster(7, nodes=SMALL).pods != random_cluster(8, nodes=SMALL).pods
    other = random_cluster(7, nodes=SMALL, distribution=Distribution.VALIDATION)
    assert random_cluster(7, nodes=SMALL).pods != other.pods


def test_breadth() -> None:
    """No shares at all and nothing but shares, one model and several, nodes without GPUs: all of it is drawn."""
    drawn = [random_cluster(seed, nodes=(5, 200)) for seed in range(80)]
    shared, models, without_gpus, bare = Counter[str](), Counter[int](), 0, 0
    for workload in drawn:
        gpu_pods = [pod for pod in workload.pods if pod.requests.gpu_count]
        share = sum(pod.requests.gpu_milli < GPU_MILLI for pod in gpu_pods) / len(gpu_pods)
        shared["none" if share == 0 else "most" if share > 0.6 else "some"] += 1
        models[len({node.gpu_model for node in workload.nodes if node.gpu_count})] += 1
        without_gpus += any(not node.gpu_count for node in workload.nodes)
        bare += any(not pod.requests.gpu_count for pod in workload.pods)
    assert min(shared.values()) >= 10
    assert len(shared) == 3
    assert len(models) >= 4
    assert 20 <= without_gpus <= 60
    assert bare >= 40


@pytest.mark.parametrize("nodes", [(0, 5), (9, 5), (5, 200_000)])
def test_wrong_range(nodes: tuple[int, int]) -> None:
    with raises(UsageError, "1", "100000"):
        random_cluster(1, nodes=nodes)


def test_command(tmp_path, capsys) -> None:
    assert main(["workload", "random", "--nodes", "5-9", "--seed", "3", "--output", str(tmp_path / "one")]) == 0
    read = load_workload(tmp_path / "one" / "nodes.yaml", tmp_path / "one" / "pods.yaml")
    drawn = random_cluster(3, distribution=Distribution.VALIDATION, nodes=(5, 9))
    assert [node.name for node in read.nodes] == [node.name for node in drawn.nodes]
    asked = [(pod.name, replace(pod.requests, gpu_resource="")) for pod in read.pods]
    assert asked == [(pod.name, pod.requests) for pod in drawn.pods]
    assert main(["workload", "random", "--count", "2", "--nodes", "5-9", "--output", str(tmp_path / "two")]) == 0
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == ["validation-1", "validation-2"]
    assert main(["workload", "random", "--nodes", "9-5", "--output", str(tmp_path / "bad")]) == 2
    assert len(capsys.readouterr().err.splitlines()[-1:]) == 1


def test_a_small_cluster_may_draw_no_pod_with_gpus():
    workload = random_cluster(123, nodes=(1, 12))
    assert not any(pod.requests.gpu_total_milli for pod in workload.pods)
    assert all(pod.creation_time is not None and math.isfinite(pod.creation_time) for pod in workload.pods)
