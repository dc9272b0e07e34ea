"""A real control plane with simulated nodes and telemetry, on which schedulers play runs one after the other."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import Client
from steersman.live.load.copies import CopyLoop, CopyOptions, DeploymentTemplate, read_manifest
from steersman.live.load.driver import RowLog
from steersman.live.local_cluster import cluster, nodes, record
from steersman.live.local_cluster.control_plane import servers
from steersman.live.local_cluster.nodes import parse_shape
from steersman.live.local_cluster.telemetry import processes
from steersman.live.local_cluster.telemetry.exporter import PREFIX, TRUTH_COUNTERS, TRUTH_GAUGES
from steersman.live.local_cluster.telemetry.processes import TelemetryOptions
from steersman.workloads.formats.yaml_documents import write_documents
from studies.common import Json, Say

SCHEDULER = "steersman"
DEFAULT_SCHEDULER = "default-scheduler"
READY_SECONDS = 120.0
START_SECONDS = 600.0
"""Time for a scheduler to become ready, which on busy cores compiles for minutes the first time."""
SAMPLE_SECONDS = 0.5
POLL_SECONDS = 0.1
GONE_SECONDS = 60.0
STOP_SECONDS = 20.0


class RunSettings(NamedTuple):
    """How a run is played.

    Attributes:
        nodes: nodes of the cluster.
        shape: shape of each.
        zones: zones of the nodes.
        scrape_interval: seconds between two samples of a node.
        seed: of the model of use.
        copies: Deployments of a run.
        replicas: pods of each.
        cpu, memory: requests of a pod.
        soft, hard: its limits of latency, milliseconds.
        interval: seconds from one Deployment to the next.
        pause: seconds that all run before they are deleted.
        rest: seconds from their end to the next run.
    """

    nodes: int
    shape: str = "8cpu,32Gi"
    zones: int = 3
    scrape_interval: float = 1.0
    seed: int = 1
    copies: int = 30
    replicas: int = 2
    cpu: str = "250m"
    memory: str = "256Mi"
    soft: float = 35.0
    hard: float = 100.0
    interval: float = 0.3
    pause: float = 4.0
    rest: float = 2.0

    def manifest(self, run: int) -> Json:
        """Return the Deployment of a run: nginx with the two annotations. By its name pods use the same in each."""
        labels = {"app": "nginx"}
        limits = {"latencySoftConstraint": f"{self.soft:g}", "latencyHardConstraint": f"{self.hard:g}"}
        container = {
            "name": "nginx",
            "image": "nginx",
            "resources": {"requests": {"cpu": self.cpu, "memory": self.memory}},
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": f"nginx-{run}"},
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels, "annotations": limits},
                    "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
                },
            },
        }


class MeasuredCluster:
    """A cluster with telemetry.

    Args:
        name: of the local cluster.
        settings: how runs are played.
        folder: for logs of schedulers.
        say: prints progress.
    """

    def __init__(self, name: str, settings: RunSettings, folder: Path, say: Say) -> None:
        self.name, self.settings, self.folder, self.say = name, settings, folder, say
        self._exporters = ""

    @property
    def telemetry(self) -> Path:
        """The file for `--telemetry`."""
        return processes.file_of(self.name)

    @contextmanager
    def up(self) -> Iterator[MeasuredCluster]:
        """Run the cluster in the block."""
        settings = self.settings
        shape = parse_shape(settings.shape)
        node_list = nodes.label_zones(nodes.prepared(nodes.equal_nodes(settings.nodes, shape)), settings.zones)
        quiet = {"swing": 0.0, "zones": settings.zones}
        options = TelemetryOptions(settings.scrape_interval, settings.seed, quiet)
        control_plane = cluster.find_control_plane(lambda *_: None, self.say)
        cluster.bring_up(self.name, control_plane, node_list, lambda *_: None, self.say, telemetry=options)
        exporters = record.folder_of(self.name) / processes.FOLDER / "exporters.json"
        self._exporters = f"http://{servers.LOCALHOST}:{json.loads(exporters.read_bytes())['port']}"
        try:
            self.say(f"cluster {self.name} is up")
            yield self
        finally:
            cluster.take_down(self.name, self.say)

    @contextmanager
    def scheduler(self, policy: str) -> Iterator[None]:
        """Run `steersman schedule` with a policy in the block, from when it knows all nodes' metrics."""
        wanted = f'steersman_telemetry_nodes{{feature="cpu_used_percent",state="fresh"}} {float(self.settings.nodes)}'
        arguments = ["--name", self.name, "--policy", policy, "--telemetry", str(self.telemetry)]
        with scheduling(arguments, self.folder / "scheduler.log", lambda metrics: wanted in metrics):
            yield

    def play(self, scheduler_name: str, run: int) -> Json:
        """Play a run; return its figures, see `figures_of`."""
        file = self.folder / "nginx.yaml"
        self.folder.mkdir(parents=True, exist_ok=True)
        write_documents(file, [self.settings.manifest(run)])
        return asyncio.run(self._play(read_manifest(file), scheduler_name))

    async def _play(self, deployments: tuple[DeploymentTemplate, ...], scheduler_name: str) -> Json:
        settings = self.settings
        options = CopyOptions(settings.copies, settings.interval, READY_SECONDS, scheduler_name=scheduler_name)
        samples: list[Json] = []
        async with cluster.client(record.require(self.name)) as client:
            loop = CopyLoop(client, "default", deployments, options, RowLog(None, ()))
            first = await self._truth()
            async with loop.following():
                sampling = asyncio.create_task(self._sample(samples))
                try:
                    began = time.monotonic()
                    await loop.create()
                    created = time.monotonic()
                    settled = await loop.settle()
                    bound = time.monotonic()
                    await asyncio.sleep(settings.pause)
                finally:
                    sampling.cancel()
                    await asyncio.gather(sampling, return_exceptions=True)
                    last = await self._truth()
                    await loop.delete()
            await self._rest(client)
        figures = figures_of(first, samples, last)
        return {**figures, "settled": settled, "create_seconds": created - began, "bind_seconds": bound - created}

    async def _sample(self, samples: list[Json]) -> None:
        while True:
            began = time.monotonic()
            samples.append(await self._truth())
            await asyncio.sleep(max(SAMPLE_SECONDS - (time.monotonic() - began), 0.0))

    async def _truth(self) -> Json:
        return await asyncio.to_thread(truth_of, self._exporters)

    async def _rest(self, client: Client) -> None:
        """Wait until the exporters know that all pods are gone, and the schedulers that nodes are idle."""
        until = time.monotonic() + GONE_SECONDS
        while (await self._truth())["limited_pods"] > 0:
            if time.monotonic() > until:
                raise SteersmanError("pods of the last run do not go away")
            await asyncio.sleep(POLL_SECONDS)
        await asyncio.sleep(self.settings.rest)


