"""Client of Prometheus' HTTP API: bounded responses, deadlines, one-line errors."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple, Self

import aiohttp
import msgspec

from steersman.core.errors import InputError, SteersmanError
from steersman.core.http_failures import one_line, reason_of
from steersman.prometheus.configuration import ServerConfig
from steersman.version import __version__

CONNECTIONS = 16
PATH = "/api/v1/query"


class PrometheusError(SteersmanError):
    """Prometheus cannot be queried, or its response makes no sense."""

    def __init__(self, message: str, *, reached: bool) -> None:
        self.reached = reached
        super().__init__(message)


class NotPrometheusError(PrometheusError):
    """What answers is not Prometheus: another server, or a proxy in front of it."""

    def __init__(self, url: str, status: int) -> None:
        super().__init__(f"{url} does not answer as Prometheus does (HTTP {status})", reached=True)


class Series(NamedTuple):
    """A series of a response: labels, evaluation time (seconds since 1970 by Prometheus' clock), value."""

    labels: dict[str, str]
    time: float
    value: float


class _Element(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    status: str
    data: _Data | None = None
    error: str = ""


class PrometheusClient:
    def __init__(self, server: ServerConfig) -> None:
        self.server = server
        self._url = server.url.rstrip("/") + PATH
        self._tls = _context(server.ca_file)
        self._session: aiohttp.ClientSession | None = None
        self._answers = msgspec.json.Decoder(_Answer)
        self._vectors = msgspec.json.Decoder(list[_Element])

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS, ssl=self._tls),
            headers={"User-Agent": f"steersman/{__version__}", "Accept": "application/json"},
            timeout=aiohttp.ClientTimeout(total=self.server.timeout_seconds),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def ask(self, query: str) -> list[Series]:
        """Return the instant vector of a query. Values may be NaN or infinite."""
        status, body = await self._body(query)
        try:
            answer = self._answers.decode(body)
        except msgspec.MsgspecError:
            raise NotPrometheusError(self._url, status) from None
        if answer.status != "success" or answer.data is None:
            raise PrometheusError(f"{self._url}: {one_line(answer.error) or 'failed'} (HTTP {status})", reached=True)
        if answer.data.result_type != "vector":
            raise PrometheusError(
                f"{self._url}: the query gives a {one_line(answer.data.result_type)}; expected an instant vector",
                reached=True,
            )
        try:
            return [
                Series(each.metric, each.value[0], float(each.value[1]))
                for each in self._vectors.decode(answer.data.result)
            ]
        except (msgspec.MsgspecError, ValueError):
            raise NotPrometheusError(self._url, status) from None

    async def _body(self, query: str) -> tuple[int, bytes]:
        assert self._session is not None, "the client is used as a context manager"
        limit, body = self.server.max_body_bytes, bytearray()
        try:
            # POST, since a long query does not fit in a URL.
            async with self._session.post(
                self._url, data={"query": query}, headers=self._headers(), allow_redirects=False
            ) as response:
                async for chunk in response.content.iter_any():
                    body += chunk
                    # Counted here, since the length that a server states may be missing or wrong.
                    if len(body) > limit:
                        raise PrometheusError(f"{self._url}: the answer is larger than {limit} bytes", reached=True)
                return response.status, bytes(body)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            reason = reason_of(error, seconds=self.server.timeout_seconds)
            raise PrometheusError(f"{self._url}: {reason}", reached=False) from error

    def _headers(self) -> dict[str, str]:
        if not self.server.token_file:
            return {}
        try:
            token = Path(self.server.token_file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise PrometheusError(f"{self.server.token_file} cannot be read: {reason}", reached=False) from None
        return {"Authorization": f"Bearer {token}"}


def _context(ca_file: str) -> ssl.SSLContext | bool:
    if not ca_file:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InputError(ca_file, "", "", f"holds no certificates: {one_line(str(error))}") from None
