"""What runs is what was promised: every command and a live cluster choose the same member of a portfolio."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from tests.support.cluster_dump import listed, node, pod
from tests.support.errors import raises
from tests.support.nightly import by_default

from steersman.cli.main import main
from steersman.core.errors import SteersmanError
from steersman.live.runtime import comparison as live_comparison
from steersman.policies.policy_file import read_policy
from steersman.policies.registry import policy_path, resolve
from steersman.simulation.prepared_policy import prepare_chosen
from steersman.simulation.run import Simulator, decider_on
from steersman.workloads.formats.openb import embedded
from steersman.workloads.generators.clusters import Distribution, random_cluster
from steersman.workloads.loading import load_workload
from steersman.workloads.workload import RunningPods

SEEDS = by_default(("1", "12", "15"), map(str, range(1, 21)))


def promises(source: Sequence[str], pod: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Return what commands say of the member that they choose."""
    said: dict[str, str] = {}

    def run(*arguments: str) -> str:
        assert main([*arguments, *source]) == 0
        output = capsys.readouterr()
        for line in output.err.splitlines():
            if " decides: " in line:
                said[" ".join(arguments[:2])] = line.rpartition("inflation): ")[2].removeprefix("steersman: ")
        return output.out

    outputs = [str(folder / name) for name in ("out", "run", "p.safetensors")]
    inflation = ("--policy", "steersman", "--protocol", "inflation")
    run("evaluate", *inflation[:2], "fgd", *inflation[2:], "--seeds", "1", "--jobs", "1", "--output", outputs[0])
    run("simulate", *inflation, "--output", outputs[1])
    run("fit", "policy", "--output", outputs[2])
    explained = json.loads(run("explain", "--pod", pod, "--format", "json"))
    assert said["fit policy"].startswith(f"{explained['member']} decides: ")
    assert read_policy(outputs[2])[0].name == explained["member"]
    return {**said, "explain": explained["choice"]}


@pytest.mark.parametrize("seed", SEEDS)
def test_commands_and_a_live_cluster_choose_the_same(
    seed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "cluster"
    assert main(["workload", "random", "--nodes", "4-12", "--seed", seed, "--output", str(folder)]) == 0
    files = folder / "nodes.yaml", folder / "pods.yaml"
    workload = load_workload(*files)
    pod = next(pod.name for pod in workload.pods)
    said = promises([f"--nodes={files[0]}", f"--pods={files[1]}"], pod, tmp_path, capsys)
    said["live"] = live_comparison.compare((workload, resolve("steersman"))).evidence
    assert len(said) == 5
    assert len(set(said.values())) == 1, said


def test_on_openb_all_choose_what_is_better_than_the_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = promises(["--workload", "default-small"], "openb-pod-0000", tmp_path, capsys)
    assert len(set(said.values())) == 1, said
    simulator = Simulator(embedded("default-small"))
    for name in ("steersman", "rules"):
        chosen = simulator.member(resolve(name))
        assert chosen.policy.name != "fgd"
        assert chosen.savings.mean() > 0
        assert (said["explain"] == chosen.evidence) == (name == "steersman")


def running_cluster(folder: Path) -> tuple[Path, Path]:
    """Nodes with pods that run, wait, and belong to their node, in no order."""
    gpus = {"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
    nodes = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{i}"}, "status": {"allocatable": gpus}}
        for i in range(4)
    ]

    def pod(i: int, count: int, node: str = "", owner: str = "") -> dict[str, object]:
        requests = {"cpu": "2", "memory": "4Gi", **({"nvidia.com/gpu": str(count)} if count else {})}
        owners = (
            [{"kind": owner, "name": "o", "uid": "o", "controller": True, "apiVersion": "apps/v1"}] if owner else []
        )
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{97 * i % 41:02}-{i}", "namespace": "jobs", "ownerReferences": owners},
            "spec": {
                "containers": [{"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}}],
                **({"nodeName": node} if node else {}),
            },
            "status": {"phase": "Running" if node else "Pending"},
        }

    pods = [pod(i, (1, 2, 4)[i % 3], f"n{i // 2 % 4}" if i % 2 else "") for i in range(16)]
    pods += [pod(100 + i, 0, f"n{i}", "DaemonSet") for i in range(4)]
    files = folder / "nodes.yaml", folder / "pods.yaml"
    for file, objects in zip(files, (nodes, pods), strict=True):
        file.write_text(yaml.safe_dump_all(objects))
    return files


def test_what_runs_now_does_not_change_the_choice(tmp_path: Path) -> None:
    """`wait` keeps running pods where they are, and `evaluate` places them again."""
    files = running_cluster(tmp_path)
    modes = (RunningPods.FREE, RunningPods.FROM_NOW)
    read = [load_workload(*files, running=mode) for mode in modes]
    assert [pod.name for pod in read[0].pods] != [pod.name for pod in read[1].pods]
    free, kept = (Simulator(each).emptied for each in read)
    assert free.workload.pods == kept.workload.pods
    assert free.workload.standing() == kept.workload.standing()
    assert len(free.workload.standing()) == 4, "DaemonSets' pods stay"
    assert free.emptied is free
    choices = [Simulator(each).member(resolve("steersman")).evidence for each in read]
    assert choices[0] == choices[1]


def test_default_of_kube_scheduler_is_chosen_where_it_is_best() -> None:
    workload = random_cluster(10, distribution=Distribution.TRAINING, nodes=(5, 24))
    portfolio, simulator = resolve("steersman"), Simulator(workload)
    choice = simulator.member(portfolio)
    assert choice.policy == resolve("kube-default"), choice.evidence
    assert decider_on(workload, portfolio).name == "steersman"
    with (
        policy_path("steersman") as path,
        raises(SteersmanError, "kube-default decides", "leave kube-scheduler as it is"),
    ):
        prepare_chosen(path, portfolio, workload)


def test_a_member_is_chosen_where_running_pods_fill_the_target(tmp_path: Path) -> None:
    bound = pod("run", on="n", gpus=1)
    content = listed(node("n", 2), bound, pod("small", gpus=1), pod("large", gpus=2))
    (tmp_path / "w.json").write_text(json.dumps(content))
    workload = load_workload(tmp_path / "w.json", tmp_path / "w.json", running=RunningPods.FROM_NOW)
    numbers = {each.name: each.value for each in Simulator(workload).run("fgd").metrics}
    assert (numbers["pods_bound"], numbers["pods_failed"]) == (2, 1)
    assert decider_on(workload, resolve("steersman")).name
