"""A day played on a real control plane: its pods are created when they come, and every start and end is recorded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from steersman.cluster.objects.decoding import ESTIMATE_KEY
from steersman.cluster.objects.fields import pod_from_json
from steersman.cluster.objects.manifests import pod_to_object
from steersman.kubernetes.client import Client
from steersman.kubernetes.watch import EventType, Reflector
from steersman.live.runtime.listing import ALL_PODS
from steersman.live.runtime.tasks import BackgroundTasks
from studies.queues.days import HORIZON, Day, cluster_nodes

NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
OWNER = "trace"
"""Job that all pods name as an owner, so that KWOK ends them."""
RUNS_FOR = "pod-complete.stage.kwok.x-k8s.io/delay"

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Played:
    """What was seen of a day; times in seconds of the wall clock after its midnight.

    Attributes:
        started: [J] when it was bound, NaN: never.
        latest: largest delay of a submission.
        problems: what must not happen: pods that were bound twice, nodes over their capacity, pods lost.
    """

    started: Floats
    latest: float = 0.0
    problems: list[str] = field(default_factory=list)


class PodRecorder:
    """Handler of a watch of pods that records their starts, and checks what must not happen.

    Args:
        played: takes what is seen.
        gpus: [J] GPUs of each pod.
    """

    def __init__(self, played: Played, gpus: npt.NDArray[np.int64]) -> None:
        self.midnight = 0.0
        self._played, self._gpus = played, gpus
        self._capacity = {node.name: node.gpu_count for node in cluster_nodes()}
        self._taken = dict.fromkeys(self._capacity, 0)
        self._nodes: dict[int, str] = {}
        self._ended = set[int]()

    def keep(self, keys: Set[str]) -> None:
        """Handle the end of a list, see `Handler`: nothing is deleted in a run."""

    def change(self, kind: EventType, obj: msgspec.Raw) -> None:
        """Handle an event of a pod, see `Handler`."""
        now, pod, played = time.monotonic() - self.midnight, pod_from_json(obj), self._played
        j = int(pod.metadata.name.removeprefix("job-"))
        if kind == "DELETED":
            played.problems.append(f"{pod.key} was deleted")
            return
        known = self._nodes.get(j)
        if pod.node and known is None:
            self._nodes[j], played.started[j] = pod.node, now
            self._taken[pod.node] += int(self._gpus[j])
            if self._taken[pod.node] > self._capacity[pod.node]:
                played.problems.append(f"{pod.node} runs pods with {self._taken[pod.node]} GPUs")
        elif pod.node != (known or ""):
            played.problems.append(f"{pod.key} moved from {known} to {pod.node}")
        if pod.status.phase == "Failed":
            played.problems.append(f"{pod.key} failed")
        if pod.status.phase == "Succeeded" and j not in self._ended:
            self._ended.add(j)
            self._taken[pod.node] -= int(self._gpus[j])


class DayPlayer:
    """Plays a day.

    Args:
        client: of the cluster.
        day: the jobs.
        scheduler_name: scheduler of the pods.
        speed: seconds of the day in a second.
    """

    def __init__(self, client: Client, day: Day, scheduler_name: str, speed: float) -> None:
        self._client, self._day, self._scheduler_name, self._speed = client, day, scheduler_name, speed
        self._played = Played(np.full(len(day), np.nan))
        self._owner: dict[str, Any] = {}

    async def prepare(self) -> None:
        """Create what is there at midnight: pods that run where they ran, and do not end yet, and those that wait."""
        template = {"spec": {"containers": [{"name": "main", "image": "none"}], "restartPolicy": "Never"}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": OWNER}}
        made = await self._client.create(JOBS, {**job, "spec": {"parallelism": 0, "template": template}})
        self._set_owner(made)
        for j in range(self._day.standing + self._day.queued):
            await self._create(j)

    async def play(self) -> Played:
        """Begin the day, and return what was seen to the horizon."""
        day, played = self._day, self._played
        self._set_owner(await self._client.get(f"{JOBS}/{OWNER}"))
        recorder = PodRecorder(played, day.gpus)
        recorder.midnight = time.monotonic()
        reflector = Reflector(self._client, ALL_PODS, recorder)
        async with BackgroundTasks(reflector.run()):
            await reflector.synced.wait()
            # The clock of the day begins now; what was seen before counts as seen at midnight.
            shift = time.monotonic() - recorder.midnight
            recorder.midnight += shift
            played.started[:] = np.maximum(played.started - shift, 0.0)
            async with asyncio.TaskGroup() as group:
                for j in range(day.standing):
                    group.create_task(self._schedule_end(j))
                for j in range(day.standing + day.queued, len(day)):
                    planned = recorder.midnight + day.arrival[j] / self._speed
                    await asyncio.sleep(planned - time.monotonic())
                    played.latest = max(played.latest, time.monotonic() - planned)
                    group.create_task(self._create(j))
                await asyncio.sleep(recorder.midnight + HORIZON / self._speed - time.monotonic())
        await self._check_all_there()
        return played

    def _set_owner(self, job: dict[str, Any]) -> None:
        self._owner = {"apiVersion": "batch/v1", "kind": "Job", "name": OWNER, "uid": job["metadata"]["uid"]}

    async def _schedule_end(self, j: int) -> None:
        """Let a running pod end after its duration from now on."""
        await self._client.patch(f"{PODS}/job-{j}", {"metadata": self._end_metadata(j)})

    def _end_metadata(self, j: int) -> dict[str, Any]:
        """Return the metadata by which KWOK ends a pod, so many seconds after it has seen them."""
        seconds = f"{self._day.duration[j] / self._speed:.3f}s"
        return {"annotations": {RUNS_FOR: seconds}, "ownerReferences": [self._owner]}

    async def _create(self, j: int) -> None:
        day = self._day
        pod = pod_to_object(day.pod(j))
        ends = {} if j < day.standing else self._end_metadata(j)
        stated = {ESTIMATE_KEY: f"{day.stated[j] / self._speed:.6f}"}
        pod["metadata"] |= {**ends, "annotations": {**ends.get("annotations", {}), **stated}}
        pod["spec"] |= {"schedulerName": self._scheduler_name, "restartPolicy": "Never"}
        if j < day.standing:
            pod["spec"]["nodeName"] = day.running[j].node
        await self._client.create(PODS, pod)

    async def _check_all_there(self) -> None:
        """Note pods that are not there."""
        there = {raw["metadata"]["name"] for raw in (await self._client.get(PODS))["items"]}
        lost = {f"job-{j}" for j in range(len(self._day))} - there
        if lost:
            self._played.problems.append(f"{len(lost)} pods are lost, such as {min(lost)}")
