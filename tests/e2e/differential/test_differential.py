"""steersman decides about pods as the pinned kube-scheduler's own plugins do, on random clusters.

`python -m tests.support.differential.compare` compares as many pods as one likes.
"""

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import strategies as st
from tests.support.differential import acceptance, decisions, preemption
from tests.support.differential.clusters import Cluster
from tests.support.differential.compare import compare
from tests.support.differential.comparison import Findings, differences
from tests.support.differential.configurations import CONFIGURATION, NAMED, configurations
from tests.support.differential.decisions import RANDOM, Compared, compare_cluster, table
from tests.support.differential.explainer import Explainer, explainer
from tests.support.differential.nodes import Object

from steersman.cluster.objects.api.pods import DEFAULT_SCHEDULER
from steersman.policies.kube_scheduler.profile import DEFAULT_PROFILE, PLUGINS

pytestmark = pytest.mark.e2e

SEED, CLUSTERS, PODS = 1, 370, 1_900


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Explainer]:
    with explainer() as running:
        yield running


def node(name: str, cpu: str = "4", **labels: str) -> Object:
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "110", "ephemeral-storage": "10Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": amounts},
    }


def pod(name: str, cpu: str = "1", **spec: object) -> Object:
    containers = [{"name": "c", "image": "web", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": containers, **spec},
    }


@pytest.mark.minors
def test_random_decisions_match_kube_scheduler(scheduler: Explainer) -> None:
    findings = Findings()
    compare(scheduler, findings, SEED, CLUSTERS)
    print(findings)
    assert findings.pods >= PODS
    # What was compared was worth it.
    assert findings.bound >= PODS / 4
    assert {plugin for plugin, count in findings.refused.items() if count >= 5} >= {
        "InterPodAffinity",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "NodeUnschedulable",
        "PodTopologySpread",
        "TaintToleration",
        "VolumeBinding",
    }
    assert {plugin for plugin, count in findings.scored.items() if count >= 5} >= {
        "ImageLocality",
        "InterPodAffinity",
        "NodeAffinity",
        "NodeResourcesBalancedAllocation",
        "NodeResourcesFit",
        "PodTopologySpread",
        "TaintToleration",
    }


@pytest.mark.minors
@pytest.mark.parametrize("name", NAMED)
def test_decisions_by_a_configuration_match_kube_scheduler(scheduler: Explainer, name: str) -> None:
    findings = Findings()
    compare(scheduler, findings, SEED, 20, st.just(NAMED[name]))
    assert findings.bound >= 20


@pytest.mark.minors
def test_decisions_by_random_configurations_match_kube_scheduler(scheduler: Explainer) -> None:
    findings = Findings()
    compare(scheduler, findings, SEED, 200, configurations())
    assert findings.bound >= 300
    assert {plugin for plugin, count in findings.scored.items() if count >= 5} >= set(PLUGINS)


@pytest.mark.minors
def test_sequences_of_decisions_match_kube_scheduler(scheduler: Explainer) -> None:
    results = {name: Compared() for name in (*NAMED, RANDOM)}
    for seed, (name, compared) in enumerate(results.items(), start=900):
        compare_cluster(scheduler, name, seed, compared)
        compare_cluster(scheduler, name, seed + 100, compared)
    print(table(results))
    assert [each.first for each in results.values() if each.first] == []
    total = sum((each.counts for each in results.values()), Counter[str]())
    assert total["decisions"] == 240 * len(results)
    assert total["bound"] >= total["decisions"] / 4
    assert min(total["tied"], total["sampled"]) >= 50
    plugins = sum((each.plugins for each in results.values()), Counter[str]())
    assert {plugin for plugin, count in plugins.items() if count >= 5} >= set(PLUGINS)


@pytest.mark.minors
def test_preemption_matches_kube_scheduler(scheduler: Explainer) -> None:
    findings = preemption.Findings()
    for seed in range(1, 400):
        case = preemption.Case(seed)
        case.compare(case.ask(scheduler), findings)
    assert findings.differences == []
    assert findings.counts["preempts"] >= 200
    assert findings.counts["preempts against a budget"] >= 50


def test_another_preemption_is_found(scheduler: Explainer, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = preemption.Findings()
    monkeypatch.setattr("steersman.policies.kube_scheduler.preemption._counted", lambda *_: ())
    for seed in range(1, 40):
        case = preemption.Case(seed)
        case.compare(case.ask(scheduler), findings)
    assert findings.differences


def test_the_same_configurations_are_taken(scheduler: Explainer) -> None:
    counts = Counter[str]()
    assert [each for each in (acceptance.compare(scheduler, seed, counts) for seed in range(1500)) if each] == []
    assert min(counts["taken by both"], counts["refused by both"]) > 300


def test_another_acceptance_is_found(scheduler: Explainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance, "refused_by_us", lambda _: "")
    assert any(acceptance.compare(scheduler, seed, Counter()) for seed in range(20))


def test_another_decision_of_a_sequence_is_found(scheduler: Explainer, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = Compared()
    monkeypatch.setattr(decisions, "profiles_of", lambda *_: {DEFAULT_SCHEDULER: DEFAULT_PROFILE})
    compare_cluster(scheduler, "most", 901, compared)
    assert compared.counts["differ"] > 10
    assert "scores of NodeResourcesFit" in compared.first[0]


def test_a_difference_is_found(scheduler: Explainer, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster([node("a"), node("b", zone="z")], [pod("p", nodeSelector={"zone": "z"})])
    assert differences(scheduler, cluster, Findings()) == []
    monkeypatch.setattr("steersman.cluster.constraints.node.affinity_nodes", lambda table, *_: table.occupied)
    found = differences(scheduler, cluster, Findings())
    assert [each.partition(":")[0] for each in found] == ["live, p", "files, p"]
    assert "ours alone ['a'], kube-scheduler's alone []" in found[0]


def test_a_configuration_decides(scheduler: Explainer) -> None:
    strategy = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    fit = {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}
    configuration = {**CONFIGURATION, "profiles": [{"schedulerName": "packing", "pluginConfig": [fit]}]}
    objects = [node("a", cpu="8"), node("b", cpu="2")]
    answer = scheduler.ask(objects, [pod("p")])
    assert answer.pods is not None
    assert answer.pods[0].node == "a"
    answer = scheduler.ask(objects, [pod("p", schedulerName="packing")], configuration=configuration)
    assert answer.pods is not None
    assert answer.pods[0].scores is not None
    assert answer.pods[0].scores["NodeResourcesFit"] == {"a": 12, "b": 50}


def test_pods_of_a_cycle_count_for_the_next_ones(scheduler: Explainer) -> None:
    pods = [pod(f"p{i}", cpu="3") for i in range(3)]
    answer = scheduler.ask([node("a"), node("b")], pods, assume=True)
    assert answer.pods is not None
    assert [each.node for each in answer.pods][2] == ""
    assert {each.node for each in answer.pods} == {"a", "b", ""}
    assert answer.pods[2].message == "0/2 nodes are available: 2 Insufficient cpu."


@pytest.mark.parametrize(
    ("objects", "pods", "more", "problem"),
    [
        ([{"apiVersion": "v1", "kind": "Nope"}], [], {}, 'objects[0]: no kind "Nope"'),
        (
            [{**node("a"), "spec": {"taint": []}}],
            [],
            {},
            'objects[0]: strict decoding error: unknown field "spec.taint"',
        ),
        ([node("a")], [pod("p", restartPolicy="Sometimes")], {}, "pods[0]: spec.restartPolicy: Unsupported value"),
        ([node("a")], [node("b")], {}, "pods[0]: is not a Pod"),
        ([node("a")], [pod("p", schedulerName="x")], {}, 'pods[0]: spec.schedulerName: no profile is named "x"'),
        ([], [], {"configuration": {**CONFIGURATION, "parallelism": -1}}, "configuration: parallelism: Invalid value"),
    ],
)
def test_invalid_question_is_rejected(
    scheduler: Explainer, objects: list[Object], pods: list[Object], more: Object, problem: str
) -> None:
    assert scheduler.ask(objects, pods, **more).error.startswith(problem)
