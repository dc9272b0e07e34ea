"""`steersman explain`: where a pod would go, and why."""

import json
from pathlib import Path

import pytest
import yaml

from steersman.cli.main import main

NODES = [
    {"kind": "Node", "metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "9"}}}
    for name, cpu in (("small", "4"), ("large", "16"), ("tiny", "1"))
]


def pod(name: str, cpu: str, namespace: str = "default", where: str = "") -> dict[str, object]:
    spec = {"containers": [{"name": "x", "resources": {"requests": {"cpu": cpu}}}]}
    spec |= {"nodeName": where} if where else {}
    return {"kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def written(folder: Path, *objects: dict[str, object]) -> list[str]:
    """Write a file, and return options that name it."""
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([{"apiVersion": "v1", **each} for each in objects]))
    return ["--nodes", str(file), "--pods", str(file)]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    pods = [pod("new", "2"), pod("there", "8", where="large"), pod("twin", "1"), pod("twin", "1", "other")]
    return [*written(tmp_path, *NODES, *pods, pod("big", "64")), "--policy", "best-fit"]


def test_explanation_names_node_runner_up_and_excluded_nodes(files, capsys):
    assert main(["explain", "--pod", "new", *files]) == 0
    said = capsys.readouterr().out
    assert "best-fit places new on small" in said
    assert "then large" in said
    assert "Insufficient cpu" in said
    assert main(["explain", "--pod", "new", *files, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["node"], found["runnersUp"][0]["node"]) == ("small", "large")
    assert found["refused"] == {"Insufficient cpu": 1}
    assert sum(each["contribution"] for each in found["features"]) == found["score"] - found["runnersUp"][0]["score"]


def test_explanation_reports_ties_and_the_tie_breaker(tmp_path, capsys):
    made = [{**NODES[0], "metadata": {"name": f"n{i}"}} for i in range(9)]
    made.append({**NODES[1], "metadata": {"name": "other"}})
    asked = ["explain", "--pod", "new", *written(tmp_path, *made, pod("new", "2")), "--policy"]
    assert main([*asked, "best-fit", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["node"], found["equal"], found["comparedWith"]) == ("n0", 8, "other")
    assert "the order of the nodes" in found["decidedBy"]
    assert [each["points"] for each in found["runnersUp"]] == [100.0] * 5
    assert sum(each["points"] for each in found["features"]) == pytest.approx(100.0), "the other one is the worst"
    assert main([*asked, "best-fit"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "best-fit places new on n0 (100.0 points, score" in said
    assert "8 other nodes have the same score; deciding criterion: the order of the nodes" in said
    written(tmp_path, *made[:9], pod("new", "2"))
    for policy, by in (("kube-default", "random draw among the nodes of equal score"), ("random", "a random draw")):
        assert main([*asked, policy, "--format", "json"]) == 0
        assert by in json.loads(capsys.readouterr().out)["decidedBy"]


def test_single_feasible_node_has_no_comparison(files, capsys):
    assert main(["explain", "--pod", "there", *files, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["decidedBy"], found["points"], found["spread"]) == ("it fits on no other node", 100.0, 0.0)
    assert (found["equal"], found["comparedWith"], found["features"]) == (0, "", [])


def test_running_pod_is_explained_as_if_unbound(files, capsys):
    assert main(["explain", "--pod", "default/there", *files, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["node"], found["refused"]) == ("large", {"Insufficient cpu": 2})


def test_pod_that_fits_nowhere_is_explained(files, capsys):
    assert main(["explain", "--pod", "big", *files]) == 0
    assert "best-fit finds no node for big: it fits on none of 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--pod", "nobody"], 1, "there is no such pod among the 5"),
        (["--pod", "twin"], 1, "choose one of default/twin, other/twin"),
        (["--pod", "new", "--format", "csv"], 2, "'csv' is not one of 'table', 'json'"),
        (["--pod", "new", "--policy", "none"], 2, "none"),
    ],
)
def test_invalid_input_fails_in_one_line(files, capsys, arguments, status, said):
    assert main(["explain", *files, *arguments]) == status
    told = capsys.readouterr()
    assert said in told.err
    assert told.out == ""
    assert main(["explain", "--pod", "new", "--nodes", files[1]]) == 2


def test_portfolio_explanation_names_the_deciding_member(tmp_path, capsys):
    from steersman.policies.registry import resolve
    from steersman.simulation.selection.fitting import FITTED

    gpus = {"alibabacloud.com/gpu-count": "4", "alibabacloud.com/gpu-milli": "4000"}
    room = NODES[1]["status"]["allocatable"] | gpus
    nodes = [{"kind": "Node", "metadata": {"name": f"n{i}"}, "status": {"allocatable": room}} for i in range(4)]
    pods = []
    for i in range(24):
        wish = {"alibabacloud.com/gpu-count": "1", "alibabacloud.com/gpu-milli": str((300, 500, 1000)[i % 3])}
        made = pod(f"p{i}", "1", where=f"n{i % 4}" if i < 8 else "")
        made["metadata"]["annotations"] = wish
        pods.append(made)
    asked = ["explain", "--pod", "p20", *written(tmp_path, *nodes, *pods)]
    assert main([*asked, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["policy"] == "steersman"
    assert found["member"] in {FITTED, *(member.name for member in resolve("steersman").members)}
    assert main(asked) == 0
    assert f"steersman (its member {found['member']}) places p20 on {found['node']}" in capsys.readouterr().out
    assert main([*asked, "--policy", "fgd", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["member"] == ""


def test_explanation_names_other_gpu_resources(tmp_path, capsys):
    room = {"cpu": "8", "memory": "8Gi", "pods": "9"}
    nodes = [
        {"kind": "Node", "metadata": {"name": name}, "status": {"allocatable": room | {gpus: "4"}}}
        for name, gpus in (("red", "amd.com/gpu"), ("green", "nvidia.com/gpu"))
    ]
    wish = pod("wants", "1")
    wish["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    asked = ["explain", "--pod", "wants", *written(tmp_path, *nodes, wish), "--policy", "best-fit"]
    assert main(asked) == 0
    assert "1 node offers amd.com/gpu, not nvidia.com/gpu." in capsys.readouterr().out
    assert main([*asked, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["otherGpus"] == "1 node offers amd.com/gpu, not nvidia.com/gpu."
