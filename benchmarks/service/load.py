"""The score service: how long an answer takes on large clusters, and what it costs kube-scheduler as an extender."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml

from benchmarks.live.rate import (
    NODES,
    PODS,
    SCHEDULER,
    STEERSMAN,
    compared,
    cpu_seconds,
    local_cluster,
    peak_memory,
    run,
)
from benchmarks.service.api_server import pod_object

EXTENDER = Path(__file__).parents[2] / "deploy" / "extender" / "kube-scheduler.yaml"
RATE = 100
"""Requests a second."""
SECONDS, WARM_UP_SECONDS = 30, 3
CHANGES = 50
"""Pods bound a second, and as many deleted, while questions are asked."""
CLASSES = 120
"""Different pods that are asked about; their classes are `service_api.pod_object`'s."""


def latency() -> dict[str, Any]:
    """`POST /v1/scores` with a node-set version at 100 requests a second, at 100, 1,000 and 5,000 nodes that change."""
    policy = os.environ.get("STEERSMAN_BENCH_POLICY", "steersman")
    seconds = int(os.environ.get("STEERSMAN_BENCH_SECONDS", SECONDS))
    result: dict[str, Any] = {"policy": policy, "requests_per_second": RATE, "seconds": seconds, "changes": 2 * CHANGES}
    for nodes in (100, 1_000, 5_000):
        with TemporaryDirectory() as folder, served(Path(folder), nodes, 10 * nodes, policy) as service:
            first = service.ask({"pod": pod_object(0)})
            bodies = [
                json.dumps({"pod": pod_object(i), "nodeSet": first["nodeSet"]}, separators=(",", ":"))
                for i in range(CLASSES)
            ]
            service.load(bodies, RATE, CLASSES)  # every class is known, as on a cluster that has run for a while
            cpu = service.cpu_seconds()
            said = service.load(bodies, RATE, RATE * seconds, RATE * WARM_UP_SECONDS)
            cpu = service.cpu_seconds() - cpu
            for name, value in summary(said).items():
                result[f"nodes_{nodes}_{name}"] = value
            result[f"nodes_{nodes}_cpu_ms_per_request"] = round(1000 * cpu / (RATE * (seconds + WARM_UP_SECONDS)), 3)
            result[f"nodes_{nodes}_memory_gb"] = round(service.memory_bytes() / 1e9, 3)
    return result


def summary(said: dict[str, Any]) -> dict[str, Any]:
    """Return the results of a load."""
    milliseconds = np.array(said["milliseconds"])
    return {
        "ms_median": round(float(np.median(milliseconds)), 2),
        "ms_p99": round(float(np.percentile(milliseconds, 99)), 2),
        "ms_longest": round(float(milliseconds.max()), 2),
        "answer_bytes": int(np.median(said["sizes"])),
        "failed": sum(n for status, n in said["statuses"].items() if status != "200"),
        "sent_late": said["late"],
    }


@dataclass
class Service:
    """A running `steersman serve`."""

    process: subprocess.Popen[bytes]
    port: int

    def ask(self, question: Any, path: str = "/v1/scores") -> Any:
        """One answer."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(question).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def load(self, bodies: list[str], rate: float, count: int, warm_up: int = 0, path: str = "/v1/scores") -> Any:
        """See `service_load`."""
        asked = {"port": self.port, "path": path, "bodies": bodies, "rate": rate, "count": count, "warm_up": warm_up}
        command = [sys.executable, "-m", "benchmarks.service.client"]
        done = subprocess.run(command, input=json.dumps(asked).encode(), stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    def cpu_seconds(self) -> float:
        """Of CPU that it has used."""
        return cpu_seconds(self.process.pid)

    def memory_bytes(self) -> int:
        """Resident at most so far."""
        return peak_memory(self.process.pid)


def extender_rate() -> dict[str, Any]:
    """Pods that kube-scheduler binds a second with the service and with a no-op extender, alternately."""
    policy = os.environ.get("STEERSMAN_BENCH_POLICY", "steersman")
    cpu: list[float] = []
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with local_cluster(folder, NODES) as (kubeconfig, programs), _noop() as noop:
            options = ("--kubeconfig", str(kubeconfig), "--policy", policy, "--unchecked")
            with started(folder, *options) as service:

                def attempt(port: int) -> tuple[float, float]:
                    config, before = _extended(folder, kubeconfig, port), service.cpu_seconds()
                    result = run(
                        kubeconfig, [str(programs / "kube-scheduler"), f"--config={config}", "--secure-port=0"]
                    )
                    if port == service.port:
                        cpu.append(1000 * (service.cpu_seconds() - before) / PODS)
                    return result

                rates = compared({"service": partial(attempt, service.port), "no-op": partial(attempt, noop)})
                scrape = urllib.request.urlopen(f"http://127.0.0.1:{service.port}/metrics", timeout=10)
                said = [line for line in scrape.read().decode().splitlines() if line.startswith(OUTCOMES)]
    more = {"policy": policy, "service_itself_cpu_ms_per_pod": round(float(np.median(cpu)), 3), "outcomes": said}
    return rates | more


OUTCOMES = ("steersman_service_decisions_total{", "steersman_service_neutral_total{")


def _extended(folder: Path, kubeconfig: Path, port: int) -> Path:
    """`deploy/extender` for this cluster, an extender on this port and the pods of the benchmark."""
    settings = yaml.safe_load(EXTENDER.read_text())
    settings["clientConnection"] = {"kubeconfig": str(kubeconfig), "qps": 10_000, "burst": 10_000}
    settings["leaderElection"] = {"leaderElect": False}
    settings["profiles"] = [{"schedulerName": SCHEDULER}]
    settings["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{port}"
    file = folder / "kube-scheduler.yaml"
    file.write_text(yaml.safe_dump(settings))
    return file


@contextmanager
def _noop() -> Iterator[int]:
    """Yield the port of an extender that scores nothing."""
    command = [sys.executable, "-m", "benchmarks.service.extender_noop"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


@contextmanager
def served(
    folder: Path, nodes: int, pods: int, policy: str, *options: str, changes: int = CHANGES
) -> Iterator[Service]:
    """Run a service that watches so many nodes and pods, a tenth of which is pending."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.service.api_server",
        *map(str, (nodes, pods, pods // 10, changes)),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as api:
        try:
            assert api.stdout is not None
            server = f"http://127.0.0.1:{int(api.stdout.readline())}"
            kubeconfig = folder / "kubeconfig"
            content = {
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": ""}}],
                "current-context": "x",
            }
            kubeconfig.write_text(yaml.safe_dump(content))
            with started(
                folder, "--kubeconfig", str(kubeconfig), "--policy", policy, "--unchecked", *options
            ) as service:
                yield service
        finally:
            api.kill()


@contextmanager
def started(folder: Path, *options: str) -> Iterator[Service]:
    """Wait until a service is ready."""
    log = folder / "serve.log"
    command = [str(STEERSMAN), "serve", "--port", "0", "--log-format", "json", *options]
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
    try:
        port = 0
        while not port:
            assert process.poll() is None, log.read_text()
            time.sleep(0.2)
            lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
            if any(line["event"] == "watching" for line in lines):
                port = next(line["port"] for line in lines if line["event"] == "listening")
        yield Service(process, port)
    finally:
        process.kill()
        process.wait()
