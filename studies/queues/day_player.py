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

from steersman.apps.runtime.decoding import ALL_PODS
from steersman.apps.runtime.tasks import BackgroundTasks
from steersman.cluster.objects.api.decoding import pod_from_json
from steersman.cluster.objects.decoding import ESTIMATE_KEY
from steersman.cluster.objects.manifests import pod_to_object
from steersman.core.errors import SteersmanError
from steersman.kubernetes.client import Client
from steersman.kubernetes.watch import EventType, Reflector
from studies.queues.days import HORIZON, Day, cluster_nodes

NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
OWNER = "trace"
"""Job that all pods name as an owner, so that KWOK ends them."""
RUNS_FOR = "pod-complete.stage.kwok.x-k8s.io/delay"
STANDING_SECONDS = 60.0
"""Time for the pods that run at midnight to be created."""

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Played:
    """What was seen of a day; times in seconds of the wall clock after its midnight.

    Attributes:
        created: [J] when the pod was submitted, NaN: never.
        started: [J] when it was bound, NaN: never.
        ended: [J] when it had succeeded, NaN: never.
        latest: largest delay of a submission.
        problems: what must not happen: pods that were bound twice, nodes over their capacity, pods lost.
    """

    created: Floats
    started: Floats
    ended: Floats
    latest: float = 0.0
    problems: list[str] = field(default_factory=list)


class PodRecorder:
    """Handler of a watch of pods that records their starts and ends.

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
        if pod.status.phase == "Succeeded" and np.isnan(played.ended[j]):
            played.ended[j] = now
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
        unknown = np.full(len(day), np.nan)
        self._played = Played(unknown, unknown.copy(), unknown.copy())
        self._owner: dict[str, Any] = {}

    async def play(self) -> Played:
        """Return what was seen to the horizon. Raises SteersmanError: the pods of midnight are not created in time."""
        day, played = self._day, self._played
        await self._create_owner()
        recorder = PodRecorder(played, day.gpus)
        reflector = Reflector(self._client, ALL_PODS, recorder)
        async with BackgroundTasks(reflector.run()):
            await reflector.synced.wait()
            recorder.midnight = time.monotonic()
            for j in range(day.standing):
                await self._create(j)
            if time.monotonic() - recorder.midnight > STANDING_SECONDS:
                raise SteersmanError("the pods that run at midnight were not created in time")
            # The clock of the day begins now; what was seen before counts as seen at midnight.
            shift = time.monotonic() - recorder.midnight
            recorder.midnight += shift
            for times in (played.created, played.started, played.ended):
                times[:] = np.maximum(times - shift, 0.0)
            async with asyncio.TaskGroup() as group:
                for j in range(day.standing, len(day)):
                    planned = recorder.midnight + day.arrival[j] / self._speed
                    await asyncio.sleep(planned - time.monotonic())
                    played.created[j] = planned - recorder.midnight
                    played.latest = max(played.latest, time.monotonic() - planned)
                    group.create_task(self._create(j))
                await asyncio.sleep(recorder.midnight + HORIZON / self._speed - time.monotonic())
        await self._check_all_there()
        return played

    async def _create_owner(self) -> None:
        template = {"spec": {"containers": [{"name": "main", "image": "none"}], "restartPolicy": "Never"}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": OWNER}}
        made = await self._client.create(JOBS, {**job, "spec": {"parallelism": 0, "template": template}})
        self._owner = {"apiVersion": "batch/v1", "kind": "Job", "name": OWNER, "uid": made["metadata"]["uid"]}

    async def _create(self, j: int) -> None:
        day = self._day
        pod = pod_to_object(day.pod(j))
        pod["metadata"]["annotations"] = {
            RUNS_FOR: f"{day.duration[j] / self._speed:.3f}s",
            ESTIMATE_KEY: f"{day.stated[j] / self._speed:.6f}",
        }
        pod["metadata"]["ownerReferences"] = [self._owner]
        pod["spec"] |= {"schedulerName": self._scheduler_name, "restartPolicy": "Never"}
        await self._client.create(PODS, pod)

    async def _check_all_there(self) -> None:
        """Note pods that are not there."""
        there = {raw["metadata"]["name"] for raw in (await self._client.get(PODS))["items"]}
        lost = {f"job-{j}" for j in range(len(self._day))} - there
        if lost:
            self._played.problems.append(f"{len(lost)} pods are lost, such as {min(lost)}")
