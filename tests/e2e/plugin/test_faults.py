"""Whatever the score service does, kube-scheduler with the plugin binds every pod, and soon."""

from __future__ import annotations

import re
import time
from collections import Counter
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import LocalCluster, until
from tests.e2e.plugin.faulty_service import FAULTS, FaultyService, faulty_service
from tests.e2e.scheduler.test_schedule import Running, bound, create, pod, pods
from tests.e2e.service.test_service import PATIENT, started
from tests.e2e.telemetry.prometheus import Node, telemetry
from tests.e2e.telemetry.test_telemetry import endpoint, fresh, serving
from tests.support.servers.plugin_scheduler import (
    SCHEDULER,
    Scheduler,
    configuration,
    plugged,
    profile,
    scheduler_program,
)

pytestmark = pytest.mark.e2e
__all__ = ["scheduler_program"]

PODS = 30
FAILURES, OPEN_SECONDS, TIMEOUT_SECONDS = 3, 1.0, 0.05
BREAKER = {"failures": FAILURES, "open": f"{OPEN_SECONDS:g}s"}
SLOWEST = 'le="0.65536"'
"""A bucket of the plugin's times well above its deadline: this machine may be busy."""
DELAY_SECONDS = 5.0
"""Until any pod is bound: seconds are what the API tells apart, and all pods are created at a time."""


def port_of(running: Running) -> int:
    return next(int(line["port"]) for line in running.log() if line["event"] == "listening")


def plugged_pod(name: str) -> dict[str, Any]:
    return pod(name, cpu="100m", schedulerName=SCHEDULER)


def attempts(scheduler: Scheduler) -> Counter[str]:
    """Scheduling attempts of the profile by result, so that a pod that was tried twice shows."""
    pattern = rf'^scheduler_schedule_attempts_total{{profile="{SCHEDULER}",result="(\w+)"}} (\S+)$'
    return Counter({result: int(float(n)) for result, n in re.findall(pattern, scheduler.get("metrics"), re.MULTILINE)})


def counts(scheduler: Scheduler) -> Counter[str]:
    """What became of pods: `scored`, `neutral`, and reasons."""
    found: Counter[str] = Counter()
    for name in ("decisions_total", "unscored_total"):
        for label, value in scheduler.metrics(name).items():
            found[label.split('"')[1]] += int(value)
    return found


def slow(scheduler: Scheduler) -> int:
    """How many decisions took longer than the deadline and what a busy machine adds."""
    found = scheduler.metrics("decision_duration_seconds_bucket")
    return int(found.get('le="+Inf"', 0) - found.get(SLOWEST, 0))


def burst(cluster: LocalCluster, scheduler: Scheduler, name: str) -> tuple[Counter[str], float]:
    """Create pods at a time; what became of them by the scheduler's counters, and how long until all were bound.

    Each is bound at its first attempt, once, and soon.
    """
    before, tried, late = counts(scheduler), attempts(scheduler), slow(scheduler)
    names = [f"{name.replace(' ', '-')}-{i}" for i in range(PODS)]
    began = time.monotonic()
    create(cluster, *map(plugged_pod, names))
    until(lambda: bound(cluster).keys() >= set(names))
    took = time.monotonic() - began
    until(lambda: (attempts(scheduler) - tried).total() >= PODS)  # they are counted when they are bound
    assert attempts(scheduler) - tried == {"scheduled": PODS}
    assert slow(scheduler) == late
    for each in map(pods(cluster).__getitem__, names):
        waited = _time(_scheduled(each)["lastTransitionTime"]) - _time(each["metadata"]["creationTimestamp"])
        assert waited <= DELAY_SECONDS, each["metadata"]["name"]
    return counts(scheduler) - before, took


def _scheduled(each: dict[str, Any]) -> dict[str, str]:
    return next(condition for condition in each["status"]["conditions"] if condition["type"] == "PodScheduled")


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def recovered(cluster: LocalCluster, scheduler: Scheduler, name: str) -> None:
    """Wait until the breaker lets pods through again, which needs pods."""
    scored, number = counts(scheduler)["scored"], 0
    end = time.monotonic() + 60
    while counts(scheduler)["scored"] == scored:
        assert time.monotonic() < end, "the service is not asked again"
        one = f"probe-{name.replace(' ', '-')}-{number}"
        create(cluster, plugged_pod(one))
        until(lambda one=one: one in bound(cluster))  # type: ignore[misc]
        number += 1
        time.sleep(OPEN_SECONDS / 2)


