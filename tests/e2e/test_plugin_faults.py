"""Whatever the score service does, kube-scheduler with the plugin binds every pod, and soon."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import LocalCluster, until
from tests.e2e.faulty_service import FAULTS, FaultyService, faulty_service
from tests.e2e.plugin_build import SCHEDULER, Scheduler, configuration, free_port, plugged, profile, scheduler_program
from tests.e2e.prometheus import Node, telemetry
from tests.e2e.test_schedule import Running, bound, create, pod, pods
from tests.e2e.test_service import PATIENT, started

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
    for name in ("decisions_total", "fallbacks_total"):
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


def test_a_service_that_is_unwell_costs_no_pod(
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


def test_prometheus_that_is_gone_costs_no_pod(
    cluster: LocalCluster, scheduler_program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a service nodes are ranked by their traffic, as in reference C; without fresh values of it by nothing."""
    names = sorted(cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").split())
    nodes = {name: Node(network=1e5 if name == names[3] else 1e6) for name in names}
    with telemetry(tmp_path / "telemetry", nodes) as measured:
        old = {TRAFFIC: {"query": RATE, "sampledAt": f"max by (instance) (timestamp({RECEIVED})) - 3600"}}
        table = []
        with _falling_back(cluster, scheduler_program, tmp_path, measured.configuration(maxAgeSeconds=5)) as scheduler:
            until(lambda: _states(scheduler)["fresh"] == len(names))
            table.append(_ranked(cluster, scheduler, "measured", "fallback"))
            assert Counter(bound(cluster).values()) == {names[3]: PODS}
            measured.kill()
            until(lambda: _states(scheduler)["fresh"] == 0)
            table.append(_ranked(cluster, scheduler, "gone", "neutral"))
            measured.start()
            until(lambda: _states(scheduler)["fresh"] == len(names))
            table.append(_ranked(cluster, scheduler, "back", "fallback"))
            assert scheduler.log().count("Prometheus cannot be asked") == 1
            assert scheduler.log().count("Prometheus can be asked again") == 1
        with _falling_back(cluster, scheduler_program, tmp_path, measured.configuration(features=old)) as scheduler:
            until(lambda: _states(scheduler)["stale"] == len(names))
            table.append(_ranked(cluster, scheduler, "an hour old", "neutral"))
    with capsys.disabled():
        print("", *table, sep="\n")


TRAFFIC = "network_received_bytes_per_second"
RECEIVED = 'node_network_receive_bytes_total{device!="lo"}'
RATE = f"sum by (instance) (rate({RECEIVED}[5m]))"


@contextmanager
def _falling_back(cluster: LocalCluster, program: Path, folder: Path, content: str) -> Iterator[Scheduler]:
    """A scheduler whose service is not there, with a fallback by telemetry as configured."""
    file = folder / "telemetry.yaml"
    file.write_text(content)
    args = {"mode": "service", "endpoint": f"http://127.0.0.1:{free_port()}", "breaker": BREAKER}
    args |= {"fallback": "metrics", "telemetryFile": str(file)}
    with plugged(program, folder, configuration(cluster.kubeconfig, [profile(args, alone=True)])) as scheduler:
        yield scheduler


def _states(scheduler: Scheduler) -> dict[str, float]:
    """Nodes by how their traffic is known."""
    found = scheduler.metrics("telemetry_nodes")
    return {state: found.get(f'feature="{TRAFFIC}",state="{state}"', -1) for state in ("fresh", "stale", "missing")}


def _ranked(cluster: LocalCluster, scheduler: Scheduler, name: str, outcome: str) -> str:
    """Pods whose nodes are ranked in one way; a line of what became of them."""
    found, took = burst(cluster, scheduler, name)
    assert found[outcome] == PODS, found
    return f"{name:18}{PODS:6}  {dict(found)}, all bound in {took:.1f} s"
