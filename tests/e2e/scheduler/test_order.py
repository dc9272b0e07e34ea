"""`steersman schedule --order` against a real control plane: who starts first when a node becomes free."""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.e2e.conftest import NODES, LocalCluster, until
from tests.e2e.scheduler.test_schedule import bound, create, events, pod, pods, pytestmark, scheduling

__all__ = ["pytestmark"]

SECONDS_1000 = "19"
"""Bin of run times between 724 and 1,024 s."""


def test_short_pod_starts_first_and_run_times_are_learned(cluster: LocalCluster, tmp_path: Path) -> None:
    """Of waiting pods the one with the shortest stated run time gets the node that becomes free."""
    cpus = cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[0].status.allocatable.cpu}")
    seconds = "steersman.dev/expected-seconds"
    file = tmp_path / "run-times.json"
    arguments = ("--policy", "fgd", "--order", "shortest", "--run-times", str(file))
    with scheduling(cluster, tmp_path, *arguments) as running:
        create(cluster, *(pod(f"full-{i}", cpus, {seconds: "600"}) for i in range(NODES)))
        until(lambda: len(bound(cluster)) == NODES)
        create(cluster, pod("long", cpus, {seconds: "5000"}))
        create(cluster, pod("short", cpus, {seconds: "50"}), pod("middle", cpus, {seconds: "500"}))
        until(lambda: events(cluster, "FailedScheduling").keys() >= {"long", "short", "middle"})
        for i, first in enumerate(("short", "middle", "long")):
            cluster.kubectl("delete", "pod", f"full-{i}", "--grace-period=0", "--force")
            until(lambda first=first: first in bound(cluster))  # type: ignore[misc]
            assert len(bound(cluster)) == NODES
        metrics = running.get("metrics")
    for source in ("stated", "history"):
        assert f'steersman_run_time_estimate_error_count{{source="{source}"}} 3.0' in metrics
    groups = json.loads(file.read_text())["groups"]
    assert sum(groups[0]["pods"].values()) == 3, "written at the end"


