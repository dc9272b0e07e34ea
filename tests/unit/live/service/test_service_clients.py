"""The score service and clients that mean no good, or show the wrong papers: real connections, real handshakes."""

import asyncio
import contextlib
import datetime
import gzip
import json
import os
import ssl
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp.web import HTTPRequestEntityTooLarge
from tests.support.servers.watched_service import served
from tests.unit.live.service.test_service import CLUSTER, node, pod

from steersman.cli.output.logs import LogFormat, LogLevel, configure_logs
from steersman.core.errors import InputError
from steersman.live.service import limits
from steersman.live.service.config import Tls
from steersman.live.service.limits import BodyBudget, Connections, TooManyBodiesError

QUESTION = json.dumps({"pod": pod(), "cluster": CLUSTER}).encode()


def post(body: bytes = QUESTION, path: str = "/v1/scores", *headers: str, length: int | None = None) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body


async def talk(port: int, sent: bytes, context: ssl.SSLContext | None = None) -> tuple[int, str]:
    """Status and body of the first answer, 0 where the connection is closed without one."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="localhost" if context else None
    )
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(sent)
            await writer.drain()
        return await answered(reader)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


async def answered(reader: asyncio.StreamReader) -> tuple[int, str]:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        return int(head.split()[1]), (await reader.readexactly(length)).decode()
    except (asyncio.IncompleteReadError, ConnectionError):
        return 0, ""


@contextlib.asynccontextmanager
async def attacked(**changes: Any) -> AsyncIterator[int]:
    """The port of a service that still answers when the block ends."""
    async with asyncio.timeout(300), served(**changes) as (_, port):
        yield port
        assert (await talk(port, post()))[0] == 200, "it still answers"


# Bodies and requests --------------------------------------------------------------------------------------------------

CHUNKED = b"POST /v1/scores HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
HUGE = 1 << 20


def chunked(body: bytes, size: int = 100) -> bytes:
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return CHUNKED + b"\r\n" + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


REQUESTS = {
    "chunks": (chunked(QUESTION), 200),
    "any content type": (post(QUESTION, "/v1/scores", "Content-Type: text/html"), 200),
    "no UTF-8": (post(b'{"pod": "\xff\xfe"}'), 400),
    "no UTF-8 in a raw part": (post(b'{"pod": {"metadata": {"name": "\xff"}}, "cluster": {"nodes": []}}'), 400),
    "a field twice": (post(b'{"nodeSet": "a", "nodeSet": "b", "pod": ' + json.dumps(pod()).encode() + b"}"), 404),
    "deep nesting": (post(b'{"pod": ' + b"[" * 50_000 + b"]" * 50_000 + b', "cluster": {"nodes": []}}'), 400),
    "deep nesting inside": (post(b'{"pod": {"a":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_000 + b"}}"), 400),
    "huge numbers": (post(b'{"pod": ' + b"9" * 10_000 + b"}"), 400),
    "nothing": (post(b""), 400),
    "larger than allowed": (post(b" " * (HUGE + 1)), 413),
    "says it is larger": (post(b"", length=100 << 20), 413),
    "larger in chunks": (chunked(b" " * (HUGE + 1), 1 << 16), 413),
    "a bomb": (post(gzip.compress(b" " * (8 * HUGE)), "/v1/scores", "Content-Encoding: gzip"), 413),
    "no gzip": (post(b"no gzip", "/v1/scores", "Content-Encoding: gzip"), 400),
    "two lengths": (post(QUESTION, "/v1/scores", "Content-Length: 5"), 400),
    "a length and chunks": (post(QUESTION, "/v1/scores", "Transfer-Encoding: chunked"), 400),
    "a negative length": (post(QUESTION, length=-1), 400),
    "chunks without a size": (CHUNKED + b"\r\nnonsense\r\n", 400),
    "a header in two lines": (b"POST /v1/scores HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400),
    "a space before the colon": (b"POST /v1/scores HTTP/1.1\r\nHost : x\r\n\r\n", 400),
    "a huge header": (b"POST /v1/scores HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 100_000 + b"\r\n\r\n", 400),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "another way to the path": (post(QUESTION, "//v1/scores"), 404),
    "control characters in the path": (post(QUESTION, "/v1/%0a%1b[31mscores"), 404),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_malformed_requests_are_answered_or_rejected(name, capfd):
    configure_logs(LogFormat.TEXT, LogLevel.INFO)
    sent, status = REQUESTS[name]
    async with attacked(max_body_bytes=HUGE) as port:
        found, said = await talk(port, sent)
        assert found == status, said
        if status in (404, 413) or (status == 400 and said.startswith("{")):
            assert list(json.loads(said)) == ["error"]
            assert said.isprintable()
    logged = capfd.readouterr().err
    assert "Traceback" not in logged
    assert len(logged.splitlines()) == 1, "that it listens"


async def test_pipelined_requests_are_answered_in_order():
    async with attacked() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post() + post(b"{") + post(b"", "/nothing") + post())
        assert [(await answered(reader))[0] for _ in range(4)] == [200, 400, 404, 200]
        writer.close()


EVIL = "\x1b[31mred\x1b[0m\nlevel=fatal \u202e \x07\r\x9b"


@pytest.mark.parametrize("form", [LogFormat.TEXT, LogFormat.JSON])
async def test_client_input_is_escaped_in_the_log(form, capfd):
    configure_logs(form, LogLevel.DEBUG)
    async with attacked(shadow=True) as port:
        for where in ("name", "namespace", "uid"):
            evil = pod()
            evil["metadata"] |= {where: EVIL}
            for path in ("/v1/scores", "/v1/suggestions", "/v1/explain"):
                await talk(port, post(json.dumps({"pod": evil, "cluster": CLUSTER}).encode(), path))
        question = {"pod": pod(), "cluster": {"nodes": [node(EVIL)]}}
        await talk(port, post(json.dumps(question).encode()))
        await talk(port, post(json.dumps({"pod": pod(), "nodeSet": EVIL}).encode()))
        labels = pod() | {"metadata": {"name": "x", "labels": {EVIL: EVIL}}}
        await talk(port, post(json.dumps({"pod": labels, "cluster": CLUSTER}).encode()))
        await talk(port, f"GET /{EVIL} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await talk(port, post(QUESTION, "/v1/%0d%0a%1b[31m"))
    logged = capfd.readouterr().err
    assert "shadow" in logged
    assert all(line.isprintable() for line in logged.splitlines()), logged
    assert not any(line.startswith("level=fatal") for line in logged.splitlines())


# Clients that take more than they should ------------------------------------------------------------------------------


async def test_slow_clients_are_disconnected(monkeypatch):
    for name, seconds in (
        ("FIRST_SECONDS", 0.3),
        ("IDLE_SECONDS", 0.6),
        ("BODY_SECONDS", 0.3),
        ("SWEEP_SECONDS", 0.05),
    ):
        monkeypatch.setattr(limits, name, seconds)
    async with attacked(max_requests=1) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(50)]
        for _, writer in silent[:25]:
            writer.write(b"POST /v1/scores HTTP/1.1\r\nHost: ")
        slow_body, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post(b"{", length=10_000))
        idle, polite = await asyncio.open_connection("127.0.0.1", port)
        polite.write(post())
        assert (await answered(idle))[0] == 200
        assert (await talk(port, post()))[0] == 200
        status, said = await answered(slow_body)
        assert (status, json.loads(said)["error"][:26]) == (408, "the body did not come with")
        for reader, _ in [*silent, (idle, polite)]:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        for _, each in [*silent, (slow_body, writer), (idle, polite)]:
            each.close()


async def test_pending_bodies_are_no_overload():
    async with attacked(max_requests=2) as port:
        slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        for _, writer in slow:
            writer.write(post(b"{", length=10_000))
        await asyncio.sleep(0.1)
        status, said = await talk(port, post())
        assert (status, json.loads(said)["neutral"]) == (200, "")
        for _, writer in slow:
            writer.close()


async def test_overload_gets_neutral_scores_or_rejection():
    async with attacked(max_requests=2) as port:

        async def many(path: str) -> list[tuple[int, Any]]:
            opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
            for _, writer in opened:
                writer.write(post(QUESTION, path))
            found = [await answered(reader) for reader, _ in opened]
            for _, writer in opened:
                writer.close()
            return [(status, json.loads(said)) for status, said in found]

        scores = await many("/v1/scores")
        assert {status for status, _ in scores} == {200}
        assert {said["neutral"] for _, said in scores} == {"", "overload"}
        assert {status for status, _ in await many("/v1/explain")} == {200, 503}


class _Request:
    """As much of a request as is read."""

    def __init__(self, chunks: list[bytes], length: int | None = None, *, whole: bool = False) -> None:
        self.content_length, self.content, self.chunks, self.whole = length, self, chunks, whole

    def is_eof(self) -> bool:
        return self.whole

    def read_nowait(self) -> bytes:
        return b"".join(self.chunks)

    async def iter_any(self):
        for chunk in self.chunks:
            await asyncio.sleep(0)
            yield chunk


@pytest.mark.parametrize("whole", [False, True])
async def test_memory_of_pending_bodies_is_bounded(whole):
    bodies = BodyBudget(10)
    with pytest.raises(HTTPRequestEntityTooLarge):
        await bodies.read(_Request([b"12345", b"678901"], whole=whole))
    assert bodies.held == 0
    held = [await bodies.read(_Request([b"12345", b"67890"], whole=whole)) for _ in range(4)]
    assert (held[0], bodies.held) == (b"1234567890", 40)
    with pytest.raises(TooManyBodiesError):
        await bodies.read(_Request([b"1"], whole=whole))
    assert bodies.held == 40
    bodies.release(held.pop())
    assert await bodies.read(_Request([b"1"], whole=whole)) == b"1"
    assert bodies.held == 31


class _Connection:
    def __init__(self) -> None:
        self.transport, self.aborted = self, False

    def abort(self) -> None:
        self.aborted = True


def test_longest_idle_connections_are_closed_first(monkeypatch):
    monkeypatch.setattr(limits, "CONNECTIONS", 2)
    now = [0.0]
    connections = Connections(lambda: now[0])
    old, busy, young = (_Connection() for _ in range(3))
    connections.began(busy)
    connections.ended(old)
    now[0] = 1.0
    connections.ended(young)
    connections.close_idle([young, busy, old])
    assert (old.aborted, busy.aborted, young.aborted) == (True, False, False)


# Papers ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates: of the service, of a client, of an old client, of one that somebody else signed."""
    folder = tmp_path_factory.mktemp("papers")
    ours, theirs = trustme.CA(), trustme.CA()
    ours.cert_pem.write_to_path(folder / "ca.pem")
    theirs.cert_pem.write_to_path(folder / "other-ca.pem")
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    for name, authority, until in (
        ("service", ours, None),
        ("renewed", theirs, None),
        ("client", ours, None),
        ("expired", ours, past),
        ("stranger", theirs, None),
    ):
        made = authority.issue_cert("localhost", not_after=until)
        made.private_key_pem.write_to_path(folder / f"{name}.key")
        made.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    return folder


