"""A proxy before the API server that does to requests what networks and servers do to them when they are unwell."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Literal, Self

import aiohttp
import yaml
from aiohttp import web
from tests.e2e.chaos.oracle import GPU

from steersman.kubernetes.config import KubeConfig
from steersman.kubernetes.credentials import Credentials

BINDING = r"POST .*/binding$"
WATCH = r"GET .*watch=1"
EVERYTHING = r"."
CONNECTIONS = 256

What = Literal["status", "drop", "lose", "delay", "expire", "cut", "lag"]


@dataclass(slots=True)
class Fault:
    """What happens to some requests.

    Attributes:
        what: `status`: the answer is a failure, nothing is done; `drop`: nothing is done, and there is no answer;
            `lose`: it is done, and there is no answer; `delay`: it is done later; `expire`: a watch says at once that
            its version is too old; `cut`: a watch ends in the middle of what it tells; `lag`: it tells later.
        where: a pattern of method, path and query.
        share: of these requests (of what it tells, for `cut`); the first comes at the latest after 1 / share of them.
        status, retry_after: of the answer.
        seconds: before it is dropped, lost, done or told.
        most: no more often.
    """

    what: What
    where: str = EVERYTHING
    share: float = 1.0
    status: int = 0
    retry_after: str = ""
    seconds: float = 0.0
    most: int = 1 << 30
    seen: int = field(default=0, init=False)
    times: int = field(default=0, init=False)

    def draw(self, chance: Random) -> bool:
        """Return whether the fault befalls the next request that it may befall."""
        if self.times >= self.most:
            return False
        self.seen += 1
        # Few watches begin in a run: by chance alone some faults would befall none.
        befalls = chance.random() < self.share or (self.times == 0 and self.seen * self.share >= 1)
        self.times += befalls
        return befalls

    def __str__(self) -> str:
        return f"{self.status}{' later' * bool(self.retry_after)}" if self.status else self.what


@dataclass(slots=True)
class Bind:
    """A binding that was asked for.

    Attributes:
        pod: its name.
        node: its name.
        devices: the GPUs' indices, as they are written; empty where there are none.
        at: when, in monotonic seconds.
        status: of the answer; 0: there is none yet.
    """

    pod: str
    node: str
    devices: str
    at: float
    status: int = 0


class FaultyProxy:
    """An asynchronous context manager: listens without TLS, and asks the API server as the cluster's administrator.

    Args:
        config: of the cluster.
        seed: of chance.

    Attributes:
        faults: may be changed at any time; the first that applies to a request is what happens to it.
        binds: all bindings that came, in order.
        injected: how often what was done.
    """

    def __init__(self, config: KubeConfig, seed: int = 0) -> None:
        self.faults: list[Fault] = []
        self.binds: list[Bind] = []
        self.injected: Counter[str] = Counter()
        self._config, self._random, self.port = config, Random(seed), 0
        self._watches: set[asyncio.Transport] = set()
        self._session: aiohttp.ClientSession
        self._runner: web.AppRunner

    async def __aenter__(self) -> Self:
        context = Credentials(self._config).context
        connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=context)
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut_watches()
        await self._runner.cleanup()
        await self._session.close()
        await asyncio.sleep(0.25)  # its TLS connections end a moment after it, and would be warned of when collected

    def kubeconfig(self, file: Path) -> Path:
        """Write a kubeconfig that leads here."""
        content = {
            "clusters": [{"name": "proxy", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "nobody"}}],
            "current-context": "proxy",
        }
        file.write_text(yaml.safe_dump(content))
        return file

    def cut_watches(self) -> None:
        """Cut all watches at once."""
        for transport in self._watches:
            transport.abort()
            self.injected["cut"] += 1
        self._watches.clear()

    def _draw(self, call: str, *kinds: What) -> Fault | None:
        for fault in self.faults:
            if fault.what in kinds and re.search(fault.where, call) and fault.draw(self._random):
                self.injected[str(fault)] += 1
                return fault
        return None

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        call = f"{request.method} {request.raw_path}"
        bind = None
        if re.search(BINDING, call):
            asked = json.loads(body)
            devices = (asked["metadata"].get("annotations") or {}).get(f"{GPU}index", "")
            bind = Bind(request.path.split("/")[-2], asked["target"]["name"], devices, time.monotonic())
            self.binds.append(bind)
        fault = self._draw(call, "status", "drop", "lose", "delay", "expire")
        if fault is not None and fault.what in ("status", "expire"):
            return _failure(fault)
        if fault is not None and fault.what in ("drop", "delay"):
            await asyncio.sleep(fault.seconds)
        try:
            if fault is not None and fault.what == "drop":
                return self._hang_up(request)
            response = await self._forward(request, call, body)
        except (aiohttp.ClientError, OSError):  # the server is dead, or who asked is
            return self._hang_up(request)
        if bind is not None:
            bind.status = response.status
        if fault is not None and fault.what == "lose":
            await asyncio.sleep(fault.seconds)
            return self._hang_up(request)
        return response

    def _hang_up(self, request: web.Request) -> web.Response:
        if isinstance(request.transport, asyncio.Transport):
            request.transport.abort()
        return web.Response(status=502)

    async def _forward(self, request: web.Request, call: str, body: bytes) -> web.StreamResponse:
        headers = {key: request.headers[key] for key in ("Content-Type", "Accept") if key in request.headers}
        url = self._config.cluster.server.rstrip("/") + request.raw_path
        async with self._session.request(request.method, url, data=body or None, headers=headers) as answer:
            told = {
                name: answer.headers[name]
                for name in ("Content-Type", "Content-Encoding", "Retry-After")
                if name in answer.headers
            }
            if answer.status != 200 or not re.search(WATCH, call):
                return web.Response(body=await answer.read(), status=answer.status, headers=told)
            return await self._tell(request, call, answer, told)

    async def _tell(
        self, request: web.Request, call: str, answer: aiohttp.ClientResponse, headers: dict[str, str]
    ) -> web.StreamResponse:
        """Pass a watch on."""
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._watches.add(transport)
        try:
            async for chunk in answer.content.iter_any():
                if (lag := self._draw(call, "lag")) is not None:
                    await asyncio.sleep(lag.seconds)
                if self._draw(call, "cut") is not None:
                    await response.write(chunk[: len(chunk) // 2])
                    await asyncio.sleep(0)
                    transport.close()
                    break
                await response.write(chunk)
        finally:
            self._watches.discard(transport)
        return response


def _failure(fault: Fault) -> web.Response:
    """What the API says in that case."""
    if fault.what == "expire":
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        return web.json_response({"type": "ERROR", "object": status}, dumps=lambda obj: json.dumps(obj) + "\n")
    headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
    reason = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}.get(fault.status, "")
    status = {"kind": "Status", "code": fault.status, "reason": reason, "message": "the proxy says so"}
    return web.json_response(status, status=fault.status, headers=headers)
