"""What clients may take: bytes of bodies, time to send them, and connections that say nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Protocol

from aiohttp import web

BODY_SECONDS = 10.0
"""A body that is not there after so long is given up."""
FIRST_SECONDS, IDLE_SECONDS = 10.0, 120.0
"""A connection without a whole request is closed after so long; one that had a request, after longer than clients keep
idle connections (Go's plugin: 90 s), so that it is they who close them."""
CONNECTIONS = 4096
"""Beyond so many, those that have been idle for longest are closed."""
SWEEP_SECONDS = 1.0
BODIES = 4
"""So many of the largest bodies may be held at a time."""


class TooManyBodies(Exception):  # noqa: N818 - a state, no error of ours
    """There is no room for a body now."""


class Bodies:
    """Reads bodies, and holds no more of them at a time than there is room for.

    Args:
        largest: bytes of a body.
    """

    def __init__(self, largest: int) -> None:
        self.largest, self.room = largest, BODIES * largest
        self.held = 0

    async def read(self, request: web.Request) -> bytes:
        """The body; give it back by `release`.

        Raises:
            web.HTTPRequestEntityTooLarge: it is larger than allowed.
            TooManyBodies: there is no room.
            TimeoutError: it did not come in time.
        """
        length = request.content_length or 0
        if length > self.largest:
            raise web.HTTPRequestEntityTooLarge(self.largest, length)
        if request.content.is_eof():  # all of it came with the head
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
            self.held -= size
            raise
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _hold(self, more: int, size: int) -> None:
        """Hold more of a body of which there is so much. Raises what `read` says, and holds nothing then."""
        if size + more > self.largest:
            raise web.HTTPRequestEntityTooLarge(self.largest, size + more)
        if self.held + more > self.room:
            raise TooManyBodies
        self.held += more

    def release(self, body: bytes) -> None:
        """It is not needed any more."""
        self.held -= len(body)


class Connection(Protocol):
    """A connection to a client, aiohttp's `RequestHandler`."""

    transport: asyncio.Transport | None


class Connections:
    """Closes connections on which nothing whole comes.

    Args:
        clock: of seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[Connection, float] = {}

    def __len__(self) -> int:
        """Those on which a request came, and that were open when they were last looked through."""
        return len(self._until)

    def began(self, connection: Connection) -> None:
        """A request came on it: it is at work."""
        self._until[connection] = float("inf")

    def ended(self, connection: Connection) -> None:
        """The request was answered."""
        self._until[connection] = self._clock() + IDLE_SECONDS

    async def sweep(self, connections: Callable[[], Collection[Connection]]) -> None:
        """Close them, until cancelled. `connections`: those there are."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.close_idle(connections())

    def close_idle(self, connections: Collection[Connection]) -> None:
        """Close those whose time is over, and those that have been idle for longest where there are too many."""
        now = self._clock()
        self._until = {connection: self._until.get(connection, now + FIRST_SECONDS) for connection in connections}
        by_age = sorted(connections, key=self._until.__getitem__)
        spare = len(by_age) - CONNECTIONS
        for i, connection in enumerate(by_age):
            until = self._until[connection]
            if (until <= now or i < spare) and until < float("inf") and connection.transport is not None:
                connection.transport.abort()