def end(cluster: LocalCluster, name: str) -> None:
    """Let a pod run for 1,000 s until now."""
    create(cluster, pod(name, nodeName="node-0000"))
    until(lambda: pods(cluster)[name]["status"]["phase"] == "Running")
    now = datetime.now(UTC)
    began, ended = (f"{each:%Y-%m-%dT%H:%M:%SZ}" for each in (now - timedelta(seconds=1000), now))
    state = {"terminated": {"exitCode": 0, "startedAt": began, "finishedAt": ended}}
    container = {"name": "main", "image": "pause", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    status = {"phase": "Succeeded", "startTime": began, "containerStatuses": [container]}
    cluster.kubectl("patch", "pod", name, "--subresource=status", "-p", json.dumps({"status": status}))
    time.sleep(1.1)  # of an end the API knows the second


def test_what_ended_while_no_scheduler_ran_is_learned_once(cluster: LocalCluster, tmp_path: Path) -> None:
    """Pods that are still listed teach at the start, unless they ended before the file was written."""
    file = tmp_path / "run-times.json"
    for name, expected in (("first", 1), ("", 1), ("second", 2)):
        if name:
            end(cluster, name)
        with scheduling(cluster, tmp_path, "--policy", "fgd", "--order", "shortest", "--run-times", str(file)):
            pass
        groups = json.loads(file.read_text())["groups"]
        assert groups[0]["pods"] == {SECONDS_1000: expected}


def test_nobody_overtakes_the_pod_that_goes_next(cluster: LocalCluster, tmp_path: Path) -> None:
    """With fcfs a small pod that would fit waits behind a large one that does not."""
    cpus = int(cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[0].status.allocatable.cpu}"))
    with scheduling(cluster, tmp_path, "--policy", "fgd+fcfs"):
        create(cluster, *(pod(f"most-{i}", str(cpus - 1)) for i in range(NODES)))
        until(lambda: len(bound(cluster)) == NODES)
        create(cluster, pod("large", str(cpus)))
        until(lambda: "large" in events(cluster, "FailedScheduling"))
        create(cluster, pod("small"), pod("urgent", priorityClassName="system-node-critical"))
        until(lambda: "urgent" in bound(cluster))
        assert "small" not in bound(cluster)
        cluster.kubectl("delete", "pod", "most-0", "--grace-period=0", "--force")
        cluster.kubectl("delete", "pod", "urgent", "--grace-period=0", "--force")
        until(lambda: bound(cluster).keys() >= {"large", "small"})


def test_pods_overtake_that_do_not_delay_the_next_one(cluster: LocalCluster, tmp_path: Path) -> None:
    """With easy a long pod waits behind a large one, and its event says so; a short one overtakes."""
    cpus = int(cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[0].status.allocatable.cpu}"))
    seconds = "steersman.dev/expected-seconds"
    with scheduling(cluster, tmp_path, "--policy", "fgd", "--order", "easy"):
        create(cluster, *(pod(f"full-{i}", str(cpus), {seconds: "90000"}) for i in range(NODES - 1)))
        create(cluster, pod("most", str(cpus - 1), {seconds: "900"}))
        until(lambda: len(bound(cluster)) == NODES)
        create(cluster, pod("large", str(cpus), {seconds: "50"}))
        until(lambda: "large" in events(cluster, "FailedScheduling"))
        create(cluster, pod("slow", annotations={seconds: "5000"}))
        until(lambda: "slow" in events(cluster, "FailedScheduling"))
        assert "it would delay pod default/large" in events(cluster, "FailedScheduling")["slow"]
        create(cluster, pod("quick", annotations={seconds: "60"}))
        until(lambda: "quick" in bound(cluster))
        cluster.kubectl("delete", "pod", "most", "quick", "--grace-period=0", "--force")
        until(lambda: "large" in bound(cluster))
        assert "slow" not in bound(cluster)


def test_namespace_with_least_running_goes_first(cluster: LocalCluster, tmp_path: Path) -> None:
    """With fair the namespace that fills the nodes waits for another one, though its pod is older."""
    cpus = cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[0].status.allocatable.cpu}")
    space = "kube-public"
    with scheduling(cluster, tmp_path, "--policy", "fgd", "--order", "fair"):
        try:
            create(cluster, *(inside(space, pod(f"full-{i}", cpus)) for i in range(NODES)))
            running = "status.phase=Running"
            until(
                lambda: cluster.kubectl("get", "pods", "-n", space, "--field-selector", running).count("full") == NODES
            )
            create(cluster, inside(space, pod("older", cpus)))
            create(cluster, pod("younger", cpus))
            until(lambda: "younger" in events(cluster, "FailedScheduling"))
            cluster.kubectl("delete", "pod", "full-0", "-n", space, "--grace-period=0", "--force")
            until(lambda: "younger" in bound(cluster))
            assert cluster.kubectl("get", "pod", "older", "-n", space, "-o", "jsonpath={.spec.nodeName}") == ""
        finally:
            cluster.kubectl("delete", "pods", "--all", "-n", space, "--grace-period=0", "--force")


def inside(namespace: str, made: dict[str, Any]) -> dict[str, Any]:
    return made | {"metadata": made["metadata"] | {"namespace": namespace}}


def test_events_say_when_waiting_pods_are_expected_to_start(cluster: LocalCluster, tmp_path: Path) -> None:
    """With --predict-waits each waiting pod has an event with its predicted start; others have none.

    The order is that of the policy file.
    """
    cpus = cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[0].status.allocatable.cpu}")
    seconds = "steersman.dev/expected-seconds"
    file = str(tmp_path / "ordered.safetensors")
    cluster.must("fit", "policy", "--policy", "fgd+shortest", "--output", file)
    arguments = ("--policy", file, "--predict-waits", "10")
    with scheduling(cluster, tmp_path, *arguments):
        create(cluster, *(pod(f"full-{i}", cpus, {seconds: "600"}) for i in range(NODES)))
        until(lambda: len(bound(cluster)) == NODES)
        create(cluster, pod("long", cpus, {seconds: "5000"}), pod("short", cpus, {seconds: "50"}))
        # The process may have to compile what it simulates with.
        until(lambda: events(cluster, "StartPredicted").keys() >= {"long", "short"}, seconds=900)
        told = events(cluster, "StartPredicted")
    assert told.keys() == {"long", "short"}
    assert all(note.startswith("Expected to start in ") for note in told.values())
