"""`steersman train`, `policy show` and learned policies on the command line: one-line errors, files for results."""

import csv
import json

import pytest

from steersman.cli.main import main
from steersman.policies.policy_file import read_policy
from steersman.workloads.formats.kubernetes.objects import write_nodes, write_pods
from steersman.workloads.formats.openb import embedded

SMALL = ("--population", "4", "--episodes", "1", "--iterations", "2", "--validate-every", "1", "--jobs", "1")


@pytest.fixture
def files(tmp_path, monkeypatch):
    whole = embedded("default")
    write_nodes(whole.nodes[::40], tmp_path / "nodes.yaml")
    write_pods(whole.pods[::40], tmp_path / "pods.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(*more):
    return main(["train", "--nodes", "nodes.yaml", "--workload", "pods.yaml", "--output", "run", *SMALL, *more])


def test_train_show_and_use_a_policy(files, capsys):
    assert train("--name", "mine") == 0
    assert "of what fgd loses" in capsys.readouterr().out
    assert main(["policy", "show", "run/policy.safetensors"]) == 0
    shown = capsys.readouterr().out
    assert "Policy mine" in shown
    assert "fgd_score" in shown
    assert main(["policy", "show", "run/policy.safetensors", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["training"] == ["pods"]
    assert main(["policy", "show", "run/policy.safetensors", "--format", "csv"]) == 0
    assert "name,mine" in capsys.readouterr().out.splitlines()
    policies = ("--policy", "fgd", "run/policy.safetensors", "steersman", "--seeds", "1-2", "--jobs", "1")
    assert main(["evaluate", "--nodes", "nodes.yaml", "--pods", "pods.yaml", *policies, "--output", "out"]) == 0
    with open(files / "out" / "summary.csv", newline="") as file:
        assert {row["policy"] for row in csv.DictReader(file)} == {"fgd", "run", "steersman"}
    simulate = ("simulate", "--nodes", "nodes.yaml", "--pods", "pods.yaml", "--policy", "run/policy.safetensors")
    assert main([*simulate, "--output", "one"]) == 0
    with open(files / "one" / "placements.csv", newline="") as file:
        assert {row["outcome"] for row in csv.DictReader(file)} >= {"bound"}


def test_small_workload_is_found_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    validation = ("--validation-episodes", "1", "--iterations", "1")
    assert main(["train", "--workload", "default-small", "--output", "run", *SMALL, *validation]) == 0
    assert read_policy("run/policy.safetensors")[0].training == ("default-small",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--workload", "nowhere", "--output", "o"], "unknown --workload 'nowhere'"),
        (["train", "--workload", "default", "--output", "o", "--objective", "speed"], "'speed'"),
        (["train", "--workload", "default", "--output", "o", "--population", "5"], "even number"),
        (
            ["train", "--workload", "default", "--output", "o", "--protocol", "sideways"],
            "is not one of 'inflation', 'arrivals', 'timed'",
        ),
        (["train", "--workload", "default", "--output", "o", "--load", "0.9"], "--load belongs to --protocol timed"),
        (["train", "--workload", "default", "--validation", "default", "--output", "o"], "used for training"),
        (["train", "--workload", "default", "--output", "o", "--resume"], "no checkpoint"),
        (["policy", "show", "none.safetensors"], "none.safetensors"),
        (["policy", "show", "pods.yaml"], "no safetensors file"),
    ],
)
def test_invalid_input_fails_in_one_line(files, capsys, arguments, message):
    assert main(arguments) in (1, 2)
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1, said
    assert not (files / "o").exists()


def test_a_run_without_gpus_is_rejected(files, capsys):
    (files / "cpu.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n"
        "  - {name: c, resources: {requests: {cpu: '1'}}}\n"
    )
    assert main(["train", "--nodes", "nodes.yaml", "--workload", "cpu.yaml", "--output", "o"]) == 2
    assert "no GPU" in capsys.readouterr().err
