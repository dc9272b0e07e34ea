"""Orders fitted to a history: what counts as history, windows of it, and what is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.errors import raises

from steersman.cli.main import main
from steersman.cluster.model import GPU_MILLI, Constraints, Node, Pod, PodClass, Requests
from steersman.core.errors import UsageError
from steersman.orders.registry import open_order
from steersman.policies.registry import resolve
from steersman.training.search import orders as fitting
from steersman.training.search.orders import (
    DEFAULT,
    FITTED,
    RULES,
    HistoryWindows,
    OrderFitOptions,
    history_of,
    history_windows,
)
from steersman.workloads.workload import EndedPod, Lives, Workload

NODES = tuple(Node(f"n{i}", 64_000, 1 << 38, gpu_count=8) for i in range(2))
FGD = resolve("fgd")


def history(count: int = 600, seed: int = 1) -> Workload:
    """Return jobs of 1 to 8 GPUs, most of them short, that state no run time."""
    random = np.random.default_rng(seed)
    time = np.cumsum(random.exponential(300.0, count))
    seconds = np.exp(random.normal(7.5, 1.5, count))
    gpus = random.choice([1, 1, 1, 2, 4, 8], count)
    pods = tuple(
        Pod(
            f"p{i}",
            PodClass(Requests(1000, gpu_count=int(gpus[i]), gpu_milli=GPU_MILLI)),
            owner=f"Job/{i % 7}",
            creation_time=float(time[i]),
            deletion_time=float(time[i] + seconds[i]),
        )
        for i in range(count)
    )
    return Workload("past", NODES, pods)


def test_a_trace_counts_where_its_pods_end() -> None:
    given = history()
    running = replace(given.pods[0], name="running", deletion_time=None)
    found = history_of(replace(given, pods=(running, *given.pods[::-1])))
    assert [pod.name for pod in found.pods] == [pod.name for pod in given.pods]


def test_kubernetes_objects_count_where_they_have_ended() -> None:
    """A run is as long as it was, however long the pod had waited before."""
    pod = history().pods[0]
    ended = tuple(EndedPod(replace(pod, name=f"e{i}"), 1e9 + i, 1e9 + i + 50, 1e9 + i + 60) for i in range(600))
    found = history_of(replace(history(), lives=Lives(ended=ended)))
    assert [(each.creation_time, each.deletion_time) for each in found.pods[:2]] == [(0.0, 10.0), (1.0, 11.0)]


def test_a_short_history_is_refused() -> None:
    with raises(UsageError, "past: 30 pods have times of arrival and end; fitting an order needs at least 500"):
        history_of(history(30))


def test_pods_that_fit_on_no_node_are_no_history() -> None:
    """Some may be gone with their nodes; a history of another cluster is refused."""
    past = history()
    large = replace(past.pods[0], name="large", pod_class=PodClass(Requests(1000, gpu_count=9, gpu_milli=GPU_MILLI)))
    gang = tuple(replace(past.pods[-1], name=f"gang-{i}", gang="gang") for i in range(17))
    found = history_of(replace(past, pods=(large, *past.pods, *gang)))
    assert found.pods == past.pods
    assert found.warnings == (
        "past: 1 of 618 pods fit on no node at all: large",
        "past: 17 of 618 pods are in gangs that do not fit together: gang",
    )
    models = Constraints(gpu_models=("H100",))
    other = replace(past.pods[0], name="other", pod_class=replace(past.pods[0].pod_class, constraints=models))
    assert history_of(replace(past, pods=(other, *past.pods))).warnings == (
        "past: pods name GPU models that no node has: H100; no node states one",
        "past: 1 of 601 pods fit on no node at all: other",
    )
    says = "past: 0 of 600 pods with times fit on a node; fitting an order needs at least 500; expected the history of"
    with raises(UsageError, says):
        history_of(replace(past, nodes=(Node("other", 500, 1 << 38),)))


def test_windows_have_the_loads_and_do_not_overlap() -> None:
    past = history()
    searched, held_back = history_windows(past, (0.9, 1.0))
    assert searched.last == held_back.first
    for windows in (searched, held_back):
        for seed in range(20):
            plan = windows(past, seed)
            coming = slice(plan.warm, None)
            work = np.array(past.gpu_demand)[plan.pods[coming]] @ plan.duration[coming]
            assert 0.9 <= work / (past.gpu_capacity * plan.time[-1]) <= 1.0
            assert len(plan.pods[coming]) == windows.count == 100
            assert plan.time[: plan.warm + 1].tolist() == [0.0] * (plan.warm + 1)


@pytest.mark.parametrize(
    ("pods", "gang", "windows", "arrivals"),
    [(600, 1, 2, 100), (4_000, 1, 8, 200), (4_000, 150, 5, 300), (50_000, 1, 10, 2_000)],
)
def test_windows_of_a_test_have_no_common_arrival(pods: int, gang: int, windows: int, arrivals: int) -> None:
    """Windows that overlap would say the same several times, and noise would look like evidence."""
    past = history(pods)
    if gang > 1:
        members = tuple(replace(pod, gang="g", creation_time=0.9 * pods * 300.0) for pod in past.pods[:gang])
        past = replace(past, pods=(*members, *past.pods[gang:]))
    _, later = history_windows(past, (0.9, 1.0))
    plans = later.consecutive(past)
    coming = [plan.pods[plan.warm :] for plan in plans]
    assert (len(plans), later.count) == (windows, arrivals)
    assert len(np.unique(np.concatenate(coming))) == sum(map(len, coming))
    assert min(map(len, coming)) > 0


def test_windows_begin_with_the_pods_that_run_by_then() -> None:
    """Those that arrived before and have not ended, at the pace of the window, with what is left of them."""
    past = history()
    for windows in history_windows(past, (0.9, 1.0)):
        for seed in range(5):
            plan = windows(past, seed)
            created = np.array([pod.creation_time for pod in past.pods], dtype=np.float64)
            whole = np.array([(pod.deletion_time or 0.0) - (pod.creation_time or 0.0) for pod in past.pods])
            first, last = plan.pods[plan.warm], plan.pods[-1]
            pace = plan.time[-1] / (created[last] - created[first])
            left = whole - (created[first] - created) * pace
            running = [i for i in range(first) if left[i] > 0]
            assert plan.pods[: plan.warm].tolist() == running
            assert plan.duration[: plan.warm] == pytest.approx(left[running])


def test_nobody_waits_where_the_cluster_is_never_full() -> None:
    """It is said instead of recommending an order."""
    past = replace(history(), nodes=tuple(Node(f"n{i}", 64_000, 1 << 38, gpu_count=8) for i in range(400)))
    assert fitting.search_order(past, FGD, OrderFitOptions(1, loads=(0.01, 0.01))).nobody_waits
    busy = fitting.search_order(history(), FGD, OrderFitOptions(1))
    assert not busy.nobody_waits
    assert not busy.hardly_waits


def test_the_load_of_the_history_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nobody waits, an order found at higher loads would change nothing in it."""
    monkeypatch.chdir(tmp_path)
    Path("nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,8,\nn1,64000,262144,8,\n")
    rows = [f"{100 * i},20,{1 + i % 8}" for i in range(600)] + ["0,20,16"]
    Path("jobs.csv").write_text("\n".join(["submit,duration,gpus", *rows, ""]))
    assert main([*COMMAND, "--output", "mine.safetensors", "--format", "json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["history_load"] == pytest.approx(2700 * 20 / (16 * 59_900))
    assert (found["history_waiting_share"], found["loads"]) == (0.0, [0.8, 1.1])
    says = "hardly a pod waits in the history as it is, with a load of 0.056, so another order would change nothing "
    says += "there; this is about "
    assert f"{says}loads of 0.8 to 1.1" in captured.err
    assert "warning: jobs: 1 of 601 pods fit on no node at all: job-601" in captured.err


def test_pods_without_gpus_have_a_load_of_cpus() -> None:
    past = history()
    cpus = tuple(replace(pod, pod_class=PodClass(Requests(8000))) for pod in past.pods)
    searched, _ = history_windows(replace(past, pods=cpus), (1.0, 1.0))
    plan = searched(past, 3)
    assert 8000 * plan.duration[plan.warm :].sum() / (128_000 * plan.time[-1]) == pytest.approx(1.0)


def test_a_fit_is_reproducible_and_compares_every_order() -> None:
    found, again = (fitting.search_order(history(), FGD, OrderFitOptions(4)) for _ in range(2))
    assert found.waits.keys() == {*RULES, FITTED}
    assert found.chosen in (DEFAULT, found.best_rule, FITTED)
    assert all(ratio == 1.0 for ratio, _ in found.relative("age"))
    assert found.order.weights == again.order.weights
    assert all(np.array_equal(found.waits[name], again.waits[name]) for name in found.waits)


@pytest.mark.parametrize(
    ("earlier", "later", "recommended", "says"),
    [
        ({}, {}, DEFAULT, "in 2 windows no order is told apart from wfp3:easy: age has 1.00 times the waits of"),
        ({"area:easy": 0.5}, {"area:easy": 0.7}, "area:easy", "area:easy has 0.70 times the waits of wfp3:easy"),
        ({"area:easy": 0.5}, {}, DEFAULT, "no order is told apart from wfp3:easy: area:easy has 1.00 times the waits"),
        ({"area:easy": 0.5}, {"age": 0.5}, DEFAULT, "use --order wfp3:easy; no file is written"),
        (
            {"age": 0.5},
            {"age": 0.5, FITTED: 0.6},
            "age",
            "not shown to be better, with 1.20 times the waits of age",
        ),
        ({"age": 0.5}, {"age": 0.5, FITTED: 0.4}, FITTED, "the learned order has 0.80 times the waits of age"),
        ({DEFAULT: 0.9}, {}, DEFAULT, "no order is told apart from wfp3:easy; the learned order is not shown to be"),
    ],
)
def test_default_is_recommended_unless_an_order_is_better_in_both_parts(
    earlier: dict[str, float],
    later: dict[str, float],
    recommended: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What was best on a few earlier windows is often best by chance."""
    monkeypatch.chdir(tmp_path)

    def compared(_: object, __: object, orders: dict[str, object], windows: HistoryWindows) -> dict[str, np.ndarray]:
        factors = later if windows.first else earlier
        base = np.array([[1000.0], [1010.0]]) * np.ones((1, 4))
        return {name: base * factors.get(name, 1.0) * np.array([[1.0], [1.001]]) ** (name == FITTED) for name in orders}

    monkeypatch.setattr(fitting, "waits_in_windows", compared)
    write_history()
    assert main([*COMMAND, "--output", "mine.safetensors", "--format", "json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["recommended"] == recommended
    assert says in captured.err
    assert Path("mine.safetensors").exists() == (recommended == FITTED)


COMMAND = ("fit", "order", "--nodes", "nodes.csv", "--pods", "jobs.csv", "--generations", "1", "--jobs", "1")


def write_history() -> None:
    Path("nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,8,\nn1,64000,262144,8,\n")
    rows = [
        f"{pod.creation_time},{(pod.deletion_time or 0) - (pod.creation_time or 0)},1,{pod.requests.gpu_count}"
        for pod in history().pods
    ]
    Path("jobs.csv").write_text("\n".join(["submit,duration,cpus,gpus", *rows, ""]))


@pytest.mark.parametrize("learned_is_better", [True, False])
def test_a_file_is_written_only_for_a_better_order(
    learned_is_better: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    compare = fitting.waits_in_windows

    def compared(*arguments: object) -> dict[str, np.ndarray]:
        waits = compare(*arguments)  # type: ignore[arg-type]
        equal = dict.fromkeys(waits, waits["wfp3"])
        if FITTED in waits and learned_is_better:
            equal[FITTED] = waits["wfp3"] * np.array([[0.5], [0.51]])
        return equal

    monkeypatch.setattr(fitting, "waits_in_windows", compared)
    write_history()
    assert main([*COMMAND, "--output", "mine.safetensors", "--format", "json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["recommended"] == (FITTED if learned_is_better else DEFAULT)
    assert {each["order"] for each in found["orders"]} == {*RULES, FITTED}
    if learned_is_better:
        card, order = open_order(Path("mine.safetensors"))
        # Of orders that are equal by `compared` the first decides who may overtake.
        assert (card.overtaking, card.reference, order.ageing) == ("any", "age", fitting.AGEING)
        assert "wrote mine.safetensors" in captured.err
    else:
        assert not Path("mine.safetensors").exists()
        assert "no file is written" in captured.err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--load", "high"], "--load high: expected one or two numbers such as 0.8-1.1"),
        (["--load", "1.1-0.8"], "--load: loads 1.1-0.8: the first must be at most the second; expected 0.8-1.1"),
        (["--load", "0-0.8"], "--load: loads 0-0.8: expected two numbers above 0, at most 100"),
        (["--output", "mine.txt"], "--output mine.txt: the name of an order file must end in .safetensors"),
        (
            ["--output", "policy.safetensors"],
            "--output policy.safetensors: exists and is not an order file; name another file",
        ),
        (["--policy", "fgd+wfp3"], "and all orders are compared; expected a policy without one"),
    ],
)
def test_what_cannot_be_is_one_line(
    options: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.safetensors").write_bytes(b"nothing")
    defaults = [] if "--output" in options else ["--output", "new.safetensors"]
    assert main(["fit", "order", "--workload", "default-small", *defaults, *options]) in (1, 2)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert problem in line
