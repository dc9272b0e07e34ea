"""Responses to requests that no handler answers, such as malformed HTTP: one line each, in the response and in the log.

aiohttp's own have no headers of the application's, and a traceback in the log, for whoever can connect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from aiohttp import web
from aiohttp.http import HttpProcessingError

log = structlog.get_logger("http")


class ErrorAwareRunner(web.AppRunner):
    """Runner of an application.

    Args:
        app: the application.
        headers: headers of responses to requests that no handler answers.
        options: see `web.AppRunner`.
    """

    __slots__ = ("_headers",)

    def __init__(self, app: web.Application, headers: Mapping[str, str], **options: Any) -> None:
        super().__init__(app, access_log=None, **options)
        self._headers = headers

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        server = _Server(made.request_handler, request_factory=made.request_factory, **made._kwargs)
        server.headers = self._headers
        return server


class _Server(web.Server):
    headers: Mapping[str, str]

    def __call__(self) -> web.RequestHandler:
        return _RequestHandler(self, self.headers, loop=self._loop, **self._kwargs)


class _RequestHandler(web.RequestHandler):
    __slots__ = ("_headers",)

    def __init__(self, server: web.Server, headers: Mapping[str, str], **options: Any) -> None:
        super().__init__(server, **options)
        self._headers = headers

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        response = super().handle_error(request, status, exc, message and " ".join(message.split()) + "\n")
        response.headers.update(self._headers)
        return response

    def log_exception(self, *args: Any, **options: Any) -> None:
        error = options.get("exc_info")
        if isinstance(error, HttpProcessingError | web.RequestPayloadError):  # the latter of a body that is discarded
            log.debug("malformed request", error=" ".join(str(error).split()))
        else:  # an error of this program: its log says where
            log.error("request failed", exc_info=error)
