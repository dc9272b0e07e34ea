"""What a dump records: pods that run are placed anew or stand, what belongs to its node stays, and both are said."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cluster_dump import Object, controller, half_full, item, listed, node, pod
from tests.support.errors import raises
from tests.support.nightly import examples

from steersman.cli.main import main
from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.core.errors import SteersmanError, UsageError
from steersman.envs.workload import InflationEnv
from steersman.evaluation.summary import find_recordings, recorded_summary
from steersman.simulation.arrivals import resample, schedule
from steersman.simulation.protocols import choose_protocols, duration_warnings
from steersman.simulation.run import Simulator
from steersman.workloads.loading import load_workload
from steersman.workloads.workload import Recorded, RunningPods, Workload


def read(folder: Path, nodes: list[Object], pods: list[Object], running: RunningPods = RunningPods.FREE) -> Workload:
    for name, content in (("nodes", nodes), ("pods", pods)):
        (folder / f"{name}.json").write_text(json.dumps(listed(*content)))
    return load_workload(folder / "nodes.json", folder / "pods.json", running=running)


def numbers(workload: Workload) -> dict[str, float]:
    run = Simulator(workload).as_it_is()
    assert run is not None
    return {metric.name: metric.value for metric in run.metrics}


# What is understood ----------------------------------------------------------------------------------------------


def mixed() -> tuple[list[Object], list[Object]]:
    """A cluster with something of everything."""
    nodes = [node("a"), node("b", labels={"disk": "ssd"}), node("c", 0, taints=[{"key": "x", "effect": "NoSchedule"}])]
    agent, web = controller("DaemonSet", "agent"), controller("StatefulSet", "web", replicas=2)
    mirror = item("Node", "a")
    tied = {"nodeSelector": {"disk": "ssd"}}
    pods = [
        agent,
        *(pod(f"agent-{name}", agent, on=name, at=50) for name in "ab"),
        web,
        pod("web-0", web, on="a", gpus=2, at=3),
        pod("web-1", web, at=4, gpus=8),
        pod("static-a", mirror, on="a", at=60),
        pod("ssd", on="b", at=5, **tied),
        pod("tainted", on="c", at=6, nodeSelector={"none": "such"}),
        pod("elsewhere", on="gone", at=7),
        pod("agent-gone", agent, on="gone", at=8),
        pod("greedy", on="c", gpus=1, at=9),
        pod("done", on="a", phase="Succeeded"),
        pod("lost", on="b", phase="Unknown", at=10),
        pod("leaving", on="a", metadata={"deletionTimestamp": "2026-05-02T00:00:00Z"}),
    ]
    return nodes, pods


def test_recorded_state_is_read_and_reported(tmp_path):
    found = read(tmp_path, *mixed())
    # Node c has no pod of the DaemonSet, whose pods do not tolerate its taint.
    assert [each.name for each in found.pods] == [
        *("leaving", "web-0", "web-1", "ssd", "tainted", "elsewhere"),
        *("greedy", "lost", "agent-a", "agent-b", "static-a"),
    ]
    where = {pod.name: recorded for pod, recorded in zip(found.pods, found.recorded, strict=True)}
    assert where == {
        "leaving": Recorded("a", 0, stays=True),
        "web-0": Recorded("a", 0b11),
        "web-1": None,
        "ssd": Recorded("b", 0, stays=True),
        "tainted": Recorded("c", 0, stays=True),
        "elsewhere": None,
        "greedy": Recorded("c", 0, exceeds=True),
        "lost": Recorded("b"),
        "agent-a": Recorded("a", 0, stays=True),
        "agent-b": Recorded("b", 0, stays=True),
        "static-a": Recorded("a", 0, stays=True),
    }
    assert not any(pod.constraints.node_name for pod in found.pods)
    assert not any("fit on no node" in warning for warning in Simulator(found).warnings)
    assert found.understood == (
        "11 pods of 2 owners (7 without one), 9 running, 2 waiting, "
        "7 pinned (DaemonSets 2, static 1, no other node allows them 2, being deleted 1, "
        "their node offers less than runs there 1), 1 finished left out, 1 of nodes that are not there left out, "
        "1 on nodes that are not there count as waiting, "
        "1 in phase Unknown counted as running if they have a node"
    )


def test_pinned_and_as_written_pods_keep_their_node(tmp_path):
    nodes, pods = half_full()
    pinned = read(tmp_path, nodes, pods, RunningPods.PINNED)
    assert sum(bool(pod.constraints.node_name) for pod in pinned.pods) == 56
    assert len(pinned.standing()) == 56
    assert sum(where is not None for where in pinned.recorded) == 56
    written = read(tmp_path, nodes, pods, RunningPods.AS_WRITTEN)
    assert (written.pods, written.recorded) == (pinned.pods, ())
    assert written.understood == "78 pods of 2 owners, 56 running, 22 waiting"


@pytest.mark.parametrize("running", [RunningPods.FROM_NOW, RunningPods.PINNED])
def test_a_terminating_pod_takes_its_room_and_does_not_count_in_spread(tmp_path, running):
    selector = {"matchLabels": {"app": "web"}}
    rule = {"maxSkew": 1, "topologyKey": "host", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    labels = {"labels": {"app": "web"}}
    deleted = {"deletionTimestamp": "2026-05-02T00:00:00Z"}
    old = pod("old", on="a", gpus=2, metadata=labels | deleted)
    pods = [old, pod("live", on="b", at=1, metadata=labels), pod("gone", metadata=deleted)]
    new = pod("new", at=2, metadata=labels, topologySpreadConstraints=[rule])
    greedy = pod("greedy", gpus=8, at=3, nodeSelector={"host": "a"})
    nodes = [node(name, labels={"host": name}) for name in "ab"]
    workload = read(tmp_path, nodes, [*pods, new, greedy], running)
    stays = {each.name for each, where in zip(workload.pods, workload.recorded, strict=True) if where and where.stays}
    assert stays == {"old"}
    assert [workload.pods[i].name for i in workload.demand()] == ["live", "new", "greedy"]
    placements = Simulator(workload).run("kube-default", protocol="arrivals", record=True).placements
    assert placements is not None
    placed = dict(zip(placements.pod, placements.node, strict=True))
    assert placed["new"] == "a"
    assert placed["greedy"] == ""


def test_a_source_of_pods_alone_records_nothing(tmp_path):
    files = {"n.csv": "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,T4\n"}
    files["p.csv"] = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np0,1000,1024,1,500,T4\n"
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    found = load_workload(tmp_path / "n.csv", tmp_path / "p.csv")
    assert (found.recorded, found.understood, found.standing(), found.demand()) == ((), "", (), (0,))
    assert Simulator(found).as_it_is() is None
    assert find_recordings([found], "arrivals") == {}


# What comes of it ------------------------------------------------------------------------------------------------


def test_from_now_moves_no_running_pod(tmp_path):
    nodes, pods = half_full()
    free, now = (read(tmp_path, nodes, pods, running) for running in (RunningPods.FREE, RunningPods.FROM_NOW))

    def bound(workload: Workload, policy: str) -> tuple[float, dict[str, str]]:
        run = Simulator(workload).run(policy, protocol="arrivals", record=True)
        assert run.placements is not None
        placed = zip(run.placements.pod, run.placements.node, strict=True)
        return run.metrics[0].value, {name: node for name, node in placed if node}

    assert bound(free, "fgd")[0] > bound(free, "least-allocated")[0] + 50
    there = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in pods if pod["kind"] == "Pod"}
    for policy in ("fgd", "least-allocated"):
        allocated, placed = bound(now, policy)
        assert allocated == 30.0  # two whole nodes are free for pods of eight GPUs
        assert {name: placed[name] for name, node in there.items() if node} == {n: w for n, w in there.items() if w}
    assert numbers(free) == numbers(now)
    named = ("gpu_allocation_percent", "pods_bound", "pods_failed")
    assert [numbers(now)[name] for name in named] == [23.33, 56.0, 22.0]


def test_staying_pods_are_placed_first_and_not_drawn(tmp_path):
    nodes, pods = half_full()
    agent = controller("DaemonSet", "agent", at=999)
    pods += [agent, *(pod(f"agent-{i}", agent, on=f"gpu-{i:02}", at=999) for i in range(30))]
    for running, standing in ((RunningPods.FREE, 30), (RunningPods.FROM_NOW, 86)):
        found = read(tmp_path, nodes, pods, running)
        daemons = {i for i, each in enumerate(found.pods) if each.owner == "DaemonSet/agent"}
        assert len({found.pods[i].pod_class for i in daemons}) == 1
        plans = [schedule(found, protocol, seed=1, ratio=1.3, load=None) for protocol in ("inflation", "arrivals")]
        plans.append(resample(found, ratio=1.3, seed=1))
        for plan in plans:
            assert plan.standing == standing == len(set(plan.pods[:standing].tolist()))
            assert daemons <= set(plan.pods[:standing].tolist())
            assert not daemons & set(plan.pods[standing:].tolist())
            assert set(range(len(found.pods))) >= set(plan.pods.tolist())
        demand = np.array([each.requests.gpu_total_milli for each in found.pods])
        for plan in (plans[0], plans[2]):
            arrived = demand[plan.pods].sum() / 240_000
            # The published experiments compare with one device of the last pod, not with all of its eight.
            assert 1.3 - 8 / 240 <= arrived <= (1.3 + 7 / 240 if plan is plans[0] else 1.3)
        assert set(plans[1].pods.tolist()) == set(range(len(found.pods)))
        with_load = None if running is RunningPods.FROM_NOW else schedule(found, "timed", seed=1, ratio=1.0, load=0.5)
        if with_load is not None:
            assert (with_load.standing, with_load.pods[:30].tolist()) == (30, sorted(daemons))
            assert not daemons & set(with_load.pods[30:].tolist())
            assert np.isinf(with_load.duration[:30]).all()
            assert Simulator(found).run("fgd", protocol="timed", load=0.5).metrics


def test_from_now_is_rejected_in_timed(tmp_path):
    found = read(tmp_path, *half_full(), RunningPods.FROM_NOW)
    with raises(UsageError, "--from-now", "--protocol"):
        schedule(found, "timed", seed=1, ratio=1.0, load=0.5)


def test_no_pod_arrives_where_none_is_small_enough(tmp_path):
    agent = pod("agent-a", controller("DaemonSet", "agent"), on="a", gpus=7)
    found = read(tmp_path, [node("a")], [agent, *(pod(f"p{i}", gpus=2) for i in range(9))])
    for seed in range(10):
        with raises(SteersmanError, "no pod arrives at ratio 1.1", "run already request 7", "smallest other pod 2"):
            schedule(found, "inflation", seed=seed, ratio=1.1, load=None)


def test_all_pods_that_wait_arrive(tmp_path):
    """Also where their demand, or what runs already, exceeds the ratio, and one that is too large comes first."""
    runs = [pod(f"run-{i}", on="a", gpus=1) for i in range(4)]
    waits = [pod("large", gpus=8), *(pod(f"small-{i}", gpus=1) for i in range(9))]
    for ratio in (0.1, 1.0, 1.3):
        found = read(tmp_path, [node("a")], runs + waits, RunningPods.FROM_NOW)
        for seed in range(10):
            for plan in (
                schedule(found, "inflation", seed=seed, ratio=ratio, load=None),
                resample(found, ratio=ratio, seed=seed),
            ):
                assert sorted(found.pods[i].name for i in plan.pods[plan.standing :]) == sorted(
                    each["metadata"]["name"] for each in waits
                )


def test_pods_that_exceed_the_ratio_do_not_keep_smaller_ones_from_arriving(tmp_path):
    agent = pod("agent-a", controller("DaemonSet", "agent"), on="a", gpus=7)
    others = [pod("small", gpus=1), *(pod(f"large-{i}", gpus=8) for i in range(20))]
    found = read(tmp_path, [node("a")], [agent, *others])
    for seed in range(20):
        plan = schedule(found, "inflation", seed=seed, ratio=1.1, load=None)
        assert [found.pods[i].name for i in plan.pods[plan.standing :]] == ["small"]


@pytest.mark.parametrize("running", RunningPods)
def test_pods_that_fit_on_no_node_do_not_count_as_demand(tmp_path, running):
    fitting = [pod(f"p{i}", on="a" if i < 4 else "", gpus=1) for i in range(8)]
    hopeless = [pod(f"h{i}", gpus=16) for i in range(4)]
    found = read(tmp_path, [node("a")], fitting + hopeless, running)
    unfit = {each.name for each, fits in zip(found.pods, found.fits, strict=True) if not fits}
    assert unfit == {"h0", "h1", "h2", "h3"}
    for seed in range(10):
        for plan in (
            schedule(found, "inflation", seed=seed, ratio=2.0, load=None),
            resample(found, ratio=2.0, seed=seed),
        ):
            sizes = Counter(found.pods[i].requests.gpu_count for i in plan.pods)
            assert sizes == {1: 16, 16: 4}


def test_cluster_of_daemons_alone_has_no_demand_to_draw(tmp_path):
    agent = controller("DaemonSet", "agent")
    found = read(tmp_path, [node("a")], [agent, pod("agent-a", agent, on="a", gpus=1)])
    with raises(SteersmanError):
        schedule(found, "inflation", seed=1, ratio=1.3, load=None)
    with raises(SteersmanError):
        resample(found, ratio=1.3, seed=1)
    run = Simulator(found).run("fgd", protocol="arrivals")
    assert run.metrics[0].value == 12.5


@st.composite
def placements(draw: st.DrawFn) -> Workload:
    counts = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    nodes = tuple(Node(f"n{i}", 8000, 8 << 30, gpu_count=count) for i, count in enumerate(counts))
    pods, recorded = list[Pod](), list[Recorded | None]()
    free = {each.name: [1000] * each.gpu_count for each in nodes}
    cpu = dict.fromkeys(free, 8000)
    for i in range(draw(st.integers(1, 12))):
        count = draw(st.integers(0, 2))
        milli = 0 if not count else draw(st.sampled_from((250, 500, 1000))) if count == 1 else 1000
        asked = draw(st.sampled_from((500, 2000)))
        pods.append(Pod(f"p{i}", PodClass(Requests(asked, 1 << 20, gpu_count=count, gpu_milli=milli))))
        name = draw(st.sampled_from(sorted(free)))
        fitting = [d for d, left in enumerate(free[name]) if left >= milli]
        if draw(st.booleans()) and len(fitting) >= count and cpu[name] >= asked:
            chosen = draw(st.permutations(fitting))[:count]
            for d in chosen:
                free[name][d] -= milli
            cpu[name] -= asked
            recorded.append(Recorded(name, sum(1 << d for d in chosen), draw(st.booleans())))
        else:
            recorded.append(None)
    return Workload("w", nodes, tuple(pods), recorded=tuple(recorded), from_now=draw(st.booleans()))


@given(placements(), st.integers(0, 3))
@settings(max_examples=examples(60), deadline=None)
def test_recorded_placements_are_restored_per_device(workload: Workload, seed: int) -> None:
    there = [(pod, where) for pod, where in zip(workload.pods, workload.recorded, strict=True) if where is not None]
    run = Simulator(workload).as_it_is()
    if not there:
        assert run is None
        return
    assert run is not None
    found = {metric.name: metric.value for metric in run.metrics}
    gpus = sum(each.gpu_count for each in workload.nodes)
    used = sum(pod.requests.gpu_total_milli for pod, _ in there)
    expected = round(used / gpus / 10, 2) if gpus else np.nan
    assert found["gpu_allocation_percent"] == pytest.approx(expected, nan_ok=True)
    assert found["pods_bound"] == len(there)
    assert found["pods_failed"] == len(workload.pods) - len(there)
    assert found["nodes_used"] == len({where.node for _, where in there})
    run = Simulator(workload).run("best-fit", protocol="arrivals", seed=seed, record=True)
    assert run.placements is not None
    placed: dict[str, Any] = {
        name: (node, devices)
        for name, node, devices in zip(run.placements.pod, run.placements.node, run.placements.devices, strict=True)
    }
    assert len(placed) == len(workload.pods)
    for each, where in zip(workload.pods, workload.recorded, strict=True):
        if where is not None and (where.stays or workload.from_now):
            held = "-".join(str(d) for d in range(8) if where.devices >> d & 1)
            assert placed[each.name] == (where.node, held)


# On the command line ---------------------------------------------------------------------------------------------


def test_table_files_and_report_include_the_current_state(tmp_path, capsys):
    read(tmp_path, *half_full())
    files = ["--nodes", str(tmp_path / "nodes.json"), "--pods", str(tmp_path / "pods.json")]
    command = ["evaluate", *files, "--policy", "best-fit", "fgd", "--seeds", "1-2", "--jobs", "1"]
    assert main([*command, "--protocol", "arrivals", "--output", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr()
    assert shown.err.count("pods: 78 pods of 2 owners, 56 running, 22 waiting\n") == 1
    row, of_kinds = [line for line in shown.out.splitlines() if "as it is" in line]
    assert row.split()[3:5] == ["23.33", "–"]
    assert [float(word) for word in of_kinds.split()[3:]] == [0.0, 22.0], "of no GPU and of one"
    summary = (tmp_path / "out" / "summary.csv").read_text()
    assert "pods,as it is,arrivals,gpu_allocation_percent,1,23.33,,,,,,,\n" in summary
    assert "pods,as it is,arrivals,pods_failed,1,22,,,,,,,\n" in summary
    metrics = (tmp_path / "out" / "metrics.csv").read_text()
    assert "pods,as it is,,arrivals,gpu_allocation_percent,percent,23.33\n" in metrics
    report = (tmp_path / "out" / "report.html").read_text()
    assert "pods: 78 pods of 2 owners, 56 running, 22 waiting" in report
    assert "<td>as it is</td><td>23.33</td>" in report
    assert main([*command, "--from-now", "--output", str(tmp_path / "out")]) == 0
    report = (tmp_path / "out" / "report.html").read_text()
    assert "--from-now" in report
    assert report.count("pods: 78 pods of 2 owners, 56 running, 22 waiting") == 1
    assert report.count("<tr class=reference><td>as it is</td><td>–</td><td>23.33</td>") == 2
    # In inflation other pods come than those that wait, so how many of these there are is nothing to compare with.
    summary = (tmp_path / "out" / "summary.csv").read_text()
    metrics = (tmp_path / "out" / "metrics.csv").read_text()
    for protocol, is_comparable in (("inflation", False), ("arrivals", True)):
        assert f"pods,as it is,{protocol},gpu_allocation_percent,1,23.33,,,,,,,\n" in summary
        assert (f"pods,as it is,{protocol},pods_failed,1,22,,,,,,,\n" in summary) == is_comparable
        assert f"pods,as it is,,{protocol},gpu_allocation_percent,percent,23.33\n" in metrics
    assert "timed is left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (("--pinned", "--from-now"), "--pinned and --from-now exclude each other"),
        (("--from-now", "--protocol", "timed"), "--from-now belongs to --protocol inflation or arrivals, not to timed"),
        (("--from-now", "--bound"), "--bound and --from-now exclude each other"),
    ],
)
def test_conflicting_options_are_rejected(tmp_path, capsys, more, problem):
    read(tmp_path, *half_full())
    files = ["--nodes", str(tmp_path / "nodes.json"), "--pods", str(tmp_path / "pods.json")]
    assert main(["evaluate", *files, "--policy", "fgd", *more, "--output", str(tmp_path / "out")]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("command", ["evaluate", "simulate", "fit", "train"])
def test_embedded_workloads_have_no_running_pods(capsys, command):
    commands = {
        "evaluate": ["evaluate", "--policy", "fgd", "--output", "out"],
        "simulate": ["simulate", "--policy", "fgd", "--output", "out"],
        "fit": ["fit", "policy", "--output", "out.safetensors"],
        "train": ["train", "--output", "out"],
    }
    assert main([*commands[command], "--workload", "default", "--pinned"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "error: --pinned belongs to --nodes or --cluster; give that too, or leave it out"


def test_protocol_is_chosen_by_arriving_pods():
    coming = Pod("p", PodClass(Requests(100, 1, gpu_count=1, gpu_milli=500)), creation_time=1.0, deletion_time=9.0)
    daemon = Pod("d", PodClass(Requests(100, 1)), owner="DaemonSet/d")
    nodes = (Node("n", 8000, 8 << 30, gpu_count=1),)
    found = Workload("w", nodes, (coming, daemon), recorded=(None, Recorded("n", stays=True)))
    assert choose_protocols([found]).protocols == ("timed", "inflation")
    assert duration_warnings(found, None, None) == ()
    now = choose_protocols([replace(found, from_now=True)], mean_duration=60.0)
    assert now.protocols == ("inflation", "arrivals")
    assert "timed is left out" in now.reason
    # No pod that may come again wants a GPU, so there is no GPU demand to reach.
    only = replace(found, pods=(replace(coming, owner="DaemonSet/p"),), recorded=(Recorded("n", 1, stays=True),))
    assert choose_protocols([only]).protocols == ("arrivals",)


def test_waits_count_arriving_pods_only():
    asked = PodClass(Requests(1000, 1))
    daemons = [Pod(f"d{i}", PodClass(Requests(0, 1)), owner="DaemonSet/d") for i in range(6)]
    coming = [Pod(f"p{i}", asked, creation_time=0.0, deletion_time=10.0) for i in range(2)]
    recorded = (*(Recorded("n", stays=True) for _ in daemons), None, None)
    found = Workload("w", (Node("n", 1000, 8 << 30),), (*daemons, *coming), recorded=recorded)
    run = Simulator(found).run("best-fit", protocol="timed")
    waits = {metric.name: metric.value for metric in run.metrics}
    assert waits["waiting_time_mean_seconds"] == 5.0  # one waits until the other has gone, six stand


def test_the_mean_over_workloads_of_recorded_placements(tmp_path):
    found = read(tmp_path, *half_full())
    recordings = find_recordings([found], "arrivals")
    twice = dict.fromkeys(("one", "two"), recordings["pods"])
    rows = {(row.workload, row.metric): row for row in recorded_summary(twice, ["one", "two"], "arrivals")}
    assert rows["all", "gpu_allocation_percent"].mean == 23.33
    assert ("all", "gpu_allocation_percent") not in {
        (row.workload, row.metric) for row in recorded_summary(twice, ["one", "two", "three"], "arrivals")
    }
    assert find_recordings([found], "timed") == {}


def test_environment_starts_with_recorded_pods(tmp_path):
    found = read(tmp_path, *half_full(), RunningPods.FROM_NOW)
    env = InflationEnv(workload=[found])
    env.reset(seed=1)
    loads = env.core.loads(0)
    assert loads[:, 2].sum() * 8 == 56
    _, _, _, _, info = env.step(int(np.argmax(env.action_masks())))
    assert info["nodes_used"] >= 28
