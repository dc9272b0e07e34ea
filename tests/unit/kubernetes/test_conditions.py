"""The condition that says why a pod waits is never written to one that waits no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiohttp import web
from tests.support.servers.fake_api_server import KubeDouble, failure, in_jumping_time

from steersman.cluster.model import Pod, PodClass, Requests
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.kubernetes.client import Client
from steersman.live.scheduler.reporting import CONDITION_WRITERS, Conditions

COLLECTION = "/api/v1/namespaces/default/pods"


async def written(answer: Callable[[CachedPod], web.Response | None], seen: str = "") -> tuple[list[str], int]:
    """The conditions of a pod after one was to be written, and how often that was tried."""
    async with KubeDouble() as double, Client(double.config()) as client:
        waiting = {"metadata": {"name": "web", "uid": "1"}, "status": {}}
        version = double.put(COLLECTION, waiting)["metadata"]["resourceVersion"]
        pod = CachedPod("default/web", "1", Pod("web", PodClass(Requests(cpu_milli=1000))), 1, version=seen or version)
        tries = 0

        async def fault(request: web.Request) -> web.Response | None:
            nonlocal tries
            tries += request.method == "PATCH"
            return answer(pod)

        double.fault = fault
        conditions = Conditions(client, lambda: False)
        running = asyncio.create_task(conditions.run())
        conditions.put(pod, "no room")
        await asyncio.sleep(60.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        found = double.objects[COLLECTION, "web"]["status"].get("conditions", [])
        return [condition["message"] for condition in found], tries


@in_jumping_time
async def test_condition_is_written() -> None:
    assert await written(lambda _: None) == (["no room"], 1)


@in_jumping_time
async def test_condition_is_written_after_a_busy_server() -> None:
    answers = [failure(429, "TooMany"), failure(503, "Busy")]
    assert await written(lambda _: answers.pop(0) if answers else None) == (["no room"], 3)


@in_jumping_time
async def test_pod_bound_meanwhile_gets_no_condition() -> None:
    def busy(pod: CachedPod) -> web.Response:
        pod.node = "n"
        return failure(429, "TooMany")

    assert await written(busy) == ([], 1)


@in_jumping_time
async def test_pod_changed_meanwhile_gets_no_condition() -> None:
    """It may have been bound meanwhile, and the watch is behind."""
    assert (await written(lambda _: None, "0"))[0] == []


@pytest.mark.parametrize(("is_busy", "at_once"), [(True, 1), (False, CONDITION_WRITERS)])
@in_jumping_time
async def test_conditions_are_written_one_at_a_time_while_pods_are_bound(is_busy: bool, at_once: int) -> None:
    async with KubeDouble() as double, Client(double.config()) as client:
        open_requests, most, tries = 0, 0, 0

        async def fault(_: web.Request) -> web.Response | None:
            nonlocal open_requests, most, tries
            open_requests, tries = open_requests + 1, tries + 1
            most = max(most, open_requests)
            await asyncio.sleep(1.0)
            open_requests -= 1
            return None

        double.fault = fault
        conditions = Conditions(client, lambda: is_busy)
        for i in range(3 * CONDITION_WRITERS):
            pod = CachedPod(f"default/{i}", "1", Pod(str(i), PodClass(Requests(cpu_milli=1000))), 1)
            conditions.put(pod, "no room")
        running = asyncio.create_task(conditions.run())
        await asyncio.sleep(60.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert (most, tries) == (at_once, 3 * CONDITION_WRITERS)
