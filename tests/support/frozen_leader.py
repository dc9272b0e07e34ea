"""A leader that is frozen while it binds, and goes on when another has taken over and filled the cluster."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from steersman.cluster.objects.fields import pod_from_json
from steersman.kubernetes.client import ApiError, Client
from steersman.kubernetes.watch import EventType, Reflector
from steersman.live.runtime.tasks import run_concurrently

Kind = Literal["shares", "cpu"]
Object = dict[str, Any]
STEERSMAN = Path(sys.executable).with_name("steersman")
GPU, LANE = "alibabacloud.com/gpu-", "example.com/lane"
PODS, NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
NODE_COUNT, ROOM, POD_COUNT, BEGUN = 12, 96, 300, 12
"""Nodes, the pods that fit on them, the pods that are created, and those that are bound when the leader is frozen."""
SETTLED_SECONDS, AFTER_SECONDS, END_SECONDS, WAIT_SECONDS = 4.0, 6.0, 20.0, 180.0
"""Without a binding, until it is settled; for which the resumed leader is watched; until it must have ended; others."""
KUBE_CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %s, qps: 10000, burst: 10000}
leaderElection: {leaderElect: true, resourceName: %s, resourceNamespace: default}
profiles: [{schedulerName: %s}]
"""


@dataclass(frozen=True)
class FrozenLeaderResult:
    """What became of one trial.

    Attributes:
        bound: number of bound pods, of which `ROOM` fit.
        bound_before: bound when the first leader was frozen.
        over: devices, or nodes, with more than they have.
        worst: largest use of one, in milli.
        late: pods that were bound after the first leader went on.
        ended: whether the first leader has ended.
    """

    bound: int
    bound_before: int
    over: int
    worst: int
    late: int
    ended: bool


