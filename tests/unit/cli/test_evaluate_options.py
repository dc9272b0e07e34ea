"""`evaluate --objective` and the protocols that generate clusters, on the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from tests.support.errors import check_text
from tests.support.networks import network_file

from steersman.cli.main import main
from steersman.policies.features import CLUSTER

DEPLOYMENTS = ["evaluate", "--protocol", "deployments", "--node-count", "3", "--seeds", "1-2", "--jobs", "1"]
LATENCY = ["evaluate", "--protocol", "latency", "--node-count", "3", "--pod-count", "30", "--warmup", "0"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def error_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the error of a command that must fail as wrong usage and write nothing."""
    assert main([*arguments, "--output", "out"]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert not Path("out").exists()
    check_text(lines[0])
    return lines[0]


def test_deployments_are_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    command = [*DEPLOYMENTS, "--cpu-load", "0.2", "--policy", "kube-default", "most-even", "--output", "out"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "3 nodes: deployments" in shown
    assert "standard deviation of CPU use" in shown
    assert "GPU" not in shown
    rows = list(csv.DictReader(Path("out/metrics.csv").read_text().splitlines()))
    assert {row["protocol"] for row in rows} == {"deployments"}
    assert {row["policy"] for row in rows} == {"kube-default", "most-even"}
    page = Path("out/report.html").read_text()
    assert "Reward and variance" in page
    assert (
        "steersman evaluate --policy kube-default --policy most-even --baseline kube-default --seeds 1-2 --protocol "
        "deployments --node-count 3 --cpu-load 0.2 --output out"
    ) in page
    first = Path("out/metrics.csv").read_bytes()
    assert main(command) == 0  # the same seeds give the same bytes
    assert Path("out/metrics.csv").read_bytes() == first


def test_networks_are_compared_with_rules_on_deployments(tmp_path: Path) -> None:
    networks = [network_file(tmp_path, CLUSTER, name) for name in ("mlp", "gnn")]
    policies = ("--policy", "kube-default", "least-allocated", *networks)
    assert main([*DEPLOYMENTS, "--cpu-load", "0.2", *policies, "--output", "out"]) == 0
    rows = list(csv.DictReader(Path("out/summary.csv").read_text().splitlines()))
    assert {row["policy"] for row in rows if row["metric"] == "cpu_balance_percent"} == {
        "kube-default",
        "least-allocated",
        *(Path(each).stem for each in networks),
    }


def test_several_workloads_are_bars_by_family() -> None:
    short = ("--ratio", "0.1", "--seeds", "1-2", "--jobs", "1", "--protocol", "inflation")
    workloads = ("--workload", "default", "gpushare40", "--policy", "fgd", "best-fit")
    assert main(["evaluate", *workloads, *short, "--output", "out"]) == 0
    assert "openb workloads by family" in Path("out/report.html").read_text()


def test_latency_is_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    policies = ("--policy", "kube-default", "ma", "la", "lc", "p0")
    command = [*LATENCY, "--seeds", "1", *policies, "--jobs", "1", "--output", "out"]
    assert main([*command, "--format", "json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert {"soft_limits_kept_percent", "empty_nodes", "connections_maximum_mean"} <= {r["metric"] for r in records}
    page = Path("out/report.html").read_text()
    for title in ("Pods per node", "Latency", "soft limits kept, % of 30 decisions"):
        assert title in page


@pytest.mark.parametrize(
    "wrong",
    [
        [*DEPLOYMENTS, "--policy", "fgd", "--workload", "default"],
        [*DEPLOYMENTS, "--policy", "fgd", "--bound"],
        [*DEPLOYMENTS, "--policy", "fgd", "--load", "0.5"],
        [*DEPLOYMENTS, "--policy", "fgd", "--zones", "2"],
        [*DEPLOYMENTS, "--policy", "fgd", "--objective", "allocation"],
        [*DEPLOYMENTS, "--policy", "fgd", "--objective", "latency-aware"],
        [*DEPLOYMENTS, "--policy", "fgd", "--cpu-load", "nan"],
        [*DEPLOYMENTS, "--policy", "fgd", "--node-cpu", "100m"],
        [*DEPLOYMENTS, "--policy", "fgd", "--baseline", "random"],
        [*LATENCY, "--policy", "fgd"],
        [*LATENCY, "--policy", "p0", "--objective", "locality"],
        [*LATENCY, "--policy", "p0", "--node-cpu", "8"],
        [*LATENCY, "--policy", "p0", "--node-count", "1"],
        [*LATENCY, "--policy", "p0", "--load", "99"],
        ["evaluate", "--workload", "default-small", "--policy", "fgd", "--node-count", "3"],
        ["evaluate", "--workload", "default-small", "--policy", "fgd", "--zones", "3"],
        ["evaluate", "--workload", "default-small", "--policy", "fgd", "--objective", "evenness"],
        ["evaluate", "--workload", "default-small", "--policy", "fgd", "--objective", "locality"],
        ["evaluate", "--workload", "default-small", "--policy", "fgd", "--objective", "balance=-1,allocation=1"],
        [
            *("evaluate", "--workload", "default-small", "--policy", "fgd"),
            *("--protocol", "inflation", "--objective", "waiting-time"),
        ],
    ],
)
def test_inapplicable_options_fail_in_one_line(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert error_of(wrong, capsys)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["evaluate", "--policy", "kube-default", "--kubernetes", "1.30"], "'1.30' is not computed"),
        (
            ["evaluate", "--policy", "fgd", "--kubernetes", "1.36"],
            "--kubernetes 1.36 is about policies",
        ),
        (["simulate", "--policy", "kube-default@1.2"], "'1.2' is not computed"),
    ],
)
def test_wrong_minors_fail_in_one_line(command: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert problem in error_of([*command, "--workload", "default-small"], capsys)


def test_minors_are_compared() -> None:
    Path("nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,32000,64000,0,\nn2,16000,64000,0,\n")
    Path("pods.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np1,1000,1000,0,0,\n")
    files = ["--nodes", "nodes.csv", "--pods", "pods.csv", "--protocol", "arrivals", "--seeds", "1", "--output", "out"]
    command = ["evaluate", *files, "--policy", "kube-default", "kube-default@1.37", "fgd", "--kubernetes", "1.35"]
    assert main(command) == 0
    rows = list(csv.DictReader(Path("out/metrics.csv").read_text().splitlines()))
    found = dict.fromkeys(row["policy"] for row in rows)
    assert list(found)[:3] == ["kube-default@1.35", "kube-default@1.37", "fgd"]
    assert "--policy kube-default@1.35" in Path("out/report.html").read_text()


def test_objective_error_without_gpus_lists_alternatives(capsys: pytest.CaptureFixture[str]) -> None:
    Path("nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,32000,64000,0,\n")
    Path("pods.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np1,1000,1000,0,0,\n")
    files = ["evaluate", "--nodes", "nodes.csv", "--pods", "pods.csv", "--policy", "fgd"]
    assert "balance" in error_of([*files, "--objective", "fragmentation"], capsys)
    assert main([*files, "--objective", "balance", "--seeds", "1", "--output", "out"]) == 0
    assert "GPU" not in capsys.readouterr().out
