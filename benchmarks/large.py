"""What large clusters cost the live scheduler: memory, and the time of a decision."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
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

from benchmarks.live import SCHEDULER, STEERSMAN, local_cluster, pod_object
from steersman.kube.cache import CachedPod, ClusterCache, NodeFeed, PodFeed
from steersman.kube.client import Client
from steersman.kube.config import Cluster, KubeConfig, User, load
from steersman.live.running import at_once
from steersman.policies.decider import Decider
from steersman.policies.registry import resolve
from steersman.workloads.mix import typical_pods

NODES, PODS, WAITING = 5_000, 50_000, 5_000
PORT = 18_269
DECISION = re.compile(r'^steersman_scheduling_algorithm_duration_seconds_bucket{le="([^"]+)"} (\S+)$', re.MULTILINE)


class _Nobody:
    """Told of what happens, and does nothing but pass changes on."""

    decider: Decider | None = None

    def pod_came(self, pod: CachedPod) -> None:
        pass

    pod_waits = pod_bound = pod_gone = pod_came

    def node_changed(self, slot: int, *, more: bool) -> None:
        if self.decider is not None:
            self.decider.changed(slot)

    def rebuilt(self) -> None:
        pass


def large_cluster() -> dict[str, Any]:
    """5,000 nodes and 50,000 pods in a cache fed with the API's JSON: memory, and the time of 5,000 decisions."""
    policy = os.environ.get("STEERSMAN_BENCH_POLICY", "steersman")
    count, pods, waiting = NODES, PODS, WAITING
    listener = _Nobody()
    config = KubeConfig(Path("none"), "", Cluster("http://127.0.0.1:1"), User(), "default")
    cache = ClusterCache(Client(config), listener)
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    gpus = {"alibabacloud.com/gpu-count": "8", "alibabacloud.com/gpu-milli": "8000"}
    began = time.process_time()
    encode = msgspec.json.encode
    NodeFeed(cache).replace(
        [
            msgspec.Raw(
                encode({"metadata": {"name": f"n{i}"}, "status": {"allocatable": amounts | (gpus if i % 2 else {})}})
            )
            for i in range(count)
        ]
    )
    PodFeed(cache).replace(
        [msgspec.Raw(encode(pod_object(i, f"n{i % count}" if i >= waiting else ""))) for i in range(pods)]
    )
    listing = time.process_time() - began
    queue = [pod for pod in cache.pods.values() if not pod.node]
    mix = typical_pods(pod.pod for pod in cache.pods.values())
    listener.decider = decider = Decider(cache.state, resolve(policy), mix=mix)
    decider.choose(queue[0].class_id)
    seconds = []
    for pod in queue:
        start = time.perf_counter()
        choice = decider.choose(pod.class_id, pod.labels_id, cache.peers(pod.pod))
        assert choice is not None
        cache.assume(pod, choice.slot, choice.devices)
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
    """A real API server with 5,000 nodes and 50,000 pods, of which 5,000 wait for `steersman schedule`."""
    policy = os.environ.get("STEERSMAN_BENCH_POLICY", "steersman")
    with TemporaryDirectory() as folder, local_cluster(Path(folder), NODES) as (kubeconfig, _):
        asyncio.run(_fill(kubeconfig))
        command: list[str | Path] = [
            STEERSMAN,
            "schedule",
            "--policy",
            policy,
            "--kubeconfig",
            kubeconfig,
            "--port",
            str(PORT),
        ]
        command += ["--scheduler-name", SCHEDULER]
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while sum((buckets := _decisions()).values()) < WAITING:
                time.sleep(0.2)
                assert process.poll() is None, command
            seconds = time.monotonic() - began
            status = Path(f"/proc/{process.pid}/status").read_text()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()
    shares = np.cumsum(list(buckets.values())) / sum(buckets.values())
    p99 = list(buckets)[int(np.argmax(shares >= 0.99))]
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert peak is not None
    return {
        "nodes": NODES,
        "pods": PODS,
        "policy": policy,
        "seconds_from_start_to_last_decision": round(seconds, 1),
        "decision_ms_p99_below": round(1000 * p99, 3),
        "peak_memory_gb": round(int(peak[1]) / 1e6, 3),
    }


async def _fill(kubeconfig: Path) -> None:
    path = "/api/v1/namespaces/default/pods"
    async with Client(load(kubeconfig)) as client:
        nodes = [msgspec.json.decode(raw)["metadata"]["name"] for raw in (await client.list("/api/v1/nodes")).items]
        running = (pod_object(i, nodes[i % len(nodes)]) for i in range(WAITING, PODS))
        await at_once(partial(client.create, path, each) for each in running)
        await at_once(partial(client.create, path, pod_object(i)) for i in range(WAITING))


def _decisions() -> dict[float, float]:
    """Upper end of a bucket in seconds -> decisions in it."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=10) as answer:
            found = DECISION.findall(answer.read().decode())
    except OSError:  # it does not listen yet
        return {}
    ends = [(0.0, 0.0), *((float(end), float(count)) for end, count in found)]
    return {end: count - before for (_, before), (end, count) in pairwise(ends)}