def trusting(papers: Path, client: str = "", authority: str = "ca") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=papers / f"{authority}.pem")
    if client:
        context.load_cert_chain(papers / f"{client}.pem", papers / f"{client}.key")
    return context


async def shown(port: int, context: ssl.SSLContext) -> int:
    """The status that a client gets, 0 where it is not let in."""
    try:
        return (await talk(port, post(), context))[0]
    except (ssl.SSLError, ConnectionError):
        return 0


async def test_tls_clients_need_a_valid_certificate(papers, capfd):
    configure_logs(LogFormat.TEXT, LogLevel.INFO)
    files = Tls(
        certificate=str(papers / "service.pem"), key=str(papers / "service.key"), client_ca=str(papers / "ca.pem")
    )

    async with asyncio.timeout(300), served(tls=files) as (_, port):
        assert await shown(port, trusting(papers, "client")) == 200
        for client in ("", "expired", "stranger"):
            assert await shown(port, trusting(papers, client)) == 0, client
        assert await shown(port, trusting(papers, "client", "other-ca")) == 0, "a client that does not trust us"
        assert (await talk(port, post()))[0] == 0, "plain HTTP"
        old = trusting(papers, "client")
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert await shown(port, old) == 200
    assert len(capfd.readouterr().err.splitlines()) == 1, "that it listens"


