"""Server-sent events: a snapshot first, then what changed; a slow browser is sent the present state, no backlog."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec
from aiohttp import web

from steersman.apps.dashboard.access import HEADERS
from steersman.apps.dashboard.live.cluster import ClusterWatch
from steersman.apps.dashboard.live.documents import Metrics, Summary

HEARTBEAT_SECONDS = 10.0
SLOW_SECONDS = 30.0
"""Time after which a browser that does not read is disconnected; it may come back, and gets a snapshot."""
MOST_CLIENTS = 32


@dataclass(frozen=True, slots=True)
class Seen:
    """What a browser has been sent: layout and change of the nodes, and the last summary and metrics."""

    layout: int = -1
    change: int = -1
    summary: Summary | None = None
    metrics: Metrics | None = None


class Stream:
    """Events for browsers.

    There is no queue: a message holds what changed since the browser's last one, made when the browser takes it.

    Args:
        cluster: the cluster.

    Attributes:
        clients: browsers that are connected.
    """

    def __init__(self, cluster: ClusterWatch) -> None:
        self._cluster = cluster
        self._ticked = asyncio.Event()
        self._summary: Summary | None = None
        self._metrics: Metrics | None = None
        self._made: tuple[Seen, Seen, bytes] | None = None
        self.clients = 0

    def tick(self, summary: Summary, metrics: Metrics) -> None:
        """Have what changed sent."""
        self._summary, self._metrics = summary, metrics
        # A new event for each tick: each waiter wakes once, and no event has to be cleared.
        ticked, self._ticked = self._ticked, asyncio.Event()
        ticked.set()

    def message(self, seen: Seen) -> tuple[bytes, Seen]:
        """Return the events for a browser, empty if nothing changed, and what it has been sent then."""
        cluster = self._cluster
        if not cluster.began:
            return b"", seen
        now = Seen(cluster.layout, cluster.change, self._summary, self._metrics)
        if self._made is None or self._made[0] != seen or self._made[1] != now:  # most browsers are at the same point
            self._made = seen, now, self._encode(seen, now)
        return self._made[2], now

    def _encode(self, seen: Seen, now: Seen) -> bytes:
        parts = []
        if now.layout != seen.layout:
            parts.append(_event("snapshot", self._cluster.snapshot()))
        elif now.change != seen.change and (use := self._cluster.uses_since(seen.change)).at:
            parts.append(_event("use", use))
        if now.summary is not None and now.summary != seen.summary:
            parts.append(_event("summary", now.summary))
        if now.metrics is not None and now.metrics != seen.metrics:
            parts.append(_event("metrics", now.metrics))
        return b"".join(parts)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer a browser until it leaves; one too many gets the event `refused` alone.

        A status other than 200 would not say why, and the browser would not try again: an EventSource shows no body of
        such a response.
        """
        headers = HEADERS | {"Content-Type": "text/event-stream"}
        if self.clients >= MOST_CLIENTS:
            reason = f"{MOST_CLIENTS} pages are open already; close one"
            return web.Response(body=_event("refused", reason), headers=headers)
        response = web.StreamResponse(headers=headers)
        self.clients += 1
        try:
            await response.prepare(request)
            await self._send(request, response)
        except (TimeoutError, ConnectionError):
            if request.transport is not None:
                # Closing would wait for what is buffered to be read.
                request.transport.abort()
        finally:
            self.clients -= 1
        return response

    async def _send(self, request: web.Request, response: web.StreamResponse) -> None:
        loop, seen = asyncio.get_running_loop(), Seen()
        sent = loop.time()
        while request.transport is not None:
            # Before the message is made, so that a tick during the write is not missed.
            ticked = self._ticked
            body, seen = self.message(seen)
            if not body and loop.time() - sent >= HEARTBEAT_SECONDS:
                body = b": the connection is alive\n\n"
            if body:
                async with asyncio.timeout(SLOW_SECONDS):
                    await response.write(body)
                sent = loop.time()
            await ticked.wait()


def _event(name: str, content: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(content))
