"""Pods that wait: gated and suspended ones are not placed, and after running ones they come by priority, then age."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cluster_dump import Object, controller, item, node, pod
from tests.support.errors import raises
from tests.unit.workloads.test_account import KEPT, bound, cluster, run

from steersman.core.errors import SteersmanError
from steersman.workloads.workload import RunningPods, Workload

GATES: dict[str, Any] = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}


def names(workload: Workload) -> list[str]:
    return [each.name for each in workload.pods]


@pytest.mark.parametrize("running", [RunningPods.FREE, *KEPT])
def test_gated_and_suspended_pods_are_not_placed(running: RunningPods) -> None:
    suspended = controller("Job", "later", suspend=True, completions=5, parallelism=3)
    gated = controller("Deployment", "gated", replicas=2)
    gated["spec"]["template"]["spec"] |= GATES
    ungated = pod("was-gated", on="a", schedulingGates=[])
    found = cluster(node("a"), pod("waits", **GATES), pod("free"), ungated, suspended, gated, running=running)
    assert sorted(names(found)) == ["free", "was-gated"]
    assert found.understood == (
        "2 pods of 0 owners (2 without one), 1 running, 1 waiting, 1 pinned (no other node allows them 1), "
        "3 gated left out, 5 suspended left out"
    )
    assert bound(run(found)) == {"free": "a", "was-gated": "a"}


def test_a_resumed_job_is_placed_and_its_gated_pods_are_counted_once() -> None:
    job = controller("Job", "now", suspend=False, completions=3, parallelism=3)
    held = pod("now-abcde", job, **GATES)
    found = cluster(node("a"), job, held)
    assert "now-abcde" not in names(found)
    assert found.understood.endswith(", 1 gated left out")


def test_suspended_and_gated_templates_of_other_kinds_are_not_placed() -> None:
    def custom(name: str, gates: dict[str, Any], **spec: Any) -> Object:
        template = {"metadata": {}, "spec": {**controller("Job", name)["spec"]["template"]["spec"], **gates}}
        workers = {"replicas": 3, "template": template}
        head = {"apiVersion": "example.com/v1", "kind": "TrainJob", "metadata": {"name": name}}
        return {**head, "spec": {"workers": workers, **spec}}

    found = cluster(
        node("a"),
        pod("free"),
        custom("suspended", {}, suspend=True),
        custom("by-policy", {}, runPolicy={"suspend": True}),
        custom("gated", GATES),
        custom("runs", {}, suspend=False),
    )
    assert len(found.pods) == 4
    assert ", 3 gated left out, 6 suspended left out" in found.understood


def test_file_of_gated_pods_only_is_an_error() -> None:
    with raises(SteersmanError, "w", "1 gated"):
        cluster(node("a"), pod("waits", **GATES))


def test_pending_pods_are_ordered_by_priority_then_age() -> None:
    urgent = item("PriorityClass", "urgent")
    urgent |= {"apiVersion": "scheduling.k8s.io/v1", "value": 1000}

    def waiting(name: str, at: int, priority: int = 0, **spec: Any) -> Object:
        return pod(name, at=at, priority=priority, **spec) if priority else pod(name, at=at, **spec)

    objects = [
        node("a"),
        urgent,
        waiting("old", 1),
        waiting("older", 0),
        waiting("urgent", 5, priorityClassName="urgent"),
        waiting("below", 0, -5),
        pod("runs", on="a", at=9),
        waiting("most", 6, 2000),
    ]
    for running in KEPT:
        assert names(cluster(*objects, running=running)) == ["runs", "most", "urgent", "older", "old", "below"]
    assert names(cluster(*objects)) == ["older", "below", "old", "urgent", "most", "runs"]


def test_last_free_resources_go_to_the_higher_priority() -> None:
    objects = [node("a"), pod("old", gpus=8, at=1), pod("young", gpus=8, at=2, priority=10)]
    assert bound(run(cluster(*objects))) == {"old": "a"}
    assert bound(run(cluster(*objects, running=RunningPods.FROM_NOW))) == {"young": "a"}
