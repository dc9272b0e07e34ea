"""A cluster with little room of its own control plane, the pods of a test, and schedulers that may be killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from tests.e2e.chaos.faults import FaultyProxy
from tests.e2e.chaos.oracle import PODS, ZONE, Api, Object, PodWatch, Verdict, judge
from tests.e2e.conftest import STEERSMAN, LocalCluster

from steersman.kubernetes.config import KubeConfig, load
from steersman.live.local_cluster import record
from steersman.live.local_cluster.control_plane import build, servers

SCALE = int(os.environ.get("STEERSMAN_CHAOS_SCALE", "1"))
"""How many times the nodes and pods of the default run."""
NAME = "chaos"
CPU_NODES, GPU_NODES = 66 * SCALE, 36 * SCALE
PLAIN, SHARES, APART, SPREAD = 209 * SCALE, 136 * SCALE, 31 * SCALE, 21 * SCALE
"""Pods of each kind: with these 95 % of the room is taken, and whatever the order, there is room for all of them."""
ALL = PLAIN + SHARES + APART + SPREAD
CREATORS = 16
WAIT_SECONDS = 240.0
EVENTS_SECONDS = 40.0
SHAPES = (("8", "40Gi", "110"), ("16", "26Gi", "110"), ("16", "64Gi", "3"))
"""Of nodes without GPUs: CPU is what ends first, or memory, or the number of pods."""


def node(name: str, index: int, kind: str = "cpu") -> Object:
    """A node: three or four places for plain pods, or two GPUs and a little CPU."""
    cpu, memory, pods = SHAPES[index % len(SHAPES)]
    room = {"cpu": cpu, "memory": memory, "pods": pods}
    if kind == "gpu":
        gpus = {"alibabacloud.com/gpu-count": "2", "alibabacloud.com/gpu-milli": "2000"}
        room = {"cpu": "4500m", "memory": "64Gi", "pods": "60", **gpus}
    labels = {"kind": kind, ZONE: f"zone-{index // len(SHAPES) % 3}", "kubernetes.io/hostname": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"allocatable": room, "capacity": room},
    }


def all_nodes() -> list[Object]:
    """The nodes of the cluster."""
    cpu = [node(f"cpu-{i:03}", i) for i in range(CPU_NODES)]
    return cpu + [node(f"gpu-{i:03}", i, "gpu") for i in range(GPU_NODES)]


def pod(app: str, index: int) -> Object:
    """A pod of one of the four kinds."""
    selector = {"matchLabels": {"app": app}}
    notes, spec, requests = {}, {"nodeSelector": {"kind": "gpu"}}, {"cpu": "10m", "memory": "16Mi"}
    if app == "plain":
        spec, requests = {"nodeSelector": {"kind": "cpu"}}, {"cpu": "2", "memory": "8Gi"}
    elif app == "share":
        notes = {"alibabacloud.com/gpu-count": "1", "alibabacloud.com/gpu-milli": "400"}
        spec, requests = {}, {"cpu": "1", "memory": "4Gi"}
    elif app == "apart":
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
        spec |= {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    else:
        term = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        spec |= {"topologySpreadConstraints": [term]}
    container = {"name": "main", "image": "pause", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{app}-{index}", "labels": {"app": app}, "annotations": notes},
        "spec": {"schedulerName": "steersman", "containers": [container], **spec},
    }


def all_pods(seed: int) -> list[Object]:
    """The pods of a test, of all kinds, in an order of its own."""
    kinds = {"plain": PLAIN, "share": SHARES, "apart": APART, "spread": SPREAD}
    found = [pod(kind, i) for kind, count in kinds.items() for i in range(count)]
    random.Random(seed).shuffle(found)
    return found


@dataclass
class Server:
    """A server of the control plane, and how it is started again."""

    name: str
    command: list[str]
    environment: dict[str, str]
    folder: str
    pid_file: Path
    log: Path


@dataclass
class ChaosCluster:
    """A control plane whose servers may be killed."""

    local: LocalCluster
    folder: Path
    config: KubeConfig
    servers: dict[str, Server] = field(init=False)
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.servers = {name: self._server(name, pid) for name, pid in servers.running(self.folder).items()}

    def _server(self, name: str, pid: int) -> Server:
        """How a server that runs was started."""
        proc = Path("/proc", str(pid))
        command = [part.decode() for part in proc.joinpath("cmdline").read_bytes().split(b"\0")[:-1]]
        pairs = [part.decode().split("=", 1) for part in proc.joinpath("environ").read_bytes().split(b"\0") if part]
        work = self.folder / "kwok" / "clusters" / self.local.name
        folder = str(proc.joinpath("cwd").readlink())
        pid_file, log = work / "pids" / f"{name}.pid", work / "logs" / f"{name}.log"
        return Server(name, command, {pair[0]: pair[-1] for pair in pairs}, folder, pid_file, log)

    def kill_server(self, name: str) -> Server:
        """Kill a server with SIGKILL; it comes again by `start_server`."""
        pid = servers.running(self.folder)[name]
        os.kill(pid, signal.SIGKILL)
        for process in self._started:
            if process.pid == pid:
                process.wait()
        return self.servers[name]

    def revive(self) -> None:
        """Start the servers that ended: without the API for long enough, the controller manager gives up."""
        for process in self._started:
            process.poll()
        for name in self.servers.keys() - servers.running(self.folder).keys():
            self.start_server(self.servers[name])

    def start_server(self, server: Server) -> None:
        """Start a server as kwokctl started it."""
        with server.log.open("ab") as log:
            process = subprocess.Popen(
                server.command,
                env=server.environment,
                cwd=server.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        server.pid_file.write_text(str(process.pid))
        self._started.append(process)

    def reap(self) -> None:
        """Kill what was started here, and take note that it has ended."""
        for process in self._started:
            process.kill()
            process.wait()


@contextmanager
def chaos_cluster(state: Path) -> Iterator[ChaosCluster]:
    """Bring the cluster up for as long as this lasts."""
    programs = build.programs(lambda *_: None, print)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEERSMAN_STATE_DIR", str(state))
        folder = record.folder_of(NAME)
    nodes = state / "nodes.yaml"
    nodes.write_text(yaml.safe_dump_all(all_nodes()))
    local = LocalCluster(
        NAME, os.environ | {"STEERSMAN_STATE_DIR": str(state)}, folder / "kubeconfig", programs / "kubectl"
    )
    found = None
    try:
        local.must("cluster", "up", "--name", NAME, "--nodes-from", str(nodes))
        found = ChaosCluster(local, folder, load(local.kubeconfig))
        yield found
    finally:
        local.steersman("cluster", "down", "--name", NAME)
        if found is not None:
            found.reap()
        for pid in servers.running(folder).values():  # only what was ours, and is left against all expectation
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert not servers.running(folder)


class Replica:
    """A scheduler's process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self._log = process, log

    def lines(self) -> list[dict[str, Any]]:
        """What it logged."""
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]

    def said(self, event: str) -> int:
        """How often it said something."""
        return sum(1 for line in self.lines() if line["event"] == event)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self) -> None:
        """Kill it and wait."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    async def metrics(self) -> dict[str, float]:
        """Its counters, by name and labels."""
        port = next(line["port"] for line in self.lines() if line["event"] == "listening")
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            text = await answer.text()
        pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name.removeprefix("steersman_"): float(value) for name, value in pairs}

    def written(self) -> str:
        """Everything that it wrote."""
        return self._log.read_text()

    def complaint(self) -> str:
        """What it should never say, and its last words."""
        text = self._log.read_text()
        return text[-3000:] if "Traceback" in text or "binding failed" in text else ""


class Scenario:
    """One test on the cluster: its pods, its schedulers, who watches them.

    Attributes:
        api: to the API server without faults.
        watch: sees every pod.
        made: uids of the pods that were made.
    """

    def __init__(self, cluster: ChaosCluster, folder: Path, api: Api, seed: int) -> None:
        self.cluster, self.folder, self.api, self.seed = cluster, folder, api, seed
        self.watch = PodWatch(api)
        self.made: list[str] = []
        self.replicas: list[Replica] = []
        self.deleted_nodes: list[str] = []
        self.began = time.monotonic()
        self._proxies = 0
        cluster.revive()

    async def until(self, holds: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
        """Wait until something holds."""
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, f"not {what} after {seconds:g} s; {self.watch.bound} of {ALL} are bound"
            await asyncio.sleep(0.02)

    async def bound(self, count: int) -> None:
        """Wait until so many pods are bound."""
        await self.until(lambda: self.watch.bound >= count, f"{count} pods bound")

    async def create_pods(self) -> None:
        """Create all pods."""
        waiting = all_pods(self.seed)

        async def work() -> None:
            while waiting:
                made = await self.api.ask("POST", PODS, waiting.pop())
                self.made.append(made["metadata"]["uid"])

        await asyncio.gather(*(work() for _ in range(CREATORS)))

    @asynccontextmanager
    async def proxy(self) -> AsyncIterator[FaultyProxy]:
        """A proxy that a scheduler may be sent through."""
        self._proxies += 1
        async with FaultyProxy(self.cluster.config, seed=100 * self.seed + self._proxies) as proxy:
            yield proxy

    async def scheduler(
        self, *arguments: str, through: FaultyProxy | None = None, begins: str = "scheduling", policy: str = "fgd"
    ) -> Replica:
        """Start a scheduler; returns when it has said that it begins."""
        log = self.folder / f"{len(self.replicas)}.log"
        where = self.cluster.local.kubeconfig
        if "--leader-elect" not in arguments:  # a scheduler that is killed would keep its lease from the next
            arguments += ("--no-leader-elect",)
        if through is not None:
            where = through.kubeconfig(self.folder / f"{len(self.replicas)}.kubeconfig")
        with log.open("w") as stream:
            process = subprocess.Popen(
                [STEERSMAN, "schedule", "--kubeconfig", where, "--policy", policy, "--port", "0", *arguments],
                env=self.cluster.local.environment,
                stdout=stream,
                stderr=stream,
            )
        replica = Replica(process, log)
        self.replicas.append(replica)
        await self.until(lambda: replica.said(begins) > 0 or process.poll() is not None, f"saying {begins!r}")
        assert process.poll() is None, log.read_text()
        return replica

    async def up_again(self, server: Server, *, after: float) -> None:
        """Start a server some time after it was killed, and wait until the API answers."""
        await asyncio.sleep(after)
        self.cluster.start_server(server)
        end = time.monotonic() + WAIT_SECONDS
        while not await self.api.ready():
            assert time.monotonic() < end, f"{server.name} did not come up again"
            await asyncio.sleep(0.1)

    async def settle(self) -> Verdict:
        """Wait until all pods are bound and their events are written, or no more come; then judge."""
        gone = frozenset(self.deleted_nodes)
        await self.until(lambda: len(self.watch.bound_at.keys() & set(self.made)) == len(self.made), "all bound")
        end, before = time.monotonic() + EVENTS_SECONDS, -1
        while True:
            verdict = await judge(self.api, self.watch, self.made, gone)
            if not verdict.untold or time.monotonic() > end or verdict.events == before:
                break
            before = verdict.events
            await asyncio.sleep(3.0)
        for replica in self.replicas:
            assert not replica.complaint(), replica.complaint()
        assert not verdict.faults, "\n".join(verdict.faults[:20])
        assert verdict.bound + verdict.on_deleted_nodes == len(self.made) == ALL
        return verdict


@asynccontextmanager
async def scenario(cluster: ChaosCluster, folder: Path, seed: int) -> AsyncIterator[Scenario]:
    """The cluster without pods and leases of another test, and a watch of its pods. Events go by their pods' uids."""
    async with Api(cluster.config) as api:
        leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        await asyncio.gather(*(api.ask("DELETE", path, gracePeriodSeconds="0") for path in (PODS, leases)))
        while (await api.ask("GET", PODS, limit="1"))["items"]:
            await asyncio.sleep(0.2)
        found = Scenario(cluster, folder, api, seed)
        watching = asyncio.create_task(found.watch.run())
        try:
            yield found
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            for replica in found.replicas:
                with suppress(ProcessLookupError):
                    replica.signal(signal.SIGCONT)
                replica.end()