async def test_certificates_and_tokens_are_reloaded(papers, tmp_path, monkeypatch):
    monkeypatch.setattr("steersman.live.service.server.CHECK_SECONDS", 0.02)
    there = {name: tmp_path / name for name in ("tls.crt", "tls.key", "token")}

    def put(name: str, content: bytes) -> None:
        (tmp_path / "new").write_bytes(content)
        os.replace(tmp_path / "new", there[name])

    def put_papers(name: str) -> None:
        put("tls.crt", (papers / f"{name}.pem").read_bytes())
        put("tls.key", (papers / f"{name}.key").read_bytes())

    put_papers("service")
    put("token", b"one")
    files = Tls(certificate=str(there["tls.crt"]), key=str(there["tls.key"]))

    async def ask(port: int, authority: str, token: str) -> int:
        try:
            sent = post(QUESTION, "/v1/scores", f"Authorization: Bearer {token}")
            return (await talk(port, sent, trusting(papers, authority=authority)))[0]
        except ssl.SSLError:
            return 0

    async def until(port: int, *asked: str) -> None:
        while await ask(port, *asked) != 200:
            await asyncio.sleep(0.02)

    async with asyncio.timeout(300), served(tls=files, token_file=str(there["token"])) as (_, port):
        assert [await ask(port, "ca", each) for each in ("one", "two", "\xe4\udcff")] == [200, 401, 401]
        put_papers("renewed")
        put("token", b"two")
        await until(port, "other-ca", "two")
        assert [await ask(port, *each) for each in (("ca", "two"), ("other-ca", "one"))] == [0, 401]
        put("tls.crt", b"nonsense")
        probe = b"GET /healthz?verbose HTTP/1.1\r\nHost: x\r\n\r\n"
        while "files degraded" not in (await talk(port, probe, trusting(papers, authority="other-ca")))[1]:
            await asyncio.sleep(0.02)
        assert await ask(port, "other-ca", "two") == 200, "the former go on"
        put_papers("service")
        await until(port, "ca", "two")


@pytest.mark.parametrize(
    ("certificate", "key", "authority", "said"),
    [
        ("none.pem", "service.key", "", "none.pem: cannot be read: No such file or directory"),
        ("service.pem", "none.key", "", "none.key: cannot be read: No such file or directory"),
        ("service.pem", "client.key", "", "is no usable certificate: key values mismatch"),
        ("empty", "service.key", "", "empty: with"),
        ("service.pem", "service.key", "empty", "empty: holds no usable certificate"),
        ("service.pem", "encrypted.key", "", "the key is encrypted; expected one without a password"),
    ],
)
async def test_unusable_files_fail_in_one_line_at_the_start(papers, certificate, key, authority, said):
    from cryptography.hazmat.primitives import serialization

    (papers / "empty").write_bytes(b"")
    plain = serialization.load_pem_private_key((papers / "service.key").read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"secret")
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (papers / "encrypted.key").write_bytes(plain.private_bytes(*form, secret))
    files = Tls(
        certificate=str(papers / certificate),
        key=str(papers / key),
        client_ca=str(papers / authority) if authority else "",
    )

    before = threading.active_count()
    with pytest.raises(InputError) as error:
        async with served(tls=files):
            pass
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert threading.active_count() <= before, "nothing was left running"
