"""A scheduler without an API server, whose watches are fed directly, in a time that passes when a test says so."""

from __future__ import annotations

import asyncio
import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from tests.support.kubeconfig import unreachable
from tests.support.servers.fake_api_server import merged
from tests.support.waking import Object, Verb

from steersman.kubernetes.cache.cluster_cache import ClusterCache
from steersman.live.scheduler.ordering import QueuedPod
from steersman.live.scheduler.scheduler import Scheduler, SchedulerOptions
from steersman.orders.live_order import live_order
from steersman.orders.order import Order
from steersman.orders.registry import find_order
from steersman.orders.run_time_history import RunTimeHistory
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.registry import resolve

PLURALS = {"StorageClass": "storageclasses", "CSIStorageCapacity": "csistoragecapacities"}


def best_fit(cache: ClusterCache) -> Decider:
    return Decider(ClusterView(cache.state), resolve("best-fit"))


class Reports:
    """What a scheduler reports."""

    def __init__(self) -> None:
        self.decisions = self.failed_attempts = 0
        self.why = ""
        self.told: list[tuple[str, str]] = []  # what is written about pods that wait

    def decided(self, seconds: float, cpu_seconds: float) -> None:
        self.decisions += 1

    def ignored(self, queued: QueuedPod, reason: str, problems: Sequence[str]) -> None:
        self.told.append((queued.pod.key, f"{reason}: {problems[0]}"))

    def unschedulable(self, queued: QueuedPod, why: str, seconds: float) -> None:
        self.failed_attempts += 1
        self.why = why
        if why != queued.message:
            self.told.append((queued.pod.key, why))

    def on_node_problem(self, name: str, problem: str) -> None: ...


class VirtualScheduler:
    """A scheduler by `best-fit`; tests that place pods are played by `in_event_loop`."""

    def __init__(self, order: str | Order | None = None) -> None:
        self.now = 1000.0
        self.reports = Reports()
        if isinstance(order, str):
            order = find_order(order)
        self.scheduler = Scheduler(
            unreachable(),
            best_fit,
            self.reports,  # type: ignore[arg-type]
            SchedulerOptions(),
            clock=self.time,
            order=None if order is None else live_order(order, RunTimeHistory()),
        )
        self.cache, self.queue = self.scheduler.cache, self.scheduler.queue
        self.scheduler.decider = best_fit(self.cache)
        self._objects: dict[tuple[str, str], Object] = {}
        self._count = 0

    def time(self) -> float:
        return self.now

    def list_volumes(self) -> None:
        """Have claims and volumes be listed."""
        self.scheduler.volumes.need()
        for reflector in self.scheduler.volumes.reflectors:
            reflector.synced.set()

    def apply(self, verb: Verb, obj: Object) -> None:
        """Change an object as the API server does, and report it as the watches do."""
        key = obj["kind"], obj["metadata"]["name"]
        self._count += 1
        known = self._objects.get(key, {})
        if verb == "delete":
            obj = self._objects.pop(key)
        else:
            obj = copy.deepcopy(merged(known, obj))
            obj["metadata"].setdefault("uid", f"uid-{self._count}")
            obj["metadata"]["generation"] = self._count
            self._objects[key] = obj
        plural = PLURALS.get(obj["kind"], f"{obj['kind'].lower()}s")
        (reflector,) = (each for each in self.cache.reflectors if each.resource == plural)
        change = "DELETED" if verb == "delete" else "MODIFIED" if known else "ADDED"
        reflector.handler.change(change, msgspec.Raw(msgspec.json.encode(obj)))

    def run(self, seconds: float = 0.0) -> list[QueuedPod]:
        """Try pods until nothing is left to do now, and for so many seconds; return those that were tried."""
        end, tried = self.now + seconds, []
        while True:
            self.scheduler.refresh()
            if (queued := self.queue.pop()) is not None:
                tried.append(queued)
                self.scheduler.schedule_one(queued)
            elif (wait := self.scheduler.wait_seconds()) and self.now + wait <= end:
                self.now += wait
            else:
                return tried

    def tried(self) -> list[str]:
        """Return the names of the pods that are tried, each once, when all rests are over that began before."""
        self.now += 1.0
        self.scheduler.refresh()
        self.now += 20.0
        tried = []
        while (queued := self.queue.pop()) is not None:
            tried.append(queued.pod.pod.name)
            self.scheduler.schedule_one(queued)
        return tried

    def node_of(self, key: str) -> str:
        return self.cache.pods[key].node


def in_event_loop(test: Callable[..., None]) -> Callable[..., None]:
    """Play a test in an event loop, and cancel the bindings that it began before any is sent."""

    @functools.wraps(test)
    def played(*arguments: Any, **more: Any) -> None:
        async def main() -> None:
            test(*arguments, **more)
            for binding in asyncio.all_tasks() - {asyncio.current_task()}:
                binding.cancel()

        asyncio.run(main())

    return played
