"""One line says why a request got no answer, whoever asked."""

import asyncio
import ssl
from typing import Any, cast

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from steersman.core.http_failures import OF_ANOTHER_HOST, reason_of

KEY = ConnectionKey("host", 443, True, True, None, None, None)
ASKED = aiohttp.RequestInfo(URL("http://host"), "GET", CIMultiDictProxy(CIMultiDict()), URL("http://host"))


def invalid_certificate(code: int) -> aiohttp.ClientConnectorCertificateError:
    refusal = ssl.SSLCertVerificationError(1, "failed")
    refusal.verify_code, refusal.verify_message = code, "self-signed certificate"
    return aiohttp.ClientConnectorCertificateError(KEY, refusal)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TimeoutError(), "no answer within 2 s"),
        (aiohttp.ClientConnectorError(KEY, OSError(111, "x")), "cannot be reached: Connection refused"),
        (aiohttp.ServerDisconnectedError(), "the server closed the connection without an answer"),
        (aiohttp.ClientPayloadError("half"), "the answer is not complete"),
        (
            aiohttp.ClientResponseError(ASKED, (), message="bad\n\x1bstatus"),
            "the server does not speak HTTP: bad status",
        ),
        (aiohttp.ClientHttpProxyError(ASKED, (), status=407, message="No"), "the proxy answers with HTTP 407 (No)"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] x"), "TLS failed: "),
        (OSError(), "cannot be reached: OSError"),
    ],
)
def test_reason_is_one_line(error: Exception, reason: str) -> None:
    assert reason_of(error, seconds=2.0).startswith(reason)


def test_hint_names_the_option_of_a_private_authority() -> None:
    said = reason_of(invalid_certificate(18), authority="--policy-ca")
    assert (
        said == "the server's certificate is not valid: self-signed certificate; --policy-ca names a private authority"
    )
    assert "--policy-ca" not in reason_of(invalid_certificate(OF_ANOTHER_HOST[0]), authority="--policy-ca")


def test_server_without_tls_is_reported() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        writer.close()

    async def story() -> str:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server, aiohttp.ClientSession() as session:
            try:
                await session.get(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            except cast(Any, aiohttp.ClientError) as error:
                return reason_of(error)
        raise AssertionError("it answers")

    assert asyncio.run(story()) == "TLS failed: wrong version number; the server there does not speak it"
