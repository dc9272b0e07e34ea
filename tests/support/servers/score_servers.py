"""Score servers in a thread: steersman's own service, and one that answers as a test says."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from aiohttp import web

from steersman.live.service.config import ServiceConfig
from steersman.live.service.process import Service

Object = dict[str, Any]
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextmanager
def background(serve: Callable[[Callable[[int], object]], Awaitable[object]]) -> Iterator[str]:
    """Run `serve` in a thread until the block ends; the URL of `/score` at the port that it reports."""
    loop, ports, listening = asyncio.new_event_loop(), list[int](), threading.Event()

    def report(port: int) -> None:
        ports.append(port)
        listening.set()

    def run() -> None:
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        listening.set()

    task = loop.create_task(serve(report))  # type: ignore[arg-type]
    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert listening.wait(60)
        if not ports:
            raise task.exception() or AssertionError("it did not listen")
        yield f"http://127.0.0.1:{ports[0]}/score"
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(task.cancel)
        thread.join()


@contextmanager
def steersman_server(policy: str, **changes: Any) -> Iterator[str]:
    """Run steersman's service without a cluster to watch."""
    config = msgspec.structs.replace(
        ServiceConfig(policy=policy, port=0, deadline_milliseconds=60_000.0, unchecked=True), **changes
    )
    service = Service(config, None)
    with background(service.run) as url:
        yield url


@contextmanager
def answering(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Run a server that answers as told, by HTTPS if there is a `tls`."""

    async def serve(listening: Callable[[int], object]) -> None:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/score", answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        try:
            listening(site._server.sockets[0].getsockname()[1])  # type: ignore[union-attr]
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    with background(serve) as url:
        yield url if tls is None else url.replace("http", "https", 1)


async def names_of(request: web.Request) -> list[str]:
    """The names of the nodes that are asked about."""
    return [node["metadata"]["name"] for node in json.loads(await request.read())["nodes"]]
