"""Pods that wait for other pods: for their placement, for their gang, for an end, or for the room of others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.errors import raises

from steersman.cluster.model import (
    Constraints,
    Node,
    Pod,
    PodAffinityTerm,
    PodClass,
    PodSelector,
    Requests,
    Requirement,
    TopologySpread,
)
from steersman.core.errors import SteersmanError
from steersman.live.service.scoring.explanation import explain_pod
from steersman.policies.kube_scheduler.preemption import NO_ROOM
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.prediction.moment import moment_of
from steersman.simulation.prediction.prediction import predict_queue, predict_wait
from steersman.simulation.result import Protocol, RunResult
from steersman.simulation.run import Simulator
from steersman.workloads.formats.kubernetes.objects import write_workload
from steersman.workloads.loading import load_workload
from steersman.workloads.workload import Recorded, RunningPods, Workload

ANYWHERE = Constraints()
TIMES = {"creation_time": 0.0, "deletion_time": 10.0}


def node(name: str, cpu: int = 4, gpus: int = 0, **labels: str) -> Node:
    return Node(name, 1000 * cpu, 1 << 34, 110, gpu_count=gpus, labels={"host": name, **labels})


def pod(name: str, cpu: float = 1, constraints: Constraints = ANYWHERE, app: str = "", **fields: Any) -> Pod:
    requests = Requests(int(1000 * cpu), 1 << 20, gpu_count=fields.pop("gpus", 0), gpu_milli=1000)
    return Pod(name, PodClass(requests, constraints), labels={"app": app} if app else {}, **fields)


def selector(app: str) -> PodSelector:
    return PodSelector((Requirement("app", "In", (app,)),), frozenset({"default"}))


def near(app: str) -> Constraints:
    return Constraints(affinity=(PodAffinityTerm(selector(app), "host"),))


def run(workload: Workload, protocol: Protocol = "arrivals", policy: str = "kube-default") -> RunResult:
    return Simulator(workload).run(policy, protocol=protocol, record=True)


def events(result: RunResult, *outcomes: str) -> list[tuple[float, str, str]]:
    """Return time, pod and node of the events with one of these outcomes."""
    found = result.placements
    assert found is not None
    rows = zip(found.time.tolist(), found.pod, found.node, found.outcome, strict=True)
    return [(time, name, where) for time, name, where, outcome in rows if outcome in outcomes]


def bound(result: RunResult) -> set[str]:
    return {name for _, name, _ in events(result, "bound")}


def starts(result: RunResult) -> list[tuple[float, str]]:
    return [(time, name) for time, name, _ in events(result, "bound")]


def metric(result: RunResult, name: str) -> float:
    return next(each.value for each in result.metrics if each.name == name)


# What waits for the placement of another pod


@pytest.mark.parametrize("policy", ["kube-default", "fgd", "random"])
def test_a_pod_starts_once_the_pods_that_it_needs_are_placed(policy: str) -> None:
    """Each needs the next one; the first comes first."""
    pods = (pod("a", constraints=near("b"), app="a"), pod("b", constraints=near("c"), app="b"), pod("c", app="c"))
    result = run(Workload("chain", (node("n"), node("m")), pods), policy=policy)
    where = {name: on for _, name, on in events(result, "bound")}
    assert len(where) == 3
    assert len(set(where.values())) == 1
    assert events(result, "waiting") == [(0.0, "a", ""), (1.0, "b", "")]
    assert (metric(result, "pods_bound"), metric(result, "pods_failed")) == (3, 0)
    assert metric(result, "pods_failed_cpu_only") == 0


def test_a_pod_whose_target_never_comes_fails_once() -> None:
    pods = (pod("a", constraints=near("b")), pod("c"), pod("d"))
    result = run(Workload("lonely", (node("n"),), pods))
    assert [name for _, name, _ in events(result, "failed")] == ["a"]
    assert metric(result, "pods_failed") == 1


def test_only_as_many_pods_start_beside_their_target_as_fit() -> None:
    pods = (*(pod(f"a{i}", constraints=near("b")) for i in range(6)), pod("b", app="b"), pod("c", 4))
    result = run(Workload("full", (node("n"), node("m")), pods))
    assert bound(result) == {"a0", "a1", "a2", "b", "c"}
    assert metric(result, "pods_failed") == 3


def test_a_spread_pod_starts_once_other_zones_have_pods() -> None:
    spread = TopologySpread(1, "zone", True, selector("x"), honor_node_affinity=False)
    only = {zone: Constraints(node_selector=(("zone", zone),)) for zone in "ab"}
    spread_in_a = replace(only["a"], spread=(spread,))
    pods = (
        *(pod(f"s{i}", constraints=spread_in_a, app="x") for i in range(3)),
        pod("other", constraints=only["b"]),
        pod("first", constraints=only["b"], app="x"),
        pod("second", constraints=only["b"], app="x"),
    )
    result = run(Workload("spread", (node("n", zone="a"), node("m", zone="b")), pods))
    alone = [(0.0, "s0"), (3.0, "other")]
    assert starts(result) == [*alone, (4.0, "first"), (4.0, "s1"), (5.0, "second"), (5.0, "s2")]


def test_a_waiting_pod_starts_when_its_target_arrives() -> None:
    """In `timed` too, where nothing ends in between."""
    early = pod("early", constraints=near("b"), creation_time=0.0, deletion_time=50.0)
    late = pod("late", app="b", creation_time=30.0, deletion_time=90.0)
    result = run(Workload("timed", (node("n"),), (early, late)), "timed")
    assert events(result, "bound") == [(30.0, "late", "n"), (30.0, "early", "n")]


def test_a_gang_waits_for_the_pod_that_it_needs() -> None:
    gang = tuple(pod(f"g{i}", constraints=near("b"), gang="g") for i in range(2))
    result = run(Workload("gang", (node("n", 2), node("m", 3)), (*gang, pod("b", app="b"))))
    where = {name: on for _, name, on in events(result, "bound")}
    assert where in ({"b": "m", "g0": "m", "g1": "m"}, {"b": "n"})


def test_rules_of_every_member_of_a_gang_count() -> None:
    """The second pod of the gang needs one that comes later, and both start then."""
    members = (pod("g0", gang="g"), pod("g1", constraints=near("b"), gang="g"))
    target = pod("b", app="b", constraints=Constraints(node_selector=(("host", "m"),)))
    result = run(Workload("gang", (node("n"), node("m")), (*members, target)))
    assert events(result, "waiting") == [(0.0, "g1", ""), (0.0, "g0", "")]
    assert starts(result) == [(2.0, "b"), (2.0, "g0"), (2.0, "g1")]
    assert {on for _, name, on in events(result, "bound") if name == "g1"} == {"m"}


def test_wait_predicts_the_start_of_a_pod_that_needs_a_later_one() -> None:
    pods = (pod("a", constraints=near("b")), pod("b", app="b"))
    workload = Workload("w", (node("n"),), pods, recorded=(None, None), from_now=True)
    assert predict_wait(moment_of(workload, 0.0), pods[:1], resolve("fgd"), rollouts=8).p90 == 0.0


# Gangs


def gang(count: int, minimum: int, cpu: float = 1, **fields: Any) -> tuple[Pod, ...]:
    return tuple(pod(f"g{i}", cpu, gang="g", gang_minimum=minimum, **fields) for i in range(count))


STARTING = [(5, 2, 3), (5, 3, 3), (5, 4, 0), (5, 0, 0), (2, 3, 0), (5, 1, 3), (1, 2, 0)]


@pytest.mark.parametrize(("count", "minimum", "starting"), STARTING)
def test_a_gang_starts_with_its_minimum_and_goes_on_with_what_fits(count: int, minimum: int, starting: int) -> None:
    """Three fit; nothing starts where fewer than the minimum do, or there are fewer."""
    result = run(Workload("gang", (node("n", 3),), (*gang(count, minimum), pod("later", 0.5))))
    assert len(bound(result) - {"later"}) == starting
    assert ("later" in bound(result)) == (starting < 3)
    assert metric(result, "pods_failed") == count + 1 - len(bound(result))


def test_members_that_fit_start_though_the_first_does_not() -> None:
    """A launcher asks for more than there is; the workers reach the minimum without it."""
    launcher = pod("launcher", 9, gang="g", gang_minimum=3)
    workers = tuple(pod(f"w{i}", gang="g", gang_minimum=3) for i in range(4))
    result = run(Workload("gang", (node("n"),), (launcher, *workers)))
    assert bound(result) == {"w0", "w1", "w2", "w3"}
    needs_all = tuple(replace(each, gang_minimum=5) for each in (launcher, *workers))
    assert bound(run(Workload("gang", (node("n"),), needs_all))) == set()


def test_a_gang_of_unequal_pods_does_not_need_as_many_of_the_largest() -> None:
    """Two workers of four GPUs and a master without any fill a node with eight."""
    pods = (*(pod(f"w{i}", gang="g", gpus=4) for i in range(2)), pod("master", gang="g"))
    result = run(Workload("gang", (node("n", gpus=8),), pods))
    assert len(bound(result)) == 3
    assert not result.warnings


@pytest.mark.parametrize("master_first", [True, False])
def test_a_gang_of_unequal_pods_that_never_fits_fails_at_once(master_first: bool) -> None:
    workers = tuple(pod(f"w{i}", gang="g", gpus=8, **TIMES) for i in range(3))
    master = pod("master", gang="g", **TIMES)
    pods = (master, *workers) if master_first else (*workers, master)
    result = run(Workload("gang", (node("n", gpus=8), node("m", gpus=8)), pods), "timed")
    assert metric(result, "pods_failed") == 4
    assert result.warnings == ("gang: 4 of 4 pods are in gangs that do not fit together: g",)


def test_running_members_count_towards_the_minimum() -> None:
    pods = gang(4, 3)
    for running, starting in ((2, {"g0", "g1", "g2"}), (0, set())):
        recorded = tuple(Recorded("n") if i < running else None for i in range(4))
        others = tuple(pod(f"other{i}", 2 - running / 2) for i in range(2))
        recorded += tuple(Recorded(each) for each in ("n", "m"))
        workload = Workload("gang", (node("n", 4), node("m", 2)), (*pods, *others), recorded=recorded, from_now=True)
        result = run(replace(workload, nodes=(node("n", 4 if running else 3), node("m", 2))))
        assert bound(result) - {"other0", "other1"} >= starting


def test_the_rest_of_a_gang_starts_when_others_end() -> None:
    members = tuple(replace(each, **TIMES) for each in gang(4, 2))
    result = run(Workload("timed", (node("n", 3),), members), "timed")
    assert starts(result) == [(0.0, "g0"), (0.0, "g1"), (0.0, "g2"), (10.0, "g3")]


@pytest.mark.parametrize("order", ["age", "fcfs", "age:easy", "shortest"])
def test_a_waiting_gang_starts_with_its_minimum(order: str) -> None:
    first = pod("first", 3, creation_time=0.0, deletion_time=5.0)
    members = tuple(replace(each, creation_time=1.0, deletion_time=11.0) for each in gang(4, 3))
    result = run(Workload("timed", (node("n", 3),), (first, *members)), "timed", f"best-fit+{order}")
    assert starts(result) == [(0.0, "first"), (5.0, "g0"), (5.0, "g1"), (5.0, "g2"), (15.0, "g3")]


def test_wait_counts_the_minimum_of_a_gang() -> None:
    for count, minimum, impossible in (
        (4, 2, ""),
        (4, 4, "gang g of 4 pods does not fit on the empty cluster: it needs 4 CPUs, 0.00391 GiB at once"),
        (2, 3, "gang g of 2 pods lacks 1 of the 3 pods that must run at once"),
    ):
        pods = gang(count, minimum)
        workload = Workload("w", (node("n", 3),), pods, recorded=(None,) * count, from_now=True)
        found = predict_queue(moment_of(workload, 0.0), resolve("fgd"), rollouts=8)
        assert {each.impossible for each in found.pods} == {impossible}
        if not impossible:
            assert [each.p90 == 0.0 for each in found.pods] == [True, True, True, False]


def load(tmp_path: Path, *objects: dict[str, Any], running: RunningPods = RunningPods.FREE) -> Workload:
    file = tmp_path / "cluster.yaml"
    n = {"cpu": "3", "memory": "8Gi", "pods": "110"}
    first = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": n}}
    file.write_text(yaml.safe_dump_all([first, *objects]))
    return load_workload(file, file, running=running)


def manifest(name: str, **metadata: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    metadata = {"name": name, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


GROUPS = {
    "coscheduling": ("scheduling.x-k8s.io/v1alpha1", "labels", "scheduling.x-k8s.io/pod-group"),
    "older coscheduling": ("scheduling.sigs.k8s.io/v1alpha1", "labels", "pod-group.scheduling.sigs.k8s.io"),
    "Volcano": ("scheduling.volcano.sh/v1beta1", "annotations", "scheduling.k8s.io/group-name"),
    "KAI": ("scheduling.run.ai/v2alpha2", "annotations", "pod-group-name"),
}


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.parametrize(("minimum", "starting"), [(2, 3), (4, 0)])
def test_a_pod_group_says_how_many_pods_start_together(kind: str, minimum: int, starting: int, tmp_path: Path) -> None:
    version, field, key = GROUPS[kind]
    group = {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": minimum}}
    workload = load(tmp_path, group, *(manifest(f"p{i}", **{field: {key: "g"}}) for i in range(4)))
    assert {(each.gang, each.gang_minimum) for each in workload.pods} == {("g", minimum)}
    assert len(bound(run(workload))) == starting
    assert not any("nor make pods" in warning for warning in workload.warnings)


def test_a_pod_group_of_another_namespace_is_not_meant(tmp_path: Path) -> None:
    spec = {"spec": {"minMember": 4}}
    metadata = {"name": "g", "namespace": "other"}
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": metadata, **spec}
    notes = {"scheduling.k8s.io/group-name": "g"}
    workload = load(tmp_path, group, *(manifest(f"p{i}", annotations=notes) for i in range(4)))
    assert len(bound(run(workload))) == 3


@pytest.mark.parametrize(("total", "starting"), [("3", 3), ("5", 0)])
def test_kueue_starts_groups_of_plain_pods_whole(total: str, starting: int, tmp_path: Path) -> None:
    labels, notes = {"kueue.x-k8s.io/pod-group-name": "g"}, {"kueue.x-k8s.io/pod-group-total-count": total}
    workload = load(tmp_path, *(manifest(f"p{i}", labels=labels, annotations=notes) for i in range(3)))
    assert len(bound(run(workload))) == starting


@pytest.mark.parametrize(("minimum", "starting"), [("4", 0), ("3", 3), (None, 0), ("5", 0)])
def test_a_gang_of_koordinator_starts_with_its_minimum(minimum: str | None, starting: int, tmp_path: Path) -> None:
    key = "gang.scheduling.koordinator.sh/"
    notes = {f"{key}name": "g", **({} if minimum is None else {f"{key}min-available": minimum})}
    workload = load(tmp_path, *(manifest(f"p{i}", annotations=notes) for i in range(4)))
    assert len(bound(run(workload))) == starting


def test_task_groups_of_yunikorn_are_named(tmp_path: Path) -> None:
    notes = {"yunikorn.apache.org/task-groups": '[{"name": "t", "minMember": 4}]'}
    workload = load(tmp_path, *(manifest(f"p{i}", annotations=notes) for i in range(4)))
    assert any("yunikorn.apache.org/task-groups is not modelled" in warning for warning in workload.warnings)


@pytest.mark.parametrize(("available", "starting"), [(None, 0), (3, 3), (2, 3), (4, 0)])
def test_a_volcano_job_is_a_gang(available: int | None, starting: int, tmp_path: Path) -> None:
    template = {"spec": manifest("p")["spec"]}
    tasks = [{"name": name, "replicas": count, "template": template} for name, count in (("ps", 1), ("worker", 3))]
    spec = {"tasks": tasks, **({} if available is None else {"minAvailable": available})}
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "v"}, "spec": spec}
    assert len(bound(run(load(tmp_path, job)))) == starting


# How many pods exist at a time


def job(completions: int, parallelism: int | None) -> dict[str, Any]:
    template = {"spec": {**manifest("p")["spec"], "restartPolicy": "Never"}}
    spec = {"completions": completions, "template": template, **({"parallelism": parallelism} if parallelism else {})}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}


@pytest.mark.parametrize(("parallelism", "starting"), [(None, 1), (2, 2), (7, 3)])
def test_a_job_never_has_more_pods_than_its_parallelism(parallelism: int | None, starting: int, tmp_path: Path) -> None:
    workload = load(tmp_path, job(7, parallelism), manifest("z"))
    result = run(workload)
    assert len(workload.pods) == 8
    assert len([name for name in bound(result) if name.startswith("j")]) == starting
    assert ("z" in bound(result)) == (starting < 3)
    assert metric(result, "pods_failed") == (5 if parallelism == 7 else 0)


def test_the_next_pod_of_a_job_comes_when_one_ends() -> None:
    pods = tuple(pod(f"j{i}", owner="Job/j", at_once=2, **TIMES) for i in range(5))
    result = run(Workload("timed", (node("n", 8),), (*pods, pod("z", **TIMES))), "timed")
    at_once = [(0.0, "j0"), (0.0, "j1"), (0.0, "z")]
    assert starts(result) == [*at_once, (10.0, "j2"), (10.0, "j3"), (20.0, "j4")]
    # It waits for an end of its controller, not for the scheduler.
    assert not events(result, "waiting")
    assert metric(result, "waiting_time_max_seconds") == 0


def test_a_job_without_parallelism_has_no_pods(tmp_path: Path) -> None:
    paused = job(4, None)
    paused["spec"]["parallelism"] = 0
    assert bound(run(load(tmp_path, paused, manifest("z")))) == {"z"}
    with raises(SteersmanError, "asks for 0 of them"):
        load(tmp_path, paused)


def test_jobs_of_one_owner_have_their_own_pods_at_a_time(tmp_path: Path) -> None:
    """Two Jobs of a JobSet, each of which has one of its three pods at a time."""
    template = {"spec": job(3, 1)["spec"]}
    parts = [{"name": "w", "replicas": 2, "template": template}]
    resource = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "js"}}
    workload = load(tmp_path, resource | {"spec": {"replicatedJobs": parts}})
    assert [pod.owner for pod in workload.pods] == ["JobSet/js"] * 6, "as without a limit"
    assert len(bound(run(workload))) == 2


def workflow(limit: int | None = None, **template: Any) -> dict[str, Any]:
    leaf = {"name": "t", "container": manifest("p")["spec"]["containers"][0]}
    spec = {"entrypoint": "main", "templates": [{"name": "main", **template}, leaf]}
    spec |= {} if limit is None else {"parallelism": limit}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "wf"}, "spec": spec}


def calls(*names: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": name, "template": "t", **fields} for name in names]


@pytest.mark.parametrize(
    ("made", "at_once"),
    [
        (workflow(steps=[calls("a"), calls("b"), calls("c")]), 1),
        (workflow(steps=[calls("a"), calls("b", "c"), calls("d")]), 2),
        (workflow(steps=[calls("a", withItems=[1, 2, 3, 4])]), 4),
        (workflow(3, steps=[calls("a", withItems=[1, 2, 3, 4])]), 3),
        (workflow(parallelism=2, steps=[calls("a", withItems=[1, 2, 3, 4])]), 2),
        (workflow(dag={"tasks": calls("a") + calls("b", "c", dependencies=["a"]) + calls("d", depends="b && c")}), 2),
        (workflow(dag={"tasks": calls("a", "b", "c")}), 3),
        (workflow(dag={"tasks": calls("a", depends="b") + calls("b", depends="a")}), 2),
    ],
)
def test_steps_of_a_workflow_follow_each_other(made: dict[str, Any], at_once: int, tmp_path: Path) -> None:
    workload = load(tmp_path, made)
    assert {each.at_once for each in workload.pods} == {at_once}
    assert len(bound(run(workload))) == min(at_once, 3)


@pytest.mark.parametrize("order", ["fcfs", "age:easy"])
def test_a_pod_of_a_job_that_comes_later_waits_in_its_turn(order: str) -> None:
    pods = tuple(pod(f"j{i}", owner="Job/j", at_once=1, **TIMES) for i in range(2))
    other = pod("other", 4, creation_time=5.0, deletion_time=25.0)
    result = run(Workload("timed", (node("n", 4),), (*pods, other)), "timed", f"best-fit+{order}")
    assert starts(result) == [(0.0, "j0"), (10.0, "other"), (30.0, "j1")]


def test_recorded_pods_are_compared_without_those_that_come_later() -> None:
    pods = tuple(pod(f"j{i}", owner="Job/j", at_once=1) for i in range(4))
    workload = Workload("w", (node("n"),), pods, recorded=(Recorded("n"), None, None, None))
    result = Simulator(workload).as_it_is()
    assert result is not None
    assert metric(result, "pods_failed") == 0


def test_fields_of_pods_that_depend_on_others_are_written(tmp_path: Path) -> None:
    first = pod("a", gang="g", gang_minimum=2, at_once=3, owner="Job/j", nominated="n", preempts=False)
    write_workload(Workload("w", (node("n"),), (first,)), tmp_path)
    again = load_workload(tmp_path / "nodes.yaml", tmp_path / "pods.yaml").pods[0]
    assert again == replace(first, pod_class=again.pod_class)


def test_inflation_never_draws_pods_that_come_later() -> None:
    pods = tuple(pod(f"j{i}", owner="Job/j", at_once=2, gpus=1) for i in range(50))
    plan = schedule(Workload("w", (node("n", 90, gpus=8),), pods), "inflation", seed=1, ratio=1.3, load=None)
    assert set(plan.pods.tolist()) == {0, 1}


# Pods of higher priority


def occupied(high: Pod, low_cpu: float = 4, **low: Any) -> Workload:
    running = pod("low", low_cpu, **low)
    return Workload("w", (node("n"),), (running, high), recorded=(Recorded("n"), None), from_now=True)


NOBODY = "preempt no pod for default/high:"
PREEMPTS = "kube-scheduler may preempt pods of lower priority on n for default/high, which steersman does not do."


@pytest.mark.parametrize(
    ("high", "low", "preempts", "explained"),
    [
        (pod("high", 3, priority=5), {}, True, "preempt default/low on node n, which steersman does not do."),
        (pod("high", 3, priority=5, preempts=False), {}, False, f"{NOBODY} preemptionPolicy: Never."),
        (pod("high", 3, priority=5), {"priority": 5}, False, ""),
        (pod("high", 5, priority=5), {}, False, f"{NOBODY} no node would take it, whatever pods were removed."),
        (pod("high", 3, near("nothing"), priority=5), {}, False, f"{NOBODY} {NO_ROOM}."),
        (pod("high", 2, priority=5), {"low_cpu": 2}, False, ""),
    ],
)
def test_a_pod_that_could_preempt_others_is_named(
    high: Pod, low: dict[str, Any], preempts: bool, explained: str
) -> None:
    workload = occupied(high, **low)
    result = run(workload)
    assert any("preempt" in warning and warning.endswith(": high") for warning in result.warnings) == preempts
    assert result.placements is not None
    assert any(PREEMPTS in reason for reason in result.placements.reason) == preempts
    queue = predict_queue(moment_of(workload, 0.0), resolve("fgd"), rollouts=2)
    assert (f"no pod is preempted: {PREEMPTS}" in queue.assumptions) == preempts
    bound_low = replace(workload, pods=(workload.pods[0].bound("n"), high), recorded=())
    sentence = f"kube-scheduler would {explained}" if explained else ""
    assert explain_pod(resolve("fgd"), bound_low, 1).preemption == sentence


def test_victims_free_what_others_of_their_priority_refuse() -> None:
    """The anti-affinity of a pod that would be preempted refuses nobody any more."""
    alone = Constraints(anti_affinity=(PodAffinityTerm(selector("high"), "host"),))
    assert run(occupied(pod("high", 1, app="high", priority=1), 1, constraints=alone)).warnings


def test_priorities_of_files_say_who_preempts(tmp_path: Path) -> None:
    low = manifest("low")
    low["spec"] |= {"nodeName": "n"}
    low["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    for policy, named in (("PreemptLowerPriority", True), ("Never", False)):
        high = manifest("high")
        high["spec"] |= {"priorityClassName": "high"}
        value = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 9,
        }
        workload = load(tmp_path, value | {"preemptionPolicy": policy}, low, high, running=RunningPods.FROM_NOW)
        assert any("may preempt" in warning for warning in run(workload).warnings) == named


@pytest.mark.parametrize(("priority", "starts"), [(1000, False), (999, False), (1001, True)])
def test_room_is_kept_for_a_nominated_pod(priority: int, starts: bool) -> None:
    """Of the node's four CPUs two are free, and three are kept for a pod that waits for another to end."""
    low, high = pod("low", 2, terminating=True), pod("high", 3, priority=1000, nominated="n")
    other = pod("other", 1, priority=priority)
    pods = (low, other, high) if priority > 1000 else (low, high, other)
    workload = Workload("w", (node("n"),), pods, recorded=(Recorded("n"), None, None), from_now=True)
    result = run(workload)
    assert ("other" in bound(result)) == starts
    assert "high" not in bound(result)
    if not starts:
        assert result.placements is not None
        assert result.placements.reason[-1].startswith("0/1 nodes are available: 1 Insufficient cpu.")
    as_written = replace(workload, pods=(low.bound("n"), *pods[1:]), recorded=())
    found = explain_pod(resolve("kube-default"), as_written, pods.index(other))
    assert (found.node, bool(found.refused)) == (("n", False) if starts else ("", True))


def test_a_nominated_pod_takes_its_own_room_and_then_keeps_none() -> None:
    high, other = pod("high", 3, priority=9, nominated="n"), pod("other", 1)
    workload = Workload("w", (node("n"), node("m", 1)), (high, other), recorded=(None, None), from_now=True)
    assert bound(run(workload)) == {"high", "other"}


def test_devices_are_kept_for_a_nominated_pod() -> None:
    low = pod("low", gpus=2, terminating=True)
    high = pod("high", gpus=3, priority=9, nominated="n")
    others = tuple(pod(f"other{i}", gpus=1) for i in range(2))
    recorded = (Recorded("n", 3), *(None,) * 3)
    workload = Workload("w", (node("n", gpus=4),), (low, high, *others), recorded=recorded, from_now=True)
    assert bound(run(workload)) == {"low"}
    without = replace(workload, pods=(low, replace(high, nominated=""), *others))
    assert bound(run(without)) == {"low", "other0", "other1"}
