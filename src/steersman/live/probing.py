"""The probe of latencies over HTTP: milliseconds as text, as reference C has it, and metrics."""

from __future__ import annotations

import asyncio

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry

from steersman.live.running import Background
from steersman.live.web import WebServer
from steersman.telemetry.prometheus.probe import Probe

log = structlog.get_logger("probe")


async def serve_probe(probe: Probe, address: str, port: int) -> None:
    """Measure and answer until cancelled. Raises SteersmanError: that address and port cannot be had."""
    registry = CollectorRegistry()
    registry.register(probe)

    async def answer(request: web.Request) -> web.Response:
        known, user = probe.latencies, request.match_info.get("user", "")
        if user and user not in probe.failures:
            raise web.HTTPNotFound(text=f"no such users; there are {', '.join(probe.failures)}\n")
        values = [known[user]] if user in known else [] if user else list(known.values())
        if not values or (not user and len(values) < len(probe.failures)):
            return web.Response(text="not measured\n", status=503)
        return web.Response(text=f"{max(values):.3f}\n")

    app = web.Application()
    app.router.add_get("/", answer)
    server = WebServer(registry, {}, {}, address, port, app)
    app.router.add_get("/{user}", answer)
    async with server, Background(probe.run()):
        log.info("listening", address=address, port=server.port, users=list(probe.failures))
        await asyncio.Event().wait()
