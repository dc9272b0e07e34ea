"""Requests to the Kubernetes API: JSON over one connection pool; errors carry the server's message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, TypedDict, TypeVar, Unpack

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter

from steersman.core.errors import SteersmanError
from steersman.core.event_loop import Backoff
from steersman.core.http_failures import reason_of
from steersman.kubernetes.config import KubeConfig
from steersman.kubernetes.credentials import Credentials, impersonation_headers
from steersman.version import __version__

MISSING, CONFLICT, TOO_MANY = 404, 409, 429
UNAVAILABLE = (502, 503, 504)
BUSY = (TOO_MANY, 500, *UNAVAILABLE)  # statuses of a server that may do later what it does not do now
CONNECTIONS = 128
TIMEOUT_SECONDS = 30.0
DELETION_SECONDS = 90.0  # the server deletes the objects of a collection one after the other, and gives up after 60 s
PAGE = 1000
RETRIES = 4
RETRY_SECONDS = (0.25, 4.0)
LONGEST_RETRY_SECONDS = 30.0  # upper limit of a wait that a server asks for
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

Query = Mapping[str, str]


T = TypeVar("T")


class ApiError(SteersmanError):
    """The server answered with a failure."""

    def __init__(self, doing: str, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        # `reason`: Kubernetes' word for it, such as `Conflict` or `NotFound`
        # `retry_after`: seconds that the server asks to wait, 0 if it does not
        self.status, self.reason, self.message, self.retry_after = status, reason, message, retry_after
        super().__init__(f"{doing}: {message or reason or 'failed'} (HTTP {status})")


class UnreachableError(SteersmanError):
    """The server could not be reached, or did not answer in time."""


def is_transient(error: SteersmanError) -> bool:
    """Return whether the same request may succeed later: the server is busy, or was not reached."""
    return isinstance(error, UnreachableError) or (isinstance(error, ApiError) and error.status in BUSY)


class GuardedBody(aiohttp.BytesPayload):
    """Body of a request that is checked right before it is written, when the connection is there.

    Without its body the server does nothing about a request.
    """

    def __init__(self, body: bytes, guard: Callable[[], None]) -> None:
        super().__init__(body)
        self._guard = guard  # called then; what it raises ends the request, which raises UnreachableError

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._guard()
        await super().write_with_length(writer, content_length)


class Status(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class ListMeta(msgspec.Struct, frozen=True):
    """`metadata` of a list."""

    resource_version: str = msgspec.field(default="", name="resourceVersion")
    continue_: str = msgspec.field(default="", name="continue")


class RawList(msgspec.Struct, frozen=True):
    """A list whose items are not decoded."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """Objects as JSON, and the resource version of their list."""

    items: list[msgspec.Raw]
    resource_version: str


class RequestOptions(TypedDict, total=False):
    query: Query | None
    body: bytes | GuardedBody
    content_type: str
    timeout: aiohttp.ClientTimeout


class Client:
    """Connection to one cluster; an asynchronous context manager."""

    def __init__(self, config: KubeConfig, user_agent: str = "") -> None:
        self.config = config
        self.credentials = Credentials(config)
        self._base = config.cluster.server.rstrip("/")
        self._agent = user_agent or f"steersman/{__version__}"
        self._session: aiohttp.ClientSession | None = None
        self._lists = msgspec.json.Decoder(RawList)
        self._objects = msgspec.json.Decoder(dict[str, Any])
        self._statuses = msgspec.json.Decoder(Status)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=60),
            headers=[("User-Agent", self._agent), ("Accept", JSON), *impersonation_headers(self.config.user)],
            auto_decompress=True,
            skip_auto_headers=("Content-Type",),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @asynccontextmanager
    async def open(
        self, method: str, path: str, **options: Unpack[RequestOptions]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield a response whose body is not read yet. Raises as `request` does."""
        assert self._session is not None, "the client is used as a context manager"
        doing = f"{method} {path}"
        for renewed in (False, True):
            headers = dict(await self.credentials.headers(renew=renewed))
            if options.get("body") is not None:
                headers["Content-Type"] = options.get("content_type", JSON)
            try:
                async with self._session.request(
                    method,
                    self._base + path,
                    params=options.get("query"),
                    data=options.get("body"),
                    headers=headers,
                    timeout=options.get("timeout", aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)),
                    server_hostname=self.config.cluster.tls_server_name or None,
                    ssl=self.credentials.context,
                    proxy=self.config.cluster.proxy_url or None,
                ) as response:
                    if response.status == 401 and not renewed:
                        continue  # the token may have been replaced
                    if response.status >= 400:
                        raise self._error(doing, response, await response.read())
                    yield response
                    return
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise self._unreachable(error) from error

    async def request(self, method: str, path: str, **options: Unpack[RequestOptions]) -> bytes:
        async with self.open(method, path, **options) as response:
            return await response.read()

    async def open_connections(self, count: int) -> None:
        """Open so many connections, so that the next requests need not wait for them. Failures are left to these."""
        await asyncio.gather(*(self.request("GET", "/version") for _ in range(count)), return_exceptions=True)

    async def get(self, path: str, query: Query | None = None) -> Any:
        """Return the object at `path`. Raises as `request` does; retries while the server is too busy."""
        return self._understood(await self._patiently("GET", path, query=query), self._objects)

    async def pages(self, path: str, query: Query | None = None) -> AsyncIterator[Listed]:
        """Yield all objects of a collection page by page, one page at least. Raises as `request` does."""
        parameters = {"limit": str(PAGE), **(query or {})}
        while True:
            body = await self._patiently("GET", path, query=parameters)
            page = self._understood(body, self._lists)
            yield Listed(list(page.items or ()), page.metadata.resource_version)
            if not page.metadata.continue_:
                return
            # All pages of a list are of one resource version, so that of the last one is the list's.
            parameters["continue"] = page.metadata.continue_

    async def list(self, path: str, query: Query | None = None) -> Listed:
        items: list[msgspec.Raw] = []
        async for page in self.pages(path, query):
            items += page.items
        return Listed(items, page.resource_version)

    async def create(self, path: str, obj: object, query: Query | None = None) -> Any:
        body = obj if isinstance(obj, bytes) else msgspec.json.encode(obj)
        return self._understood(await self._patiently("POST", path, query=query, body=body), self._objects)

    async def patch(self, path: str, change: object) -> Any:
        body = msgspec.json.encode(change)
        answer = await self._patiently("PATCH", path, body=body, content_type=MERGE_PATCH)
        return self._understood(answer, self._objects)

    async def replace(self, path: str, obj: object) -> Any:
        """Replace an object; status 409 if it was changed meanwhile. Raises as `request` does."""
        return self._understood(await self._patiently("PUT", path, body=msgspec.json.encode(obj)), self._objects)

    async def delete(self, path: str, query: Query | None = None) -> None:
        """Delete an object or a collection, which may take the server a minute. Raises as `request` does."""
        await self._patiently("DELETE", path, query=query, timeout=aiohttp.ClientTimeout(total=DELETION_SECONDS))

    async def _patiently(self, method: str, path: str, **options: Unpack[RequestOptions]) -> bytes:
        """Send a request as `request` does, and retry while the server is too busy (it did nothing then)."""
        backoff = Backoff(*RETRY_SECONDS)
        for _ in range(RETRIES):
            try:
                return await self.request(method, path, **options)
            except ApiError as error:
                # A gateway answers 502 to 504 also for requests that the server carried out, so only reads are
                # repeated.
                if error.status != TOO_MANY and not (error.status in UNAVAILABLE and method == "GET"):
                    raise
                await backoff.wait(error.retry_after)
        return await self.request(method, path, **options)

    def _understood(self, body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
        try:
            return decoder.decode(body)
        except msgspec.MsgspecError as error:
            who = f"{self._base} ({self._who()})"
            raise SteersmanError(f"{who} does not answer as a Kubernetes API does: {error}") from None

    def _error(self, doing: str, response: aiohttp.ClientResponse, body: bytes) -> ApiError:
        try:
            status = self._statuses.decode(body)
        except msgspec.MsgspecError:
            # A proxy answers in HTML.
            status = Status(message=body[:200].decode(errors="replace").strip().replace("\n", " "))
        retry_after = response.headers.get("Retry-After", "")
        # HTTP also allows a date; Kubernetes sends seconds.
        wait = min(float(retry_after), LONGEST_RETRY_SECONDS) if retry_after.isdecimal() else 0.0
        message = status.message
        if response.status == 401:
            message = f"{self._base} does not know the user of {self._who()}; its credentials may have expired"
        return ApiError(doing, response.status, status.reason, message, wait)

    def _who(self) -> str:
        context = self.config.context
        return f"context {context!r} in {self.config.source}" if context else str(self.config.source)

    def _unreachable(self, error: BaseException) -> UnreachableError:
        return UnreachableError(f"{self._base} ({self._who()}): {reason_of(error)}")
