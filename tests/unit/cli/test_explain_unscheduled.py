"""`explain` says of a pod that no scheduler would place now why that is so, and `wait` refuses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from steersman.cli.main import main
from steersman.cluster.objects.api.pods import PodObject
from steersman.cluster.objects.decoding import decode_pod
from steersman.live.service.scoring.explanation import why_not_scheduled

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "9"}},
}
GATED, DELETED = {"schedulingGates": [{"name": "example.com/quota"}]}, "2026-11-01T11:30:00Z"
REASONS = {
    "gated": "it has scheduling gates, and no scheduler looks at it before they are removed",
    "runs": "it is bound to n already",
    "leaves": "it is being deleted",
    "others": "its schedulerName is volcano, and that scheduler places it",
    "pending": "",
    "ours": "",
}


def pod(name: str, deleted: str | None = None, **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "creationTimestamp": "2026-11-01T11:00:00Z"}
    meta |= {"deletionTimestamp": deleted} if deleted else {}
    container = {"name": "x", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    status = {"phase": "Running" if "nodeName" in spec else "Pending"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [container], **spec},
        "status": status,
    }


PODS = {
    "gated": pod("gated", **GATED),
    "runs": pod("runs", nodeName="n"),
    "leaves": pod("leaves", deleted=DELETED),
    "others": pod("others", schedulerName="volcano"),
    "pending": pod("pending"),
    "ours": pod("ours", schedulerName="steersman"),
}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([NODE, *PODS.values()]))
    return ["--nodes", str(file), "--pods", str(file), "--policy", "best-fit"]


@pytest.mark.parametrize("name", REASONS)
def test_explanation_says_whether_the_pod_is_placed_now(
    name: str, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *files, "--pod", name]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (f"{name} is not placed now: {REASONS[name]}" in said) == bool(REASONS[name])
    assert f"best-fit {'would place' if REASONS[name] else 'places'} {name} on n" in said
    assert main(["explain", *files, "--pod", name, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["notScheduled"] == REASONS[name]


@pytest.mark.parametrize("command", [["wait"], ["explain", "--order", "age"]])
@pytest.mark.parametrize("name", ["gated", "leaves"])
def test_pod_that_does_not_wait_has_no_place_in_the_queue(
    name: str, command: list[str], files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, *files, "--pod", name]) == 1
    said = capsys.readouterr()
    expected = f"error: --pod {name}: no scheduler looks at it: it has scheduling gates, or is being deleted"
    assert (said.out, said.err.splitlines()[-1]) == ("", expected)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        # A node beats a gate, which no bound pod has; being deleted beats both.
        ({"nodeName": "n", **GATED}, REASONS["runs"]),
        ({"schedulingGates": [], "schedulerName": "volcano"}, REASONS["others"]),
        ({"schedulerName": "volcano", **GATED}, REASONS["gated"]),
        ({"schedulerName": "default-scheduler"}, ""),
    ],
)
def test_first_reason_counts(changes: dict[str, Any], reason: str) -> None:
    decoded = decode_pod(msgspec.convert(pod("p", **changes), PodObject))
    assert why_not_scheduled(decoded) == reason
    leaving = decode_pod(msgspec.convert(pod("p", deleted=DELETED, **changes), PodObject))
    assert why_not_scheduled(leaving) == REASONS["leaves"]


@pytest.mark.parametrize("which", [["--pod", "others"], []])
def test_prediction_says_that_another_scheduler_would_decide(
    which: list[str], files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["wait", *files, *which, "--rollouts", "2"]) == 0
    assert "assumed: the policy also places pods whose schedulerName is volcano\n" in capsys.readouterr().out
    assert main(["wait", *files, "--pod", "pending", "--rollouts", "2"]) == 0
    assert "schedulerName" not in capsys.readouterr().out
