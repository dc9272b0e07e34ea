"""A proxy before the score service that answers as services do that are unwell."""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HUNG_SECONDS = 120.0
FORWARD_SECONDS = 10.0

Answer = dict[str, Any]


def _first_score(value: float) -> Callable[[Answer], Answer]:
    return lambda answer: answer | {"scores": [value, *answer["scores"][1:]]}


SPOILED: dict[str, Callable[[Answer], Answer]] = {
    "not a number": _first_score(float("nan")),
    "out of range": _first_score(101),
    "other nodes": lambda answer: answer | {"scores": {f"stranger-{i}": 50 for i in range(len(answer["scores"]))}},
    "another node set": lambda answer: answer | {"nodeSet": "elsewhere"},
    "too few": lambda answer: answer | {"scores": answer["scores"][1:]},
}
"""What is done to a good answer."""
FAULTS = ("hung", "status 500", "garbage", "hung up", *SPOILED)


class FaultyService(ThreadingHTTPServer):
    """Listens on a free port of this machine.

    Args:
        port: of the service.

    Attributes:
        fault: one of `FAULTS`, "" for none; may be changed at any time.
        asked: requests by the fault that they met.
    """

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.service_port, self.fault = port, ""
        self.asked: Counter[str] = Counter()
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked went away."""


class _Handler(BaseHTTPRequestHandler):
    server: FaultyService
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        fault = self.server.fault
        self.server.asked[fault] += 1
        if fault == "hung":
            self.server.over.wait(HUNG_SECONDS)
        if fault in ("hung", "hung up"):
            self.close_connection = True
        elif fault == "status 500":
            self._say(500, b'{"error": "out of order"}')
        elif fault == "garbage":
            self._say(200, b"\x00\xff\x1b[31m not JSON")
        else:
            self._forward(fault, body)

    def _forward(self, fault: str, body: bytes) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.service_port, timeout=FORWARD_SECONDS)
        try:
            connection.request("POST", self.path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            status, content = response.status, response.read()
        except (OSError, http.client.HTTPException):  # the service is gone
            self.close_connection = True
            return
        finally:
            connection.close()
        if fault in SPOILED and status == 200:
            content = json.dumps(SPOILED[fault](json.loads(content))).encode()
        self._say(status, content)

    def _say(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # named so in BaseHTTPRequestHandler
        """Tests count by themselves."""


@contextmanager
def faulty_service(port: int) -> Iterator[FaultyService]:
    """The proxy at work."""
    with FaultyService(port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()
