"""A scheduler that binds 100 pods a second, alone and beside 20,000 pods that fit nowhere."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import time
import urllib.request
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from tests.support.servers.plugin_scheduler import free_port

from benchmarks.live.rate import SCHEDULER, STEERSMAN, Bound, cpu_seconds, local_cluster, pod_object
from steersman.cluster.objects.api.metadata import named_object
from steersman.kubernetes.client import Client
from steersman.kubernetes.config import load
from steersman.kubernetes.watch import Reflector
from steersman.live.runtime.tasks import run_concurrently

NODES, WAITING = 1_000, 20_000
PODS_PER_SECOND, SECONDS, LIFETIME, TIMES = 100, 30, 10, 3
FIGURES = "bound_per_second", "cpu_ms_per_pod", "seconds_to_bind_median", "seconds_to_bind_p99"
PATH = "/api/v1/namespaces/default/pods"
PENDING = re.compile(r'^steersman_pending_pods\{queue="unschedulable"\} (\S+)$', re.MULTILINE)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
Object = dict[str, Any]


def unschedulable() -> dict[str, Any]:
    """Pods bound a second, and CPU of `steersman schedule --policy fgd`, of 100 pods a second for half a minute.

    Each pod is deleted after ten seconds, so that pods which wait are woken all the time.
    STEERSMAN_BENCH_WAITING is how many pods wait beside them.
    """
    waiting = int(os.environ.get("STEERSMAN_BENCH_WAITING", WAITING))
    with TemporaryDirectory() as folder, local_cluster(Path(folder), NODES) as (kubeconfig, _):
        port = free_port()
        command = [str(STEERSMAN), "schedule", "--policy", "fgd", "--kubeconfig", str(kubeconfig), "--port", str(port)]
        command += ["--scheduler-name", SCHEDULER, "--no-leader-elect"]
        with Path(folder, "log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            return asyncio.run(_measured(kubeconfig, process, port, waiting))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


async def _measured(kubeconfig: Path, process: subprocess.Popen[bytes], port: int, waiting: int) -> dict[str, Any]:
    async with Client(load(kubeconfig)) as client:
        seen = Bound()
        watch = asyncio.create_task(Reflector(client, "/api/v1/pods", seen).run())
        alone = [await _attempt(client, seen, process, f"alone-{i}") for i in range(TIMES)]
        began = time.monotonic()
        await run_concurrently(partial(client.create, PATH, unschedulable_pod(i)) for i in range(waiting))
        while await asyncio.to_thread(_pending, port) < waiting:
            assert process.poll() is None
            await asyncio.sleep(1.0)
        settled = time.monotonic() - began
        print(f"  {waiting} pods were tried and told after {settled:.0f} s", flush=True)
        beside = [await _attempt(client, seen, process, f"beside-{i}") for i in range(TIMES)]
        watch.cancel()
    result: dict[str, Any] = {"nodes": NODES, "waiting": waiting, "pods_per_second": PODS_PER_SECOND}
    for name, attempts in (("alone", alone), ("beside", beside)):
        for i, key in enumerate(FIGURES):
            result[f"{name}_{key}"] = round(float(np.median([each[i] for each in attempts])), 3)
    result["ratio"] = round(result["beside_bound_per_second"] / result["alone_bound_per_second"], 3)
    return result


async def _attempt(
    client: Client, seen: Bound, process: subprocess.Popen[bytes], name: str
) -> tuple[float, float, float, float]:
    """Create and delete pods at a rate; how many are bound a second, CPU of each, and seconds until one is bound."""
    cpu, count = cpu_seconds(process.pid), PODS_PER_SECOND * SECONDS
    created: dict[str, float] = {}
    began, tasks = time.monotonic(), set()

    async def create(i: int) -> None:
        pod = pod_object(i, name=f"{name}-{i:05d}")
        created[f"default/{name}-{i:05d}"] = time.monotonic()
        await client.create(PATH, pod)

    for i in range(count):
        await asyncio.sleep(max(0.0, began + i / PODS_PER_SECOND - time.monotonic()))
        tasks.add(asyncio.create_task(create(i)))
        ended = f"{name}-{i - PODS_PER_SECOND * LIFETIME:05d}"
        if f"default/{ended}" in seen.times:
            tasks.add(asyncio.create_task(client.delete(f"{PATH}/{ended}", {"gracePeriodSeconds": "0"})))
    await asyncio.gather(*tasks)
    while not created.keys() <= seen.times.keys():
        assert process.poll() is None
        await asyncio.sleep(0.05)
    times = sorted(seen.times[key] for key in created)
    delays = np.array([seen.times[key] - at for key, at in created.items()])
    used = 1000 * (cpu_seconds(process.pid) - cpu) / count
    rate = (count - 1) / (times[-1] - times[0])
    print(f"  {name}: {rate:.1f} pods/s, {used:.2f} ms of CPU a pod", flush=True)
    names = [named_object(raw).metadata.name for raw in (await client.list(PATH)).items]
    mine = [each for each in names if each.startswith(name)]
    await run_concurrently(partial(client.delete, f"{PATH}/{each}", {"gracePeriodSeconds": "0"}) for each in mine)
    await asyncio.sleep(5)
    return rate, used, float(np.median(delays)), float(np.quantile(delays, 0.99))


def unschedulable_pod(i: int) -> Object:
    """Return a pod that fits nowhere, for one of five reasons and of one of a hundred classes."""
    pod = pod_object(i, name=f"waits-{i:05d}")
    spec: Object = pod["spec"]
    kind = i % 20
    requests = spec["containers"][0]["resources"]["requests"]
    requests["cpu"] = f"{100 + i % 100}m"
    if kind < 8:
        requests["cpu"] = str(1000 + i % 100)
    elif kind < 12:
        spec["nodeSelector"] = {"pool": f"none-{i % 10}"}
    elif kind < 17:
        limits = {"nvidia.com/gpu": str(1 + i % 8)}
        spec["containers"][0]["resources"]["limits"] = limits
        requests.update(limits)
    elif kind < 19:
        requests["memory"] = f"{4000 + i % 50}Gi"
    else:  # these may fit once another pod is placed
        term = {"labelSelector": {"matchLabels": {"app": f"nobody-{i % 5}"}}, "topologyKey": "kubernetes.io/hostname"}
        spec["affinity"] = {"podAffinity": {REQUIRED: [term]}}
    return pod


def _pending(port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        match = PENDING.search(answer.read().decode())
    return float(match[1]) if match else 0.0
