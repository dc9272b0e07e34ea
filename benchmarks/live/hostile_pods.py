"""Scheduling delay of one tenant while another creates thousands of pods that fit nowhere and are costly to check."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import numpy as np
from tests.support.hostile import KINDS, NAMESPACE, hostile_pod
from tests.support.servers.plugin_scheduler import free_port

from benchmarks.live.rate import KUBE_CONFIG, SCHEDULER, STEERSMAN, Bound, local_cluster, pod_object
from steersman.cluster.objects.api.metadata import named_object
from steersman.kubernetes.client import ApiError, Client, UnreachableError
from steersman.kubernetes.config import load
from steersman.kubernetes.watch import Reflector
from steersman.live.runtime.tasks import run_concurrently

NODES, HOSTILE = 100, 3_000
PODS, PODS_PER_SECOND = 200, 10
PROBE_SECONDS, LIMIT_SECONDS = 0.5, 120.0
OTHERS = "/api/v1/namespaces/default/pods"
FULL = f"/api/v1/namespaces/{NAMESPACE}/pods"

Figures = dict[str, float]


def hostile_pods(former: dict[str, Any], only: str = "") -> Iterator[dict[str, Any]]:
    """Seconds until pods of a tenant are bound while another creates 3,000 hostile ones, and after a restart.

    kube-scheduler and `steersman schedule --policy fgd` do the same on one cluster, one after the other.
    STEERSMAN_BENCH_HOSTILE is the number of hostile pods.

    Args:
        former: the results so far; those of other kinds and numbers of hostile pods stay.
        only: part of the names of the kinds to measure.
    """
    count = int(os.environ.get("STEERSMAN_BENCH_HOSTILE", HOSTILE))
    kinds: dict[str, Any] = dict(former.get("kinds", {}))
    with TemporaryDirectory() as folder, local_cluster(Path(folder), NODES) as (kubeconfig, programs):
        config = Path(folder, "scheduler.yaml")
        config.write_text(KUBE_CONFIG % (kubeconfig, SCHEDULER))
        for kind in (each for each in KINDS if only in each):
            row: dict[str, Figures] = {}
            for name in ("steersman", "kube-scheduler"):
                port = free_port()
                ours = [STEERSMAN, "schedule", "--policy", "fgd", "--kubeconfig", kubeconfig, "--port", port]
                ours += ["--scheduler-name", SCHEDULER]
                theirs = [programs / "kube-scheduler", f"--config={config}", "--secure-port=0"]
                command = [str(part) for part in (ours if name == "steersman" else theirs)]
                log = Path(folder, f"{name}.log")
                probed = port if name == "steersman" else 0
                row[name] = asyncio.run(_measured(kubeconfig, command, log, kind, count, probed))
                print(f"  {kind:<14} {name:<14} {row[name]}", flush=True)
            kinds[kind] = {**kinds.get(kind, {}), str(count): row}
            yield {"nodes": NODES, "pods": PODS, "kinds": kinds}


async def _measured(kubeconfig: Path, command: list[str], log: Path, kind: str, count: int, port: int) -> Figures:
    """Measure one scheduler; `port` is that of its probes, 0: none are asked."""
    async with Client(load(kubeconfig)) as client:
        seen = Bound()
        watch = asyncio.create_task(Reflector(client, "/api/v1/pods", seen).run())
        with suppress(Exception):  # it exists
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            await client.create("/api/v1/namespaces", namespace)
        figures: Figures = {}
        process = _start(command, log)
        try:
            await _bound(client, seen, "first", 1, process)
            probes = asyncio.create_task(_probe(port, figures))
            hostile = (hostile_pod(kind, i, has_room=False, scheduler=SCHEDULER) for i in range(count))
            creating = asyncio.create_task(run_concurrently(partial(client.create, FULL, pod) for pod in hostile))
            delays = await _bound(client, seen, "beside", PODS, process)
            await creating
            delays += await _bound(client, seen, "after", PODS, process)
            figures["p50"], figures["p90"] = (round(float(np.quantile(delays, q)), 3) for q in (0.5, 0.9))
            figures["longest"] = round(max(delays), 3)
            process.send_signal(signal.SIGTERM)
            process.wait()
            probes.cancel()
            process, began = _start(command, log), time.monotonic()
            probes = asyncio.create_task(_probe(port, figures, began))
            await _bound(client, seen, "restarted", 1, process)
            figures["first_after_restart"] = round(time.monotonic() - began, 2)
            delays = await _bound(client, seen, "settled", PODS, process)
            figures["p90_after_restart"] = round(float(np.quantile(delays, 0.9)), 3)
            probes.cancel()
        finally:
            process.kill()
            process.wait()
            watch.cancel()
            for path in (FULL, OTHERS):
                names = [named_object(raw).metadata.name for raw in (await client.list(path)).items]
                now = {"gracePeriodSeconds": "0"}
                await run_concurrently(partial(client.delete, f"{path}/{name}", now) for name in names)
        return figures


def _start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen(command, stdout=file, stderr=file)


async def _bound(client: Client, seen: Bound, name: str, count: int, process: subprocess.Popen[bytes]) -> list[float]:
    """Create pods at a rate; return how long each waited for its node, 120 s after the last one at most."""
    created: dict[str, float] = {}
    run = f"{time.time_ns():x}"  # KWOK may delete once more what is gone, by its name
    for i in range(count):
        created[f"default/{name}-{run}-{i}"] = time.monotonic()
        await _create(client, pod_object(i, name=f"{name}-{run}-{i}"))
        await asyncio.sleep(1 / PODS_PER_SECOND)
    end = time.monotonic() + LIMIT_SECONDS
    while not created.keys() <= seen.times.keys() and time.monotonic() < end:
        assert process.poll() is None, "the scheduler ended: its lease was lost"
        await asyncio.sleep(0.01)
    return [seen.times.get(key, end) - at for key, at in created.items()]


async def _create(client: Client, pod: dict[str, Any]) -> None:
    """Create a pod, which may take several requests: a scheduler that is overloaded may take the API server along."""
    while True:
        try:
            await client.create(OTHERS, pod)
        except UnreachableError:
            continue
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:  # an earlier request created it
                raise
        return


async def _probe(port: int, figures: Figures, began: float = 0.0) -> None:
    """Ask /healthz; note the slowest answer, and after a restart how long it took until the first one."""
    async with aiohttp.ClientSession() as session:
        while port:
            asked = time.monotonic()
            try:
                async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                    assert answer.status == 200, await answer.text()
            except aiohttp.ClientConnectionError:
                assert began, "the probe was refused"  # it does not listen yet
            else:
                if began:
                    figures.setdefault("first_probe_after_restart", round(time.monotonic() - began, 2))
                took = round(time.monotonic() - asked, 3)
                figures["slowest_probe"] = max(figures.get("slowest_probe", 0.0), took)
            await asyncio.sleep(PROBE_SECONDS)
