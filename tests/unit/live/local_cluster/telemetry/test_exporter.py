"""Simulated exporters against a server that behaves like the Kubernetes API: what they show of nodes and pods."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.errors import raises
from tests.support.kubeconfig import write_kubeconfig
from tests.support.servers.live_cluster import NODES, PODS, LiveDouble, node, pod
from tests.support.servers.tasks import serving, until

from steersman.cluster.model import Pod, PodClass, Requests
from steersman.core.errors import SteersmanError, UsageError
from steersman.live.local_cluster.nodes import KWOK_KEY
from steersman.live.local_cluster.telemetry import exporter, processes
from steersman.live.local_cluster.telemetry.exporter import ExporterConfig, deployment_of
from steersman.live.local_cluster.telemetry.processes import TelemetryOptions
from steersman.prometheus.configuration import DEFAULT_FEATURES, read_configuration

Families = dict[str, dict[tuple[str, ...], float]]


def kwok(name: str) -> dict[str, Any]:
    found = node(name, cpu="8", memory="32Gi")
    found["metadata"]["annotations"] = {KWOK_KEY: "fake"}
    return found


def limited(name: str, on: str, deployment: str = "nginx-1") -> dict[str, Any]:
    found = pod(name, cpu="250m", on=on, **{"pod-template-hash": "abc"})
    found["metadata"]["annotations"] = {"latencySoftConstraint": "35", "latencyHardConstraint": "100"}
    found["metadata"]["ownerReferences"] = [
        {"kind": "ReplicaSet", "name": f"{deployment}-abc", "controller": True, "apiVersion": "apps/v1", "uid": "u"}
    ]
    return found


class Exported:
    """Exporters at work, and the API they watch."""

    def __init__(self, double: LiveDouble, port: int) -> None:
        self.double, self.url = double, f"http://127.0.0.1:{port}"

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            return answer.status, await answer.text()

    async def is_ready(self) -> bool:
        with suppress(aiohttp.ClientError):
            return (await self.get("/readyz"))[0] == 200
        return False

    async def metrics(self, path: str = "/metrics") -> Families:
        for _ in range(50):  # a scrape may be lost
            status, text = await self.get(path)
            if status == 200:
                return _samples(text)
        raise AssertionError(path)

    async def until(self, name: str, value: float) -> None:
        async def shows() -> bool:
            return (await self.metrics()).get(name, {}).get((), -1.0) == value

        await until(shows)


def _samples(text: str) -> Families:
    found: Families = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


@asynccontextmanager
async def exporting(tmp_path: Path, nodes: int = 3) -> AsyncIterator[Exported]:
    async with LiveDouble() as double:
        for i in range(nodes):
            double.put(NODES, kwok(f"node-{i}"))
        (port,) = processes.servers.free_ports([0])
        options = ExporterConfig(str(write_kubeconfig(tmp_path, double.url)), "mine", port, settings={"missed": 0.0})
        exported = Exported(double, port)
        async with asyncio.timeout(300), serving(exporter.export(options), lambda: True):
            await until(exported.is_ready)
            yield exported


async def test_exporter_shows_pod_use_of_changing_nodes(tmp_path):
    async with exporting(tmp_path) as exported:
        double = exported.double
        double.put(NODES, node("real"))
        targets = json.loads((await exported.get("/targets"))[1])
        assert [each["labels"]["instance"] for each in targets] == ["node-0", "node-1", "node-2"]
        assert all(each["targets"] == [exported.url.removeprefix("http://")] for each in targets)
        path = targets[1]["labels"]["__metrics_path__"]
        idle = await exported.metrics(path)
        for i in range(4):
            double.put(PODS, limited(f"p{i}", "node-1"))
        double.bind_after = None
        double.put(PODS, pod("waits", on=""))
        await exported.until("steersman_simulated_placed_total", 4)
        busy = await exported.metrics(path)
        assert busy["node_netstat_Tcp_CurrEstab"][()] > idle["node_netstat_Tcp_CurrEstab"][()]
        assert busy["node_memory_MemAvailable_bytes"][()] < idle["node_memory_MemAvailable_bytes"][()]
        assert set(busy["node_cpu_seconds_total"]) == {("0", "idle"), ("0", "user")}
        everything = await exported.metrics()
        assert everything["kube_pod_info"] == {("default", "node-1", f"p{i}"): 1.0 for i in range(4)}
        assert everything["steersman_simulated_used_nodes"][()] == 1
        for name, feature in DEFAULT_FEATURES.items():
            assert any(metric in feature.query for metric in (*busy, *everything)), name
        for name in ("p0", "p1"):
            double.remove(PODS, name)
        await exported.until("steersman_simulated_limited_pods", 2)
        double.remove(NODES, "node-1")
        await exported.until("steersman_simulated_limited_pods", 0)
        assert (await exported.get(path))[0] == 503
        double.put(NODES, kwok("node-9"))
        await exported.until("steersman_simulated_empty_nodes", 3)
        targets = json.loads((await exported.get("/targets"))[1])
        assert [each["labels"]["instance"] for each in targets] == ["node-0", "node-2", "node-9"]


async def test_invalid_objects_are_skipped(tmp_path):
    async with exporting(tmp_path, nodes=1) as exported:
        double = exported.double
        broken = limited("broken", "node-0")
        broken["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "lots"
        double.put(PODS, broken)
        finished = limited("finished", "node-0")
        finished["status"] = {"phase": "Succeeded"}
        double.put(PODS, finished)
        strange = kwok("strange")
        strange["status"]["allocatable"]["cpu"] = "many"
        double.put(NODES, strange)
        double.put(PODS, limited("good", "node-0"))
        await exported.until("steersman_simulated_placed_total", 1)
        assert len(json.loads((await exported.get("/targets"))[1])) == 1
        assert (await exported.get("/nodes/strange/metrics"))[0] == 503
        assert (await exported.get("/nodes/%2e%2e%2fx/metrics"))[0] in (404, 503)


def test_pods_of_a_deployment_are_recognised_by_template_hash():
    def of(owner: str, **labels: str) -> str:
        return deployment_of(Pod("p", PodClass(Requests(1, 1)), owner=owner, labels=labels))

    assert of("ReplicaSet/nginx-1-abc", **{"pod-template-hash": "abc"}) == "nginx-1"
    assert of("ReplicaSet/nginx-1-abc") == "nginx-1-abc"
    assert of("Job/batch") == "batch"
    assert of("") == "p"


@pytest.mark.parametrize("interval", [0.0, 0.5, 301.0, float("nan")])
def test_the_interval_of_scrapes_has_a_range(interval):
    with raises(UsageError):
        TelemetryOptions(interval)


def test_missing_prometheus_error_names_its_installation(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with raises(SteersmanError, "apt-get install prometheus"):
        processes.find_program()
    program = tmp_path / "prometheus"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert processes.find_program() == str(program)


def test_the_written_file_is_a_configuration_of_telemetry(tmp_path):
    file = tmp_path / "telemetry.yaml"
    file.write_text(json.dumps(processes.telemetry_config(9090, 1.0)))
    found = read_configuration(file)
    assert (found.prometheus.url, found.refresh_seconds) == ("http://127.0.0.1:9090", 1.0)
    assert (found.max_age_seconds, found.cpu_window_seconds) == (8.0, 1.0)
    file.write_text(json.dumps(processes.telemetry_config(9090, 15.0)))
    found = read_configuration(file)
    assert found.refresh_seconds == 5.0
    assert "[300000ms]" in found.features["network_received_bytes_per_second"].query
