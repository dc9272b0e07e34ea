"""Limits of requests and clients: deadlines, overload, bytes of bodies, time to send them, idle connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

# Why scores are neutral.
SHADOW = "shadow"  # the service is in shadow mode
DEADLINE = "deadline"  # the deadline passed before there were scores
OVERLOAD = "overload"  # there are too many requests
STALE = "stale"  # the state of the watched cluster is too old
POLICY = "policy"  # the policy failed
UNUSUAL = "unusual"  # the pod is large or unlike all pods of the cluster, and too many such pods were sent lately
BODY_SECONDS = 10.0  # timeout of reading a body
FIRST_SECONDS, IDLE_SECONDS = 10.0, 120.0
"""Timeouts of a connection's first request, and of an idle connection after it.

The latter is longer than clients keep idle connections (Go's plugin: 90 s), so that clients close them first.
"""
CONNECTIONS = 4096  # maximum number of connections; beyond it the longest idle ones are closed
SWEEP_SECONDS = 1.0
BODIES = 4  # number of bodies of the largest size that may be held at a time


@dataclass(slots=True)
class Deadline:
    """Time after which an answer is useless."""

    seconds: float
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    @property
    def passed(self) -> bool:
        return self.clock() - self.began > self.seconds


def request_neutral_reason(deadline: Deadline, *, overloaded: bool) -> str:
    """Return why a request gets neutral scores without being decoded, whatever its pod; "" if it is decoded."""
    if overloaded:
        return OVERLOAD
    return DEADLINE if deadline.passed else ""


class TooManyBodiesError(Exception):
    """Too many bodies are held at the moment."""


class BodyBudget:
    """Reader of bodies that bounds the bytes held at a time."""

    def __init__(self, largest: int) -> None:
        self.largest, self.capacity = largest, BODIES * largest
        self.held = 0

    async def read(self, request: web.Request) -> bytes:
        """Return the body of a request; give it back by `release`.

        Raises:
            web.HTTPRequestEntityTooLarge: it is larger than allowed.
            TooManyBodiesError: too many bytes are held already.
            TimeoutError: it did not arrive in time.
        """
        length = request.content_length or 0
        if length > self.largest:
            raise web.HTTPRequestEntityTooLarge(self.largest, length)
        if request.content.is_eof():  # the whole body came with the head
            body = request.content.read_nowait()
            self._hold(len(body), 0)
            return body
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for chunk in request.content.iter_any():
                    self._hold(len(chunk), size)
                    size += len(chunk)
                    chunks.append(chunk)
        except BaseException:
            # Also when the client has gone, which cancels this.
            self.held -= size
            raise
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _hold(self, more: int, size: int) -> None:
        """Reserve more bytes of a body of `size` bytes; on an error, as of `read`, all its bytes are released."""
        if size + more > self.largest:
            raise web.HTTPRequestEntityTooLarge(self.largest, size + more)
        if self.held + more > self.capacity:
            raise TooManyBodiesError
        self.held += more

    def release(self, body: bytes) -> None:
        self.held -= len(body)


class Connection(Protocol):
    """Connection to a client, aiohttp's `RequestHandler`."""

    transport: asyncio.Transport | None


class Connections:
    """Connections with their times, of which idle ones are closed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[Connection, float] = {}

    def __len__(self) -> int:
        """Return the number of connections that have had a request and were open at the last sweep."""
        return len(self._until)

    def began(self, connection: Connection) -> None:
        """Record that a request arrived on a connection."""
        self._until[connection] = float("inf")

    def ended(self, connection: Connection) -> None:
        self._until[connection] = self._clock() + IDLE_SECONDS

    async def sweep(self, connections: Callable[[], Collection[Connection]]) -> None:
        """Close idle connections periodically until cancelled; `connections` returns the open ones."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.close_idle(connections())

    def close_idle(self, connections: Collection[Connection]) -> None:
        """Close connections past their timeout, and the longest idle ones where there are too many."""
        now = self._clock()
        # Closed connections drop out; those that are new since the last sweep have had no request yet.
        self._until = {connection: self._until.get(connection, now + FIRST_SECONDS) for connection in connections}
        by_age = sorted(connections, key=self._until.__getitem__)
        spare = len(by_age) - CONNECTIONS
        for i, connection in enumerate(by_age):
            until = self._until[connection]
            if (until <= now or i < spare) and until < float("inf") and connection.transport is not None:
                # Not `close`, which first sends what is buffered to a client that may not read.
                connection.transport.abort()
