"""`steersman explain --order`: who goes before a pod, as text and JSON, and what is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from steersman.cli.main import main

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "9"}},
}


def pod(name: str, minute: int, cpu: str, seconds: int | None = None, **spec: object) -> dict[str, object]:
    annotations = {} if seconds is None else {"steersman.dev/expected-seconds": str(seconds)}
    meta = {"name": name, "creationTimestamp": f"2026-11-01T11:{minute:02}:00Z", "annotations": annotations}
    container = {"name": "x", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    status = {"phase": "Running", "startTime": "2026-11-01T11:00:00Z"} if "nodeName" in spec else {"phase": "Pending"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [container], **spec},
        "status": status,
    }


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    file = tmp_path / "cluster.yaml"
    pods = [
        pod("runs", 0, "5", nodeName="n"),
        pod("long", 10, "4", 86_400),
        pod("asked", 20, "4", 3600),
        pod("urgent", 30, "4", 600, priority=3),
    ]
    file.write_text(yaml.safe_dump_all([NODE, *pods]))
    return ["explain", "--nodes", str(file), "--pods", str(file), "--policy", "best-fit"]


def test_pods_ahead_are_listed_with_their_reasons(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*files, "--pod", "asked", "--order", "age"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["order", "age:", "2", "other", "waiting", "pods", "go", "before", "default/asked", "(2", "wait)"] in rows
    assert ["default/urgent", "3", "0", "s", "4", "priority"] in rows
    assert ["default/long", "0", "20", "min", "4", "age"] in rows
    assert ["with", "priority", "4", "0"] in rows


def test_the_order_of_the_policy_is_explained(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """By run time the long pod is behind; where running pods are decides the place as without an order."""
    plain = [*files, "--pod", "asked", "--format", "json"]
    assert main(plain) == 0
    without = json.loads(capsys.readouterr().out)
    assert "queue" not in without
    plain[plain.index("best-fit")] = "best-fit+shortest"
    assert main(plain) == 0
    found = json.loads(capsys.readouterr().out)
    queue = found.pop("queue")
    assert (queue["ahead"], queue["waiting"], queue["order"]) == (1, 2, "shortest")
    assert [(each["pod"], each["reason"], each["estimate"]) for each in queue["first"]] == [
        ("default/urgent", "priority", 600.0)
    ]
    assert found | {"policy": "best-fit"} == without


def test_a_running_pod_waits_for_nobody(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*files, "--pod", "runs", "--order", "age"]) == 0
    assert capsys.readouterr().out.endswith("runs runs already: no pod goes before it\n")


def test_the_time_that_counts_as_now_is_said(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    asked = [*files, "--pod", "asked", "--order", "age", "--now", "2026-11-01T12:20:00Z"]
    assert main(asked) == 0
    out = capsys.readouterr().out
    assert "taken as now: 2026-11-01" in out
    assert ["default/asked", "0", "1", "h", "4"] in [line.split()[:5] for line in out.splitlines()]
    assert main([*asked, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["queue"]["now"] == 1793535600


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--now", "2026-11-01T12:20:00Z"], "--now is about the order of waiting pods; give --order"),
        (["--order", "quickest"], "unknown order 'quickest'"),
        (["--order", "age@oracle"], "no live cluster knows true run times"),
        (["--run-times", "kept.json"], "--run-times is about the order of waiting pods; give --order"),
        (["--order", "age", "--run-times", "/missing.json"], "/missing.json: cannot be read"),
    ],
)
def test_what_cannot_be_is_one_line(
    files: list[str], options: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*files, "--pod", "asked", *options]) in (1, 2)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert problem in line