@contextmanager
def scheduling(arguments: Sequence[str], log_file: Path, is_ready: Callable[[str], bool]) -> Iterator[str]:
    """Run `steersman schedule` in the block.

    Args:
        arguments: of the command: the cluster, and who decides.
        log_file: the log is appended to it.
        is_ready: whether it can begin, from its metrics.

    Yields:
        The address of its metrics.

    Raises:
        SteersmanError: it does not become ready.
    """
    (port,) = servers.free_ports([0])
    command = [sys.executable, "-m", "steersman", "schedule", *arguments, "--scheduler-name", SCHEDULER]
    command += ["--no-leader-elect", "--port", str(port), "--log-format", "json"]
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        log = stack.enter_context(log_file.open("ab"))
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        stack.callback(_stop, process)
        url = f"http://127.0.0.1:{port}/metrics"
        until = time.monotonic() + START_SECONDS
        while not is_ready(metrics_of(url)):
            if process.poll() is not None or time.monotonic() > until:
                raise SteersmanError(f"the scheduler does not become ready, see {log_file}")
            time.sleep(POLL_SECONDS)
        yield url


def metrics_of(url: str) -> str:
    """Return what a scheduler's metrics say; nothing while it does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            text: str = answer.read().decode()
    except (OSError, urllib.error.URLError):
        return ""
    return text


def truth_of(address: str) -> Json:
    """Return the true state that exporters show, by name of `TRUTH_GAUGES` and `TRUTH_COUNTERS`."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    values = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        if family.name.startswith(PREFIX)
        for sample in family.samples
    }
    gauges = {name: values[f"{PREFIX}{name}"] for name in TRUTH_GAUGES}
    return gauges | {name: values[f"{PREFIX}{name}_total"] for name in TRUTH_COUNTERS}


def figures_of(first: Json, samples: list[Json], last: Json) -> Json:
    """Return the figures of a run, as of an episode (`envs.latency`).

    Args:
        first: the truth before it.
        samples: the truth at equal intervals, from the first Deployment to the deletion.
        last: the truth before the deletion.
    """
    mean = {name: float(np.mean([sample[name] for sample in samples])) for name in TRUTH_GAUGES}
    counted = {name: last[name] - first[name] for name in TRUTH_COUNTERS}
    limited = counted["placed_limited"]
    return {
        "empty_nodes": mean["empty_nodes"],
        "used_nodes": mean["used_nodes"],
        "cpu_use_deviation_percent": mean["cpu_use_deviation_percent"],
        "connections_maximum_mean": mean["connections_maximum"],
        "connections_peak": max(sample["connections_maximum"] for sample in samples),
        "soft_limits_kept_percent": 100.0 * counted["placed_within_soft"] / limited if limited else None,
        "hard_limits_broken": counted["placed_beyond_hard"],
        "hard_limits_broken_avoidable": counted["placed_beyond_hard_avoidably"],
        "placed_pods": counted["placed"],
        "samples": len(samples),
    }


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def state_dir(folder: Path) -> None:
    """Keep the records of local clusters in a folder of the study."""
    os.environ["STEERSMAN_STATE_DIR"] = str(folder)
