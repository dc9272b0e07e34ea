"""What large clusters cost the live scheduler: memory, and the time of a decision."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import subprocess
import time
import urllib.request
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

from benchmarks.live.rate import SCHEDULER, STEERSMAN, local_cluster, peak_memory, pod_object
from steersman.cluster.pod_query import PodQuery
from steersman.kubernetes.cache.cached_pod import Listener
from steersman.kubernetes.cache.cluster_cache import ClusterCache
from steersman.kubernetes.client import Client
from steersman.kubernetes.config import KubeCluster, KubeConfig, KubeUser, load
from steersman.live.local_cluster.control_plane.servers import running
from steersman.live.runtime.tasks import run_concurrently
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.registry import resolve
from steersman.workloads.profile import typical_pods

NODES, PODS, WAITING = 5_000, 50_000, 5_000
RATE, ARRIVALS = 40, 2_400
"""Pods that come a second, and in all, after those that waited; the servers on the same cores then have some rest."""
PORT = 18_269
DECISION = re.compile(r'^steersman_scheduling_algorithm_(\w+)_seconds_bucket{le="([^"]+)"} (\S+)$', re.MULTILINE)


class _Nobody(Listener):
    """Told of what happens, and does nothing but pass changes on."""

    decider: Decider | None = None

    def on_node_changed(self, slot: int, *, may_have_grown: bool) -> None:
        if self.decider is not None:
            self.decider.changed(slot)


def large_cluster() -> dict[str, Any]:
    """5,000 nodes and 50,000 pods in a cache fed with the API's JSON: memory, and the time of 5,000 decisions."""
    policy = os.environ.get("STEERSMAN_BENCH_POLICY", "steersman")
    count, pods, waiting = NODES, PODS, WAITING
    listener = _Nobody()
    config = KubeConfig(Path("none"), "", KubeCluster("http://127.0.0.1:1"), KubeUser(), "default")
    cache = ClusterCache(Client(config), listener)
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    gpus = {"alibabacloud.com/gpu-count": "8", "alibabacloud.com/gpu-milli": "8000"}
    began = time.process_time()
    encode = msgspec.json.encode
    for i in range(count):
        allocatable = amounts | (gpus if i % 2 else {})
        cache.upsert_node(msgspec.Raw(encode({"metadata": {"name": f"n{i}"}, "status": {"allocatable": allocatable}})))
    for i in range(pods):
        cache.upsert_pod(msgspec.Raw(encode(pod_object(i, f"n{i % count}" if i >= waiting else ""))))
    listing = time.process_time() - began
    queue = [pod for pod in cache.pods.values() if not pod.node]
    profile = typical_pods(pod.pod for pod in cache.pods.values())
    listener.decider = decider = Decider(ClusterView(cache.state, profile=profile), resolve(policy))
    decider.choose(PodQuery(queue[0].class_id))
    seconds = []
    for pod in queue:
        start = time.perf_counter()
        choice = decider.choose(cache.query(pod))
        assert choice is not None
        cache.expected.assume(pod, choice.slot, choice.devices)
        seconds.append(time.perf_counter() - start)
    return {
        "nodes": count,
        "pods": pods,
        "policy": policy,
        "list_cpu_seconds": round(listing, 2),
        "decision_ms_median": round(1000 * float(np.median(seconds)), 3),
        "decision_ms_p99": round(1000 * float(np.percentile(seconds, 99)), 3),
        "peak_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 3),
    }


