"""A scheduler on clusters of 100 to 15,000 nodes: start, memory, processor time, and decisions about new pods.

The API server is a process that makes objects up as they are asked for, in pages, so that its size does not count. It
keeps leases, takes bindings, and its watches say of new and bound pods.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml
from aiohttp import web

from benchmarks.live.rate import STEERSMAN

SIZES = (100, 1_000, 5_000, 15_000)
"""Numbers of nodes."""
PODS_PER_NODE = 10
POD_BYTES = 10_000
POLICIES = ("fgd", "steersman")
NEW_PODS, PODS_PER_SECOND = 600, 20
PATIENCE = 1800.0
Object = dict[str, Any]
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def scaling(results: dict[str, Any], only: str) -> Iterator[dict[str, Any]]:
    """`steersman schedule` lists nodes and ten pods of 10 kB on each, then binds 20 new pods a second.

    Args:
        results: of earlier runs, by policy and nodes.
        only: text in the names of those that are run.

    Yields:
        The results after each.
    """
    for nodes, policy in itertools.product(SIZES, POLICIES):
        name = f"{policy}, {nodes} nodes"
        if only in name:
            results[name] = _on_cluster(nodes, policy)
            yield results


def _on_cluster(nodes: int, policy: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.live.scaling", str(nodes)]
    with TemporaryDirectory() as folder:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            return _measured(Path(folder), f"http://127.0.0.1:{int(server.stdout.readline())}", policy)
        finally:
            server.terminate()
            server.wait()


def _measured(folder: Path, address: str, policy: str) -> dict[str, Any]:
    named = {"name": "c", "cluster": {"server": address}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}
    config = {"clusters": [named], "contexts": [context], "users": [{"name": "u", "user": {}}], "current-context": "c"}
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **config}))
    own = _free_port()
    command = [str(STEERSMAN), "schedule", "--policy", policy, "--kubeconfig", str(kubeconfig), "--port", str(own)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    memory = _PeakMemory(process.pid)
    try:
        slowest, ready, seconds = _probed(process, own)
        assert process.poll() is None, (folder / "log").read_text()[-2000:]
        assert ready, (folder / "log").read_text()[-2000:]
        started = _processor_seconds(process.pid)
        _get(f"{address}/burst")
        waits = _waits(address)
        bound = _processor_seconds(process.pid)
        decision = _decision_seconds(own)
        renewals = json.loads(_get(f"{address}/renewals"))
    finally:
        memory.stop()
        process.terminate()
        process.wait()
    between = [later - earlier for earlier, later in itertools.pairwise(renewals)]
    return {
        "seconds_until_ready": round(seconds, 1),
        "slowest_probe_seconds": round(slowest, 2),
        "longest_time_between_renewals_seconds": round(max(between, default=0.0), 2),
        "cpu_seconds_until_20_s_after_ready": round(started, 1),
        "cores_at_20_pods_per_second": round((bound - started) * PODS_PER_SECOND / NEW_PODS, 2),
        "decision_ms_mean": round(1000.0 * decision, 2),
        "bound_after_ms_p50": round(1000.0 * float(np.percentile(waits, 50)), 1),
        "bound_after_ms_p99": round(1000.0 * float(np.percentile(waits, 99)), 1),
        "peak_memory_mb": round(memory.peak / 1e6),
    }


def _waits(address: str) -> list[float]:
    """Return the seconds from event to binding of each new pod, when all are bound."""
    end = time.monotonic() + PATIENCE
    while len(found := json.loads(_get(f"{address}/bound"))) < NEW_PODS:
        assert time.monotonic() < end, f"{len(found)} of {NEW_PODS} pods are bound"
        time.sleep(1.0)
    return [float(each) for each in found]


def _decision_seconds(port: int) -> float:
    """Return the mean duration of a decision, as the scheduler's metrics have it."""
    name = "steersman_scheduling_algorithm_duration_seconds"
    lines = (line.split() for line in _get(f"http://127.0.0.1:{port}/metrics").decode().splitlines())
    found = {line[0]: float(line[1]) for line in lines if line and line[0] in (f"{name}_sum", f"{name}_count")}
    return found[f"{name}_sum"] / found[f"{name}_count"]


