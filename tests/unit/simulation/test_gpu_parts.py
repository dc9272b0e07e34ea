"""Slices and replicas of GPUs count as parts of a GPU in every percentage; they are placed by their number."""

import json

import pytest

import steersman
from steersman.evaluation.report.page import report_warnings
from steersman.live.dashboard.comparison.evaluation import EvaluationFolder
from steersman.live.dashboard.runs import find_runs
from steersman.live.dashboard.simulation.document import replay_of
from steersman.simulation.protocols import choose_protocols
from steersman.simulation.run import Simulator
from steersman.workloads.loading import load_workload

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-"


def node(name, labels=None, **gpus):
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110", **gpus}
    metadata = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": allocatable}}


def pod(name, node="", annotations=None, **limits):
    spec = {"containers": [{"name": "c", "image": "x", "resources": {"limits": limits}}]}
    metadata = {"name": name, "annotations": annotations or {}}
    spec |= {"nodeName": node} if node else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture
def load(tmp_path):
    def load(*objects):
        path = tmp_path / "case.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
        return load_workload(path, path)

    return load


def run(workload, **options):
    result = Simulator(workload).run("kube-default", record=True, **{"protocol": "arrivals", "seed": 1} | options)
    return result, {metric.name: metric.value for metric in result.metrics}


REPLICAS = {f"{GPU}.product": "Tesla-T4-SHARED", f"{GPU}.replicas": "4"}


def test_replicas_count_as_parts_and_are_placed_by_their_number(load):
    pods = (pod(f"p{i}", **{GPU: 1}) for i in range(3))
    workload = load(node("n", REPLICAS, **{GPU: "4"}), node("w", **{GPU: "1"}), *pods)
    result, metrics = run(workload)
    assert metrics["pods_bound"] == 3
    on_shared = sum(each == "n" for each in result.placements.node)
    assert metrics["gpu_allocation_percent"] == pytest.approx(100 * (0.25 * on_shared + 3 - on_shared) / 2)
    assert sorted(result.final_nodes.gpu_count) == [1.0, 1.0]
    assert metrics["gpu_fragmented_percent"] <= 100 - metrics["gpu_allocation_percent"] + 1e-6


def test_a_cluster_of_mig_slices_alone_is_compared_by_gpus(load):
    nodes = [node(f"n{i}", **{f"{MIG}1g.5gb": "2", f"{MIG}2g.10gb": "1", f"{MIG}3g.20gb": "1"}) for i in range(2)]
    workload = load(*nodes, pod("a", **{f"{MIG}3g.20gb": 1}), pod("b", **{f"{MIG}1g.5gb": 1}), pod("c", cpu="1"))
    assert "inflation" in choose_protocols([workload]).protocols
    _, metrics = run(workload)
    assert metrics["gpu_allocation_percent"] == pytest.approx(100 * 4 / 14, abs=0.03)
    inflated, metrics = run(workload, protocol="inflation", ratio=1.0)
    assert metrics["gpu_allocation_percent"] == pytest.approx(100 * 10 / 14, abs=0.03)  # no pod takes 2g.10gb
    assert not inflated.warnings


def test_slices_and_whole_gpus_share_a_node(load):
    workload = load(node("n", **{GPU: "1", f"{MIG}1g.5gb": "7"}), pod("w", **{GPU: 1}), pod("s", **{f"{MIG}1g.5gb": 2}))
    _, metrics = run(workload)
    assert metrics["gpu_allocation_percent"] == pytest.approx(100 * (1 + 2 / 7) / 2, abs=0.03)


def test_running_pods_count_as_parts_too(load):
    workload = load(node("n", REPLICAS, **{GPU: "4"}), pod("p", "n", **{GPU: 3}))
    recorded = Simulator(workload).as_it_is()
    assert {each.name: each.value for each in recorded.metrics}["gpu_allocation_percent"] == 75


def test_uncounted_accelerators_are_reported(load):
    workload = load(
        node("n", {f"{GPU}.product": "Tesla-T4-SHARED"}, **{GPU: "4", "huawei.com/Ascend910": "8"}),
        pod("a", **{"huawei.com/Ascend910": 2}),
        pod("b", **{"amd.com/gpu": 1}),
    )
    text = "\n".join(workload.warnings)
    assert "huawei.com/Ascend910 (8 on nodes, requested by 1 pod)" in text
    assert "GPUs of 1 node are shared or sliced" in text
    assert "1 pod requests amd.com/gpu, which no node offers; nodes offer huawei.com/Ascend910, nvidia.com/gpu" in text


def test_a_selected_model_that_no_node_has_is_named_with_those_that_nodes_have(load):
    wants = pod("p", **{GPU: 1})
    wants["spec"]["nodeSelector"] = {f"{GPU}.product": "NVIDIA-H100"}
    workload = load(node("n", {f"{GPU}.product": "Tesla-T4"}, **{GPU: "4"}), wants)
    assert any("NVIDIA-H100, which no node has; nodes have Tesla-T4" in line for line in workload.warnings)


def test_uncounted_accelerators_are_reported_everywhere(load, tmp_path):
    workload = load(node("n", **{GPU: "4", "example.com/gpu": "8"}), pod("a", **{GPU: 2}), pod("b", **{GPU: 1}))
    folder = tmp_path / "out"
    steersman.evaluate(workload, ["kube-default", "best-fit"], seeds=1, protocol="arrivals").write(folder)
    (warning,) = report_warnings((folder / "report.html").read_text())
    assert "placed by their number and not counted in GPUs: example.com/gpu (8 on nodes" in warning
    (found,), _ = find_runs([folder])
    assert EvaluationFolder(found).warnings == (warning,)
    result, _ = run(workload)
    assert replay_of(workload, [result]).warnings == [warning.removeprefix("case: ")]


def test_pods_with_gpus_and_nodes_without_any_are_named(load):
    workload = load(node("n"), pod("a", **{GPU: 1}), pod("b", **{GPU: 1}))
    assert any(f"2 pods request {GPU}, which no node offers; nodes offer no GPU" in line for line in workload.warnings)
