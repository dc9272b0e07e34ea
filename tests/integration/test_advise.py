"""`steersman advise` on dumps of clusters, from the command line to the folder."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from steersman.cli.main import main
from steersman.policies.kinds import kube_scheduler
from steersman.policies.kube_scheduler.profile import DEFAULT_PROFILE
from steersman.policies.registry import resolve

pytestmark = pytest.mark.integration

Capture = pytest.CaptureFixture[str]
NOTHING = {"README.md", "advice.json", "report.html"}
FILE = NOTHING | {"kube-scheduler+json.yaml", "scheduler.aks.yaml", "scheduler.eks.json", "scheduler.yaml"}


def node(name: str, gpus: int = 4, **spec: object) -> dict[str, Any]:
    offers = {"cpu": "32", "memory": "256Gi", "pods": "110", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": {"allocatable": offers}}


def pod(name: str, gpus: int, node_name: str = "") -> dict[str, Any]:
    requests = {"cpu": "2", "memory": "8Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    container = {"name": "c", "image": "x", "resources": {"requests": requests, "limits": requests}}
    spec = {"containers": [container], **({"nodeName": node_name} if node_name else {})}
    status = {"phase": "Running" if node_name else "Pending"}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def dump(file: Path, *objects: dict[str, Any]) -> list[str]:
    """Write objects as kubectl does, and return the command that asks about them."""
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    output = str(file.with_suffix(""))
    return ["advise", "--nodes", str(file), "--pods", str(file), "--output", output, "--jobs", "1"]


def mixed(file: Path) -> list[str]:
    """A cluster on which small pods are spread over the nodes that large ones need; one node is cordoned."""
    nodes = [*(node(f"n{i}") for i in range(8)), node("n8", unschedulable=True)]
    running = [*(pod(f"small-{i}", 1, f"n{i % 4}") for i in range(8)), pod("large-0", 4, "n4")]
    waiting = [pod("large-1", 4), pod("large-2", 4), pod("middle-0", 2), pod("middle-1", 2)]
    return dump(file, *nodes, *running, *waiting)


def advised(command: list[str], capsys: Capture) -> tuple[list[str], dict[str, Any]]:
    """Return the lines of an advice, and its record."""
    assert main(command) == 0
    output = Path(command[command.index("--output") + 1])
    said = capsys.readouterr()
    assert f"wrote {', '.join(sorted(each.name for each in output.iterdir()))} to {output}" in said.err
    record = json.loads((output / "advice.json").read_text())
    assert record["advice"] in (output / "report.html").read_text().replace("&#39;", "'")
    assert (output / "README.md").read_text().splitlines()[1] == f"# {record['advice']}"
    return said.out.splitlines(), record


def test_a_file_is_advised_where_it_is_as_good_as_any_policy_and_nothing_once_it_is_used(
    tmp_path: Path, capsys: Capture
) -> None:
    command = mixed(tmp_path / "mixed.json")
    lines, record = advised(command, capsys)
    output = tmp_path / "mixed"
    assert {each.name for each in output.iterdir()} == FILE
    assert lines[0] == f"Change one file: kube-scheduler's configuration in {output}/scheduler.yaml"
    names = [line[2:10].strip() for line in lines[1:] if line[2:10].strip()]
    assert names == ["gain", "pays", "install", "go back", "unsure"]
    assert [each["setting"] for each in record["settings"]] == ["as it is now", "empty"]
    assert all(each["gains"]["stock-tuned"]["low"] > 0 for each in record["settings"])
    assert "n8 is cordoned" in record["cluster"]
    found = kube_scheduler(resolve(str(output / "scheduler.yaml")))
    aks = kube_scheduler(resolve(str(output / "scheduler.aks.yaml")))
    assert found is not None
    assert aks is not None
    assert found.profile == aks.profile != DEFAULT_PROFILE

    # With the file in use there is nothing left to change. It is read before the folder is written again.
    again = [*command, "--scheduler-config", str(output / "scheduler.yaml")]
    lines, record = advised(again, capsys)
    assert lines[0] == "Change nothing: no way is shown to do better than scheduler"
    assert record["way"] == "scheduler"
    assert {each.name for each in output.iterdir()} == NOTHING


def test_nothing_is_advised_where_every_way_allocates_as_much(tmp_path: Path, capsys: Capture) -> None:
    pods = [*(pod(f"whole-{i}", 4, f"n{i}") for i in range(3)), pod("whole-3", 4)]
    lines, record = advised(dump(tmp_path / "whole.json", *(node(f"n{i}") for i in range(6)), *pods), capsys)
    assert lines[0] == "Change nothing: no way is shown to do better than kube-default"
    assert not any("install" in line for line in lines)
    assert record["files"] == []
    assert {each.name for each in (tmp_path / "whole").iterdir()} == NOTHING


def test_a_cluster_on_which_nothing_runs_is_compared_empty_alone(tmp_path: Path, capsys: Capture) -> None:
    nodes, pods = [node("n0"), node("n1")], [pod("a", 1), pod("b", 4)]
    lines, record = advised(dump(tmp_path / "new.json", *nodes, *pods), capsys)
    assert [each["setting"] for each in record["settings"]] == ["empty"]
    assert "nothing runs in new: the cluster as it is now is the empty one" in " ".join(" ".join(lines).split())


def test_a_full_cluster_is_compared_as_it_is_now(tmp_path: Path, capsys: Capture) -> None:
    """Whatever waits there, and whatever is too large for any node."""
    runs = [pod(f"r{i}", 8, f"n{i}") for i in range(2)]
    waits = [pod("large", 8), pod("huge", 64), *(pod(f"s{i}", 1) for i in range(3))]
    lines, record = advised(dump(tmp_path / "full.json", node("n0", 8), node("n1", 8), *runs, *waits), capsys)
    assert [each["setting"] for each in record["settings"]] == ["as it is now", "empty"]
    assert "1 pod of 7 fits on no node, whatever the scheduler" in " ".join(" ".join(lines).split())


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ([node("n", 0), pod("p", 1)], "its nodes have no GPU"),
        ([node("n"), pod("p", 0)], "its pods request no GPU"),
        ([node("n", unschedulable=True), pod("p", 1)], "GPU"),
        ([node("n"), pod("p", 64), pod("c", 0)], "none of its pods with GPUs fits on a node"),
        ([node("n")], "p"),
    ],
)
def test_clusters_without_an_answer_are_named_in_a_line(
    tmp_path: Path, capsys: Capture, objects: list[dict[str, Any]], words: str
) -> None:
    assert main(dump(tmp_path / "odd.json", *objects)) in (1, 2)
    said = capsys.readouterr()
    errors = [line for line in said.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert words in errors[0]
    assert "odd" in errors[0]
    assert said.out == ""
    assert not (tmp_path / "odd").exists()


@pytest.mark.parametrize("name", ["stock-tuned.yaml", "mine.txt", "missing.yaml"])
def test_names_of_configurations_are_checked_before_anything_is_read(
    tmp_path: Path, capsys: Capture, name: str
) -> None:
    if name != "missing.yaml":
        (tmp_path / name).write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    assert main([*mixed(tmp_path / "mixed.json"), "--scheduler-config", str(tmp_path / name)]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert name in line


@pytest.mark.parametrize("content", ["kind: Pod\napiVersion: v1\n", "- 1\n", "extenders: []\n"])
def test_what_is_no_configuration_is_refused(tmp_path: Path, capsys: Capture, content: str) -> None:
    (tmp_path / "mine.yaml").write_text(content)
    command = [*mixed(tmp_path / "mixed.json"), "--scheduler-config", str(tmp_path / "mine.yaml")]
    assert main(command) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert "mine.yaml" in line
    assert not (tmp_path / "mixed").exists()


def history(folder: Path, pods: int) -> list[str]:
    """Write nodes, and pods with times, whose history has few windows; return the command without jobs."""
    random = Random(3)
    nodes = "".join(f"n{i},{gpus * 16000},{gpus * 65536},{gpus},T4\n" for i, gpus in enumerate((4, 8, 2)))
    (folder / "nodes.csv").write_text(f"sn,cpu_milli,memory_mib,gpu,model\n{nodes}")
    sizes = random.choices((1, 2, 4), (70, 15, 15), k=pods)
    seconds = [random.lognormvariate(7.5, 1.5) for _ in sizes]
    span = sum(size * each for size, each in zip(sizes, seconds, strict=True)) / 14
    times = sorted(random.uniform(0, span) for _ in sizes)
    rows = "".join(
        f"p{i},{4000 * size},{16384 * size},{size},1000,,LS,Succeeded,{time:.0f},{time + each:.0f},{time:.0f}\n"
        for i, (size, each, time) in enumerate(zip(sizes, seconds, times, strict=True))
    )
    columns = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time"
    (folder / "pods.csv").write_text(f"{columns},scheduled_time\n{rows}")
    return ["advise", "--nodes", str(folder / "nodes.csv"), "--pods", str(folder / "pods.csv")]


def test_figures_do_not_depend_on_jobs_and_few_windows_are_said(tmp_path: Path, capsys: Capture) -> None:
    command, records = history(tmp_path, 520), {}
    for jobs in "12":
        lines, record = advised([*command, "--output", str(tmp_path / jobs), "--jobs", jobs], capsys)
        records[jobs] = {name: record[name] for name in ("way", "choices", "settings")}
        text = " ".join(" ".join(lines).split())
        assert "waits were compared in only 2 windows of the history" in text
        gains = [each["gains"].get(record["way"]) for each in record["settings"]]
        assert record["way"] == "kube-default" or any(each["mean"] > 0.5 and each["low"] > 0 for each in gains if each)
    assert records["1"] == records["2"]
    assert [each["draws"] for each in records["1"]["settings"]] == [20, 2]
