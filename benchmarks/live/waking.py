"""Seconds until a pending pod is bound after the change that makes it schedulable, beside kube-scheduler."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from tests.support.waking import Lane, Object, WakingScenario, scenarios

from benchmarks.live.rate import STEERSMAN, local_cluster
from steersman.kubernetes.client import ApiError, Client
from steersman.kubernetes.config import load

SCHEDULERS = {"steersman": "steersman", "kube-scheduler": "default-scheduler"}
CHURN, LOOK_SECONDS, WAIT_SECONDS = 40, 0.01, 60.0
PATHS = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/default/pods",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/namespaces/default/persistentvolumeclaims",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
}
AT_ONCE = {"gracePeriodSeconds": "0"}


def waking() -> dict[str, Any]:
    """Seconds from a change to the binding of the pod that it helps, in every scenario, with and without churn.

    kube-scheduler and steersman play each scenario one after the other on one cluster. Churn is 40 unrelated pods that
    come and go. STEERSMAN_BENCH_SCENARIOS is part of the names of the scenarios to play.
    """
    with TemporaryDirectory() as folder, local_cluster(Path(folder), 1) as (kubeconfig, _):
        command = [str(STEERSMAN), "schedule", "--policy", "best-fit", "--kubeconfig", str(kubeconfig), "--port", "0"]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen([*command, "--no-leader-elect"], stdout=log, stderr=log)
        try:
            return asyncio.run(_all_scenarios(kubeconfig))
        finally:
            process.kill()
            process.wait()


async def _all_scenarios(kubeconfig: Path) -> dict[str, Any]:
    named = os.environ.get("STEERSMAN_BENCH_SCENARIOS", "")
    seconds: dict[str, dict[str, list[float]]] = {"quiet": {}, "churn": {}}
    rows: dict[str, Any] = {}
    async with Client(load(kubeconfig)) as client:
        names = [each.name for each in scenarios("a", "") if not each.needs_driver and named in each.name]
        for number, name in enumerate(names):
            for weather, found in seconds.items():
                for scheduler, pods_of in SCHEDULERS.items():
                    lane = f"w{number}{weather[0]}{scheduler[0]}"
                    scenario = next(each for each in scenarios(lane, pods_of) if each.name == name)
                    took = await _play(client, scenario, lane, pods_of, has_churn=weather == "churn")
                    found.setdefault(scheduler, []).append(took)
                    rows[f"{name}, {weather}, {scheduler}"] = round(took, 3)
                    print(f"  {name}, {weather}, {scheduler}: {took:.3f} s", flush=True)
    return {"scenarios": len(names), "seconds": rows} | {
        f"{weather}_{scheduler}_{what}_seconds": round(float(of(times)), 3)
        for weather, found in seconds.items()
        for scheduler, times in found.items()
        for what, of in (("median", np.median), ("max", np.max))
    }


async def _play(client: Client, scenario: WakingScenario, lane: str, scheduler: str, *, has_churn: bool) -> float:
    """Play one scenario; return the seconds until the pod is bound."""
    created: list[Object] = []
    try:
        for obj in (*scenario.before, scenario.pod):
            created.append(obj)
            await _create(client, obj)
        pod = f"{PATHS['Pod']}/{scenario.pod['metadata']['name']}"
        while not _is_rejected(await client.get(pod)):
            await asyncio.sleep(0.1)
        await asyncio.sleep(random.random())
        async with _churn(client, lane, scheduler, CHURN if has_churn else 0):
            if has_churn:
                await asyncio.sleep(4.0)
            if scenario.verb == "create":
                created.append(scenario.changed)
            began = await _change(client, scenario)
            while not (await client.get(pod))["spec"].get("nodeName"):
                if time.monotonic() - began > WAIT_SECONDS:
                    return WAIT_SECONDS
                await asyncio.sleep(LOOK_SECONDS)
            return time.monotonic() - began
    finally:
        for obj in reversed(created):
            await _delete(client, obj)


@asynccontextmanager
async def _churn(client: Client, lane: str, scheduler: str, count: int) -> AsyncIterator[None]:
    """Create and delete so many unrelated pods again and again inside the block, on a node of their own."""

    async def one(i: int) -> None:
        pod = churning.pod(f"churn-{i}", cpu="10m")
        pod["spec"]["schedulerName"] = scheduler
        while True:
            await asyncio.sleep(random.random())
            await _create(client, pod)
            await asyncio.sleep(random.random())
            await _delete(client, pod)

    churning = Lane(f"{lane}c", scheduler)
    spot = churning.node("spot", cpu="99", pods="200")
    if count:
        await _create(client, spot)
    tasks = [asyncio.create_task(one(i)) for i in range(count)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for i in range(count):
            await _delete(client, churning.pod(f"churn-{i}"))
        if count:
            await _delete(client, spot)


def _is_rejected(pod: Object) -> bool:
    """Return whether a scheduler, or a gate, has said why a pod waits."""
    conditions = pod["status"].get("conditions") or ()
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


async def _create(client: Client, obj: Object) -> None:
    try:
        await client.create(PATHS[obj["kind"]], obj)
    except ApiError as error:
        if error.status != 409:  # it is still being deleted
            raise
    if obj["kind"] == "Node":  # the API server taints new nodes until they are ready
        await _patch(client, obj, {"spec": {"taints": obj["spec"].get("taints")}})


async def _change(client: Client, scenario: WakingScenario) -> float:
    """Change what makes the pod schedulable; return when that was asked for."""
    obj = scenario.changed
    if scenario.verb == "create":
        began = time.monotonic()
        await _create(client, obj)
        return began if obj["kind"] != "Node" else time.monotonic()
    began = time.monotonic()
    if scenario.verb == "delete":
        await client.delete(f"{PATHS[obj['kind']]}/{obj['metadata']['name']}", AT_ONCE)
    else:
        await _patch(client, obj, {key: value for key, value in obj.items() if key != "kind"})
    return began


async def _patch(client: Client, obj: Object, change: Object) -> None:
    path = f"{PATHS[obj['kind']]}/{obj['metadata']['name']}"
    await client.patch(f"{path}/status" if "status" in change else path, change)


async def _delete(client: Client, obj: Object) -> None:
    try:
        await client.delete(f"{PATHS[obj['kind']]}/{obj['metadata']['name']}", AT_ONCE)
    except ApiError as error:
        if error.status != 404:
            raise
