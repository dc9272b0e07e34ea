"""Replay pods of a workload on a live cluster, each created at its time.

A pod is deleted when it has run as long as in the trace, counted from its binding, as in the simulator. What runs when
a replay is resumed runs that long from then on.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from steersman.cluster.model import Pod
from steersman.core.errors import SteersmanError, UsageError
from steersman.kubernetes.client import MISSING, ApiError, Client
from steersman.live.load.run_state import (
    IMAGE,
    MANAGER,
    PODS,
    PRIORITY_CLASSES,
    RunPodTracker,
    RunState,
    StateStore,
    create_own,
    pod_object,
    run_labels,
)
from steersman.live.runtime.tasks import BackgroundTasks, delete_if_exists, retry_transient

CONCURRENCY = 96
SAVE_SECONDS = 1.0
PATIENCE_SECONDS = 60.0
BIND_SECONDS = 10.0  # at the end, pods without a node are left waiting when none was bound for this long
NAMESPACES = "/api/v1/namespaces"
MAX_PRIORITY = 1_000_000_000  # upper limit of priorities; only Kubernetes' own classes may exceed it

Job = tuple[Callable[[int], Awaitable[None]], int]


class ReplaySpeed(msgspec.Struct, frozen=True):
    """When pods are created."""

    speed: float = 1.0  # seconds of the trace per second
    rate: float = 0.0  # pods per second, instead of their times; 0: their times, or all at once if they have none

    def __post_init__(self) -> None:
        if not (math.isfinite(self.speed) and self.speed > 0):
            raise UsageError(f"--speed must be above 0, such as 3600 for an hour in a second, not {self.speed:g}")
        if not (math.isfinite(self.rate) and self.rate >= 0):
            raise UsageError(f"--rate {self.rate:g}: expected pods a second, such as 100")


@dataclass(frozen=True, slots=True)
class ScheduledPod:
    """A pod with its creation time (seconds from the start) and its duration (seconds; None: forever)."""

    pod: Pod
    at: float
    runs: float | None


@dataclass(slots=True)
class ReplayStats:
    """Numbers of pods created, deleted, and waiting at the end."""

    created: int = 0
    deleted: int = 0
    waiting: int = 0


def scheduled_pods(pods: Sequence[Pod], pace: ReplaySpeed) -> tuple[ScheduledPod, ...]:
    """Return the pods in order of creation.

    With times, the first is created at once, and pods without times with it; without, all at once, or at the rate.
    """
    if pace.rate:
        return tuple(ScheduledPod(pod, i / pace.rate, _runs(pod, pace)) for i, pod in enumerate(pods))
    start = min((pod.creation_time for pod in pods if pod.creation_time is not None), default=0.0)
    result = [ScheduledPod(pod, ((pod.creation_time or start) - start) / pace.speed, _runs(pod, pace)) for pod in pods]
    return tuple(sorted(result, key=lambda each: each.at))


def placed(pods: Sequence[Pod], scheduler_name: str, namespace: str) -> tuple[Pod, ...]:
    """Return the pods for another scheduler or in one namespace ("": unchanged)."""
    if scheduler_name:
        pods = [replace(pod, scheduler_name=scheduler_name) for pod in pods]
    if namespace:
        pods = [replace(pod, namespace=namespace) for pod in pods]
        if len({pod.name for pod in pods}) < len(pods):
            raise UsageError(f"--namespace {namespace}: pods of several namespaces have the same name")
    return tuple(pods)


def digest(pods: Sequence[ScheduledPod]) -> str:
    sha256 = hashlib.sha256()
    for each in pods:
        sha256.update(f"{each.pod!r} {each.at!r} {each.runs!r}\n".encode())
    return sha256.hexdigest()[:16]


class PodReplay:
    """Player of pods on a cluster."""

    def __init__(
        self,
        client: Client,
        store: StateStore,
        state: RunState,
        pods: Sequence[ScheduledPod],
        image: str = IMAGE,
        report: Callable[[int, int], None] = lambda _, __: None,
    ) -> None:
        self.client, self.store, self.state, self.pods, self.image = client, store, state, pods, image
        self.report = report
        self.tally = ReplayStats()
        self.fleet = RunPodTracker(client, state.id, self._came, self._bound, self._gone)
        self._index = {f"{each.pod.namespace}/{each.pod.name}": i for i, each in enumerate(pods)}
        self._classes: Mapping[int, str] = {}
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()
        self._creating: set[int] = set()
        self._leaving: set[str] = set()
        self._seen: set[str] = set()
        self._unseen: set[str] = set()
        self._next = state.done
        self._steps = len(pods) + sum(each.runs is not None for each in pods)

    async def run(self) -> ReplayStats:
        """Play all pods that do not exist yet, and end when those that have an end are gone.

        Those that are not bound for a while (a minute if any of them has an end, else ten seconds), while nothing else
        is to be done, are left waiting.
        """
        self._classes = await self._priority_classes()
        workers = [self._work() for _ in range(CONCURRENCY)]
        async with BackgroundTasks(self.fleet.reflector.run(), self._keep_state(), *workers):
            await self.fleet.until(lambda: True, PATIENCE_SECONDS)
            await self._create_all()
            await self._until_over()
        self.tally.waiting = self.fleet.waiting
        await self.store.end()
        return self.tally

    async def _create_all(self) -> None:
        loop = asyncio.get_running_loop()
        # A resumed replay goes on at once, not after the time that it was stopped.
        zero = loop.time() - self.pods[self._next].at if self._next < len(self.pods) else 0.0
        while self._next < len(self.pods):
            late = zero + self.pods[self._next].at - loop.time()
            if late > 0:
                await asyncio.sleep(late)
            # Here and not in the worker: `_keep_state` must never save a pod as done that only waits for a worker.
            self._creating.add(self._next)
            self._jobs.put_nowait((self._create, self._next))
            self._next += 1

    async def _until_over(self) -> None:
        def idle() -> bool:
            return not (self._creating or self._leaving or self._unseen)

        while True:
            # A pod that the watch never showed was created and deleted while it was down.
            while not await self.fleet.until(idle, PATIENCE_SECONDS) and (self._creating or self._leaving):
                pass
            self._unseen.clear()
            ending = any(
                not pod.bound and self.pods[self._index[key]].runs is not None for key, pod in self.fleet.pods.items()
            )
            patience = PATIENCE_SECONDS if ending else BIND_SECONDS
            changes = partial(self._changes, idle, self.fleet.bound)
            if not self.fleet.waiting or not await self.fleet.until(changes, patience):
                return

    def _changes(self, idle: Callable[[], bool], bound: int) -> bool:
        return not idle() or self.fleet.bound != bound

    async def _work(self) -> None:
        while True:
            do, i = await self._jobs.get()
            await do(i)
            self.fleet.notify()

    async def _create(self, i: int) -> None:
        pod = self.pods[i].pod
        manifest = pod_object(pod, self.state.id, self.image, self._classes.get(pod.priority, ""))
        what = f"pod {pod.namespace}/{pod.name}"
        taken = (
            f"{what} exists already and is not of this replay; --clean removes what others made, --namespace names "
            "another place"
        )
        await create_own(self.client, PODS.format(pod.namespace), manifest, self.state.id, what, taken)
        self._creating.discard(i)
        # The watch may show the pod before the request is answered.
        self._unseen |= {f"{pod.namespace}/{pod.name}"} - self._seen
        self.tally.created += 1
        self._tell()

    async def _delete(self, i: int) -> None:
        pod = self.pods[i].pod
        path = f"{PODS.format(pod.namespace)}/{pod.name}"
        await delete_if_exists(self.client, path, {"gracePeriodSeconds": "0"})

    def _came(self, key: str) -> None:
        self._seen.add(key)
        self._unseen.discard(key)

    def _bound(self, key: str) -> None:
        i = self._index.get(key)
        if i is not None and key not in self._leaving and (runs := self.pods[i].runs) is not None:
            # From now on, so that the replay does not end before the timer has run.
            self._leaving.add(key)
            asyncio.get_running_loop().call_later(runs, self._jobs.put_nowait, (self._delete, i))

    def _gone(self, key: str) -> None:
        if key in self._leaving:
            self._leaving.discard(key)
            self.tally.deleted += 1
            self._tell()

    def _tell(self) -> None:
        self.report(self._next - len(self._creating) + self.tally.deleted, self._steps)

    async def _keep_state(self) -> None:
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            # Pods are created concurrently; all before the first unfinished one exist.
            done = min(self._creating, default=self._next)
            if done != self.state.done:
                self.state.done = done
                await self.store.save(self.state)

    async def check_namespaces(self, *, create: bool = False) -> None:
        """Raise SteersmanError if a pod's namespace is missing, or create the missing ones; `--clean` leaves them."""
        missing = []
        for namespace in sorted({self.store.namespace, *(each.pod.namespace for each in self.pods)}):
            try:
                await retry_transient(partial(self.client.get, f"{NAMESPACES}/{namespace}"))
            except ApiError as error:
                if error.status == MISSING:
                    missing.append(namespace)
                elif error.status != 403:
                    raise
        if missing and not create:
            more = f" (and {len(missing) - 1} more of these pods)" if len(missing) > 1 else ""
            raise SteersmanError(
                f"there is no namespace {missing[0]!r}{more}; --create-namespaces creates missing ones, --namespace "
                "names another one"
            )
        for namespace in missing:
            try:
                await retry_transient(partial(self.client.create, NAMESPACES, {"metadata": {"name": namespace}}))
            except ApiError as error:
                if error.status != 409:  # created by another client meanwhile
                    raise SteersmanError(f"namespace {namespace}: {error.message}") from None

    async def _priority_classes(self) -> dict[int, str]:
        """Return the class of every priority but 0, which the API accepts by class alone, creating missing ones."""
        priorities = {each.pod.priority for each in self.pods} - {0}
        if not priorities:
            return {}
        listed = await retry_transient(lambda: self.client.list(PRIORITY_CLASSES))
        result = {
            int(each.get("value", 0)): str(each["metadata"]["name"]) for each in map(msgspec.json.decode, listed.items)
        }
        for value in sorted(priorities - result.keys()):
            if value > MAX_PRIORITY:
                raise SteersmanError(f"priority {value} is above {MAX_PRIORITY}, and the cluster has no class for it")
            result[value] = f"{MANAGER}-{value}" if value > 0 else f"{MANAGER}-minus-{-value}"
            manifest = {"metadata": {"name": result[value], "labels": run_labels(self.state.id)}, "value": value}
            await retry_transient(partial(self.client.create, PRIORITY_CLASSES, manifest))
        return result


def _runs(pod: Pod, pace: ReplaySpeed) -> float | None:
    if pod.deletion_time is None:
        return None
    return max(pod.deletion_time - (pod.creation_time or 0.0), 0.0) / pace.speed