def test_failing_service_blocks_no_pod(
    cluster: LocalCluster, scheduler_program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = (*PATIENT, "--name", cluster.name, "--policy", "best-fit")
    with started(cluster, tmp_path, *options) as service, faulty_service(port_of(service)) as proxy:
        args = {"mode": "service", "endpoint": proxy.url, "timeout": f"{TIMEOUT_SECONDS:g}s", "breaker": BREAKER}
        settings = configuration(cluster.kubeconfig, [profile(args)])
        with plugged(scheduler_program, tmp_path, settings) as scheduler:
            recovered(cluster, scheduler, "first")
            table = [_under(cluster, scheduler, proxy, fault) for fault in FAULTS]
            service.process.kill()
            service.process.wait()
            table.append(_under(cluster, scheduler, proxy, "", "killed"))
            assert scheduler.process.poll() is None
            assert "panic" not in scheduler.log()
        with capsys.disabled():
            print(f"\n{'fault':18}{'pods':>6}{'asked':>7}  outcomes", *table, sep="\n")


def _under(cluster: LocalCluster, scheduler: Scheduler, proxy: FaultyService, fault: str, name: str = "") -> str:
    """Pods while there is a fault; a line of what became of them. The service is well again afterwards."""
    name = name or fault
    asked, proxy.fault = proxy.asked[fault], fault
    found, took = burst(cluster, scheduler, name)
    tried = found["failed"] + found["deadline"]  # on a busy machine any answer may be late
    assert found["neutral"] == tried + found["breaker"] == PODS, found
    assert FAILURES <= tried <= FAILURES + took / OPEN_SECONDS + 1, found
    assert found["deadline" if fault == "hung" else "failed"] > 0, found
    assert "scored" not in found
    line = f"{name:18}{PODS:6}{proxy.asked[fault] - asked:7}  {dict(found)}, all bound in {took:.1f} s"
    proxy.fault = ""
    if name == fault:
        recovered(cluster, scheduler, name)
    return line


def test_missing_prometheus_blocks_no_pod(
    cluster: LocalCluster, scheduler_program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The service decides by what is measured, and by requests as long as nothing is; without it nodes are equal."""
    names = cluster.node_names()
    nodes = {name: Node(connections=5 if name == names[3] else 500) for name in names}
    with telemetry(tmp_path / "telemetry", nodes) as measured:
        file, table = tmp_path / "telemetry.yaml", []
        file.write_text(measured.configuration(maxAgeSeconds=5))
        with ExitStack() as after, ExitStack() as before:
            options = ("--policy", "lc", "--telemetry", str(file))
            service = before.enter_context(serving(cluster, tmp_path, *options))
            args = {"mode": "service", "endpoint": endpoint(service), "timeout": "2s", "breaker": BREAKER}
            settings = configuration(cluster.kubeconfig, [profile(args, alone=True)])
            scheduler = after.enter_context(plugged(scheduler_program, tmp_path, settings))
            until(lambda: fresh(service, "tcp_connections", len(names)))
            table.append(_ranked(cluster, scheduler, "measured", "scored"))
            assert bound(cluster)["measured-0"] == names[3]
            measured.kill()
            until(lambda: fresh(service, "tcp_connections", 0))
            table.append(_ranked(cluster, scheduler, "not measured", "scored"))
            before.close()
            table.append(_ranked(cluster, scheduler, "no service", "neutral"))
    with capsys.disabled():
        print("", *table, sep="\n")


def _ranked(cluster: LocalCluster, scheduler: Scheduler, name: str, outcome: str) -> str:
    """Pods whose nodes are ranked in one way; a line of what became of them."""
    found, took = burst(cluster, scheduler, name)
    assert found[outcome] == PODS, found
    return f"{name:18}{PODS:6}  {dict(found)}, all bound in {took:.1f} s"
