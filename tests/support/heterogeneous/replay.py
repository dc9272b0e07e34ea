"""The pods of a draw in virtual time: by the program that schedules them in a cluster, and by a simulation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
from tests.support.heterogeneous.objects import draw_nodes, draw_workloads, pods_of, scaled, template
from tests.support.kubeconfig import unreachable
from tests.support.servers.fake_api_server import JumpingLoop, listed

from steersman.cluster.model import Node, Pod
from steersman.kubernetes.cache.cluster_cache import NodeFeed, PodFeed
from steersman.live.scheduler.process import LiveScheduler, SchedulerSettings
from steersman.simulation.run import Simulator
from steersman.workloads.loading import load_workload

SCHEDULER = "steersman"
TYPICAL_SHARE = 0.1
QUIET_SECONDS = 30.0

Object = dict[str, Any]


class DrawReplay:
    """A draw of `tests.support.heterogeneous` without a control plane.

    Args:
        nodes: how many.
        seed: the same seed is the same draw.
        folder: for a file; it must exist.
    """

    def __init__(self, nodes: int, seed: int, folder: Path) -> None:
        self._nodes = sorted(draw_nodes(nodes, seed), key=lambda each: str(each["metadata"]["name"]))
        self._controllers = draw_workloads(nodes, seed, SCHEDULER)
        file = folder / f"draw-{nodes}-{seed}.json"
        pods = [pod for each in self._controllers for pod in _pods(each)]
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*self._nodes, *pods]}))
        self._simulator = Simulator(load_workload(file, None))

    def simulated(self, policy: str, seeds: Sequence[int]) -> float:
        """Return the mean GPU allocation of simulations, in percent."""
        runs = (self._simulator.run(policy, protocol="arrivals", seed=seed) for seed in seeds)
        return fmean(each.value for run in runs for each in run.metrics if each.name == "gpu_allocation_percent")

    def live(self, policy: str, *, seconds: float = 0.6, day_before: bool = False) -> float:
        """Return the GPU allocation that `steersman schedule` leaves, in percent.

        Args:
            policy: the policy.
            seconds: from the creation of a controller to that of the next one.
            day_before: whether a tenth of the pods came before, ran, and is gone.
        """
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            return runner.run(self._live(policy, seconds, day_before=day_before))

    async def _live(self, policy: str, seconds: float, *, day_before: bool) -> float:
        settings = SchedulerSettings(policy, unchecked=True, leader_elect=False)
        scheduler = LiveScheduler(unreachable(), settings)
        scheduler._begin_binding = lambda *_: None  # type: ignore[method-assign]
        nodes, pods = NodeFeed(scheduler.cache), PodFeed(scheduler.cache)
        listed(nodes, map(_raw, self._nodes))
        listed(pods, ())
        manager, cache = scheduler.policy_manager, scheduler.cache
        await manager.begin(cache.state)
        scheduler.decider = manager.decider(cache)
        keeping = asyncio.create_task(manager.keep(lambda: cache.state, scheduler.renew))

        async def create(controllers: Sequence[Object]) -> None:
            for controller in controllers:
                made = list(_pods(controller))
                for pod in made:
                    pods.change("ADDED", _raw(pod))
                    while (queued := scheduler.queue.pop()) is not None:
                        scheduler.schedule_one(queued)
                    await asyncio.sleep(seconds / len(made))
            await asyncio.sleep(QUIET_SECONDS)

        if day_before:
            await create(scaled(self._controllers, TYPICAL_SHARE))
            for key in list(cache.pods):
                cache.delete_pod(key)
        await create(self._controllers)
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        gpus = sum(node.gpu_count for node in cache.state.nodes if isinstance(node, Node))
        bound: list[Pod] = [pod.pod for pod in cache.pods.values() if pod.node]
        return 100 * sum(pod.requests.gpu_count for pod in bound) / gpus


def _pods(controller: Object) -> Iterator[Object]:
    """Return the pods that a controller makes, as far as a scheduler looks at them."""
    made_from, name = template(controller), controller["metadata"]["name"]
    for i in range(pods_of(controller)):
        metadata = {**made_from["metadata"], "name": f"{name}-{i}", "namespace": "default", "uid": f"{name}-{i}"}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made_from["spec"]}


def _raw(obj: Object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(obj))
