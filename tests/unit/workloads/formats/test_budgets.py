"""PodDisruptionBudgets of files: their status, or what the disruption controller computes without one."""

from typing import Any

import pytest

from steersman.workloads.formats.kubernetes.budgets import budgets_of
from steersman.workloads.formats.kubernetes.objects import Objects
from steersman.workloads.formats.yaml_documents import Document

Object = dict[str, Any]


def budget(spec: Object, status: Object | None = None) -> Object:
    made = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec}
    return {**made, **({} if status is None else {"status": status})}


def pod(name: str, owner: str = "", ready: str | None = "True", **metadata: object) -> Object:
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app": "a"},
            **({"ownerReferences": [reference]} if owner else {}),
            **metadata,
        },
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "web"}]},
        **({} if ready is None else {"status": {"conditions": [{"type": "Ready", "status": ready}]}}),
    }


def replicas(name: str, count: int) -> Object:
    spec = {"replicas": count, "selector": {"matchLabels": {"app": "a"}}, "template": {}}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": spec}


def objects_of(*objects: Object) -> Objects:
    return Objects(Document(each, "a.yaml", "") for each in objects)


def allowed(*objects: Object) -> int:
    (found,) = budgets_of(objects_of(*objects).objects)
    return found.allowed


SELECTOR = {"matchLabels": {"app": "a"}}
THREE = [pod(f"p{i}", "set") for i in range(3)]


def test_a_status_is_taken_as_it_is() -> None:
    stated = {"disruptionsAllowed": 2, "disruptedPods": {"p1": "2026-01-01T00:00:00Z"}}
    (found,) = budgets_of(objects_of(budget({"minAvailable": 3, "selector": SELECTOR}, stated), *THREE).objects)
    assert (found.namespace, found.name, found.allowed, found.disrupted) == ("default", "b", 2, frozenset({"p1"}))
    assert [(each.key, each.operator, each.values) for each in found.requirements] == [("app", "In", ("a",))]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"minAvailable": 1}, 2),
        ({"minAvailable": "50%"}, 1),  # 2 of 4, rounded up
        ({"maxUnavailable": 1}, 0),  # 3 of 4 must be there
        ({"maxUnavailable": "30%"}, 1),
        ({"maxUnavailable": 9}, 3),
        ({}, 3),
    ],
)
def test_without_a_status_ready_pods_beyond_those_needed_may_go(spec: Object, expected: int) -> None:
    assert allowed(budget({**spec, "selector": SELECTOR}), replicas("set", 4), *THREE) == expected


def test_pods_that_are_not_ready_do_not_count() -> None:
    others = pod("p3", ready="False"), pod("p4", deletionTimestamp="2026-01-01T00:00:00Z")
    assert allowed(budget({"minAvailable": 1, "selector": SELECTOR}), *THREE, *others) == 2
    assert allowed(budget({"minAvailable": 1, "selector": SELECTOR}), *THREE, pod("p3", ready=None)) == 3


def test_a_controller_that_is_not_there_wants_the_pods_that_are() -> None:
    assert allowed(budget({"maxUnavailable": "50%", "selector": SELECTOR}), *THREE) == 2


def test_no_selector_selects_no_pod() -> None:
    assert allowed(budget({"minAvailable": 0}), *THREE) == 0


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"minAvailable": "half"}, "spec.minAvailable: 'half' is neither a number nor a percentage such as 50%"),
        (
            {"minAvailable": 1, "maxUnavailable": 1},
            "spec.maxUnavailable: is stated beside minAvailable; a budget has one of them",
        ),
    ],
)
def test_an_invalid_budget_is_left_out(spec: Object, problem: str) -> None:
    found = objects_of(budget({**spec, "selector": SELECTOR}))
    assert [str(each).partition("b, ")[2] for each in found.problems()] == [problem]
    assert budgets_of(found.objects) == ()
