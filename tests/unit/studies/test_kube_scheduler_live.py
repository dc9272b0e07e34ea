"""The study of kube-scheduler's configuration on a control plane: what counts, what was bound, what is compared."""

import json

import msgspec
import numpy as np
import pytest
from studies.live import filled_cluster
from studies.live import kube_scheduler_live as study
from tests.support.errors import raises

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.cluster.objects.manifests import node_to_object, pod_to_object
from steersman.core.errors import SteersmanError
from steersman.policies.kube_scheduler.policy import KUBE_DEFAULT, STOCK_TUNED
from steersman.policies.kube_scheduler.profile import DEFAULT_PROFILE, MOST_ALLOCATED, KubeProfile, ScoringStrategy
from steersman.policies.kube_scheduler.written import configuration_of
from steersman.simulation.run import Simulator
from steersman.workloads.formats.yaml_documents import write_documents
from steersman.workloads.loading import load_workload
from steersman.workloads.workload import Workload

NODES = (
    Node("small", 4000, 1 << 33, gpu_count=2, gpu_resources=(study.GPU,)),
    Node("large", 8000, 1 << 34, gpu_count=4, gpu_resources=(study.GPU,)),
)
POD = Pod("p", PodClass(Requests(1000, 1 << 30, gpu_count=2, gpu_milli=1000, gpu_resource=study.GPU)))
PACKING = configuration_of(KubeProfile(fit=ScoringStrategy(MOST_ALLOCATED, (("cpu", 1), (study.GPU, 2)))))


def event(name, node="", refused=False):
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}] if refused else []
    metadata = {"name": name, "namespace": "default"}
    return msgspec.Raw(
        json.dumps(
            {"metadata": metadata, "spec": {"nodeName": node} if node else {}, "status": {"conditions": conditions}}
        ).encode()
    )


def test_recorder_knows_bound_and_refused_pods():
    recorder = filled_cluster.FillRecorder()
    recorder.change("ADDED", event("a"))
    recorder.change("ADDED", event("b"))
    assert recorder.tried == 0
    recorder.change("MODIFIED", event("a", "x"))
    recorder.change("MODIFIED", event("b", refused=True))
    assert (recorder.nodes, recorder.refused, recorder.tried) == ({"a": "x"}, {"b"}, 2)
    changed = recorder.changed
    recorder.change("MODIFIED", event("a", "x"))
    recorder.change("MODIFIED", event("b", refused=True))
    assert recorder.changed == changed
    recorder.change("MODIFIED", event("b", "y"))
    assert (recorder.refused, recorder.tried, recorder.problems) == (set(), 2, [])
    recorder.change("MODIFIED", event("a", "y"))
    recorder.change("DELETED", event("b", "y"))
    assert recorder.problems == ["a moved from x to y", "b was deleted"]


def test_examination_finds_overfull_nodes_and_pods_with_room():
    assert filled_cluster.examine(NODES, [POD] * 4, ["small", "large", "large", ""]) == ([], 0)
    assert filled_cluster.examine(NODES, [POD] * 3, ["small", "large", ""]) == ([], 1)
    problems, _ = filled_cluster.examine(NODES, [POD] * 2, ["small", "small"])
    assert len(problems) == 1


def test_generated_cluster_offers_whole_gpus_and_reads_back_from_its_objects(tmp_path):
    workload = study.workload_of(10, 40)
    assert {node.gpu_resources for node in workload.nodes if node.gpu_count} == {(study.GPU,)}
    assert any(dict(pod.constraints.node_selector).get("nvidia.com/gpu.product") for pod in workload.pods)
    files = [tmp_path / "nodes.yaml", tmp_path / "pods.yaml"]
    write_documents(files[0], map(node_to_object, workload.nodes))
    write_documents(files[1], map(pod_to_object, workload.pods))
    read = load_workload(*files)
    assert read.gpu_demand == workload.gpu_demand
    assert [pod.constraints.node_selector for pod in read.pods] == [
        pod.constraints.node_selector for pod in workload.pods
    ]
    asked = {"ratio": 1.3, "configuration": PACKING}
    simulators = [Simulator(each) for each in (workload, read)]
    for arm, policy in study.policies_of(asked).items():
        costs = [each.play(policy, study._arrivals(each, asked, 7), 1).cost("inflation") for each in simulators]
        assert costs[0] == costs[1], arm


def test_shares_of_gpus_are_refused():
    with raises(SteersmanError, "share"):
        study.workload_of(6, 20)


def test_arms_are_the_default_and_the_found_configuration():
    asked = {"configuration": PACKING}
    assert "profiles" not in study.configuration_of_arm(asked, KUBE_DEFAULT)
    assert study.configuration_of_arm(asked, STOCK_TUNED) == PACKING
    policies = study.policies_of(asked)
    assert policies[KUBE_DEFAULT].profile == DEFAULT_PROFILE
    assert policies[STOCK_TUNED].profile.fit.kind == MOST_ALLOCATED


def test_placements_of_a_simulation_hold_what_it_counts():
    workload = Workload("w", NODES, (POD,))
    simulator, asked = Simulator(workload), {"ratio": 2.0, "configuration": PACKING}
    plan = study._arrivals(simulator, asked, 3)
    execution = simulator.play(study.policies_of(asked)[STOCK_TUNED], plan, 1)
    placed = study._placed(execution, plan)
    assert sorted(placed, reverse=True)[:4] == [1, 1, 0, -1]
    assert execution.cost("inflation") == pytest.approx(0.0)


def test_differences_count_fates_and_types():
    workload = Workload("w", (*NODES, NODES[0]), (POD,))
    assert study.differences(workload, [0, 1, -1, -1, 0], [2, 0, 1, -1, 0]) == (1, 1)


def test_interval_holds_95_percent_of_single_draws():
    found = study._interval(np.arange(1001.0))
    assert found == {"mean": 500.0, "low": 25.0, "high": 975.0}


def test_section_counts_gains_in_the_forecast():
    runs = {
        arm: {"began": "2026-01-02", "pods": 9, "bound": 7, "allocated": allocated, "problems": [], "fitting": 0}
        | {"simulated": {"mean": 80.0, "low": 79.0, "high": 81.0}, "differences": [1, 2]}
        | {"between_simulations": [1.5, 2.5]}
        for arm, allocated in ((KUBE_DEFAULT, 80.5), (STOCK_TUNED, 84.0))
    }
    simulated = {"mean": 3.4, "low": 3.0, "high": 3.5}
    draws = [{"gain": gain, "simulated": simulated, "arms": runs} for gain in (3.5, 9.0)]
    fit = {"gpus": 1200, "types": 3}
    gain = {"mean": 3.0, "low": 1.0, "high": 5.0}
    value = {"cluster": 4, "fit": fit, "gain": gain, "written": "2026-01-01", "draws": draws}
    made = {**study.options(True), "draws": 2, "kubernetes": "v1", "values": [value]}
    text = study.section(made)
    assert "In the first cluster 1 of 2 gains" in text.replace("\n", " ")
    assert "1 of 2 gains lie where" in text.replace("\n", " ")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| 4")]
    assert rows[0][1:] == ["80.5 %", "+3.0 (1.0 to 5.0)", "+6.2", "3.5 (3.4), 9.0 (3.4)", "1 of 2"]
    assert rows[1][2:] == ["+0.50, +0.50", "2 of 2", "1.0 (1.5)", "2.0 (2.5)"]
    assert rows[2][3] == "0 of 2"
