"""HTTP server in the running event loop, with the probes and the metrics that every steersman server offers.

Where this is the event loop that does the work, a probe times out if it is blocked, which is the liveness signal. The
scheduler answers probes in another thread (`live.runtime.tasks`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import Any, Self

import structlog
from aiohttp import web
from aiohttp.http import HttpProcessingError
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from steersman.core.errors import SteersmanError
from steersman.live.runtime.tasks import BackgroundTasks, run_in_loop
from steersman.prometheus.probe import Probe

ADDRESS = "127.0.0.1"
SHUTDOWN_SECONDS = 1.0
KEEPALIVE_SECONDS = 3630.0  # time after which an idle connection is closed: longer than proxies keep theirs
OPEN = ("/metrics", "/healthz", "/livez", "/readyz")  # paths of every server; they need no authentication
Checks = Mapping[str, Callable[[], str]]  # by name; return the problem in a few words, "" if the check passes
VERBOSE = "verbose"  # query parameter of a probe that adds the notes, which never fail it
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = structlog.get_logger("http")


@dataclass(frozen=True, slots=True)
class Probes:
    """Checks of a server's probes."""

    # Of `/healthz` and `/livez`; if one fails, the process should be restarted
    healthy: Checks = field(default_factory=dict)
    ready: Checks = field(default_factory=dict)  # additional ones of `/readyz`
    # Reported with `?verbose` alone; they fail no probe, because a degraded server that still responds correctly
    # stays in its service's endpoints
    notes: Checks = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where a server listens: the address, the port (0: a free one), and the TLS context of HTTPS."""

    address: str = ADDRESS
    port: int = 0
    tls: ssl.SSLContext | None = None


class WebServer:
    """HTTP or HTTPS server; an asynchronous context manager that listens inside its block."""

    def __init__(
        self,
        registry: CollectorRegistry,  # metrics of `/metrics`
        probes: Probes,  # checks of the probes
        listen: ListenAddress,  # where it listens
        app: web.Application | None = None,  # application with further routes
        headers: Mapping[str, str] = MappingProxyType({}),  # headers of responses to requests that no handler answers
        keepalive_seconds: float = KEEPALIVE_SECONDS,  # time after which an idle connection is closed
        # Event loop of what the metrics are read from; None: the one that serves them
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.port = listen.port
        self._address, self._tls = listen.address, listen.tls
        app = web.Application() if app is None else app
        app.router.add_get("/metrics", _metrics_handler(registry, loop))
        healthy, ready = probes.healthy, {**probes.healthy, **probes.ready}
        for path, checks in (("healthz", healthy), ("livez", healthy), ("readyz", ready)):
            app.router.add_get(f"/{path}", _probe_handler(path, checks, probes.notes))
        self._runner = ErrorAwareRunner(
            app, headers, shutdown_timeout=SHUTDOWN_SECONDS, keepalive_timeout=keepalive_seconds
        )

    async def __aenter__(self) -> Self:
        """Start listening. Raises SteersmanError: the address or port is not available."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._address, self.port, ssl_context=self._tls).start()
        except OSError as error:
            await self._runner.cleanup()
            reason = (error.strerror or str(error)).lower()
            raise SteersmanError(
                f"--address {self._address} --port {self.port}: cannot listen there: {reason}; --port 0 selects a free "
                "port"
            ) from None
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()


def _metrics_handler(registry: CollectorRegistry, loop: asyncio.AbstractEventLoop | None) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))

        async def encoded() -> bytes:
            return encode(registry)

        body = await (encoded() if loop is None else run_in_loop(loop, encoded))
        return web.Response(body=body, headers={"Content-Type": content_type})

    return handle


def _probe_handler(name: str, checks: Checks, notes: Checks) -> Handler:
    """Return a handler with the format of kube-apiserver's probes: one line for each check, then the verdict."""

    async def handle(request: web.Request) -> web.Response:
        problems = {check: find_problem() for check, find_problem in checks.items()}
        lines = [
            f"[-]{check} failed: {problem}" if problem else f"[+]{check} ok" for check, problem in problems.items()
        ]
        if VERBOSE in request.query:
            degraded = {note: find_problem() for note, find_problem in notes.items()}
            lines += [
                f"[!]{note} degraded: {problem}" if problem else f"[+]{note} ok" for note, problem in degraded.items()
            ]
        failed = any(problems.values())
        lines.append(f"{name} check {'failed' if failed else 'passed'}")
        return web.Response(text="\n".join(lines) + "\n", status=503 if failed else 200)

    return handle


class ErrorAwareRunner(web.AppRunner):
    """Runner that answers requests that no handler answers, such as malformed HTTP, by one line; the log has one, too.

    aiohttp's own have no headers of the application's, and a traceback in the log, for whoever can connect.
    """

    __slots__ = ("_headers",)

    def __init__(self, app: web.Application, headers: Mapping[str, str], **options: Any) -> None:
        super().__init__(app, access_log=None, **options)
        self._headers = headers

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        server = _Server(made.request_handler, request_factory=made.request_factory, **made._kwargs)
        server.headers = self._headers
        return server


class _Server(web.Server):
    headers: Mapping[str, str]

    def __call__(self) -> web.RequestHandler:
        return _RequestHandler(self, self.headers, loop=self._loop, **self._kwargs)


class _RequestHandler(web.RequestHandler):
    __slots__ = ("_headers",)

    def __init__(self, server: web.Server, headers: Mapping[str, str], **options: Any) -> None:
        super().__init__(server, **options)
        self._headers = headers

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        response = super().handle_error(request, status, exc, message and " ".join(message.split()) + "\n")
        response.headers.update(self._headers)
        return response

    def log_exception(self, *args: Any, **options: Any) -> None:
        error = options.get("exc_info")
        if isinstance(error, HttpProcessingError | web.RequestPayloadError):  # the latter of a body that is discarded
            log.debug("malformed request", error=" ".join(str(error).split()))
        else:  # an error of this program: its log says where
            log.error("request failed", exc_info=error)


async def serve_probe(probe: Probe, address: str, port: int) -> None:
    """Measure latencies and serve them until cancelled. Raises SteersmanError: the address or port is not available."""
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
        structlog.get_logger("probe").info("listening", address=address, port=server.port, users=list(probe.failures))
        await asyncio.Event().wait()
