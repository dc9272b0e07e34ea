"""One account of a cluster: pods that run count where they run, whatever their node offers by now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cluster_dump import Object, controller, listed, node, pod
from tests.support.errors import raises
from tests.support.nightly import examples
from tests.unit.kubernetes.cache.test_cluster_cache import cache, raw

from steersman.cluster.state import ClusterState
from steersman.core.errors import SteersmanError
from steersman.core.statistics import Interval
from steersman.evaluation.bound.gpu_bound import GpuBound
from steersman.evaluation.experiment import Experiment, run_experiment
from steersman.evaluation.report.figures import heat_map
from steersman.evaluation.summary import clip_interval
from steersman.live.service.scoring.explanation import explain_pod
from steersman.live.service.scoring.node_scorer import cluster_of
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.result import RunResult
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.formats.yaml_documents import Document
from steersman.workloads.loading import workload_of_objects
from steersman.workloads.workload import RunningPods, Workload

KEPT = (RunningPods.FROM_NOW, RunningPods.PINNED)


def cluster(*objects: Object, running: RunningPods = RunningPods.FREE) -> Workload:
    return workload_of_objects("w", [Document(each, "w.json", "") for each in objects], running=running)


def shrunk(name: str, gpus: int, left: int, **amounts: str) -> Object:
    """A node that offers fewer GPUs and less of other resources than it has."""
    result = node(name, gpus, labels={"kubernetes.io/hostname": name})
    status = result["status"]
    status["allocatable"] = {**status["allocatable"], "nvidia.com/gpu": str(left), **amounts}
    return result


def run(workload: Workload, policy: str = "fgd", protocol: Any = "arrivals") -> RunResult:
    return Simulator(workload).run(policy, protocol=protocol, record=True, ratio=1.0)


def bound(result: RunResult) -> dict[str, str]:
    assert result.placements is not None
    return {name: where for name, where in zip(result.placements.pod, result.placements.node, strict=True) if where}


def metrics(result: RunResult | None) -> dict[str, float]:
    assert result is not None
    return {each.name: each.value for each in result.metrics}


# An unhealthy GPU ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("running", [RunningPods.FREE, *KEPT])
def test_pod_keeps_gpus_its_node_no_longer_offers(running: RunningPods) -> None:
    nodes = [shrunk("a", 8, 7), shrunk("b", 8, 8)]
    pods = [
        pod("one", on="a", gpus=4, at=1),
        pod("two", on="a", gpus=4, at=2),
        pod("next", gpus=1, at=3, nodeSelector={"kubernetes.io/hostname": "a"}),
    ]
    found = cluster(*nodes, *pods, running=running)
    result = run(found)
    assert bound(result) == {"one": "a", "two": "a"}
    assert result.placements is not None
    assert "1 Insufficient nvidia.com/gpu" in result.placements.reason[2]
    now = Simulator(found).as_it_is()
    for each in (metrics(result), metrics(now)):
        assert each["gpu_allocation_percent"] == 53.33  # 8 of 15
        assert 0 <= each["gpu_fragmented_percent"] <= 46.67
    assert result.final_nodes.gpu_used_share.tolist() == [8 / 7, 0.0]
    assert "2 pinned (their node offers less than runs there 2)" in found.understood


def test_idle_gpus_count_existing_devices_only() -> None:
    """A device of which too much is in use has nothing left; it must not hide what is idle elsewhere."""
    pods = (pod("big", on="a", gpus=8), pod("next", gpus=2))
    found = cluster(shrunk("a", 8, 4), shrunk("b", 2, 2), *pods, running=KEPT[0])
    result = run(found)
    assert result.timeline is not None
    assert result.timeline.gpu_allocation_percent.tolist() == [133.33, 166.67]
    # After `big` two of six GPUs are idle, of use to pods of two GPUs and none to those of eight.
    assert result.timeline.gpu_fragmented_percent.tolist() == pytest.approx([100 * 2 / 6 / 2, 0.0])
    assert result.timeline.gpu_fragmented_of_idle_percent[0] == 50.0
    assert np.isnan(result.timeline.gpu_fragmented_of_idle_percent[1])
    assert result.final_nodes.gpu_used_share.tolist() == [2.0, 1.0]


def test_a_pod_with_more_gpus_than_any_node_has_stays() -> None:
    found = cluster(shrunk("a", 8, 7), shrunk("b", 8, 4), pod("train", on="a", gpus=8), pod("next", gpus=4))
    result = run(found)
    assert bound(result) == {"train": "a", "next": "b"}
    assert not Simulator(found).warnings
    assert metrics(result)["gpu_allocation_percent"] == 109.09


def test_pod_counts_on_a_node_that_lost_all_gpus() -> None:
    found = cluster(shrunk("a", 2, 0), shrunk("b", 2, 2), pod("was", on="a", gpus=1), pod("next", gpus=1))
    assert bound(run(found)) == {"was": "a", "next": "b"}
    assert metrics(run(found))["gpu_allocation_percent"] == 100.0
    assert metrics(Simulator(found).as_it_is())["gpu_allocation_percent"] == 50.0


def test_inflation_draws_pods_like_those_that_stay() -> None:
    found = cluster(shrunk("a", 8, 7), shrunk("b", 8, 8), *(pod(f"p{i}", on="a", gpus=1, at=i) for i in range(8)))
    result = run(found, protocol="inflation")
    assert metrics(result)["gpu_allocation_percent"] == 100.0  # 8 on seven GPUs, and 7 more until the ratio is reached
    assert sum(name == "b" for name in (result.placements.node if result.placements else [])) == 7


# Other resources -------------------------------------------------------------------------------------------------


def test_cpu_memory_pods_and_storage_may_be_exceeded() -> None:
    amounts = {"cpu": "2", "memory": "8Gi", "pods": "4", "ephemeral-storage": "1Gi"}
    small = node("n", 0)
    small["status"]["allocatable"] = amounts
    big = pod("big", on="n")
    big["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "3", "ephemeral-storage": "2Gi"}}
    wanted = [("tiny", {"cpu": "1m"}), ("disk", {"ephemeral-storage": "1"}), ("light", {"memory": "1Gi"})]
    others = [pod(name, at=i) for i, (name, _) in enumerate(wanted)]
    for each, (_, requests) in zip(others, wanted, strict=True):
        each["spec"]["containers"][0]["resources"] = {"requests": requests}
    result = run(cluster(small, big, *others), "kube-default")
    # What is not requested is not checked, as in kube-scheduler.
    assert bound(result) == {"big": "n", "light": "n"}
    assert metrics(result)["cpu_allocation_percent"] == 150.0
    assert result.final_nodes.cpu_used_share.tolist() == [1.5]


def test_pods_stay_on_nodes_that_would_refuse_them_now() -> None:
    nodes = [
        node("cordoned", unschedulable=True),
        node("tainted", taints=[{"key": "k", "effect": "NoExecute"}]),
        node("relabelled"),
        node("spare"),
    ]
    apart = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    anti: dict[str, Any] = {"affinity": {"podAntiAffinity": required}}
    nodes[2]["metadata"]["labels"] = {"kubernetes.io/hostname": "relabelled"}
    pods = [
        pod("a", on="cordoned", at=1),
        pod("b", on="tainted", at=2),
        pod("c", on="relabelled", at=3, nodeSelector={"none": "such"}),
        pod("d", on="relabelled", at=4, app="x", **anti),
        pod("e", on="relabelled", at=5, app="x", **anti),
    ]
    there = {each["metadata"]["name"]: each["spec"]["nodeName"] for each in pods}
    for running in KEPT:
        found = cluster(*nodes, *pods, pod("next", at=6), running=running)
        placed = bound(run(found, "kube-default"))
        assert placed.pop("next") in ("relabelled", "spare")
        assert placed == there
        assert not Simulator(found).warnings


def test_pods_drawn_from_pinned_ones_go_to_their_node_alone() -> None:
    nodes = [node("a", 4), node("b", 4)]
    pods = [pod("one", on="a", gpus=1), pod("two", gpus=1, nodeSelector={"none": "such"})]
    pinned, free = (run(cluster(*nodes, *pods, running=running), protocol="inflation") for running in reversed(KEPT))
    assert {node for name, node in zip(pinned.placements.pod, pinned.placements.node, strict=True) if node} == {"a"}  # type: ignore[union-attr]
    assert {node for name, node in zip(free.placements.pod, free.placements.node, strict=True) if node} == {"a", "b"}  # type: ignore[union-attr]


# Pods that are being deleted -------------------------------------------------------------------------------------


def test_a_pod_that_is_being_deleted_holds_its_node_until_it_is_gone() -> None:
    leaving: dict[str, Any] = {"metadata": {"deletionTimestamp": "2026-05-02T00:00:00Z"}}
    web = controller("StatefulSet", "web", gpus=8, replicas=1)
    objects = [node("a"), web, pod("web-0", web, on="a", gpus=8, **leaving), pod("waits", gpus=1, **leaving)]
    objects.append(pod("next"))
    for running in (RunningPods.FREE, *KEPT):
        found = cluster(*objects, running=running)
        result = run(found)
        assert bound(result) == {"web-0": "a", "next": "a"}
        assert metrics(result)["pods_failed"] == 0  # the StatefulSet creates no pod in its place until it is gone
        assert "1 being deleted left out" in found.understood
        assert "1 pinned (being deleted 1)" in found.understood or "no other node allows them" in found.understood


# Everything that counts a cluster counts it alike ----------------------------------------------------------------


@st.composite
def dumps(draw: st.DrawFn) -> tuple[list[Object], list[Object]]:
    nodes, pods = [], []
    for i in range(draw(st.integers(1, 3))):
        gpus = draw(st.integers(0, 4))
        nodes.append(shrunk(f"n{i}", gpus, draw(st.integers(0, gpus)), cpu=str(draw(st.integers(1, 6)))))
        if draw(st.booleans()):
            nodes[-1]["spec"] = {"unschedulable": True}
        pods += [
            pod(f"p{i}{k}", on=f"n{i}", gpus=draw(st.integers(0, 3)), at=draw(st.integers(0, 9)))
            for k in range(draw(st.integers(0, 5)))
        ]
    for each in pods:
        count = int(each["spec"]["containers"][0]["resources"]["limits"].get("nvidia.com/gpu", 0))
        if count and draw(st.booleans()):
            held = draw(st.lists(st.integers(0, 5), min_size=count, max_size=count, unique=True))
            each["metadata"]["annotations"] = {"alibabacloud.com/gpu-index": "-".join(map(str, held))}
    return nodes, [*pods, pod("next", gpus=draw(st.integers(0, 2)), at=10)]


def account(state: ClusterState) -> dict[str, Any]:
    used, total = state.gpu_use_by_node()
    return {
        name: (
            state.arrays.free[slot, :4].tolist(),
            state.arrays.gpu_free[slot, : int(state.arrays.gpu_count[slot])].tolist(),
            (int(used[slot]), int(total[slot])),
        )
        for name, slot in state.slots.items()
    }


@given(dumps())
@settings(max_examples=examples(60), deadline=None)
def test_files_live_clusters_and_requests_count_alike(dump: tuple[list[Object], list[Object]]) -> None:
    nodes, pods = dump
    watched = cache()
    for each in sorted(pods, key=lambda each: str(each["metadata"]["name"])):
        watched.upsert_pod(raw(each))
    for each in nodes:
        watched.upsert_node(raw(each))
    there = account(watched.state)
    watched.rebuild()
    assert account(watched.state) == there
    sent = cluster_of([raw(each) for each in nodes], [raw(each) for each in pods if "nodeName" in each["spec"]])
    assert account(sent) == there
    for running in KEPT:
        found = cluster(*nodes, *pods, running=running)
        plan = schedule(found, "arrivals", seed=1, ratio=1.0, load=None)
        execution = Execution(Simulator(found), plan, resolve("fgd"), 1, record=False)
        counted = account(execution.state)
        for name, slot in execution.state.slots.items():
            free, gpu_free, (used, total) = counted[name]
            counted[name] = free, gpu_free, (used + int(execution._without_devices[slot]), total)
        assert counted == there
        slot_of, next_pod = watched.state.slots, watched.pods["default/next"]
        fits = {name for name, slot in slot_of.items() if watched.state.mask(*watched.number(next_pod))[slot]}
        assert (bound(run(found)).get("next") in fits) if fits else ("next" not in bound(run(found)))
    written = cluster(*nodes, *pods, running=RunningPods.AS_WRITTEN)
    number = next(i for i, each in enumerate(written.pods) if each.name == "next")
    explained = explain_pod(resolve("fgd"), written, number)
    assert (explained.node in fits) if fits else (explained.node == "")


# What reports make of it -----------------------------------------------------------------------------------------


def test_bound_is_at_least_the_running_allocation() -> None:
    nodes = [shrunk("a", 8, 7), shrunk("b", 8, 8, cpu="2")]
    pods = [pod("train", on="a", gpus=8), *(pod(f"p{i}", gpus=4, at=i) for i in range(4))]
    found = cluster(*nodes, *pods)
    most = GpuBound(found).solve("arrivals")
    assert metrics(run(found))["gpu_allocation_percent"] == 106.67
    assert 106.67 <= most <= 120.0
    with_none = cluster(*nodes, *pods[1:])
    assert GpuBound(with_none).solve("arrivals") <= 100.0


def test_reports_show_allocation_above_capacity() -> None:
    found = cluster(shrunk("a", 8, 7), pod("train", on="a", gpus=8), pod("q", gpus=1), running=RunningPods.FROM_NOW)
    figure = heat_map(run(found).final_nodes, names=True)
    assert (figure.full, figure.partly, figure.empty) == (1, 0, 0)
    assert clip_interval(Interval(110.0, 118.0), "percent") == Interval(110.0, 118.0)
    assert clip_interval(Interval(96.0, 102.0), "percent") == Interval(96.0, 100.0)


def test_command_line_shows_the_current_state(tmp_path: Path) -> None:
    from steersman.cli.main import main

    file = tmp_path / "cluster.json"
    file.write_text(
        json.dumps(listed(shrunk("a", 8, 7), shrunk("b", 8, 8), pod("t", on="a", gpus=8), pod("n", gpus=1)))
    )
    files = ["--nodes", str(file), "--pods", str(file), "--protocol", "arrivals"]
    command = ["evaluate", *files, "--policy", "fgd", "--seeds", "1", "--jobs", "1", "--output", str(tmp_path / "out")]
    for options in ([], ["--from-now"], ["--pinned"]):
        assert main([*command, *options]) == 0
        text = (tmp_path / "out" / "metrics.csv").read_text()
        assert "cluster,as it is,,arrivals,gpu_allocation_percent,percent,53.33\n" in text
        assert "cluster,fgd,42,arrivals,gpu_allocation_percent,percent,60\n" in text


def test_commands_say_which_nodes_are_counted_and_all_count_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from steersman.cli.main import main

    monkeypatch.chdir(tmp_path)
    nodes = [node("a", 8), node("b", 8), cordoned("a7", 8), cordoned("c1", 1)]
    pods = [pod("old", on="a7", gpus=8), pod("one", on="a", gpus=4), pod("next", gpus=2)]
    (tmp_path / "cluster.json").write_text(json.dumps(listed(*nodes, *pods)))
    says = "cluster: 2 of 4 nodes counted with 16 of 25 GPUs: a7, c1 are cordoned"
    for command in (
        "simulate --protocol arrivals --policy fgd --output run --pods cluster.json",
        "evaluate --protocol arrivals --policy fgd --seeds 1 --output out --nodes cluster.json --pods cluster.json",
        "wait --policy fgd --pods cluster.json",
        "explain --policy fgd --pod next --pods cluster.json",
    ):
        assert main(command.split()) == 0
        printed = capsys.readouterr()
        assert says in printed.err, command
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"<dt>Cluster</dt><dd>{says}</dd>" in page
    assert "2 nodes · 16 GPUs" in " ".join(page.split())


# What nodes do not offer -----------------------------------------------------------------------------------------


def offering(name: str, **amounts: str) -> Object:
    result = node(name, 0)
    result["status"] = {"allocatable": amounts} if amounts else {}
    return result


def test_resources_missing_from_allocatable_are_zero() -> None:
    wanted = pod("disk")
    wanted["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}}
    whole = {"cpu": "8", "memory": "8Gi", "pods": "9", "ephemeral-storage": "9Gi"}
    lacking = {name: {key: amount for key, amount in whole.items() if key != name} for name in whole}
    nodes = [offering(name.split("-", maxsplit=1)[0], **amounts) for name, amounts in lacking.items()]
    found = cluster(*nodes, offering("none"), wanted)
    result = run(found, "kube-default")
    assert bound(result) == {"disk": "memory"}  # the pod requests no memory
    assert found.understood.endswith(
        "1 node offers no cpu (status.allocatable), "
        "1 node offers no cpu and no memory and no pods and no ephemeral-storage (status.allocatable), "
        "1 node offers no ephemeral-storage (status.allocatable), 1 node offers no memory (status.allocatable), "
        "1 node offers no pods (status.allocatable)"
    )
    heat_map(result.final_nodes, names=True)


def test_a_virtual_node_of_a_million_cores_runs_pods() -> None:
    virtual = [offering(f"v{i}", cpu="1M", memory="1Pi", pods="1M") for i in range(3)]
    found = cluster(*virtual, offering("n", cpu="8", memory="32Gi", pods="110"), *(pod(f"p{i}") for i in range(4)))
    for policy in ("kube-default", "fgd", "least-allocated", "balanced-allocation"):
        values = metrics(run(found, policy))
        assert (values["pods_bound"], values["pods_failed"]) == (4, 0)
        assert 0 <= values["cpu_allocation_percent"] < 0.01
        assert values["cpu_balance_percent"] >= 0


# Nodes that take no pods ------------------------------------------------------------------------------------------


def cordoned(name: str, gpus: int) -> Object:
    result = node(name, gpus, labels={"kubernetes.io/hostname": name})
    result["spec"] = {**result.get("spec", {}), "unschedulable": True}
    return result


@pytest.mark.parametrize("running", KEPT)
@pytest.mark.parametrize(("ratio", "arrived"), [(1.0, 100.0), (1.5, 150.0), (1.3, 130.0)])
def test_pods_on_cordoned_nodes_are_no_part_of_the_demand(running: RunningPods, ratio: float, arrived: float) -> None:
    eligible = [node(name, 10, labels={"kubernetes.io/hostname": name}) for name in "ab"]
    pods = [pod(f"old{i}", on="gone", gpus=1, at=i) for i in range(6)]
    pods += [pod(f"run{i}", on="a", gpus=1, at=i) for i in range(3)]
    found = cluster(*eligible, cordoned("gone", 8), *pods, pod("next", gpus=1), running=running)
    assert found.gpu_capacity == 20_000
    result = Simulator(found).run("best-fit", protocol="inflation", ratio=ratio, record=True)
    assert result.timeline is not None
    assert result.timeline.arrived_percent[-1] == arrived
    # Pinned pods, and those drawn after them, stay on the nodes of their originals.
    assert metrics(result)["gpu_allocation_percent"] == (50.0 if running == RunningPods.PINNED else 100.0)


@pytest.mark.parametrize(
    ("objects", "protocol", "running", "named"),
    [
        ([pod("p", on="a", gpus=4, at=1)], "inflation", KEPT[1], ("every pod runs already", "--pinned")),
        # Nothing waits.
        ([pod("p", on="a", gpus=5, at=1)], "arrivals", KEPT[0], ("every pod runs already",)),
        ([pod("p", on="a", gpus=5, at=1)], "arrivals", KEPT[1], ("every pod runs already",)),
    ],
)
def test_it_is_an_error_if_no_pod_arrives(
    objects: list[Object], protocol: Any, running: RunningPods, named: tuple[str, ...]
) -> None:
    found = cluster(node("a", 8, labels={"kubernetes.io/hostname": "a"}), *objects, running=running)
    with raises(SteersmanError, "w: no pod arrives", *named):
        run_experiment(Experiment((found,), ("fgd", "best-fit"), (1,), protocol, ratio=1.0), jobs=1)
    if protocol == "arrivals":
        assert metrics(Simulator(found).run("fgd", protocol=protocol))["pods_bound"] == 1, "a run shows what is there"


def test_a_second_object_of_a_node_is_no_node_that_is_left_out() -> None:
    found = cluster(node("a", 8), node("b", 8), node("a", 4), pod("p", gpus=1))
    assert (found.invalid_nodes, len(found.nodes), found.account.invalid) == ((), 2, ())
    assert cluster(node("a", 8), node("b", 8, labels={"x": 1}), pod("p", gpus=1)).account.invalid == ("b",)


@pytest.mark.parametrize(("runs", "waits"), [(8, 1), (5, 8)])
def test_pods_that_wait_arrive_and_fail_beyond_the_ratio(runs: int, waits: int) -> None:
    objects = [pod("p", on="a", gpus=runs, at=1), pod("q", gpus=waits), pod("r", gpus=waits)]
    found = cluster(node("a", 8, labels={"kubernetes.io/hostname": "a"}), *objects, running=KEPT[0])
    result = metrics(Simulator(found).run("fgd", protocol="inflation", ratio=1.0))
    assert (result["pods_bound"], result["pods_failed"]) == (1, 2)


@pytest.mark.parametrize("protocol", ["inflation", "arrivals"])
def test_it_is_an_error_if_no_node_takes_pods(protocol: Any) -> None:
    found = cluster(node("a", 8, unschedulable=True), node("b", 4, unschedulable=True), pod("p", gpus=1))
    with raises(SteersmanError, "w: no node takes pods", "0 of 12 GPUs", "a, b are cordoned"):
        run_experiment(Experiment((found,), ("fgd", "best-fit"), (1,), protocol, ratio=1.0), jobs=1)
    if protocol == "arrivals":
        assert metrics(Simulator(found).run("fgd", protocol=protocol))["pods_failed"] == 1


def test_gpus_of_nodes_that_are_not_counted_are_not_denied() -> None:
    found = cluster(node("a", 8, unschedulable=True), node("b", 0), pod("p", gpus=1))
    with raises(SteersmanError, "its counted nodes have no GPU"):
        run_experiment(Experiment((found,), ("fgd", "best-fit"), (1,), "inflation", ratio=1.0), jobs=1)
