"""How an API server answers bindings, and schedulers whose bindings it answers so."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web
from tests.support.servers.fake_api_server import clock, failure
from tests.support.servers.live_cluster import NODES, PODS, LiveDouble, node
from tests.support.servers.tasks import serving

from steersman.kubernetes.client import Client
from steersman.live.scheduler.process import LiveScheduler, SchedulerSettings

Get = Callable[[str], Awaitable[tuple[int, str]]]
Answer = Callable[[LiveDouble, web.Request], Awaitable[web.StreamResponse | None]]


async def bind(double: LiveDouble, request: web.Request) -> web.Response:
    """What the server does about a binding."""
    wanted = await request.json()
    there = double.objects.get((PODS, wanted["metadata"]["name"]))
    if there is None:
        return failure(404, "NotFound")
    if there["metadata"]["uid"] != wanted["metadata"]["uid"] or there["spec"].get("nodeName"):
        return failure(409, "Conflict")
    double.bind(wanted["metadata"]["name"], wanted["target"]["name"])
    return web.json_response({}, status=201)


def hang_up(request: web.Request) -> web.Response:
    assert isinstance(request.transport, asyncio.Transport)
    request.transport.abort()
    return web.Response()


class Bindings:
    """Answers bindings one after the other, the last for ever, and everything else as always."""

    def __init__(self, double: LiveDouble, *answers: Answer) -> None:
        self.double, self.answers = double, list(answers)
        self.came: list[float] = []
        double.bind_after, double.fault = None, self.answer

    async def answer(self, request: web.Request) -> web.StreamResponse | None:
        if not request.path.endswith("/binding"):
            return None
        self.came.append(clock())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(self.double, request)

    def looks(self) -> int:
        return self.double.requests.count(("GET", f"{PODS}/web"))


def says(status: int, retry_after: str = "") -> Answer:
    async def answer(_: LiveDouble, __: web.Request) -> web.StreamResponse:
        headers = {"Retry-After": retry_after} if retry_after else {}
        return web.json_response({"reason": "Because"}, status=status, headers=headers)

    return answer


@asynccontextmanager
async def scheduler_at_work(
    policy: str, answers: Sequence[Answer] = (bind,), nodes: int = 1
) -> AsyncIterator[tuple[LiveDouble, LiveScheduler, Get]]:
    """An API server that answers bindings so, a scheduler of its nodes, and what asks the scheduler's endpoints."""
    async with LiveDouble() as double, Client(double.config()) as client, asyncio.timeout(60):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        Bindings(double, *answers)
        for i in range(nodes):
            double.put(NODES, node(f"node-{i}"))
        scheduler = LiveScheduler(client, SchedulerSettings(policy=policy, unchecked=True, port=port))
        async with aiohttp.ClientSession() as session:

            async def get(path: str) -> tuple[int, str]:
                async with session.get(f"http://127.0.0.1:{port}/{path}") as answer:
                    return answer.status, await answer.text()

            async with serving(scheduler.run(), lambda: scheduler.decider is not None):
                yield double, scheduler, get


def scheduling(
    policy: str,
    story: Callable[[LiveDouble, LiveScheduler, Get], Awaitable[None]],
    answers: Sequence[Answer] = (bind,),
    nodes: int = 1,
) -> None:
    """Tell a story of a scheduler."""

    async def main() -> None:
        async with scheduler_at_work(policy, answers, nodes) as told:
            await story(*told)

    asyncio.run(main())
