"""One dump of pods that ended, run and wait: `timed`, `fit order` and `wait` read the same times of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.errors import raises

import steersman
from steersman.core.errors import SteersmanError
from steersman.simulation.prediction.moment import moment_of
from steersman.workloads.loading import load_workload
from steersman.workloads.workload import RunningPods, Workload

DAY = "2026-03-01T"


def clock(text: str | None) -> str | None:
    return None if text is None else f"{DAY}{text}Z"


def pod(
    name: str,
    created: str,
    *,
    phase: str = "Running",
    node: str = "n-0",
    owner: str = "",
    start: str | None = None,
    ends: tuple[str, ...] = (),
    deleted: str | None = None,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "creationTimestamp": clock(created), "uid": name}
    if owner:
        kind, _, of = owner.partition("/")
        metadata["ownerReferences"] = [{"apiVersion": "x/v1", "kind": kind, "name": of, "controller": True, "uid": of}]
        metadata["ownerReferences"][0]["apiVersion"] = "batch/v1" if kind == "Job" else "apps/v1"
    if deleted:
        metadata |= {"deletionTimestamp": clock(deleted), "deletionGracePeriodSeconds": 30}
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    if node:
        spec["nodeName"] = node
    status: dict[str, Any] = {"phase": phase}
    if start:
        status["startTime"] = clock(start)
    if ends:
        status["containerStatuses"] = [
            {"name": f"c{i}", "state": {"terminated": {"exitCode": 0, "finishedAt": clock(end)}}}
            for i, end in enumerate(ends)
        ]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n-0"}}
NODE["status"] = {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "creationTimestamp": clock("10:00:00"), "uid": "j"},
    "spec": {"completions": 1, "template": {"spec": {"containers": [{"name": "c"}]}}},
    "status": {
        "succeeded": 1,
        "startTime": clock("10:00:00"),
        "completionTime": clock("10:20:00"),
        "conditions": [{"type": "Complete", "status": "True"}],
    },
}
PODS = (
    pod("daemon", "09:00:00", owner="DaemonSet/agent", start="09:00:01"),
    pod("running", "10:06:00", start="10:06:00"),
    pod("waiting", "10:30:00", phase="Pending", node=""),
    pod("leaving", "10:07:00", start="10:08:00", deleted="10:18:00"),
    pod("two", "10:05:00", phase="Failed", start="10:05:30", ends=("10:05:40", "10:06:00")),
    pod("one", "10:00:00", phase="Succeeded", start="10:01:00", ends=("10:04:00",)),
    pod("j-x", "10:00:10", phase="Succeeded", owner="Job/j", start="10:10:00"),
    pod("evicted", "10:02:00", phase="Failed", start="10:03:00"),
)


def dump(folder: Path, *objects: object) -> Path:
    path = folder / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return path


def lives(workload: Workload) -> dict[str, tuple[float | None, float | None]]:
    return {each.name: (each.creation_time, each.deletion_time) for each in workload.pods}


def test_pods_arrive_and_leave_when_they_did(tmp_path: Path) -> None:
    path = dump(tmp_path, NODE, JOB, *PODS)
    workload = load_workload(path, path, running=RunningPods.REPLAYED)
    assert lives(workload) == {
        "one": (0.0, 180.0),
        "j-x": (10.0, 610.0),
        "two": (300.0, 330.0),
        "running": (360.0, None),
        "leaving": (420.0, 1020.0),
        "waiting": (1800.0, None),
        "daemon": (None, None),
    }
    assert [workload.pods[i].name for i in workload.standing()] == ["daemon"]
    for part in ("3 ended", "1 finished at unknown times left out", "1 running"):
        assert part in workload.understood
    assert "evicted" not in lives(workload)


def test_timed_runs_replay_a_dump(tmp_path: Path) -> None:
    result = steersman.simulate(dump(tmp_path, NODE, JOB, *PODS), "kube-default", protocol="timed", record=True)
    assert result.placements is not None
    events = zip(result.placements.outcome, result.placements.pod, result.placements.time.tolist(), strict=True)
    times = {(outcome, name): time for outcome, name, time in events if name != "daemon"}
    bound = {"one": 0.0, "j-x": 10.0, "two": 300.0, "running": 360.0, "leaving": 420.0, "waiting": 1800.0}
    finished = {"one": 180.0, "j-x": 610.0, "two": 330.0, "leaving": 1020.0}
    assert times == {
        **{("bound", name): time for name, time in bound.items()},
        **{("finished", name): time for name, time in finished.items()},
    }


def test_waits_and_orders_read_the_same_times(tmp_path: Path) -> None:
    path = dump(tmp_path, NODE, JOB, *PODS)
    now = load_workload(path, path, running=RunningPods.FROM_NOW, lives=True)
    replayed = load_workload(path, path, running=RunningPods.REPLAYED)
    coming = ("one", "two", "j-x", "waiting")
    assert [lives(now.replayed())[name] for name in coming] == [lives(replayed)[name] for name in coming]
    moment = moment_of(now, now.lives.latest or 0.0)
    runs = {each.pod.name: each.left for each in moment.spells if each.ended}
    assert runs == {
        name: deleted - created
        for name, (created, deleted) in lives(replayed).items()
        if created is not None and deleted is not None and name != "leaving"
    }


def test_a_dump_of_finished_pods_alone_is_a_history(tmp_path: Path) -> None:
    path = dump(tmp_path, NODE, *(each for each in PODS if each["metadata"]["name"] in ("one", "two")))
    found = lives(load_workload(path, path, running=RunningPods.REPLAYED))
    assert found == {"one": (0.0, 180.0), "two": (300.0, 330.0)}


def test_manifests_without_times_are_not_replayed(tmp_path: Path) -> None:
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    with raises(SteersmanError, "'p' has no creation time"):
        steersman.simulate(dump(tmp_path, NODE, bare), "kube-default", protocol="timed")


@pytest.mark.parametrize("running", [RunningPods.FREE, RunningPods.PINNED, RunningPods.FROM_NOW])
def test_other_protocols_leave_finished_pods_out(tmp_path: Path, running: RunningPods) -> None:
    path = dump(tmp_path, NODE, JOB, *PODS)
    workload = load_workload(path, path, running=running)
    assert {each.name for each in workload.pods} == {"daemon", "running", "waiting", "leaving"}
    assert "4 finished left out" in workload.understood