def _processor_seconds(pid: int) -> float:
    """Return the processor time of a process and of the children that it has waited for, and of those that run."""
    total = 0.0
    for each in (pid, *_children(pid)):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        # utime, stime, cutime and cstime, see proc(5): fields 14 to 17, of which two come before the bracket.
        total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class _PeakMemory:
    """The most memory that a process and its children had at one time; simulations of a portfolio run in a child.

    Attributes:
        peak: in bytes.
    """

    def __init__(self, pid: int) -> None:
        self.peak = 0
        self._pid, self._over = pid, threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End sampling."""
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(0.1):
            pages = 0
            with suppress(OSError):  # one of them has ended
                for each in (self._pid, *_children(self._pid)):
                    pages += int(Path(f"/proc/{each}/statm").read_text().split()[1])
            self.peak = max(self.peak, pages * os.sysconf("SC_PAGE_SIZE"))


def _probed(process: subprocess.Popen[bytes], port: int) -> tuple[float, bool, float]:
    """Ask for /healthz until /readyz says yes and for a while longer; the slowest answer, and when that was."""
    began, slowest, up, ready_at = time.monotonic(), 0.0, False, 0.0
    while time.monotonic() - began < PATIENCE and process.poll() is None:
        asked = time.monotonic()
        try:
            _get(f"http://127.0.0.1:{port}/healthz")
            up = True
            slowest = max(slowest, time.monotonic() - asked)
            if not ready_at and _get(f"http://127.0.0.1:{port}/readyz"):
                ready_at = time.monotonic()
        except urllib.error.HTTPError:
            pass  # not ready yet
        except OSError:
            assert not up, "it answered before"
        if ready_at and time.monotonic() - ready_at > 20.0:
            break
        time.sleep(0.05)
    return slowest, bool(ready_at), ready_at - began


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as response:
        return bytes(response.read())


def _free_port() -> int:
    with socket.socket() as result:
        result.bind(("127.0.0.1", 0))
        return int(result.getsockname()[1])


def _pods(nodes: int) -> Iterator[bytes]:
    """All pods as JSON; what differs is put into a text made once."""
    fields: Object = {f"f:field{i}": {"f:value": {}, "f:other": {}} for i in range(200)}
    pod: Object = {
        "metadata": {
            "name": "@NAME@",
            "namespace": "default",
            "uid": "@NAME@",
            "resourceVersion": "1",
            "generation": 1,
            "labels": {"app": "@APP@", "pod-template-hash": "@APP@", "team": "a"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "@APP@", "uid": "o", "controller": True}],
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": fields}],
        },
        "spec": {
            "nodeName": "@NODE@",
            "containers": [
                {"name": "c", "image": "registry/app:1", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}
            ],
        },
        "status": {"phase": "Running"},
    }
    lacking = POD_BYTES - len(json.dumps(pod))
    pod["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "x" * max(0, lacking)}
    text = json.dumps(pod)
    for i in range(nodes * PODS_PER_NODE):
        yield (
            text.replace("@NAME@", f"p{i}").replace("@APP@", f"a{i % 3000}").replace("@NODE@", f"n{i % nodes}").encode()
        )


def _nodes(nodes: int) -> Iterator[bytes]:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
    for i in range(nodes):
        meta = {"name": f"n{i}", "labels": {"kubernetes.io/hostname": f"n{i}", "nvidia.com/gpu.product": "A100"}}
        yield json.dumps({"metadata": meta, "status": {"allocatable": amounts}}).encode()


class _Server:
    """Lists in pages; a page continues where the last one of that list ended."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.lists: dict[str, Iterator[bytes]] = {}
        self.watches: list[web.StreamResponse] = []
        self.created: dict[str, float] = {}
        self.waits: list[float] = []
        self.burst: asyncio.Task[None] | None = None
        self.lease: dict[str, Any] | None = None
        self.renewals: list[float] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path == "/renewals":
            return web.json_response(self.renewals)
        if path == "/bound":
            return web.json_response(self.waits)
        if path == "/burst":
            self.burst = asyncio.create_task(self._create())
            return web.json_response({})
        if path == "/version":
            return web.json_response({"major": "1", "minor": "36", "gitVersion": "v1.36.3"})
        if path.startswith(LEASES):
            return await self._lease(request)
        if request.method == "POST" and path.endswith("/binding"):
            return await self._bind(await request.json())
        if request.method in ("POST", "PATCH"):  # events and conditions
            return web.json_response(await request.json(), status=201)
        made = {"/api/v1/pods": _pods, "/api/v1/nodes": _nodes}.get(path)
        if made is None:
            return web.json_response({"reason": "NotFound"}, status=404)
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            if made is _pods:
                self.watches.append(response)
            await asyncio.sleep(3600)
            return response
        if "continue" not in request.query:
            self.lists[path] = made(self.nodes)
        page = [item for _, item in zip(range(int(request.query["limit"])), self.lists[path], strict=False)]
        more = b"more" if len(page) == int(request.query["limit"]) else b""
        head = b'{"metadata":{"resourceVersion":"1","continue":"' + more + b'"},"items":['
        return web.Response(body=head + b",".join(page) + b"]}", content_type="application/json")

    async def _create(self) -> None:
        for i in range(NEW_PODS):
            self.created[f"new{i}"] = time.monotonic()
            await self._say("ADDED", f"new{i}", {})
            await asyncio.sleep(1.0 / PODS_PER_SECOND)

    async def _bind(self, binding: Object) -> web.StreamResponse:
        name = binding["metadata"]["name"]
        self.waits.append(time.monotonic() - self.created[name])
        await self._say("MODIFIED", name, {"nodeName": binding["target"]["name"]})
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    async def _say(self, kind: str, name: str, more: Object) -> None:
        requests = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
        container = {"name": "c", "image": "registry/app:1", "resources": {"requests": requests, "limits": requests}}
        version = str(2 + len(self.created) + len(self.waits))
        pod = {
            "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": version},
            "spec": {"schedulerName": "steersman", "containers": [container], **more},
            "status": {"phase": "Pending"},
        }
        line = json.dumps({"type": kind, "object": pod}).encode() + b"\n"
        for watch in list(self.watches):
            try:
                await watch.write(line)
            except ConnectionResetError:  # the client has begun another one
                self.watches.remove(watch)

    async def _lease(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            if self.lease is None:
                return web.json_response({"reason": "NotFound"}, status=404)
            return web.json_response(self.lease)
        self.lease = await request.json()
        self.lease["metadata"]["resourceVersion"] = str(len(self.renewals) + 1)
        self.renewals.append(time.monotonic())
        return web.json_response(self.lease, status=201 if request.method == "POST" else 200)


async def _serve(nodes: int) -> None:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _Server(nodes).answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(_serve(int(sys.argv[1])))
    except KeyboardInterrupt:
        os._exit(0)
