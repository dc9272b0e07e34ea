"""The live scheduler: its rate beside kube-scheduler's on the same cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

from steersman.cluster.objects.api.metadata import named_object
from steersman.cluster.objects.fields import pod_from_json
from steersman.core.statistics import mean_interval
from steersman.kubernetes.client import Client
from steersman.kubernetes.config import load
from steersman.kubernetes.watch import EventType, Reflector
from steersman.live.runtime.tasks import run_concurrently

NODES, PODS, PAIRS = 1_000, 3_000, 7
NAME = "benchmark"
SCHEDULER = "benchmark"
STEERSMAN = Path(sys.executable).with_name("steersman")
KUBE_CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %s, qps: 10000, burst: 10000}
leaderElection: {leaderElect: false}
profiles: [{schedulerName: %s}]
"""


Attempt = Callable[[], tuple[float, float]]
"""Lets a scheduler bind all pods: pods a second, and milliseconds of its CPU a pod."""


def schedule_rate() -> dict[str, Any]:
    """Pods bound a second by steersman and by kube-scheduler, alternately, each started on 3,000 waiting pods."""
    policy = os.environ.get("STEERSMAN_BENCH_POLICY", "steersman")
    with TemporaryDirectory() as folder, local_cluster(Path(folder), NODES) as (kubeconfig, programs):
        config = Path(folder, "scheduler.yaml")
        config.write_text(KUBE_CONFIG % (kubeconfig, SCHEDULER))
        ours = [
            STEERSMAN,
            "schedule",
            "--policy",
            policy,
            "--unchecked",
            "--kubeconfig",
            kubeconfig,
            "--port",
            "0",
            "--no-leader-elect",
        ]
        ours += ["--scheduler-name", SCHEDULER]
        theirs = [programs / "kube-scheduler", f"--config={config}", "--secure-port=0"]
        commands = {"steersman": ours, "kube-scheduler": theirs}
        return {"policy": policy} | compared(
            {name: partial(run, kubeconfig, [str(part) for part in command]) for name, command in commands.items()}
        )


def compared(attempts: Mapping[str, Attempt]) -> dict[str, Any]:
    """Measure two schedulers alternately; return the ratios of the first one's rates to the second one's."""
    pairs = int(os.environ.get("STEERSMAN_BENCH_PAIRS", PAIRS))
    result: dict[str, list[tuple[float, float]]] = {name: [] for name in attempts}
    for i in range(pairs):
        for name in sorted(attempts, reverse=bool(i % 2)):
            result[name].append(attempts[name]())
            print(f"  pair {i + 1}: {name} {result[name][-1][0]:.0f} pods/s", flush=True)
    first, second = (np.array([rate for rate, _ in each]) for each in result.values())
    ratios = first / second
    return {
        "nodes": NODES,
        "pods": PODS,
        "pairs": pairs,
        "ratio_median": round(float(np.median(ratios)), 3),
        "ratio_interval": [round(end, 3) for end in mean_interval(ratios)] if pairs > 1 else None,
        "ratios": [round(float(ratio), 3) for ratio in ratios],
        **{
            f"{name}_pods_per_second": round(float(np.median([rate for rate, _ in each])), 1)
            for name, each in result.items()
        },
        **{
            f"{name}_cpu_ms_per_pod": round(float(np.median([cpu for _, cpu in each])), 3)
            for name, each in result.items()
        },
    }


@contextmanager
def local_cluster(folder: Path, nodes: int, *options: str) -> Iterator[tuple[Path, Path]]:
    """Yield a cluster of its own, with options of `cluster up`: its kubeconfig, and the folder of the programs."""
    from steersman.live.local_cluster.control_plane import build

    environment = os.environ | {"STEERSMAN_STATE_DIR": str(folder / "state")}

    def steersman(*arguments: str) -> None:
        subprocess.run([STEERSMAN, "cluster", *arguments, "--name", NAME], env=environment, check=True)

    programs = build.programs(lambda *_: None, print)
    try:
        steersman("up", "--count", str(nodes), *options)
        yield next((folder / "state").rglob("kubeconfig")), programs
    finally:
        steersman("down")


class Bound:
    """When pods were seen to be bound."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}

    def keep(self, keys: Set[str]) -> None:
        """See `reflector.Handler`."""

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """See `reflector.Handler`."""
        head = pod_from_json(obj)
        if head.node and head.scheduler == SCHEDULER:
            self.times.setdefault(head.key, time.monotonic())


def run(kubeconfig: Path, command: list[str]) -> tuple[float, float]:
    """Pods that a scheduler binds a second, from the first to the last, and milliseconds of its CPU a pod."""
    return asyncio.run(_run(kubeconfig, command))


async def _run(kubeconfig: Path, command: list[str]) -> tuple[float, float]:
    async with Client(load(kubeconfig)) as client:
        await _create(client)
        seen = Bound()
        watch = asyncio.create_task(Reflector(client, "/api/v1/pods", seen).run())
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while len(seen.times) < PODS:
                await asyncio.sleep(0.05)
                assert process.poll() is None, command
            cpu = cpu_seconds(process.pid)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            watch.cancel()
        times = sorted(seen.times.values())
        await _clean(client)
    return (len(times) - 1) / (times[-1] - times[0]), 1000 * cpu / len(times)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_memory(pid: int) -> int:
    """Bytes of a process that were resident at most."""
    return 1024 * int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0])


async def _create(client: Client) -> None:
    path = "/api/v1/namespaces/default/pods"
    run = f"{time.time_ns():x}"  # KWOK may delete once more what is gone, by its name
    await run_concurrently(partial(client.create, path, pod_object(i, name=f"web-{run}-{i:05d}")) for i in range(PODS))
    await asyncio.sleep(2)


async def _clean(client: Client) -> None:
    path = "/api/v1/namespaces/default/pods"
    names = [named_object(raw).metadata.name for raw in (await client.list(path)).items]
    await run_concurrently(partial(client.delete, f"{path}/{name}", {"gracePeriodSeconds": "0"}) for name in names)
    while (await client.list(path)).items:
        await asyncio.sleep(0.5)
    await asyncio.sleep(3)  # watches come to rest


def pod_object(i: int, node: str = "", name: str = "") -> dict[str, Any]:
    """Return a pod as a Deployment creates it, one of twenty sizes."""
    requests = {"cpu": f"{100 * (1 + i % 20)}m", "memory": f"{128 * (1 + i % 7)}Mi"}
    spec: dict[str, Any] = {
        "schedulerName": SCHEDULER,
        "containers": [{"name": "main", "image": "pause", "resources": {"requests": requests}}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name or f"web-{i:05d}",
            "namespace": "default",
            "uid": str(i),
            "labels": {"app": f"web-{i % 20}"},
        },
        "spec": spec | ({"nodeName": node} if node else {}),
        "status": {"phase": "Running" if node else "Pending"},
    }
