"""An open loop of requests, in a process of its own: they are sent on schedule, whatever became of those before.

`python -m benchmarks.service.client`: reads {"port", "path", "bodies" [one or more], "rate", "count", "warm_up"} as
JSON on standard input, prints {"milliseconds" [count], "statuses", "late", "sizes"}. A latency counts from the
scheduled moment.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

CONNECTIONS = 16
SPIN_SECONDS = 0.0003
"""Before a scheduled moment the loop does not sleep any more, since it would oversleep."""


@dataclass(eq=False)
class Connection:
    """One that is kept open: what was read of the answer under way, and when that was due."""

    socket: socket.socket
    due: float = 0.0
    read: bytearray = field(default_factory=bytearray)

    def fileno(self) -> int:
        """For select."""
        return self.socket.fileno()

    def receive(self) -> tuple[int, int] | None:
        """Status and size of the body if the answer is whole."""
        more = self.socket.recv(1 << 18)
        if not more:
            raise ConnectionError("the service closed a connection that it had a question on")
        self.read += more
        end = self.read.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = bytes(self.read[:end]).lower()
        length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        if len(self.read) < end + 4 + length:
            return None
        status = int(self.read[9:12])
        if status != 200:
            print(bytes(self.read[end + 4 : end + 300]).decode(), file=sys.stderr)
        self.read.clear()
        return status, length


def _connected(port: int) -> Connection:
    opened = socket.create_connection(("127.0.0.1", port))
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(opened)


def load(port: int, path: str, bodies: list[str], rate: float, count: int, warm_up: int) -> dict[str, Any]:
    """Send them."""
    requests = []
    for body in bodies:
        raw = body.encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Type: application/json\r\n"
        requests.append(f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)
    free: deque[Connection] = deque()
    waiting: deque[tuple[float, bytes]] = deque()
    busy: set[Connection] = set()
    milliseconds: list[float] = []
    statuses: Counter[int] = Counter()
    sizes: list[int] = []
    sent, late, total = 0, 0, warm_up + count
    began = time.perf_counter() + 0.1
    while len(milliseconds) < total:
        now = time.perf_counter()
        while sent < total and began + sent / rate <= now:
            waiting.append((began + sent / rate, requests[sent % len(requests)]))
            sent += 1
        while waiting and (free or len(busy) < CONNECTIONS):
            connection = free.pop() if free else _connected(port)  # one that asks nothing would be closed in time
            connection.due, request = waiting.popleft()
            late += time.perf_counter() - connection.due > 0.001
            connection.socket.sendall(request)
            busy.add(connection)
        until = began + sent / rate - time.perf_counter() - SPIN_SECONDS if sent < total else 1.0
        for connection in select.select(busy, (), (), max(until, 0.0))[0]:
            answered = connection.receive()
            if answered is not None:
                milliseconds.append(1000 * (time.perf_counter() - connection.due))
                statuses[answered[0]] += 1
                sizes.append(answered[1])
                busy.remove(connection)
                free.append(connection)
    return {"milliseconds": milliseconds[warm_up:], "statuses": statuses, "late": late, "sizes": sizes[warm_up:]}


if __name__ == "__main__":
    json.dump(load(**json.load(sys.stdin)), sys.stdout)
