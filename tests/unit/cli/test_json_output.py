"""--format json: one JSON document on standard output, with numbers as numbers and units in names; nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import structlog
import typer.main
from tests.unit.live.top.test_top import LEASES, NODES, PODS, node, pod, running_double

from steersman.cli import main as cli
from steersman.cli.commands import schedule
from steersman.cli.main import main
from steersman.cli.options.common import TableOrJson
from steersman.cli.output.display import print_json
from steersman.live.local_cluster import record
from steersman.live.local_cluster.record import ClusterBackend, ClusterRecord
from steersman.live.scheduler.shadow import AgreementStats, ClusterSummary

Capture = pytest.CaptureFixture[str]


def document(capsys: Capture, *arguments: str) -> Any:
    capsys.readouterr()
    assert main([*arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_format_option_has_one_name() -> None:
    """--output is a folder or a file, and --format a format, of every command that has one."""

    def options(command: Any) -> list[Any]:
        below = getattr(command, "commands", {}).values()
        return [*command.params, *(option for each in below for option in options(each))]

    known = [(each.opts[0], each) for each in options(typer.main.get_command(cli.app))]
    formats = [each.type_descriptor.annotation for name, each in known if name == "--format"]
    assert len(formats) == 12
    assert all("json" in set(kind) and "table" in set(kind) for kind in formats)
    assert all(each.metavar in {"FILE", "FOLDER", "DIR"} for name, each in known if name == "--output")


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two nodes and two pods of a server that is known as the local cluster `mine`; its kubeconfig."""
    monkeypatch.setenv("STEERSMAN_STATE_DIR", str(tmp_path / "state"))
    with running_double(tmp_path) as (double, kubeconfig):
        double.put(NODES, node("n1", gpus=4))
        double.put(NODES, node("n2", ready=False))
        double.put(PODS, pod("a", "n1", cpu="6", phase="Running"))
        double.put(PODS, pod("b", scheduler="other"))
        metadata = {"name": "steersman", "namespace": "kube-system", "annotations": {"steersman.dev/policy": "fgd"}}
        double.put(LEASES, {"metadata": metadata, "spec": {"holderIdentity": "pod-7"}})
        record.write(ClusterRecord("mine", ClusterBackend.KUBECONFIG, str(kubeconfig), "test", ready=True))
        yield kubeconfig


def test_top(live: Path, capsys: Capture) -> None:
    found = document(capsys, "top", "--once", "--kubeconfig", str(live), "--sort", "cpu")
    assert found["cluster"] == "test"
    assert found["pods"] == 2
    assert found["pods_pending_by_scheduler"] == {"other": 1}
    assert found["schedulers"] == [{"lease": "kube-system/steersman", "holder": "pod-7", "policy": "fgd"}]
    first, second = found["nodes"]
    assert (first["name"], first["cpu_requested_milli"], first["cpu_milli"], first["gpus"]) == ("n1", 6_000, 8_000, 4)
    assert (second["name"], second["state"], second["memory_bytes"]) == ("n2", "not ready", 16 << 30)
    assert (first["zone"], first["rack"]) == ("", "")


def test_cluster_status(live: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ready(_: Any) -> None:
        return

    monkeypatch.setattr("steersman.cli.commands.cluster._check_ready", ready)
    found = document(capsys, "cluster", "status", "--name", "mine")
    assert found["pods_by_phase"] == {"Pending": 1, "Running": 1}
    assert (found["name"], found["nodes"], found["nodes_ready"]) == ("mine", 2, 1)
    assert (found["kubeconfig"], found["prometheus"]) == (str(live), None)
    assert main(["cluster", "status", "--name", "mine"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:5] == ["Nodes:      1 of 2 ready", "Pods:       1 Pending, 1 Running", f"Kubeconfig: {live}"]
    assert lines[-1] == f"export KUBECONFIG={live}"


def test_policy_show(capsys: Capture) -> None:
    found = document(capsys, "policy", "show", "steersman")
    assert found["network"] == "portfolio"
    assert all(isinstance(score["mean"], float) for score in found["scores"])


def test_a_shadows_report(capsys: Capture) -> None:
    summary = ClusterSummary(2, 50.0, 25.0, float("nan"), 1.5, 0.0, 1)
    print_json(schedule._record(AgreementStats(4, 3), summary, summary, "default-scheduler", "fgd"))
    found = json.loads(capsys.readouterr().out)
    assert (found["decisions"], found["agreement_percent"]) == (4, 75.0)
    assert found["actual"]["scheduler"] == "default-scheduler"
    assert (found["instead"]["policy"], found["instead"]["cpu_percent"]) == ("fgd", 50.0)
    assert found["actual"]["gpu_percent"] is None


def test_shadow_without_decisions_reports_no_agreement(tmp_path: Path, capsys: Capture) -> None:
    summary, none = ClusterSummary(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0), AgreementStats()
    print_json(schedule._record(none, summary, summary, "default-scheduler", "fgd"))
    found = json.loads(capsys.readouterr().out)
    assert (found["decisions"], found["agreement_percent"]) == (0, None)
    assert (
        schedule._sentence(none, "default-scheduler", "fgd") == "no decisions of default-scheduler to compare fgd with"
    )
    assert schedule._sentence(AgreementStats(4, 3), "default-scheduler", "fgd").endswith("the same node for 3 (75.0 %)")
    schedule._write(tmp_path / "summary.csv", none, summary, summary)
    assert "agreement_percent,," in (tmp_path / "summary.csv").read_text().splitlines()
    with structlog.testing.capture_logs() as logs:
        schedule._log(none)
        schedule._log(AgreementStats(4, 3))
    assert ["percent" in line for line in logs] == [False, True]


@pytest.mark.parametrize(
    ("command", "needed"), [(("schedule", "--policy", "fgd"), "--shadow"), (("top",), "--once"), (("evaluate",), "csv")]
)
def test_commands_without_tables_have_no_json(command: tuple[str, ...], needed: str, capsys: Capture) -> None:
    value = "yaml" if needed == "csv" else TableOrJson.JSON
    assert main([*command, "--format", value]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert needed in said.err