def large_live() -> dict[str, Any]:
    """On a real API server: 5,000 nodes, 50,000 pods of which 5,000 wait for `steersman schedule`; then more come.

    First with a core of the scheduler's own, the servers on the others; then all on all cores, where the time of a
    decision is mostly waiting for a core.
    """
    policy = os.environ.get("STEERSMAN_BENCH_POLICY", "steersman")
    with TemporaryDirectory() as folder, local_cluster(Path(folder), NODES) as (kubeconfig, _):
        asyncio.run(_fill(kubeconfig))
        command = [
            str(STEERSMAN),
            "schedule",
            "--policy",
            policy,
            "--unchecked",
            "--kubeconfig",
            str(kubeconfig),
            "--no-leader-elect",
        ]
        command += ["--port", str(PORT), "--scheduler-name", SCHEDULER]
        own, *others = cores = sorted(os.sched_getaffinity(0))
        servers = running(kubeconfig.parent).values()
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _hold(process.pid, [own])
            for pid in servers:
                _hold(pid, others or cores)
            burst = _decided(process, WAITING)
            seconds = time.monotonic() - began
            asyncio.run(_arrive(kubeconfig))
            alone = _decided(process, WAITING + ARRIVALS)
            for pid in (process.pid, *servers):
                _hold(pid, cores)
            asyncio.run(_arrive(kubeconfig, ARRIVALS))
            shared = _decided(process, WAITING + 2 * ARRIVALS)
            memory = peak_memory(process.pid)
        finally:
            process.terminate()
            process.wait()
    phases = {"burst": burst, "steady": _between(burst, alone), "shared_cores": _between(alone, shared)}
    return {
        "nodes": NODES,
        "pods": PODS,
        "policy": policy,
        "seconds_from_start_to_last_decision": round(seconds, 1),
        "steady_pods_per_second": RATE,
        **{
            f"{phase}_decision_{kind}_ms_p99_below": _p99(buckets)
            for phase, made in phases.items()
            for kind, buckets in made.items()
        },
        "peak_memory_gb": round(memory / 1e9, 3),
    }


def _hold(pid: int, cores: list[int]) -> None:
    """Have all threads of a process run on these cores alone."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


Decisions = dict[str, dict[float, float]]
"""Kind of time -> upper end of a bucket in seconds -> decisions in it."""


def _decided(process: subprocess.Popen[bytes], count: int) -> Decisions:
    """Return what `_decisions` returns as soon as there are so many."""
    while sum((decisions := _decisions()).get("duration", {}).values()) < count:
        time.sleep(0.2)
        assert process.poll() is None, process.args
    return decisions


def _between(before: Decisions, after: Decisions) -> Decisions:
    return {kind: {end: count - before[kind][end] for end, count in made.items()} for kind, made in after.items()}


def _p99(buckets: dict[float, float]) -> float:
    """Milliseconds, the upper end of the bucket that the 99th percentile is in."""
    shares = np.cumsum(list(buckets.values())) / sum(buckets.values())
    return round(1000 * list(buckets)[int(np.argmax(shares >= 0.99))], 3)


async def _arrive(kubeconfig: Path, before: int = 0) -> None:
    """Pods come, one after the other."""
    path = "/api/v1/namespaces/default/pods"
    async with Client(load(kubeconfig)) as client, asyncio.TaskGroup() as group:
        for i in range(ARRIVALS):
            group.create_task(client.create(path, pod_object(PODS + before + i)))
            await asyncio.sleep(1 / RATE)


async def _fill(kubeconfig: Path) -> None:
    path = "/api/v1/namespaces/default/pods"
    async with Client(load(kubeconfig)) as client:
        nodes = [msgspec.json.decode(raw)["metadata"]["name"] for raw in (await client.list("/api/v1/nodes")).items]
        bound = (pod_object(i, nodes[i % len(nodes)]) for i in range(WAITING, PODS))
        await run_concurrently(partial(client.create, path, each) for each in bound)
        await run_concurrently(partial(client.create, path, pod_object(i)) for i in range(WAITING))


def _decisions() -> Decisions:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=10) as answer:
            findall = DECISION.findall(answer.read().decode())
    except OSError:  # it does not listen yet
        return {}
    made: Decisions = {}
    for kind in ("duration", "cpu"):
        ends = [(0.0, 0.0), *((float(end), float(count)) for what, end, count in findall if what == kind)]
        made[kind] = {end: count - before for (_, before), (end, count) in pairwise(ends)}
    return made
