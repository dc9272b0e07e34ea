"""steersman preempts whom kube-scheduler's own plugin preempts."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.support.differential.explainer import PostFilter
from tests.support.differential.preemption import RECORDED, Case, Findings
from tests.support.kubernetes import is_since

from steersman.cluster.model import DisruptionBudget, Node, Pod, PodClass, Requests, Requirement
from steersman.cluster.state import ClusterState, RunningPod
from steersman.core.handles import CoreDecider
from steersman.live.service.messages import Explanation
from steersman.live.service.scoring.explanation import explain_pod
from steersman.policies.decision.description import described_cluster
from steersman.policies.kube_scheduler.preemption import NO_ROOM, NO_VICTIMS, OFF, ClusterPods, Preemption, preempt
from steersman.policies.kube_scheduler.profile import DEFAULT_PROFILE, KubeProfile
from steersman.policies.registry import resolve
from steersman.workloads.formats.yaml_documents import Document
from steersman.workloads.loading import workload_of_objects
from steersman.workloads.profile import profile_arrays
from steersman.workloads.workload import RunningPods

DATA = Path(__file__).parents[2] / "data" / "preemption.json"


@pytest.mark.skipif(not is_since("1.37"), reason="answers of the newest minor")
def test_recorded_answers_of_kube_scheduler() -> None:
    answers = msgspec.json.decode(DATA.read_bytes(), type=list[list[PostFilter | None]])
    findings = Findings()
    for seed, of_pods in zip(RECORDED, answers, strict=True):
        Case(seed).compare(of_pods, findings)
    assert findings.differences == []
    assert findings.counts["preempts"] >= 100
    assert findings.counts["preempts against a budget"] >= 30
    assert findings.counts["not eligible"] >= 15


def test_a_question_leaves_the_core_as_it_was() -> None:
    cores = 0
    for seed in range(1, 30):
        case = Case(seed)
        side = case.side()
        for each in (pod for pod in side.workload.pods if pod.name.startswith("p")):
            side.asked = None
            preempt(side.state, side.core, side.pods(), each, DEFAULT_PROFILE)
            if (asked := side.asked) is not None:
                cores += 1
                numbers = side.state.class_id(each.pod_class), side.state.labels_id(each)
                assert asked.mask(*numbers).tolist() == side.core().mask(*numbers).tolist()
    assert cores > 20


def pod(name: str, cpu: int, priority: int = 0, node: str = "", started: float = 0.0) -> Pod:
    made = Pod(name, PodClass(Requests(cpu_milli=cpu)), labels={"app": "a"}, priority=priority, started=started)
    return made.bound(node) if node else made


def asked(
    new: Pod, running: list[Pod], *budgets: DisruptionBudget, profile: KubeProfile = DEFAULT_PROFILE, nodes: int = 2
) -> tuple[ClusterState, Preemption]:
    """Return a cluster of nodes of 1000 milli-CPU after it was asked whom a pod preempts, and the answer."""
    state = ClusterState([Node(f"n{i}", cpu_milli=1000, memory_bytes=1 << 30) for i in range(nodes)])
    rows = [(each, state.class_id(each.unbound().pod_class), state.labels_id(each)) for each in running]
    state.place_running(
        RunningPod(f"default/{each.name}", c, state.slots[each.constraints.node_name], 0, labels)
        for each, c, labels in rows
    )
    no_policy = {"policy.node": 3, "policy.devices": 0, "policy.seed": 0}

    def core() -> CoreDecider:
        described = described_cluster(state, profile_arrays((), state.gpu_types))
        return CoreDecider(described | {key: np.array(value) for key, value in no_policy.items()})

    return state, preempt(state, core, ClusterPods(running, (), budgets), new, profile)


def chosen(found: Preemption) -> dict[str, list[str]]:
    return {each.node: [victim.name for victim in each.victims] for each in found.choices}


def test_the_fewest_of_the_least_important_pods_go() -> None:
    running = [pod("old", 300, 0, "n0", 1.0), pod("young", 300, 0, "n0", 2.0), pod("high", 400, 5, "n0")]
    _, found = asked(pod("new", 300, 10), [*running, pod("equal", 1000, 10, "n1")])
    assert chosen(found) == {"n0": ["young"]}
    expected = "kube-scheduler would preempt default/young on node n0, which steersman does not do."
    assert found.sentence(pod("new", 300)) == expected


def test_a_node_without_a_broken_budget_is_preferred() -> None:
    running = [pod("kept", 1000, 0, "n0"), pod("free", 1000, 5, "n1")]
    counted = (Requirement("app", "In", ("a",)),)
    budget = DisruptionBudget("default", "b", counted, 0, disrupted=frozenset({"free"}))
    assert chosen(asked(pod("new", 500, 10), running)[1]) == {"n0": ["kept"]}
    assert chosen(asked(pod("new", 500, 10), running, budget)[1]) == {"n1": ["free"]}
    _, found = asked(pod("new", 500, 10), running[:1], budget, nodes=1)
    assert "default/kept on node n0, 1 of them against a PodDisruptionBudget" in found.sentence(pod("new", 500))


def test_equally_good_nodes_are_all_told() -> None:
    running = [pod("a", 1000, 0, "n0"), pod("b", 1000, 0, "n1")]
    _, found = asked(pod("new", 500, 10), running)
    assert chosen(found) == {"n0": ["a"], "n1": ["b"]}
    assert "preempt default/a on node n0 (as good: n1), which" in found.sentence(pod("new", 500))


@pytest.mark.parametrize("policy", ["kube-default", "fgd"])
def test_an_explanation_says_whom_kube_scheduler_preempts(policy: str) -> None:
    limits = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": limits}
    node = {"cpu": "1", "memory": "1Gi", "pods": "10"}
    objects: list[dict[str, Any]] = [
        budget,
        *(manifest("Node", name, status={"allocatable": node}) for name in ("n0", "n1")),
        *(manifest("Pod", f"{name}-old", nodeName=name, priority=i) for i, name in enumerate(("n0", "n1"))),
        manifest("Pod", "new", priority=9),
        manifest("Pod", "polite", priority=9, preemptionPolicy="Never"),
        manifest("Pod", "low", priority=0),
    ]
    objects[3]["metadata"]["labels"] = {"app": "a"}  # the budget keeps it: it is the only one
    documents = [Document(each, "a.yaml", "") for each in objects]
    workload = workload_of_objects("a", documents, running=RunningPods.AS_WRITTEN)
    numbers = {each.name: i for i, each in enumerate(workload.pods)}

    def explained(name: str) -> Explanation:
        return explain_pod(resolve(policy), workload, numbers[name])

    found = explained("new")
    assert [(each.node, each.pods, each.violations) for each in found.preempted] == [("n1", ["default/n1-old"], 0)]
    assert found.preemption.startswith("kube-scheduler would preempt default/n1-old on node n1, which")
    assert explained("polite").preemption == (
        "kube-scheduler would preempt no pod for default/polite: preemptionPolicy: Never."
    )
    assert (explained("low").preemption, explained("low").preempted) == ("", [])


def manifest(kind: str, name: str, status: dict[str, Any] | None = None, **spec: object) -> dict[str, Any]:
    containers = [{"name": "c", "image": "web", "resources": {"requests": {"cpu": "1"}}}]
    made = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "status": status or {}}
    return made if kind == "Node" else {**made, "spec": {"containers": containers, **spec}}


def test_why_nobody_goes() -> None:
    low, high = pod("low", 500, 0, "n0"), pod("high", 800, 20, "n0")
    profile = KubeProfile(candidates=None)
    assert asked(pod("new", 500, 10), [low], nodes=1, profile=profile)[1].why_not == OFF
    assert asked(pod("new", 500, 10), [high], nodes=1)[1].why_not == NO_VICTIMS
    assert asked(pod("new", 900, 10), [low, high], nodes=1)[1].why_not == NO_ROOM
