"""The checker of placements finds each kind of violation that is made by hand, and nothing in what is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.errors import raises
from tests.support.heterogeneous.objects import draw_nodes, draw_workloads, pods_of, scaled
from tests.support.placement_checker import REORDERED, UnsupportedError, Violation, check, quantity

Object = dict[str, Any]

GPU, ZONE, HOST = "nvidia.com/gpu", "topology.kubernetes.io/zone", "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
AFFINITY = "nodeAffinity"


def node(name: str, zone: str = "a", gpus: int = 4, **spec: Any) -> Object:
    offered = {"cpu": "8", "memory": "32Gi", "pods": "4", GPU: str(gpus)}
    labels = {HOST: name, ZONE: zone, "model": "T4"}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": offered}}


def pod(name: str, where: str | None, app: str = "app", requests: Object | None = None, **spec: Any) -> Object:
    container = {"name": "main", "resources": {"requests": requests or {"cpu": "100m"}}}
    spec |= {"nodeName": where} if where else {}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


def kinds(nodes: Sequence[Object], pods: Sequence[Object]) -> list[tuple[str, str]]:
    """The violations of pods that were bound in the order in which they are given."""
    order = [each["metadata"]["uid"] for each in pods]
    return [(each.kind, each.pod.partition("/")[2]) for each in check(nodes, pods, order)]


def apart(app: str, key: str = HOST) -> Object:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"podAntiAffinity": {REQUIRED: [term]}}


def spread(skew: int = 1, key: str = ZONE, **more: Any) -> list[Object]:
    selector = {"labelSelector": {"matchLabels": {"app": "app"}}}
    return [{"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", **selector, **more}]


def near(**terms: Any) -> Object:
    return {AFFINITY: {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [terms]}]}}}


def far(pods: Sequence[Object]) -> list[Object]:
    """The same pods with so many others bound between each two that their order is known."""
    found = []
    for i, each in enumerate(pods):
        found += [pod(f"other-{i}-{j}", "elsewhere", app="other", requests={"cpu": "0"}) for j in range(REORDERED + 1)]
        found.append(each)
    return found


ELSEWHERE = node("elsewhere", zone="z")
ELSEWHERE["status"]["allocatable"]["pods"] = "100000"
ELSEWHERE["metadata"]["labels"]["model"] = "none"
TAINT = {"key": "team", "value": "red", "effect": "NoSchedule"}
TOLERATION = {"key": "team", "operator": "Equal", "value": "red", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("text", "value"), [("100m", 0.1), ("2", 2), ("1.5", 1.5), ("1Gi", 1 << 30), ("3M", 3_000_000)]
)
def test_quantities(text: str, value: float) -> None:
    assert quantity(text) == pytest.approx(value)


@pytest.mark.parametrize(("name", "amount"), [("cpu", "5"), ("memory", "17Gi"), (GPU, "3")])
def test_resources(name: str, amount: str) -> None:
    placed = [pod("one", "n", requests={name: amount}), pod("two", "n", requests={name: amount})]
    assert kinds([node("n")], placed) == [("resources", "two")]
    assert not kinds([node("n"), node("m")], [placed[0], pod("two", "m", requests={name: amount})])


def test_missing_resource_is_a_violation() -> None:
    assert kinds([node("n")], [pod("p", "n", requests={"example.com/fpga": "1"})]) == [("resources", "p")]
    assert not kinds([node("n")], [pod("p", None, requests={"example.com/fpga": "1"})])


def test_number_of_pods() -> None:
    placed = [pod(f"p{i}", "n") for i in range(5)]
    assert kinds([node("n")], placed) == [("resources", "p4")]
    assert not kinds([node("n")], placed[:4])


def test_missing_node_is_a_violation() -> None:
    assert kinds([node("n")], [pod("p", "gone")]) == [("node", "p")]


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"model": "A100"}},
        {"affinity": near(key="model", operator="In", values=["A100", "V100"])},
        {"affinity": near(key="model", operator="NotIn", values=["T4"])},
        {"affinity": near(key="none", operator="Exists")},
        {"affinity": near(key="model", operator="DoesNotExist")},
    ],
)
def test_node_selector_and_affinity(spec: Object) -> None:
    assert kinds([node("n")], [pod("p", "n", **spec)]) == [("node affinity", "p")]


def test_node_affinity_that_holds() -> None:
    spec = {"nodeSelector": {"model": "T4"}, "affinity": near(key="model", operator="In", values=["T4"])}
    assert not kinds([node("n")], [pod("p", "n", **spec)])


def test_taints() -> None:
    tainted = node("n", taints=[TAINT])
    assert kinds([tainted], [pod("p", "n")]) == [("taint", "p")]
    assert kinds([tainted], [pod("p", "n", tolerations=[TOLERATION | {"value": "blue"}])]) == [("taint", "p")]
    for toleration in (TOLERATION, {"key": "team", "operator": "Exists"}, {"operator": "Exists"}):
        assert not kinds([tainted], [pod("p", "n", tolerations=[toleration])])
    assert not kinds([node("n", taints=[TAINT | {"effect": "PreferNoSchedule"}])], [pod("p", "n")])


def test_unschedulable() -> None:
    cordoned = node("n", unschedulable=True)
    assert kinds([cordoned], [pod("p", "n")]) == [("unschedulable", "p")]
    assert not kinds([cordoned], [pod("p", "n", tolerations=[{"operator": "Exists"}])])


@pytest.mark.parametrize("who_comes_first", [1, -1])
def test_anti_affinity_in_both_directions(who_comes_first: int) -> None:
    placed = [pod("picky", "n", app="other", affinity=apart("app")), pod("p", "n")][::who_comes_first]
    assert kinds([node("n")], placed) == [("anti-affinity", "picky")]
    placed = [pod("picky", "n", app="other", affinity=apart("app", ZONE)), pod("p", "m")][::who_comes_first]
    assert kinds([node("n"), node("m")], placed) == [("anti-affinity", "picky")]
    assert not kinds([node("n"), node("m", zone="b")], placed)


def test_anti_affinity_to_its_own_labels() -> None:
    placed = [pod(f"p{i}", "n", affinity=apart("app")) for i in range(2)]
    assert kinds([node("n")], placed) == [("anti-affinity", "p0"), ("anti-affinity", "p1")]
    assert not kinds([node("n")], placed[:1])


def test_spread_at_the_time_of_binding() -> None:
    nodes = [node("a", "a"), node("b", "b"), ELSEWHERE]
    ours = {"nodeSelector": {"model": "T4"}, "topologySpreadConstraints": spread()}
    placed = [pod(f"p{i}", where, **ours) for i, where in enumerate("aabb")]
    # In the end the domains are even, but the second pod came to the fuller one.
    assert kinds(nodes, far(placed)) == [("spread", "p1")]
    assert not kinds(nodes, placed)  # both were under way together
    assert not kinds(nodes, far([placed[0], placed[2], placed[1], placed[3]]))


def test_final_spread_is_checked() -> None:
    nodes = [node("a", "a"), node("b", "b")]
    placed = [pod(f"p{i}", where, topologySpreadConstraints=spread(2)) for i, where in enumerate("aaab")]
    assert not kinds(nodes, placed)
    placed = [pod(f"p{i}", where, topologySpreadConstraints=spread()) for i, where in enumerate("aaab")]
    assert kinds(nodes, placed) == [("spread", "p2")]


def test_spread_counts_nodes_the_pod_may_use() -> None:
    nodes = [node("a", "a"), node("b", "b"), node("c", "c")]
    nodes[2]["metadata"]["labels"]["model"] = "A100"
    constrained = {"nodeSelector": {"model": "T4"}, "topologySpreadConstraints": spread()}
    placed = [pod(f"p{i}", where, **constrained) for i, where in enumerate("abab")]
    assert not kinds(nodes, placed)
    placed = [pod(f"p{i}", where, topologySpreadConstraints=spread()) for i, where in enumerate("abab")]
    assert kinds(nodes, placed) == [("spread", "p2"), ("spread", "p3")]
    nodes[2] = node("c", "c", taints=[TAINT])  # a tainted node is counted unless the constraint says otherwise
    assert kinds(nodes, placed) == [("spread", "p2"), ("spread", "p3")]
    honoured = spread(nodeTaintsPolicy="Honor")
    assert not kinds(nodes, [pod(f"p{i}", w, topologySpreadConstraints=honoured) for i, w in enumerate("abab")])


def test_spread_over_too_few_domains() -> None:
    placed = [pod(f"p{i}", where, topologySpreadConstraints=spread(minDomains=3)) for i, where in enumerate("abab")]
    assert kinds([node("a", "a"), node("b", "b")], placed) == [("spread", "p2"), ("spread", "p3")]


def test_a_node_without_the_key_of_the_spread() -> None:
    placed = [pod("p", "n", topologySpreadConstraints=spread(key="rack"))]
    assert kinds([node("n")], placed) == [("spread", "p")]


def test_soft_spread_and_preferences_forbid_nothing() -> None:
    soft = [spread()[0] | {"whenUnsatisfiable": "ScheduleAnyway"}]
    preferred = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    placed = [pod(f"p{i}", "a", topologySpreadConstraints=soft, affinity=preferred) for i in range(4)]
    assert not kinds([node("a", "a"), node("b", "b")], placed)


@pytest.mark.parametrize(
    "spec",
    [
        {"initContainers": [{}]},
        {"volumes": [{"persistentVolumeClaim": {}}]},
        {"affinity": {"podAffinity": {REQUIRED: [{}]}}},
        {"affinity": near(key="x", operator="Gt", values=["1"])},
        {"topologySpreadConstraints": spread(matchLabelKeys=["pod-template-hash"])},
    ],
)
def test_unchecked_constraints_are_rejected(spec: Object) -> None:
    with raises(UnsupportedError, "default/p"):
        kinds([node("n")], [pod("p", "n", **spec)])


def test_missing_binding_is_an_error() -> None:
    with pytest.raises(ValueError, match="when default/p was bound"):
        check([node("n")], [pod("p", "n")], [])


def test_violation_names_pod_node_and_reason() -> None:
    (found,) = check([node("n", gpus=0)], [pod("p", "n", requests={GPU: "1"})], ["p"])
    assert found == Violation("resources", "default/p", "n", "nvidia.com/gpu: 1 of 0")


def test_draws() -> None:
    nodes, workloads = draw_nodes(200, 0), draw_workloads(200, 0)
    assert len(nodes) == 200
    assert sum(int(each["status"]["allocatable"].get(GPU, 0)) for each in nodes) == 640
    assert len(workloads) == 40
    assert 1_900 < sum(map(pods_of, workloads)) < 2_100
    assert {each["kind"] for each in workloads} == {"Deployment", "StatefulSet", "Job"}
    assert workloads == draw_workloads(200, 0)
    assert workloads != draw_workloads(200, 1)
    assert sum(map(pods_of, scaled(workloads, 0.1))) == pytest.approx(200, abs=15)
