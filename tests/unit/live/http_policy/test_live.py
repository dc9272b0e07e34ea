"""A live scheduler whose policy is a server: it waits a moment for it, and no pod is lost by it."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import structlog
from aiohttp import web
from tests.support.servers.bindings import Get, scheduler_at_work
from tests.support.servers.fake_prometheus import LATENCY, Told
from tests.support.servers.live_cluster import NODES, PODS, LiveDouble, node, pod
from tests.support.servers.score_servers import Answer, answering, names_of
from tests.support.servers.tasks import until

from steersman.cluster.model import LatencyLimits, Node, PodClass, Requests
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.live.http_policy import live
from steersman.live.http_policy.live import HttpDecider, LiveScoreClient
from steersman.live.http_policy.scheme import register_http_policies
from steersman.live.scheduler.process import LiveScheduler
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.registry import resolve

register_http_policies()


@asynccontextmanager
async def scheduling(answer: Answer) -> AsyncIterator[tuple[LiveDouble, LiveScheduler, Get]]:
    """A scheduler of three nodes whose policy is a server that answers so."""
    with answering(answer) as url:
        async with scheduler_at_work(url, nodes=3) as at_work:
            yield at_work


async def bound(double: LiveDouble, name: str) -> str:
    """Wait until a pod is bound; its node."""
    await until(lambda: "nodeName" in double.objects[PODS, name]["spec"])
    return str(double.objects[PODS, name]["spec"]["nodeName"])


def decisions(metrics: str) -> dict[str, int]:
    found = re.findall(r'steersman_policy_server_decisions_total\{result="(\w+)"\} (\d+)', metrics)
    return {result: int(count) for result, count in found}


async def test_pods_are_bound_to_the_server_choice() -> None:
    async def answer(request: web.Request) -> web.Response:
        content = await request.json()
        wanted = content["pod"]["metadata"]["labels"]["wants"]
        names = [each["metadata"]["name"] for each in content["nodes"]]
        return web.json_response({"scores": {name: 100 if name == wanted else 3 for name in names}})

    async with scheduling(answer) as (double, scheduler, get):
        for i in range(12):
            double.put(PODS, pod(f"p{i}", scheduler="steersman", wants=f"node-{i % 3}"))
        assert [await bound(double, f"p{i}") for i in range(12)] == [f"node-{i % 3}" for i in range(12)]
        assert decisions((await get("metrics"))[1]) == {"scored": 12, "failed": 0, "skipped": 0}
        assert "steersman_policy_server_duration_seconds_count 12.0" in (await get("metrics"))[1]
        assert scheduler.policy_manager.score_client is not None


async def test_a_dead_server_delays_no_pod_and_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PAUSE_SECONDS", 600.0)  # a busy machine may need longer than the pause for 20 pods
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with scheduler_at_work(f"http://127.0.0.1:{port}/score", nodes=3) as (double, _, get):
        with structlog.testing.capture_logs() as logs:
            for i in range(20):
                double.put(PODS, pod(f"p{i}", scheduler="steersman"))
            assert len([await bound(double, f"p{i}") for i in range(20)]) == 20
        warnings = [each for each in logs if each["log_level"] == "warning"]
        assert [(each["rule"], "refused" in each["error"]) for each in warnings] == [("fgd", True)], "said once"
        counted = decisions((await get("metrics"))[1])
        assert (counted["scored"], counted["failed"]) == (0, 1)
        assert counted["skipped"] >= 19, "a pod whose binding takes too long on a busy machine is decided again"
        assert "[!]policy degraded: " in (await get("healthz?verbose"))[1]


@pytest.mark.parametrize(
    "answer", ['{"scores": {}}', '{"scores": {"node-0": NaN}}', "[", '{"scores": {"node-0": 101}}', ""]
)
async def test_the_rule_decides_where_an_answer_is_wrong(answer: str) -> None:
    async def wrong(_: web.Request) -> web.Response:
        return web.Response(text=answer)

    async with scheduling(wrong) as (double, _, get):
        double.put(PODS, pod("p", scheduler="steersman"))
        await bound(double, "p")
        assert decisions((await get("metrics"))[1]) == {"scored": 0, "failed": 1, "skipped": 0}


async def test_late_server_blocks_nothing_and_is_retried_with_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LIVE_SECONDS", 0.5)
    monkeypatch.setattr(live, "PAUSE_SECONDS", 0.5)
    is_late = True

    async def answer(request: web.Request) -> web.Response:
        if is_late:
            await asyncio.sleep(10)
        return web.json_response({"scores": dict.fromkeys(await names_of(request), 1)})

    async with scheduling(answer) as (double, _, get):
        double.put(PODS, pod("p0", scheduler="steersman"))
        for _ in range(5):
            began = asyncio.get_running_loop().time()
            assert "ok" in (await get("healthz"))[1]
            assert asyncio.get_running_loop().time() - began < 0.4, "the event loop runs on"
        await bound(double, "p0")
        is_late = False
        double.put(PODS, pod("p1", scheduler="steersman"))
        await bound(double, "p1")
        assert decisions((await get("metrics"))[1]) == {"scored": 0, "failed": 1, "skipped": 1}
        await asyncio.sleep(0.6)
        with structlog.testing.capture_logs() as logs:
            double.put(PODS, pod("p2", scheduler="steersman"))
            await bound(double, "p2")
        assert decisions((await get("metrics"))[1]) == {"scored": 1, "failed": 1, "skipped": 1}
        assert "the policy's server answers again" in [each["event"] for each in logs]


@asynccontextmanager
async def during_a_request(patch: pytest.MonkeyPatch) -> AsyncIterator[tuple[LiveDouble, LiveScheduler, asyncio.Event]]:
    """A scheduler that has asked about the pod p: the server answers when told, best node-2, then node-1."""
    patch.setattr(live, "LIVE_SECONDS", 20.0)
    asked, told = list[list[str]](), asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        asked.append(await names_of(request))
        await until(told.is_set)
        return web.json_response({"scores": {name: int(name[-1]) for name in asked[-1]}})

    async with scheduling(answer) as (double, scheduler, _):
        double.put(PODS, pod("p", scheduler="steersman"))
        await until(lambda: asked)
        yield double, scheduler, told


async def test_changes_during_a_request_count(monkeypatch: pytest.MonkeyPatch) -> None:
    async with during_a_request(monkeypatch) as (double, scheduler, told):
        double.remove(NODES, "node-2")
        await until(lambda: "node-2" not in scheduler.cache.state.slots)
        double.put(NODES, node("node-9"))
        await until(lambda: "node-9" in scheduler.cache.state.slots)
        told.set()
        assert await bound(double, "p") == "node-1", "the best of those that it scored and that are still there"


async def test_pod_deleted_during_a_request_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async with during_a_request(monkeypatch) as (double, scheduler, told):
        double.remove(PODS, "p")
        await until(lambda: not scheduler.cache.pods)
        told.set()
        double.put(PODS, pod("q", scheduler="steersman"))
        assert await bound(double, "q") == "node-2"
        assert (PODS, "p") not in double.objects


async def test_pod_in_request_is_requeued_when_the_lease_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async with during_a_request(monkeypatch) as (_, scheduler, told):
        asking = [each for each in asyncio.all_tasks() if "Scheduler.schedule" in repr(each.get_coro())]
        assert len(asking) == 1
        asking[0].cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        assert scheduler.queue.counts() == {"active": 1, "backoff": 0, "unschedulable": 0}
        told.set()


def test_fallback_decision_with_a_hard_limit_counts_once() -> None:
    told, state = Told(), ClusterState([Node(f"n{i}", 4000, 16 << 30, pods=110) for i in range(3)])
    told.tell(LATENCY, {"n0": 20.0, "n1": 150.0, "n2": 150.0})
    client = LiveScoreClient("http://127.0.0.1:1/scores", "fgd")
    decider = HttpDecider(ClusterView(state, telemetry=told), client, resolve("fgd"))
    client.answer.scores = {"gone": 1.0}  # of the nodes that it scored none is there any more
    choice = decider.choose(PodQuery(state.class_id(PodClass(Requests(cpu_milli=250))), limits=LatencyLimits(hard=100)))
    assert choice is not None
    assert choice.slot == 0
    assert sum(told.limits.values()) == 1
