"""A scheduler that starts on a very large cluster: its memory, and whether it answers and keeps its lease meanwhile.

The API server is a process that makes objects up as they are asked for, in pages, so that its size does not count. It
keeps leases, and answers watches with silence.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from aiohttp import web

from benchmarks.live.rate import STEERSMAN, peak_memory

NODES, PODS = 15_000, 150_000
POD_BYTES = 10_000
PATIENCE = 900.0
Object = dict[str, Any]
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def listing() -> dict[str, Any]:
    """150,000 pods of 10 kB and 15,000 nodes are listed by `steersman schedule --policy fgd`."""
    with TemporaryDirectory() as folder:
        server = subprocess.Popen([sys.executable, "-m", "benchmarks.live.listing"], stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            return _measured(Path(folder), port)
        finally:
            server.terminate()
            server.wait()


def _measured(folder: Path, port: int) -> dict[str, Any]:
    named = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}
    config = {"clusters": [named], "contexts": [context], "users": [{"name": "u", "user": {}}], "current-context": "c"}
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **config}))
    own = _free_port()
    command = [str(STEERSMAN), "schedule", "--policy", "fgd", "--kubeconfig", str(kubeconfig), "--port", str(own)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        slowest, ready, seconds = _probed(process, own)
        assert process.poll() is None, (folder / "log").read_text()[-2000:]
        assert ready, (folder / "log").read_text()[-2000:]
        memory = peak_memory(process.pid)
        renewals = json.loads(_get(f"http://127.0.0.1:{port}/renewals"))
    finally:
        process.terminate()
        process.wait()
    between = [later - earlier for earlier, later in itertools.pairwise(renewals)]
    return {
        "nodes": NODES,
        "pods": PODS,
        "pod_bytes": POD_BYTES,
        "seconds_until_ready": round(seconds, 1),
        "slowest_probe_seconds": round(slowest, 2),
        "longest_time_between_renewals_seconds": round(max(between, default=0.0), 2),
        "peak_memory_gb": round(memory / 1e9, 3),
    }


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
    import socket

    with socket.socket() as result:
        result.bind(("127.0.0.1", 0))
        return int(result.getsockname()[1])


def _pods() -> Iterator[bytes]:
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
    for i in range(PODS):
        yield (
            text.replace("@NAME@", f"p{i}").replace("@APP@", f"a{i % 3000}").replace("@NODE@", f"n{i % NODES}").encode()
        )


def _nodes() -> Iterator[bytes]:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
    for i in range(NODES):
        meta = {"name": f"n{i}", "labels": {"kubernetes.io/hostname": f"n{i}", "nvidia.com/gpu.product": "A100"}}
        yield json.dumps({"metadata": meta, "status": {"allocatable": amounts}}).encode()


class _Server:
    """Lists in pages; a page continues where the last one of that list ended."""

    def __init__(self) -> None:
        self.lists: dict[str, Iterator[bytes]] = {}
        self.lease: dict[str, Any] | None = None
        self.renewals: list[float] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path == "/renewals":
            return web.json_response(self.renewals)
        if path == "/version":
            return web.json_response({"major": "1", "minor": "36", "gitVersion": "v1.36.3"})
        if path.startswith(LEASES):
            return await self._lease(request)
        made = {"/api/v1/pods": _pods, "/api/v1/nodes": _nodes}.get(path)
        if made is None or request.method != "GET":
            return web.json_response({"reason": "NotFound"}, status=404)
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            await asyncio.sleep(3600)
            return response
        if "continue" not in request.query:
            self.lists[path] = made()
        page = [item for _, item in zip(range(int(request.query["limit"])), self.lists[path], strict=False)]
        more = b"more" if len(page) == int(request.query["limit"]) else b""
        head = b'{"metadata":{"resourceVersion":"1","continue":"' + more + b'"},"items":['
        return web.Response(body=head + b",".join(page) + b"]}", content_type="application/json")

    async def _lease(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            if self.lease is None:
                return web.json_response({"reason": "NotFound"}, status=404)
            return web.json_response(self.lease)
        self.lease = await request.json()
        self.lease["metadata"]["resourceVersion"] = str(len(self.renewals) + 1)
        self.renewals.append(time.monotonic())
        return web.json_response(self.lease, status=201 if request.method == "POST" else 200)


async def _serve() -> None:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _Server().answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(_serve())
    except KeyboardInterrupt:
        os._exit(0)
