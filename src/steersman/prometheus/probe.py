"""Probe of latencies: measure round trips from this node to users' endpoints, periodically.

A round trip is a TCP connection to `host:port`, or an HTTP GET up to the first byte of the response, including its
connection. The latency is the median of the last ones, so that a single slow one does not count as a change.
"""

from __future__ import annotations

import asyncio
import re
import socket
import statistics
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import structlog
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from steersman.core.errors import UsageError
from steersman.prometheus.families import counter_family, gauge_family

MILLISECONDS = 1000.0
LOST_AFTER = 3  # intervals without a round trip after which a latency is unknown

log = structlog.get_logger("probe")


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """Endpoint of a group of users."""

    user: str  # name of the group
    # `host`, `port`: where to connect.
    host: str
    port: int
    path: str = ""  # path of the HTTP request; "": only the connection is measured


def parse_target(text: str) -> ProbeTarget:
    """Parse a target of the command line: `USER=HOST:PORT` or `USER=http://HOST[:PORT]/PATH`."""
    match = re.fullmatch(r"([A-Za-z0-9][\w.-]*)=(http://)?(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::(\d{1,5}))?(/\S*)?", text)
    if match is not None:
        user, http, host, port, path = match.groups()
        number = int(port) if port else 80 if http else 0
        if 0 < number < 1 << 16 and (http or not path):
            return ProbeTarget(user, host.strip("[]"), number, (path or "/") if http else "")
    raise UsageError(f"--target {text}: is not a target; expected USER=HOST:PORT or USER=http://HOST/PATH")


async def round_trip(to: ProbeTarget, timeout: float) -> float:
    """Measure one round trip in milliseconds. Raises OSError, TimeoutError."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout):
        # The name is resolved before the clock starts.
        (family, kind, protocol, _, address), *_ = await loop.getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM)
        connection = socket.socket(family, kind, protocol)
        connection.setblocking(False)
        try:
            began = time.perf_counter()
            await loop.sock_connect(connection, address)
            if to.path:
                host = f"[{to.host}]" if ":" in to.host else to.host
                request = f"GET {to.path} HTTP/1.1\r\nHost: {host}:{to.port}\r\nConnection: close\r\n\r\n"
                await loop.sock_sendall(connection, request.encode())
                if not await loop.sock_recv(connection, 1):
                    raise ConnectionError("closed without an answer")
            return (time.perf_counter() - began) * MILLISECONDS
        finally:
            connection.close()


class Probe(Collector):
    """Latencies to every target, also a collector of metrics. `interval`: seconds between round trips to a target."""

    def __init__(
        self, targets: Sequence[ProbeTarget], interval: float = 5.0, samples: int = 9, timeout: float = 2.0
    ) -> None:
        self.targets, self.interval, self.timeout = tuple(targets), interval, timeout
        self.failures = {each.user: 0 for each in targets}
        self._trips: dict[str, deque[float]] = {each.user: deque(maxlen=samples) for each in targets}
        self._measured_at = {each.user: float("-inf") for each in targets}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for each in self.targets:
                group.create_task(self._follow(each))

    @property
    def latencies(self) -> dict[str, float]:
        """Return milliseconds by users, without those that could not be reached lately."""
        # With the timeout, since a round trip that is under way may still succeed.
        oldest = time.monotonic() - LOST_AFTER * self.interval - self.timeout
        return {
            user: statistics.median(trips)
            for user, trips in self._trips.items()
            if trips and self._measured_at[user] >= oldest
        }

    def collect(self) -> Iterator[Metric]:
        text = "Median round trip from this node to users."
        yield gauge_family("steersman_probe_latency_milliseconds", text, "user", self.latencies)
        yield counter_family("steersman_probe_failures", "Round trips that came to nothing.", "user", self.failures)

    async def _follow(self, to: ProbeTarget) -> None:
        reached = True
        while True:
            began = time.monotonic()
            try:
                self._trips[to.user].append(await round_trip(to, self.timeout))
                self._measured_at[to.user] = time.monotonic()
                if not reached:
                    log.info("users are reached again", user=to.user)
                reached = True
            except (OSError, TimeoutError) as error:
                self.failures[to.user] += 1
                if reached:
                    reason = str(error) or "no answer in time"
                    log.warning("users cannot be reached", user=to.user, host=to.host, port=to.port, error=reason)
                reached = False
                if time.monotonic() - self._measured_at[to.user] > LOST_AFTER * self.interval:
                    self._trips[to.user].clear()
            await asyncio.sleep(max(self.interval - (time.monotonic() - began), 0.0))
