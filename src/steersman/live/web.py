"""An HTTP server in the running event loop, and what all of ours answer: probes and metrics.

The answers come from the event loop that works: where it stands still, a probe gets no answer in time, and that is what
liveness means here.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from steersman.errors import SteersmanError

ADDRESS = "127.0.0.1"
SHUTDOWN_SECONDS = 1.0
OPEN = ("/metrics", "/healthz", "/livez", "/readyz")
"""What every server answers."""

Checks = Mapping[str, Callable[[], str]]
"""By name: what is wrong in a few words, "" for nothing."""
VERBOSE = "verbose"
"""The parameter of a probe's query that also asks for what is wrong and keeps nobody from working."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebServer:
    """Answers; an asynchronous context manager.

    Args:
        registry: what `/metrics` shows.
        healthy: what must be right for `/healthz`; where it is not, the process should be started anew.
        ready: what must be right for `/readyz` besides.
        notes: what is said with `?verbose` alone, and fails no probe: whoever answers well stays in its endpoints.
        address: where it listens.
        port: and on which port; 0 is any that is free.
        app: what answers besides.
        tls: for HTTPS.

    Attributes:
        port: where it listens.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        healthy: Checks,
        ready: Checks,
        address: str = ADDRESS,
        port: int = 0,
        app: web.Application | None = None,
        tls: ssl.SSLContext | None = None,
        notes: Checks | None = None,
    ) -> None:
        self.port = port
        self._address, self._tls = address, tls
        app = web.Application() if app is None else app
        app.router.add_get("/metrics", _scrape(registry))
        for path, checks in (("healthz", healthy), ("livez", healthy), ("readyz", {**healthy, **ready})):
            app.router.add_get(f"/{path}", _probe(path, checks, notes or {}))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)

    async def __aenter__(self) -> Self:
        """Listen. Raises SteersmanError: that address and port cannot be had."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._address, self.port, ssl_context=self._tls).start()
        except OSError as error:
            await self._runner.cleanup()
            said = (error.strerror or str(error)).lower()
            raise SteersmanError(
                f"--address {self._address} --port {self.port}: cannot listen there: {said}; --port 0 takes any port "
                "that is free"
            ) from None
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()


def _scrape(registry: CollectorRegistry) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})

    return answer


def _probe(name: str, checks: Checks, notes: Checks) -> Handler:
    """Answer as kube-apiserver's probes do: a line for each check, and what follows from them."""

    async def answer(request: web.Request) -> web.Response:
        problems = {check: problem() for check, problem in checks.items()}
        lines = [f"[-]{check} failed: {said}" if said else f"[+]{check} ok" for check, said in problems.items()]
        if VERBOSE in request.query:
            noted = {note: problem() for note, problem in notes.items()}
            lines += [f"[!]{note} degraded: {said}" if said else f"[+]{note} ok" for note, said in noted.items()]
        failed = any(problems.values())
        lines.append(f"{name} check {'failed' if failed else 'passed'}")
        return web.Response(text="\n".join(lines) + "\n", status=503 if failed else 200)

    return answer
