"""HTTP server of the latency probe: milliseconds as plain text, as in Matranga's thesis, and metrics."""

from __future__ import annotations

import asyncio

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry

from steersman.apps.runtime.http_server import ListenAddress, Probes, WebServer
from steersman.apps.runtime.tasks import BackgroundTasks
from steersman.prometheus.probe import Probe

log = structlog.get_logger("probe")


async def serve_probe(probe: Probe, address: str, port: int) -> None:
    """Measure latencies and serve them until cancelled.

    Raises:
        SteersmanError: the address or port is not available.
    """
    registry = CollectorRegistry()
    registry.register(probe)

    async def handle(request: web.Request) -> web.Response:
        latencies, user = probe.latencies, request.match_info.get("user", "")
        if user and user not in probe.failures:
            raise web.HTTPNotFound(text=f"unknown users; known are {', '.join(probe.failures)}\n")
        values = [latencies[user]] if user in latencies else [] if user else list(latencies.values())
        if not values or (not user and len(values) < len(probe.failures)):
            return web.Response(text="not measured\n", status=503)
        return web.Response(text=f"{max(values):.3f}\n")

    app = web.Application()
    app.router.add_get("/", handle)
    server = WebServer(registry, Probes(), ListenAddress(address, port), app)
    # After the server's own paths, such as /metrics, which it would also match.
    app.router.add_get("/{user}", handle)
    async with server, BackgroundTasks(probe.run()):
        log.info("listening", address=address, port=server.port, users=list(probe.failures))
        await asyncio.Event().wait()
