"""Controllers and their pods are counted once, whatever part of them a dump holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cluster_dump import Object, controller, item, node, parsed, pod
from tests.support.nightly import examples

from steersman.workloads.formats.kubernetes.expansion import Expanded


def owners(expanded: Expanded) -> tuple[int, int]:
    """How many controllers pods belong to, and how many pods to none."""
    above = [expanded.owners.get((each.namespace, each.name)) for each in expanded.pods]
    return len({*above} - {None}), above.count(None)


def names(*content: Object, nodes: tuple[Object, ...] = ()) -> list[str]:
    given_nodes = parsed(*nodes).nodes() if nodes else ()
    return [each.name for each in parsed(*content).expanded(given_nodes).pods]


def test_a_deployment_that_runs_is_counted_once_with_and_without_its_replica_sets():
    web = controller("Deployment", "web", replicas=3)
    old = controller("ReplicaSet", "web-1", owner=web, replicas=0)
    new = controller("ReplicaSet", "web-2", owner=web, replicas=3)
    pods = [pod(f"web-2-{i}", new, on="n", app="web") for i in range(3)]
    there = ["web-2-0", "web-2-1", "web-2-2"]
    assert names(web, old, new, *pods) == there
    assert names(web, *pods) == there
    assert names(*pods, web) == there
    assert names(*pods) == there
    assert owners(parsed(web, *pods).expanded(())) == (1, 0)
    assert owners(parsed(web, old, new, *pods).expanded(())) == (1, 0)


def test_missing_pods_of_a_controller_come_last_with_its_owner():
    web = controller("Deployment", "web", replicas=5, at=1)
    new = controller("ReplicaSet", "web-2", owner=web)
    pods = [pod(f"web-2-{i}", new, on="n", app="web", at=i) for i in range(3)]
    late = pod("late", at=99)
    expanded = parsed(web, *pods, late).expanded(())
    assert [each.name for each in expanded.pods] == ["web-2-0", "web-2-1", "web-2-2", "late", "web-0004", "web-0005"]
    assert {each.owner for each in expanded.pods if each.name != "late"} == {"ReplicaSet/web-2"}
    assert (owners(expanded), expanded.absent) == ((1, 1), 2)


def test_terminating_pod_counts_as_replaced():
    web = controller("Deployment", "web", replicas=2)
    new = controller("ReplicaSet", "web-2", owner=web)
    pods = [pod(f"web-2-{i}", new, on="n", app="web") for i in range(2)]
    pods[0]["metadata"]["deletionTimestamp"] = "2026-05-01T00:00:00Z"
    expanded = parsed(web, *pods).expanded(())
    assert [each.name for each in expanded.pods] == ["web-2-0", "web-2-1", "web-0002"]
    assert [each.name for each in expanded.pods if each.terminating] == ["web-2-0"]


@pytest.mark.parametrize(
    ("spec", "status", "phases", "count"),
    [
        ({"completions": 5, "parallelism": 2}, {}, [], 5),
        ({"completions": 5, "parallelism": 2}, {"startTime": "t", "active": 2}, ["Running", "Running"], 2),
        ({"completions": 5, "parallelism": 2}, {"startTime": "t", "succeeded": 4}, [], 1),
        ({"completions": 5, "parallelism": 2}, {}, ["Succeeded", "Succeeded", "Succeeded", "Succeeded"], 1),
        ({"completions": 5, "parallelism": 2}, {"startTime": "t"}, ["Failed", "Running"], 2),
        ({"completions": 2}, {"conditions": [{"type": "Complete", "status": "True"}]}, [], 0),
        ({"completions": 2}, {"conditions": [{"type": "Failed", "status": "True"}]}, ["Failed"], 0),
        ({"completions": 2, "suspend": True}, {}, [], 0),
        ({"parallelism": 3}, {"startTime": "t"}, ["Running"], 3),
        ({"parallelism": 3}, {"startTime": "t"}, ["Running", "Succeeded"], 1),
    ],
)
def test_job_requests_its_remaining_completions(spec, status, phases, count):
    job = controller("Job", "job", status=status, **spec)
    pods = [pod(f"job-{i}", job, on="n", phase=phase) for i, phase in enumerate(phases)]
    assert len(names(job, *pods)) == count


@pytest.mark.parametrize(
    ("spec", "estimate"),
    [
        ({}, 600.0),
        ({"completions": 1, "parallelism": 3}, 600.0),
        ({"parallelism": 1}, 600.0),
        ({"completions": 2}, None),
        ({"parallelism": 2}, None),
    ],
)
def test_deadline_of_a_job_is_that_of_its_only_pod(spec, estimate):
    job = controller("Job", "job", activeDeadlineSeconds=600, **spec)
    assert {each.estimated_seconds for each in parsed(job).expanded(()).pods} == {estimate}
    running = parsed(job, pod("job-x", job, on="n"), pod("other", on="n"))
    assert {
        each.name: each.estimated_seconds for each in running.expanded(()).pods if each.name in ("job-x", "other")
    } == {"job-x": estimate, "other": None}


def test_estimate_of_a_pod_counts_before_the_deadline_of_its_job():
    job = controller("Job", "job", activeDeadlineSeconds=600)
    job["spec"]["template"]["metadata"]["annotations"] = {"steersman.dev/expected-seconds": "60"}
    assert [each.estimated_seconds for each in parsed(job).expanded(()).pods] == [60.0]
    own = pod("job-x", job, on="n", activeDeadlineSeconds=90)
    assert [each.estimated_seconds for each in parsed(job, own).expanded(()).pods] == [90.0]


@pytest.mark.parametrize("deadline", [-1, 1.5, "long"])
def test_invalid_deadline_of_a_job_leaves_it_out(deadline):
    found = parsed(controller("Job", "job", activeDeadlineSeconds=deadline))
    (problem,) = found.problems()
    assert problem.field == "spec.activeDeadlineSeconds"
    assert found.expanded(()).pods == ()


def test_daemon_set_lacks_a_pod_on_uncovered_nodes():
    nodes = tuple(node(name) for name in ("a", "b", "c"))
    agent = controller("DaemonSet", "agent")
    tied = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["c"]}]}]
    }}}}  # fmt: skip
    pods = [pod("agent-x", agent, on="a"), pod("agent-y", agent, **tied)]
    assert names(agent, *pods, nodes=nodes) == ["agent-x", "agent-y", "agent-0003"]


def test_cron_job_makes_no_pods_but_its_jobs_do():
    cron = item("CronJob", "nightly", at=0, spec={"schedule": "0 0 * * *", "jobTemplate": {"spec": {}}})
    job = controller("Job", "nightly-1", owner=cron, status={"startTime": "t"})
    found = parsed(cron, job, pod("nightly-1-a", job, on="n"))
    assert [each.name for each in found.expanded(()).pods] == ["nightly-1-a"]
    assert owners(found.expanded(())) == (1, 0)
    assert found.warnings() == ("1 CronJob left out: pods come from the Jobs that exist",)
    assert names(cron) == []


def test_owner_outside_the_file_is_recognised_by_its_reference():
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "train", "uid": "u"}}
    expanded = parsed(*(pod(f"train-{i}", owner, on="n") for i in range(3))).expanded(())
    assert (len(expanded.pods), *owners(expanded)) == (3, 1, 0)


def test_overlapping_selectors_are_resolved_by_replica_set_name():
    web = controller("Deployment", "web", replicas=1)
    other = controller("Deployment", "shop", replicas=1)
    other["spec"]["selector"] = web["spec"]["selector"]
    other["spec"]["template"]["metadata"] = web["spec"]["template"]["metadata"]
    gone = controller("ReplicaSet", "web-1", owner=web)
    for order in ((other, web), (web, other)):
        found = parsed(*order, pod("web-1-a", gone, on="n", app="web")).expanded(())
        assert sorted(each.name for each in found.pods) == ["shop-0001", "web-1-a"]


def test_pods_are_ordered_by_creation_time_then_file_order():
    assert names(pod("b", at=5), pod("a", at=3), pod("c", at=5)) == ["a", "b", "c"]
    assert names(pod("b", at=None), pod("a", at=None)) == ["b", "a"]
    assert names(pod("b", at=None), pod("a", at=9)) == ["a", "b"]


# Any part of any controllers -----------------------------------------------------------------------------------------

DIRECT = ("StatefulSet", "ReplicationController", "ReplicaSet", "Job")


@dataclass
class Made:
    """What is in a dump, and how many pods of it there are to be counted by hand."""

    there: list[Object] = field(default_factory=list)
    pods: int = 0
    owners: int = 0
    unowned: int = 0
    finished: int = 0


@st.composite
def dumps(draw: st.DrawFn) -> Made:
    made = Made()
    for i in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(("Deployment", "Pod", *DIRECT)))
        name, replicas = f"{draw(st.sampled_from(('web', 'web-a', 'db')))}-{i}", draw(st.integers(0, 4))
        if kind == "Pod":
            made.there.append(pod(name, on=draw(st.sampled_from(("", "n"))), at=draw(moments)))
            made.pods += 1
            made.unowned += 1
            continue
        sizes = {"completions": replicas, "parallelism": replicas} if kind == "Job" else {"replicas": replicas}
        top = controller(kind, name, at=draw(moments), **sizes)
        owners = [top]
        if kind == "Deployment":
            sets = draw(st.integers(1, 3))
            owners = [controller("ReplicaSet", f"{name}-{j}", owner=top, replicas=draw(st.integers(0, 4)))
                      for j in range(sets)]  # fmt: skip
            made.there += [each for each in owners if draw(st.booleans())]
        has_top = draw(st.booleans())
        made.there += [top] if has_top else []
        alive = succeeded = 0
        for j in range(draw(st.integers(0, 6))):
            phase = draw(st.sampled_from(("Running", "Pending", "Succeeded", "Failed")))
            if kind != "Job" and phase == "Succeeded":
                continue
            owner = draw(st.sampled_from(owners))
            on = "" if phase == "Pending" else "n"
            made.there.append(pod(f"{name}-p{j}", owner, on=on, phase=phase, app=name, at=draw(moments)))
            alive += phase in ("Running", "Pending")
            succeeded += phase == "Succeeded"
            made.finished += phase in ("Succeeded", "Failed")
        wanted = replicas
        if kind == "Job" and (alive or succeeded):
            wanted = min(replicas, replicas - succeeded)
        present = [each for each in owners if each in made.there and each is not top]
        absent = 0
        for each in present:
            mine = sum(
                1
                for other in made.there
                if other["kind"] == "Pod"
                and other["metadata"].get("ownerReferences", [{}])[0].get("name") == each["metadata"]["name"]
                and other["status"]["phase"] in ("Running", "Pending")
            )
            absent += max(0, each["spec"]["replicas"] - mine)
        if not has_top:
            some = alive or any(each["spec"]["replicas"] for each in present)
            made.pods += alive + absent
            # Without the Deployment its ReplicaSets are known by name: those there say whose they are.
            made.owners += _owners_without_top(made.there, owners, kind, bool(some))
        else:
            made.pods += max(alive + absent, wanted)
            made.owners += max(alive + absent, wanted) > 0
    made.there = list(draw(st.permutations(made.there)))
    return made


moments = st.one_of(st.none(), st.integers(0, 5))


def _owners_without_top(there: list[Object], owners: list[Object], kind: str, some: bool) -> int:
    """How many owners pods have whose controller at the top is not there."""
    alive = {
        each["metadata"]["ownerReferences"][0]["name"]
        for each in there
        if each["kind"] == "Pod" and "ownerReferences" in each["metadata"]
        and each["status"]["phase"] in ("Running", "Pending")
    }  # fmt: skip
    known = {each["metadata"]["name"]: each in there for each in owners}
    if kind != "Deployment":
        return int(some)
    gone = sum(1 for name, present in known.items() if name in alive and not present)
    kept = any(
        present and (name in alive or each["spec"]["replicas"])
        for each in owners
        for name, present in [(each["metadata"]["name"], known[each["metadata"]["name"]])]
    )
    return gone + kept


@given(dumps())
@settings(max_examples=examples(300), deadline=None)
def test_partial_controllers_are_counted_once(made: Made) -> None:
    expanded = parsed(*made.there).expanded(())
    counted: Any = (len(expanded.pods), *owners(expanded), expanded.finished)
    assert counted == (made.pods, made.owners, made.unowned, made.finished)
    assert len({(each.namespace, each.name) for each in expanded.pods}) == len(expanded.pods)
