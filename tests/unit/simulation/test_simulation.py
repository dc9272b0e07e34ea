"""The compiled run against a slow, obvious one in plain Python, and what must hold of every run."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.errors import raises
from tests.support.nightly import examples
from tests.support.slow_nodes import SlowNode

from steersman.cluster.model import Constraints, Node, Pod, PodClass, Requests
from steersman.core.errors import UsageError
from steersman.simulation.arrivals import schedule
from steersman.simulation.measures import COURSE
from steersman.simulation.run import Simulator
from steersman.workloads.formats.openb import embedded
from steersman.workloads.profile import TypicalPod
from steersman.workloads.workload import Workload

POLICIES = ["dot-product", "gpu-clustering", "gpu-packing", "best-fit", "fgd"]


def kind_of(pod: Pod) -> int:
    """Return the number of devices, 0 for a share of one."""
    return 0 if pod.requests.gpu_milli < 1000 else pod.requests.gpu_count


def slow_score(policy: str, node: SlowNode, pod: Pod, profile: tuple[TypicalPod, ...]) -> tuple[float, list[int]]:
    r, c, g = pod.requests, node.cpu, sum(node.gpus)
    rg, devices = r.gpu_total_milli, node.best_devices(pod)
    if policy == "dot-product":
        return int(100 * (1 - (c / 128000 * (r.cpu_milli / 128000) + g / 8000 * (rg / 8000)) / 2)), devices
    if policy == "best-fit":
        return int(100 * (1 - (0.5 * ((c - r.cpu_milli) / 128000) + 0.5 * ((g - rg) / 8000)))), devices
    if policy == "fgd":
        return slow_fgd(node, pod, profile)
    if not r.gpu_count:
        return 0, devices
    if policy == "gpu-clustering":
        kind, here = kind_of(pod), {kind_of(each) for each in node.pods if each.requests.gpu_count}
        bonus = 25 if not here else 75 if here == {kind} else 50 if kind in here else 0
        return int(25 * (8000 - g) / 8000) + bonus, devices
    if all(left == 1000 for left in node.gpus):
        return max(33 - len(node.gpus), len(node.gpus)), devices
    left = [node.gpus[d] for d in devices]
    whole = sum(x == 1000 for x in left)
    return (max(50 - whole, 33) if whole else max(100 - sum(x // 10 for x in left) // 10, 50)), devices


def slow_fgd(node: SlowNode, pod: Pod, profile: tuple[TypicalPod, ...]) -> tuple[float, list[int]]:
    options = [node.best_devices(pod)]
    if pod.requests.gpu_count == 1 and pod.requests.gpu_milli < 1000:
        options = [[d] for d, left in enumerate(node.gpus) if left >= pod.requests.gpu_milli]
    before, best = node.fragmentation(profile), (-1.0, options[0])
    for devices in options:
        node.take(pod, devices)
        after = node.fragmentation(profile)
        node.take(pod, devices, -1)
        # Not truncated: sums in another order may fall to either side of a whole number.
        score = 100 / (1 + math.exp((after - before) / 1000))
        if score > best[0] + 1e-9:
            best = (score, devices)
    return best


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    models = ["T4", "P100"]
    nodes = tuple(
        Node(f"n{i}", draw(st.sampled_from([4000, 8000, 64000])), draw(st.sampled_from([1 << 32, 1 << 36])),
             gpu_count=(gpus := draw(st.integers(0, 4))), gpu_model=draw(st.sampled_from(models)) if gpus else "")
        for i in range(draw(st.integers(1, 6)))
    )  # fmt: skip
    kinds = st.one_of(
        st.just((0, 0)),
        st.tuples(st.just(1), st.sampled_from([100, 250, 500, 1000])),
        st.tuples(st.integers(2, 3), st.sampled_from([400, 1000])),
    )
    classes = [
        PodClass(
            Requests(
                draw(st.sampled_from([0, 500, 3000])), draw(st.sampled_from([0, 1 << 30])), gpu_count=k, gpu_milli=m
            ),
            Constraints(gpu_models=tuple(draw(st.sets(st.sampled_from(models), max_size=1))) if k else ()),
        )
        for k, m in draw(st.lists(kinds, min_size=1, max_size=5))
    ]
    pods = tuple(
        Pod(f"p{i:03d}", draw(st.sampled_from(classes)), priority=draw(st.integers(0, 1)),
            creation_time=float(draw(st.integers(0, 20))), deletion_time=float(draw(st.integers(20, 40))))
        for i in range(draw(st.integers(1, 40)))
    )  # fmt: skip
    return Workload("drawn", nodes, pods)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=examples(60))
@given(workload=workloads(), seed=st.integers(0, 5))
def test_every_decision_is_optimal_by_reference_scores(policy, workload, seed):
    simulator = Simulator(workload)
    result = simulator.run(policy, protocol="arrivals", seed=seed, record=True)
    ranked = [workload.nodes[i] for i in schedule(workload, "arrivals", seed=seed, ratio=1, load=None).nodes]
    slow = {node.name: SlowNode(node) for node in ranked}
    events = result.placements
    for pod, chosen, devices, outcome in zip(workload.pods, events.node, events.devices, events.outcome, strict=True):
        fitting = {name: node for name, node in slow.items() if node.fits(pod)}
        scores = {name: slow_score(policy, node, pod, simulator.profile) for name, node in fitting.items()}
        assert (outcome == "bound") == bool(scores)
        if not scores:
            assert chosen == ""
            continue
        taken = [int(d) for d in devices.split("-")] if devices else []
        if policy == "fgd":
            assert int(scores[chosen][0] + 1e-6) >= int(max(score for score, _ in scores.values()) - 1e-6)
        else:
            best = max(score for score, _ in scores.values())
            assert chosen == next(name for name, (score, _) in scores.items() if score == best)
            assert taken == sorted(scores[chosen][1])
        assert len(taken) == pod.requests.gpu_count
        slow[chosen].take(pod, taken)
        assert min(slow[chosen].gpus, default=0) >= 0
    assert sum(1000 - left for node in slow.values() for left in node.gpus) == pytest.approx(
        result.final_nodes.gpu_count[result.final_nodes.gpu_count > 0]
        @ result.final_nodes.gpu_used_share[result.final_nodes.gpu_count > 0]
        * 1000
    )


@pytest.mark.parametrize("policy", ["fgd", "random", "gpu-packing=2,best-fit=3"])
@settings(max_examples=examples(60))
@given(workload=workloads(), seed=st.integers(0, 5))
def test_every_pod_is_running_waiting_failed_or_finished_at_every_event(policy, workload, seed):
    result = Simulator(workload).run(policy, protocol="timed", seed=seed, record=True)
    events, nodes = result.placements, {node.name: SlowNode(node) for node in workload.nodes}
    pods = {pod.name: pod for pod in workload.pods}
    status: dict[str, str] = {}
    home: dict[str, tuple[str, list[int]]] = {}
    started: dict[str, float] = {}
    clock = -math.inf
    for time, name, node, devices, outcome in zip(
        events.time, events.pod, events.node, events.devices, events.outcome, strict=True
    ):
        assert time >= clock
        clock, pod = time, pods[name]
        if outcome == "bound":
            assert status.get(name) in (None, "waiting")
            taken = [int(d) for d in devices.split("-")] if devices else []
            assert nodes[node].fits(pod)
            nodes[node].take(pod, taken)
            assert min(nodes[node].gpus, default=0) >= 0
            home[name], started[name] = (node, taken), time
        elif outcome == "finished":
            assert status[name] == "bound"
            assert time == started[name] + pod.deletion_time - pod.creation_time
            nodes[home[name][0]].take(pod, home[name][1], -1)
        else:
            assert name not in status
            assert time == pod.creation_time
            assert not any(each.fits(pod) for each in nodes.values())
            infeasible_classes = not any(SlowNode(each).fits(pod) for each in workload.nodes)
            assert (outcome == "failed") == infeasible_classes
        status[name] = outcome
    # Every pod came, everything that could run ran to its end, and the cluster is empty again.
    assert set(status) == set(pods)
    assert all(last in ("finished", "failed") for last in status.values())
    assert all(node.gpus == [1000] * node.node.gpu_count for node in nodes.values())


def test_waiting_pods_are_bound_on_departures_by_priority():
    big = PodClass(Requests(1000, 0))
    pods = (
        Pod("first", big, creation_time=0, deletion_time=10),
        Pod("normal", big, creation_time=1, deletion_time=6),
        Pod("urgent", big, priority=5, creation_time=2, deletion_time=5),
    )
    result = Simulator(Workload("w", (Node("n", 1000, 1),), pods)).run("fgd", protocol="timed", record=True)
    events = result.placements
    assert list(zip(events.time, events.pod, events.outcome, strict=True)) == [
        (0, "first", "bound"),
        (1, "normal", "waiting"),
        (2, "urgent", "waiting"),
        (10, "first", "finished"),
        (10, "urgent", "bound"),
        (13, "urgent", "finished"),
        (13, "normal", "bound"),
        (18, "normal", "finished"),
    ]
    values = {metric.name: metric.value for metric in result.metrics}
    assert values["waiting_time_mean_seconds"] == pytest.approx((0 + 12 + 8) / 3)
    assert values["waiting_time_max_seconds"] == 12
    assert values["pods_finished"] == 3
    assert values["makespan_seconds"] == 18
    assert events.reason[1] == "0/1 nodes are available: 1 Insufficient cpu."


def test_waits_under_load_exclude_the_warm_start():
    # The pods that run at the start all come at once and wait for each other.
    pods = tuple(
        Pod(f"p{i}", PodClass(Requests(1000, 0, gpu_count=1, gpu_milli=1000)), creation_time=0, deletion_time=600)
        for i in range(40)
    )
    workload = Workload("w", (Node("n", 64000, 1 << 40, gpu_count=8, gpu_model="A"),), pods)
    plan = schedule(workload, "timed", seed=3, ratio=1, load=1.5)
    assert plan.warm > 8
    assert len(plan.pods) == plan.warm + len(pods)
    assert (plan.time[: plan.warm] == 0).all()
    assert (plan.time[plan.warm :] > 0).all()
    result = Simulator(workload).run("fgd", protocol="timed", seed=3, load=1.5, record=True)
    events = list(zip(result.placements.time, result.placements.pod, result.placements.outcome, strict=True))
    bound = sorted(time for time, _, outcome in events if outcome == "bound")
    assert len(bound) == len(plan.pods)  # all come to run, in the order of their arrival: they are alike
    waits = np.array(bound) - np.sort(plan.time)
    values = {metric.name: metric.value for metric in result.metrics}
    assert values["waiting_time_mean_seconds"] == pytest.approx(waits[plan.warm :].mean())
    assert values["waiting_time_max_seconds"] == pytest.approx(waits[plan.warm :].max())
    assert values["waiting_time_p95_seconds"] == pytest.approx(np.percentile(waits[plan.warm :], 95))
    assert values["waiting_time_mean_with_warm_start_seconds"] == pytest.approx(waits.mean())
    assert values["waiting_time_p95_with_warm_start_seconds"] == pytest.approx(np.percentile(waits, 95))
    assert values["pods_delayed"] == (waits > 0).sum()
    trace = Simulator(workload).run("fgd", protocol="timed")
    assert "waiting_time_mean_with_warm_start_seconds" not in {metric.name for metric in trace.metrics}


def test_missing_durations_are_drawn_with_the_given_mean():
    cpu = PodClass(Requests(1000, 0))
    stated = tuple(Pod(f"s{i}", cpu, creation_time=i, deletion_time=i + 7) for i in range(10))
    missing = tuple(Pod(f"m{i}", cpu, creation_time=i) for i in range(4000))
    workload = Workload("w", (Node("n", 1 << 40, 1 << 40),), stated + missing)
    plan = schedule(workload, "timed", seed=1, ratio=1, load=None, mean_duration=120)
    of = dict(zip(plan.pods.tolist(), plan.duration.tolist(), strict=True))
    assert [of[i] for i in range(10)] == [7] * 10
    assert np.mean([of[i] for i in range(10, 4010)]) == pytest.approx(120, rel=0.1)
    other = schedule(workload, "timed", seed=2, ratio=1, load=None, mean_duration=120)
    assert not np.array_equal(plan.duration, other.duration)
    to_the_end = schedule(workload, "timed", seed=1, ratio=1, load=None)
    assert np.isinf(to_the_end.duration).sum() == 4000
    for load in (None, 0.5):
        with raises(UsageError):
            schedule(workload, "timed", seed=1, ratio=1, load=load, mean_duration=0)


def test_a_mix_normalises_best_fit_over_the_nodes_that_fit():
    # The second pod finds a in use and b untouched. gpu-packing: a 100 - 90 // 10 = 91, b max(33 - 1, 1) = 32.
    # best-fit: a int(100 (1 - 63/256 - 0.05)) = 70, b int(100 (1 - 1/256 - 9/160)) = 93; normalised 0 and 100.
    sizes = (("a", 64000, "A"), ("b", 2000, "B"))
    nodes = tuple(Node(name, cpu, 1 << 40, gpu_count=1, gpu_model=model) for name, cpu, model in sizes)
    share = Requests(1000, 0, gpu_count=1, gpu_milli=100)
    pods = (Pod("p", PodClass(share, Constraints(gpu_models=("A",)))), Pod("q", PodClass(share)))
    workload = Workload("w", nodes, pods)

    def second(policy: str) -> str:
        return Simulator(workload).run(policy, protocol="arrivals", record=True).placements.node[1]

    assert second("gpu-packing=1,best-fit=1") == "b"  # 91 + 0 against 32 + 100; raw it would be 161 against 125
    assert second("gpu-packing=2,best-fit=1") == "a"  # 182 + 0 against 64 + 100


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    workload = embedded("default")
    one, same, other = (Simulator(workload).run("random", seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(one.curve.gpu_allocation_percent, same.curve.gpu_allocation_percent, equal_nan=True)
    assert not np.array_equal(one.curve.gpu_allocation_percent, other.curve.gpu_allocation_percent, equal_nan=True)


def test_a_mix_of_one_policy_is_that_policy():
    workload = embedded("default")
    alone, mixed = Simulator(workload).run("fgd", seed=3), Simulator(workload).run("fgd=500", seed=3)
    assert np.array_equal(alone.curve.gpu_allocation_percent, mixed.curve.gpu_allocation_percent, equal_nan=True)
    assert mixed.policy == "fgd=500"


def metrics_of(result):
    return {metric.name: metric.value for metric in result.metrics}


def test_metrics_without_gpu_demand_are_final_values():
    nodes = (Node("n", 1000, 1 << 30, gpu_count=1, gpu_model="T4"),)
    pods = tuple(Pod(f"p{i}", PodClass(Requests(100, 0))) for i in range(12))
    result = Simulator(Workload("w", nodes, pods)).run("fgd", protocol="arrivals")
    assert metrics_of(result)["cpu_allocation_percent"] == 100
    assert metrics_of(result)["pods_failed"] == 2
    assert len(result.curve.x) == 12


def test_failed_pods_are_counted_by_kind() -> None:
    requests = {
        "cpu_only": Requests(1000, 0),
        "gpu_share": Requests(0, 0, gpu_count=1, gpu_milli=500),
        "one_gpu": Requests(0, 0, gpu_count=1, gpu_milli=1000),
        "several_gpus": Requests(0, 0, gpu_count=2, gpu_milli=1000),
    }
    # One CPU and two GPUs: each kind fits once, but the GPUs go to those that come first.
    order = ["several_gpus", "cpu_only", "one_gpu", "gpu_share", "cpu_only", "cpu_only"]
    pods = tuple(Pod(f"p{i}", PodClass(requests[kind])) for i, kind in enumerate(order))
    workload = Workload("w", (Node("n", 1000, 1 << 30, gpu_count=2, gpu_model="A"),), pods)
    found = metrics_of(Simulator(workload).run("best-fit", protocol="arrivals", shuffle=False))
    assert [found[f"pods_failed_{kind}"] for kind in requests] == [2, 1, 1, 0]
    assert [found[f"pods_arrived_{kind}"] for kind in requests] == [3, 1, 1, 1]
    assert "pods_failed_one_gpu" not in metrics_of(Simulator(workload).run("best-fit", protocol="timed", load=0.9))


def test_timed_metrics_are_taken_at_the_last_arrival():
    nodes = (Node("a", 1000, 1 << 30), Node("b", 1000, 1 << 30))
    pods = tuple(Pod(f"p{i}", PodClass(Requests(500, 0)), creation_time=i, deletion_time=100 + i) for i in range(3))
    values = metrics_of(Simulator(Workload("w", nodes, pods)).run("most-allocated", protocol="timed"))
    assert values["cpu_allocation_percent"] == 75
    assert values["nodes_used"] == 2
    assert values["cpu_balance_percent"] == pytest.approx(25)


def test_balanced_cluster_has_zero_deviation():
    pods = tuple(Pod(f"p{i}", PodClass(Requests(100 + i, 0)), creation_time=i, deletion_time=i + 3) for i in range(50))
    workload = Workload("w", (Node("a", 1700, 1 << 30), Node("b", 1300, 1 << 30)), pods)
    result = Simulator(workload).run("random", protocol="timed")
    assert result.curve.cpu_balance_percent[0] > 0
    again = Simulator(Workload("w", workload.nodes[:1], pods)).run("random", protocol="timed")
    assert set(again.curve.cpu_balance_percent) == {0.0}


def test_failure_reasons_name_missing_resources():
    nodes = (
        Node("a", 1000, 1 << 30, gpu_count=1, gpu_model="T4"),
        Node("b", 100, 1 << 30, gpu_count=1, gpu_model="P100"),
        Node("c", 1000, 1 << 30, gpu_count=1, gpu_model="P100", unschedulable=True),
    )
    wants = PodClass(Requests(500, 0, gpu_count=1, gpu_milli=1000), Constraints(gpu_models=("P100",)))
    result = Simulator(Workload("w", nodes, (Pod("p", wants),))).run("fgd", protocol="arrivals", record=True)
    assert result.placements.reason == [
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) didn't have the requested GPU model, "
        "1 node(s) were unschedulable."
    ]


def test_reasons_stay_right_as_the_cluster_fills():
    # The second failure comes after another pod has taken the CPU: the counts must have followed.
    nodes = (Node("a", 1000, 1 << 30, gpu_count=1, gpu_model="T4"),)
    gpu, cpu = PodClass(Requests(10, 0, gpu_count=1, gpu_milli=1000)), PodClass(Requests(985, 0))
    pods = tuple(Pod(f"p{i}", each) for i, each in enumerate((gpu, gpu, cpu, gpu)))
    result = Simulator(Workload("w", nodes, pods)).run("fgd", protocol="arrivals", record=True)
    assert result.placements.reason == [
        "",
        "0/1 nodes are available: 1 Insufficient GPU.",
        "",
        "0/1 nodes are available: 1 Insufficient GPU, 1 Insufficient cpu.",
    ]


def test_pods_of_several_namespaces_are_distinguished():
    pods = (Pod("p", PodClass(Requests(1, 0))), Pod("p", PodClass(Requests(1, 0)), namespace="other"))
    result = Simulator(Workload("w", (Node("a", 1000, 1),), pods)).run("fgd", protocol="arrivals", record=True)
    assert result.placements.pod == ["default/p", "other/p"]


def test_the_timeline_has_a_row_for_every_event_and_ends_where_the_metrics_do():
    workload = embedded("default")
    workload = replace(workload, nodes=workload.nodes[:20], pods=workload.pods[:150])
    result = Simulator(workload).run("fgd", protocol="arrivals", record=True)
    timeline = result.timeline
    assert len(timeline.x) == len(result.placements.pod) == 150
    assert list(timeline.measured) == list(COURSE)
    assert timeline.gpu_allocation_percent[-1] == metrics_of(result)["gpu_allocation_percent"]
    assert timeline.pods_waiting[-1] == metrics_of(result)["pods_failed"]
    assert not hasattr(timeline, "gpu")
    assert Simulator(workload).run("fgd", protocol="arrivals").timeline is None


def test_unplaceable_pods_and_missing_models_are_warnings():
    nodes = (Node("a", 1000, 1 << 30, gpu_count=1, gpu_model="T4"),)
    wants = {name: Constraints(gpu_models=models) for name, models in (("x", ("V100", "A10")), ("y", ("T4", "V100")))}
    pods = tuple(Pod(n, PodClass(Requests(1, 1, gpu_count=1, gpu_milli=10), c)) for n, c in wants.items())
    result = Simulator(Workload("w", nodes, pods)).run("fgd", protocol="arrivals")
    assert result.warnings == (
        "w: pods name GPU models that no node has: A10, V100; nodes have T4",
        "w: 1 of 2 pods fit on no node at all: x",
    )
    assert metrics_of(result)["pods_failed"] == 1


@pytest.mark.parametrize("order", ["age", "fcfs", "easy"])
def test_a_gang_that_does_not_fit_together_is_a_warning_and_a_reason(order: str) -> None:
    eight = PodClass(Requests(1, 1, gpu_count=8, gpu_milli=1000))
    nodes = tuple(Node(name, 1000, 1 << 30, gpu_count=8) for name in "ab")
    times = {"creation_time": 0.0, "deletion_time": 10.0}
    large = tuple(Pod(f"large-{i}", eight, gang="large", **times) for i in range(3))
    waits = tuple(Pod(f"waits-{i}", eight, gang="waits", **times) for i in range(2))
    workload = Workload("w", nodes, (*large, Pod("single", eight, **times), *waits))
    result = Simulator(workload).run(f"best-fit+{order}", protocol="timed", record=True)
    assert result.warnings == ("w: 3 of 6 pods are in gangs that do not fit together: large",)
    found = zip(result.placements.pod, result.placements.outcome, result.placements.reason, strict=True)
    assert [each for each in found if each[1] in ("failed", "waiting")] == [
        *((f"large-{i}", "failed", "the gang of 3 pods does not fit together") for i in (2, 1, 0)),
        *((f"waits-{i}", "waiting", "the gang of 2 pods does not fit together") for i in (1, 0)),
    ]


def test_slow_run_is_interruptible_after_each_event(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = tuple(Pod(f"p-{i}", PodClass(Requests(100 + i, 1 << 20))) for i in range(60))
    simulator = Simulator(Workload("slow", (Node("n", 64_000, 1 << 40),), pods))
    fast, told = simulator.run("best-fit", protocol="arrivals"), list[int]()
    now = iter(range(10_000))
    monkeypatch.setattr("steersman.simulation.run.time.perf_counter", lambda: float(next(now)))
    slow = simulator.run("best-fit", protocol="arrivals", progress=lambda done, _: told.append(done))
    assert max(np.diff(told)) <= 8
    assert len(told) > 50
    assert str(slow.metrics) == str(fast.metrics)  # NaN where there are no GPUs
