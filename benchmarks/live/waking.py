"""Seconds until a pending pod is bound after the change that makes it schedulable, beside kube-scheduler."""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
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


WEATHERS = ("quiet", "churn")
NEVER = "was not refused"

Seconds = float | str
Rows = dict[str, dict[str, dict[str, Seconds]]]
"""Scenario -> weather -> scheduler -> seconds until the pod was bound, or why it was not measured."""


def waking(former: dict[str, Any], only: str = "") -> Iterator[dict[str, Any]]:
    """Seconds from a change to the binding of the pod that it helps, in every scenario, with and without churn.

    kube-scheduler and steersman play each scenario one after the other on one cluster. Churn is 40 unrelated pods that
    come and go.

    Args:
        former: the results so far; those of scenarios that are not played stay.
        only: part of the names of the scenarios to play.
    """
    rows: Rows = dict(former.get("seconds", {}))
    names = [each.name for each in scenarios("a", "") if not each.needs_driver and only in each.name]
    if not names:
        raise SystemExit(f"error: no scenario has {only!r} in its name")
    with TemporaryDirectory() as folder, local_cluster(Path(folder), 1) as (kubeconfig, _):
        command = [str(STEERSMAN), "schedule", "--policy", "best-fit", "--kubeconfig", str(kubeconfig), "--port", "0"]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen([*command, "--no-leader-elect"], stdout=log, stderr=log)
        try:
            print(f"  {'scenario':<75}         {''.join(f'{name:>16}' for name in SCHEDULERS)}   seconds", flush=True)
            for number, name in enumerate(names):
                for weather in WEATHERS:
                    row = asyncio.run(_row(kubeconfig, number, name, weather))
                    rows[name] = {**rows.get(name, {}), weather: row}
                    cells = "".join(
                        f"{took:>16}" if isinstance(took, str) else f"{took:16.3f}" for took in row.values()
                    )
                    print(f"  {name:<75}  {weather}  {cells}", flush=True)
                    yield _results(rows)
        finally:
            process.kill()
            process.wait()


def _results(rows: Rows) -> dict[str, Any]:
    """Return the rows with their median and maximum."""
    found: dict[str, Any] = {"scenarios": len(rows), "seconds": rows}
    for weather in WEATHERS:
        for scheduler in SCHEDULERS:
            times = [
                took for row in rows.values() if not isinstance(took := row.get(weather, {}).get(scheduler, ""), str)
            ]
            if times:
                found[f"{weather}_{scheduler}_median_seconds"] = round(float(np.median(times)), 3)
                found[f"{weather}_{scheduler}_max_seconds"] = round(max(times), 3)
    return found


async def _row(kubeconfig: Path, number: int, name: str, weather: str) -> dict[str, Seconds]:
    """Play a scenario with one scheduler after the other."""
    row: dict[str, Seconds] = {}
    async with Client(load(kubeconfig)) as client:
        for scheduler, pods_of in SCHEDULERS.items():
            lane = f"w{number}{weather[0]}{scheduler[0]}"
            scenario = next(each for each in scenarios(lane, pods_of) if each.name == name)
            took = await _play(client, scenario, lane, pods_of, has_churn=weather == "churn")
            row[scheduler] = took if isinstance(took, str) else round(took, 3)
    return row


async def _play(client: Client, scenario: WakingScenario, lane: str, scheduler: str, *, has_churn: bool) -> Seconds:
    """Play one scenario; return the seconds until the pod is bound, or `NEVER` if no scheduler refused it before."""
    created: list[Object] = []
    try:
        for obj in (*scenario.before, scenario.pod):
            created.append(obj)
            await _create(client, obj)
        pod = f"{PATHS['Pod']}/{scenario.pod['metadata']['name']}"
        end = time.monotonic() + WAIT_SECONDS
        while not _is_rejected(await client.get(pod)):
            if time.monotonic() > end:
                return NEVER
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
