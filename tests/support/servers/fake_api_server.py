"""A server that behaves like the Kubernetes API for simple resources, and an event loop whose time jumps."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web

from steersman.kubernetes.config import KubeCluster, KubeConfig, KubeUser
from steersman.kubernetes.watch import Handler, object_key

SETTLE_SECONDS = 0.001
Story = Callable[..., Coroutine[Any, Any, None]]
Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for nothing but what is on its way between sockets of this process; then time jumps."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)
        ready = super().select(0) or super().select(min(timeout, SETTLE_SECONDS))
        if not ready:
            self.now += timeout + 1e-6  # sums are rounded: a timer must not stay ahead for ever
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer when nothing else is to be done."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def stall(self, seconds: float) -> None:
        """What a callback does that takes long."""
        self._jumping.now += seconds


def play(main: Coroutine[Any, Any, None]) -> None:
    """Run in time that jumps."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(main)


def in_jumping_time(test: Story) -> Callable[..., None]:
    """Play an async test in time that jumps."""
    return as_test(test, lambda story: play(story()))


def as_test(test: Story, tell: Callable[[Story], None], *given: str) -> Callable[..., None]:
    """Have pytest see a test that tells an async one; of its arguments, those in `given` are no fixtures.

    `tell` calls a story with the values of `given`, in their order.
    """
    signature = inspect.signature(test)
    fixtures = [each for name, each in signature.parameters.items() if name not in given]

    def played(**values: Any) -> None:
        def story(*arguments: Any) -> Coroutine[Any, Any, None]:
            named = zip(given, arguments, strict=True)
            return test(**{name: value for name, value in named if name in signature.parameters}, **values)

        tell(story)

    functools.update_wrapper(played, test)
    played.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
    return played


def clock() -> float:
    """The time of a loop that jumps."""
    return asyncio.get_running_loop().time()


class KubeDouble:
    """Objects by path, versions, conflicts, watches.

    Attributes:
        objects: by the path of their collection and their name.
        requests: method and path of each, as they came.
        fault: may answer a request instead.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.requests: list[tuple[str, str]] = []
        self.fault: Fault | None = None
        self.url = ""
        self._version = 0
        self._history: list[tuple[int, str, bytes]] = []
        self.watchers: list[tuple[str, asyncio.Queue[bytes | None]]] = []
        self._runner: web.AppRunner

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_watches()
        await self._runner.cleanup()

    def end_watches(self) -> None:
        """As a server does after some minutes."""
        for _, queue in self.watchers:
            queue.put_nowait(None)
        self.watchers.clear()

    def config(self) -> KubeConfig:
        return KubeConfig(Path("double"), "double", KubeCluster(self.url), KubeUser(), "default")

    def put(self, collection: str, obj: dict[str, Any]) -> dict[str, Any]:
        """Store an object as the server does and tell who watches."""
        name = obj["metadata"]["name"]
        known = (collection, name) in self.objects
        self._version += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}}
        self.objects[collection, name] = obj
        self._tell("MODIFIED" if known else "ADDED", collection, obj)
        return obj

    def remove(self, collection: str, name: str) -> None:
        self._version += 1
        self._tell("DELETED", collection, self.objects.pop((collection, name)))

    def named(self, collection: str) -> dict[str, dict[str, Any]]:
        return {name: obj for (path, name), obj in self.objects.items() if path == collection}

    def _tell(self, kind: str, collection: str, obj: dict[str, Any]) -> None:
        line = json.dumps({"type": kind, "object": obj}).encode() + b"\n"
        self._history.append((self._version, collection, line))
        for path, queue in self.watchers:
            if path == collection:
                queue.put_nowait(line)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        if self.fault is not None and (answer := await self.fault(request)) is not None:
            return answer
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.37.2"})
        collection, _, name = request.path.removesuffix("/status").rpartition("/")
        if request.method == "POST":
            obj = await request.json()
            if (request.path, obj["metadata"]["name"]) in self.objects:
                return failure(409, "AlreadyExists")
            return web.json_response(self.put(request.path, obj), status=201)
        known = self.objects.get((collection, name))
        if request.method == "GET" and known is None:
            return await self._collection(request)
        if known is None:
            return failure(404, "NotFound")
        if request.method == "PUT":
            obj = await request.json()
            if obj["metadata"]["resourceVersion"] != known["metadata"]["resourceVersion"]:
                return failure(409, "Conflict")
            known = self.put(collection, obj)
        elif request.method == "PATCH":
            change = await request.json()
            version = change.get("metadata", {}).get("resourceVersion")
            if version not in (None, known["metadata"]["resourceVersion"]):
                return failure(409, "Conflict")
            known = self.put(collection, merged(known, change))
        return web.json_response(known)

    async def _collection(self, request: web.Request) -> web.StreamResponse:
        if request.path.rpartition("/")[2] not in ("nodes", "pods", "leases", "namespaces"):
            return failure(404, "NotFound")
        found = self.named(request.path)
        if "watch" not in request.query:
            metadata = {"resourceVersion": str(self._version)}
            return web.json_response({"metadata": metadata, "items": list(found.values())})
        response = web.StreamResponse()
        await response.prepare(request)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.watchers.append((request.path, queue))
        since = int(request.query.get("resourceVersion", "0"))
        for version, collection, line in self._history:
            if version > since and collection == request.path:
                await response.write(line)
        while (told := await queue.get()) is not None:
            await response.write(told)
        return response


def listed(handler: Handler, objects: Iterable[msgspec.Raw]) -> None:
    """Tell a handler what a reflector tells it of a list."""
    keys = set()
    for raw in objects:
        keys.add(object_key(raw))
        handler.change("ADDED", raw)
    handler.keep(keys)


def failure(status: int, reason: str) -> web.Response:
    """A `Status` of the API."""
    return web.json_response({"kind": "Status", "reason": reason, "message": reason.lower()}, status=status)


def failing(status: int, *ends: str) -> Fault:
    """A server that fails, or does so where a path ends so."""

    async def fault(request: web.Request) -> web.StreamResponse | None:
        matches = not ends or request.path.endswith(ends)
        return failure(status, HTTPStatus(status).phrase.replace(" ", "")) if matches else None

    return fault


def merged(known: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return an object after a merge patch (RFC 7386)."""
    combined = dict(known)
    for key, value in change.items():
        if value is None:
            combined.pop(key, None)
        else:
            both = isinstance(value, dict) and isinstance(combined.get(key), dict)
            combined[key] = merged(combined[key], value) if both else value
    return combined