class BoundPods:
    """Names of the pods that a watch reports bound."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def keep(self, keys: Set[str]) -> None:
        """See `watch.Handler`."""

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """See `watch.Handler`."""
        head = pod_from_json(obj)
        if kind != "DELETED" and head.node:
            self.names.add(head.metadata.name)


class FrozenLeaderTrial:
    """One trial, on nodes of its own.

    Args:
        client: connection to the cluster, as its administrator.
        kubeconfig: of the cluster.
        folder: for logs and configurations.
        lane: name of its nodes, pods, scheduler and lease.
        kind: what is scarce.
        kube_scheduler: program that schedules; None: steersman.
    """

    def __init__(
        self, client: Client, kubeconfig: Path, folder: Path, lane: str, kind: Kind, kube_scheduler: Path | None = None
    ) -> None:
        self.client, self.kubeconfig, self.folder = client, kubeconfig, folder
        self.lane, self.kind, self.kube_scheduler = lane, kind, kube_scheduler
        self._processes: list[subprocess.Popen[bytes]] = []
        self._selector = {"labelSelector": f"{LANE}={lane}"}
        self._seen = BoundPods()

    async def run(self) -> FrozenLeaderResult:
        """Play it, and leave nothing behind."""
        watching = asyncio.create_task(Reflector(self.client, PODS, self._seen, self._selector).run())
        try:
            await run_concurrently(partial(self.client.create, NODES, self._node(i)) for i in range(NODE_COUNT))
            return await self._play()
        finally:
            watching.cancel()
            for process in self._processes:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
            await self._clean()

    async def _play(self) -> FrozenLeaderResult:
        first = self._start("first")
        await self._until(lambda: self._holder(), "a leader")
        leader = await self._holder()
        self._start("second")
        await asyncio.sleep(5 + 5 * random.random())  # it watches the lease by then
        creating = asyncio.create_task(
            run_concurrently((partial(self.client.create, PODS, self._pod(i)) for i in range(POD_COUNT)), 32)
        )
        while len(self._seen.names) < BEGUN + 20 * random.random():
            assert first.poll() is None, f"{self.lane}: see {self.folder}"
            await asyncio.sleep(0.001)
        first.send_signal(signal.SIGSTOP)
        before = len(self._seen.names)
        await creating
        await self._until(lambda: self._has_another(leader), "another leads")
        full = await self._settled()
        first.send_signal(signal.SIGCONT)
        end = time.monotonic() + END_SECONDS
        await asyncio.sleep(AFTER_SECONDS)
        # Its last events may take it some seconds more.
        while first.poll() is None and time.monotonic() < end:
            await asyncio.sleep(0.1)
        return self._result(await self._bound(), before, full, first.poll() is not None)

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        if self.kube_scheduler is None:
            command: list[str | Path] = [STEERSMAN, "schedule", "--policy", "best-fit", "--port", "0"]
            command += ["--kubeconfig", self.kubeconfig, "--scheduler-name", self.lane]
            command += ["--leader-elect", "--lease-namespace", "default"]
        else:
            config = self.folder / f"{self.lane}.yaml"
            config.write_text(KUBE_CONFIG % (self.kubeconfig, self.lane, self.lane))
            command = [self.kube_scheduler, f"--config={config}", "--secure-port=0"]
        with (self.folder / f"{self.lane}-{name}.log").open("wb") as log:
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        return self._processes[-1]

    def _node(self, i: int) -> Object:
        room = {"cpu": str(ROOM // NODE_COUNT) if self.kind == "cpu" else "999", "memory": "99Gi", "pods": "110"}
        if self.kind == "shares":
            devices = ROOM // NODE_COUNT // 2
            room |= {f"{GPU}count": str(devices), f"{GPU}milli": str(1000 * devices)}
        labels, notes = {LANE: self.lane}, {"kwok.x-k8s.io/node": "fake"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"{self.lane}-{i}", "labels": labels, "annotations": notes},
            "status": {"allocatable": room, "capacity": room},
        }

    def _pod(self, i: int) -> Object:
        shares = self.kind == "shares"
        notes = {f"{GPU}count": "1", f"{GPU}milli": "450"} if shares else {}
        requests = {"cpu": "10m" if shares else "1"}
        container = {"name": "main", "image": "pause", "resources": {"requests": requests}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{self.lane}-{i}", "labels": {LANE: self.lane}, "annotations": notes},
            "spec": {"schedulerName": self.lane, "nodeSelector": {LANE: self.lane}, "containers": [container]},
        }

    async def _bound(self) -> list[Object]:
        pods = [msgspec.json.decode(raw) for raw in (await self.client.list(PODS, self._selector)).items]
        return [pod for pod in pods if pod["spec"].get("nodeName")]

    async def _holder(self) -> str:
        try:
            holder: str = (await self.client.get(f"{LEASES}/{self.lane}"))["spec"].get("holderIdentity") or ""
        except ApiError:
            return ""
        return holder

    async def _has_another(self, leader: str) -> bool:
        return await self._holder() not in ("", leader)

    async def _settled(self) -> int:
        """Wait until no further pods are bound; return how many are."""
        count, since = -1, time.monotonic()
        while time.monotonic() - since < SETTLED_SECONDS or count < ROOM:
            if self._processes[-1].poll() is not None:  # it lost the lease on a busy machine, and is started as usual
                self._start(f"again-{len(self._processes)}")
            if (now := len(self._seen.names)) != count:
                count, since = now, time.monotonic()
            elif time.monotonic() - since > WAIT_SECONDS:
                raise AssertionError(f"{self.lane}: {count} of {ROOM} pods are bound")
            await asyncio.sleep(0.5)
        return count

    async def _until(self, holds: Callable[[], Any], what: str) -> None:
        end = time.monotonic() + WAIT_SECONDS
        while not await holds():
            assert time.monotonic() < end, f"{self.lane}: not yet: {what}; see {self.folder}"
            assert all(process.poll() is None for process in self._processes), f"{self.lane}: see {self.folder}"
            await asyncio.sleep(0.02)

    def _result(self, bound: list[Object], before: int, full: int, ended: bool) -> FrozenLeaderResult:
        uses = Counter[tuple[str, str]]()
        for pod in bound:
            node, notes = pod["spec"]["nodeName"], pod["metadata"].get("annotations") or {}
            if self.kind == "cpu":
                uses[node, "cpu"] += 1000 * NODE_COUNT // ROOM
            else:
                uses[node, notes[f"{GPU}index"]] += int(notes[f"{GPU}milli"])
        over = [use for use in uses.values() if use > 1000]
        return FrozenLeaderResult(len(bound), before, len(over), max(uses.values()), len(bound) - full, ended)

    async def _clean(self) -> None:
        await self.client.delete(PODS, self._selector | {"gracePeriodSeconds": "0"})
        await self.client.delete(NODES, self._selector)
        try:
            await self.client.delete(f"{LEASES}/{self.lane}")
        except ApiError:
            return


def as_json(result: FrozenLeaderResult) -> dict[str, Any]:
    """Return a result as JSON has it."""
    row: dict[str, Any] = msgspec.to_builtins(result)
    return row
