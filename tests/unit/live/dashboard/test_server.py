"""The dashboard's server without its screens: odd requests get one line, the headers of all pages, and no traceback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs
from tests.support.dashboard import TOKEN

from steersman.cli.commands import dashboard
from steersman.live.dashboard.server import CODE_SECONDS, HEADERS, OneTimeCode, application
from steersman.live.runtime.http_server import ADDRESS, ListenAddress, Probes, WebServer

LOGIN = f"Authorization: Bearer {TOKEN}\r\n"
SEND = Callable[[bytes], Awaitable["Response"]]


class Response:
    """A response as it was received."""

    def __init__(self, received: bytes) -> None:
        head, _, body = received.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        self.status, self.body = int(first.split()[1]), body.decode()
        self.headers = dict(line.split(": ", 1) for line in lines)

    def is_line(self, status: int) -> bool:
        """Whether it is a refusal of one line, with the headers that every response has."""
        assert (self.status, len(self.body.splitlines())) == (status, 1), (self.status, self.body)
        assert HEADERS.items() <= self.headers.items(), self.headers
        return True


class StreamScreen:
    """A screen with a stream that never ends, and a route that reads what is posted."""

    name, title = "stream", "Stream"

    def routes(self) -> Sequence[web.RouteDef]:
        return web.get("/api/stream/events", self._stream), web.post("/api/stream/body", self._read)

    async def run(self) -> None:
        """Return at once."""

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    async def _read(self, request: web.Request) -> web.Response:
        return web.Response(body=await request.read())


@asynccontextmanager
async def asking(code: OneTimeCode | None = None) -> AsyncIterator[tuple[SEND, int]]:
    """Serve in the block: a function that sends bytes on a new connection, and the server's port; nothing is logged."""
    app = application([StreamScreen()], TOKEN, ADDRESS, code)
    async with WebServer(CollectorRegistry(), Probes(), ListenAddress(), app, headers=HEADERS) as server:

        async def send(request: bytes) -> Response:
            reader, writer = await asyncio.open_connection(ADDRESS, server.port)
            writer.write(request)
            async with asyncio.timeout(60):
                received = await reader.read()
            writer.close()
            return Response(received)

        yield send, server.port


def get(path: str, method: str = "GET", headers: str = LOGIN) -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: {ADDRESS}\r\nConnection: close\r\n{headers}\r\n".encode()


MALFORMED = {
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "no text": b"GET /\xff HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "long": b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
}


@pytest.mark.parametrize("request_", MALFORMED.values(), ids=MALFORMED)
async def test_malformed_http_is_one_line_in_the_response_and_in_the_log(
    request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with asking() as (send, _):
        with capture_logs() as logged:
            assert (await send(request_)).is_line(400)
        assert [(each["event"], each["log_level"]) for each in logged] == [("malformed request", "debug")]
        assert "\n" not in logged[0]["error"]
    assert caplog.records == []


async def test_wrongly_encoded_body_is_rejected(caplog: pytest.LogCaptureFixture) -> None:
    async with asking() as (send, port):
        own = f"{LOGIN}Origin: http://{ADDRESS}:{port}\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n"
        posted = f"POST /api/stream/body HTTP/1.1\r\nHost: {ADDRESS}:{port}\r\n{own}\r\nplain".encode()
        with capture_logs() as logged:
            assert (await send(posted)).is_line(400)
        assert {each["log_level"] for each in logged} <= {"debug"}, logged
    assert caplog.records == []


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/comparison/", "/comparison/"),
        ("/a%20b/%C3%BC", "/a%20b/%C3%BC"),
        ("/x%0d%0aSet-Cookie:%20a=b", "/x%0D%0ASet-Cookie%3A%20a%3Db"),
        ("//evil.example/a", "/evil.example/a"),
        ("/%2Fevil.example/a", "/evil.example/a"),
        ("/\\evil.example/a", "/evil.example/a"),
        ("/%5C%5Cevil.example/a", "/evil.example/a"),
        ("/%09/evil.example/a", "/%09/evil.example/a"),
    ],
)
async def test_token_redirect_stays_on_this_server(path: str, location: str) -> None:
    async with asking() as (send, _):
        response = await send(get(f"{path}?token={TOKEN}", headers=""))
        assert (response.status, response.headers["Location"]) == (303, location)
        assert response.headers["Set-Cookie"].startswith("steersman-dashboard-")


async def test_head_request_to_a_stream_is_rejected() -> None:
    async with asking() as (send, _):
        assert (await send(get("/api/stream/events", "HEAD"))).status == 405


async def test_one_time_code_is_exchanged_for_the_cookie_once() -> None:
    code = OneTimeCode()
    async with asking(code) as (send, _):
        assert (await send(get("/?code=wrong", headers=""))).is_line(401)
        response = await send(get(f"/stream/?code={code.text}", headers=""))
        assert (response.status, response.headers["Location"]) == (303, "/stream/")
        cookie = response.headers["Set-Cookie"].partition(";")[0]
        assert code.text not in cookie
        assert (await send(get("/api/screens", headers=f"Cookie: {cookie}\r\n"))).status == 200
        assert (await send(get(f"/?code={code.text}", headers=""))).is_line(401)
        assert (await send(get("/api/screens", headers=f"Authorization: Bearer {code.text}\r\n"))).is_line(401)


def test_one_time_code_expires() -> None:
    now = 0.0
    code = OneTimeCode(lambda: now)
    now = CODE_SECONDS + 1
    assert not code.take(code.text)


def test_browser_command_line_has_no_token(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    opened: list[str] = []

    def start(address: str) -> None:
        opened.append(address)
        raise KeyboardInterrupt

    monkeypatch.setattr(dashboard.webbrowser, "open", start)
    monkeypatch.setattr(dashboard.asyncio, "Event", lambda: None)
    with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)):
        asyncio.run(dashboard._serve([StreamScreen()], 0, browser=True))
    printed = capsys.readouterr().out
    token = printed.partition("token=")[2].split()[0]
    assert "code=" in opened[0]
    assert token not in opened[0]
