"""HTTP server of the service: routes, limits, authentication, and errors as one line of JSON."""

from __future__ import annotations

import asyncio
import hmac
import ssl
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import structlog
from aiohttp import web
from aiohttp.http import HttpProcessingError

from steersman.core.errors import InputError, SteersmanError
from steersman.kubernetes.credentials import file_stamp
from steersman.live.runtime.http_server import OPEN, Handler, ListenAddress, Probes, WebServer
from steersman.live.service.api import Api
from steersman.live.service.config import ServiceConfig, Tls, read_token
from steersman.live.service.limits import (
    BODY_SECONDS,
    IDLE_SECONDS,
    BodyBudget,
    Connection,
    Connections,
    Deadline,
    TooManyBodiesError,
)
from steersman.live.service.messages import (
    Endpoint,
    Explanation,
    ExtenderArgs,
    ExtenderFilterResult,
    HostPriority,
    LimitedNodes,
    Problem,
    ScoreInputs,
    ScoreRequest,
    ScoreResponse,
    Scores,
    Suggestion,
    openapi,
)
from steersman.live.service.metrics import ServiceMetrics
from steersman.live.service.scoring.explanation import Explainer
from steersman.live.service.scoring.node_scorer import InvalidRequestError, RefusedRequestError, UnknownNodeSetError
from steersman.live.service.scoring.unknown_pods import TimeBudget, UnusualPodError

CHECK_SECONDS = 10.0  # interval between checks of the files
LARGE_BODY = 512 << 10  # bytes of a body beyond which decoding takes milliseconds; the names of 5,000 nodes take fewer
LARGE_SHARE, LARGE_SAVED_SECONDS = 0.002, 0.1
"""Share of the event loop's time for decoding such bodies where no request may bring a cluster, and seconds saved up at
most."""
OTHER = "other"  # name of all unknown paths in metrics

log = structlog.get_logger("service")


class Authenticator:
    """Bearer token and TLS configuration of the service.

    A replaced certificate or token is used from the next handshake or request on. A certificate authority that is added
    to `tls.clientCa` is, too; one that is removed is trusted until the service restarts.
    """

    def __init__(self, config: ServiceConfig) -> None:
        # `problem`: why replaced files cannot be used; "" if they can
        self._config, self.problem = config, ""
        self._stamp = self._now()
        self._token = read_token(config.token_file) if config.token_file else None
        # Context for HTTPS; None: plain HTTP
        self.tls = None if config.tls is None else ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        _load(self.tls, config.tls)

    @property
    def has_token(self) -> bool:
        return self._token is not None

    def is_unauthorized(self, request: web.Request) -> bool:
        """Return True if the bearer token is missing or wrong."""
        if self._token is None:
            return False
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        given_token = given.strip().encode("utf-8", "surrogateescape")
        return kind.lower() != "bearer" or not hmac.compare_digest(given_token, self._token)

    async def keep(self) -> None:
        """Reload the files when they change, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.renew()

    def renew(self) -> None:
        """Reload the files if they changed. Files that cannot be used change nothing and are logged once."""
        stamp = self._now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            token = read_token(self._config.token_file) if self._config.token_file else None
            # First into a context that is thrown away: a file that cannot be used must not half change the one in use.
            _load(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), self._config.tls)
            _load(self.tls, self._config.tls)
        except InputError as error:
            self.problem = str(error)
            log.error("token or certificates cannot be used; the previous ones stay in use", error=self.problem)
            return
        self._token, self.problem = token, ""
        log.info("token and certificates read again")

    def _now(self) -> tuple[tuple[int, int, int] | None, ...]:
        tls = self._config.tls
        files = (self._config.token_file, *((tls.certificate, tls.key, tls.client_ca) if tls else ()))
        return tuple(file_stamp(Path(file)) for file in files if file)


def _load(context: ssl.SSLContext | None, files: Tls | None) -> None:
    if context is None or files is None:
        return
    for file in (files.certificate, files.key, files.client_ca):
        if file:
            _readable(file)
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (OSError, ValueError) as error:
        raise InputError(
            files.certificate, "", "", f"with {files.key} is no usable certificate: {_said(error)}"
        ) from None
    if files.client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(files.client_ca)
        except (OSError, ValueError) as error:
            raise InputError(files.client_ca, "", "", f"holds no usable certificate: {_said(error)}") from None


def _readable(file: str) -> None:
    try:
        with Path(file).open("rb"):
            pass
    except OSError as error:
        raise InputError(file, "", "", f"cannot be read: {error.strerror}") from None


def _no_password() -> str:
    """Refuse encrypted keys, for which OpenSSL would prompt on the terminal."""
    raise ValueError("the key is encrypted; expected one without a password")


def _said(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return " ".join(str(error).split())


def endpoints(api: Api, explainer: Explainer) -> tuple[Endpoint, ...]:
    return (
        Endpoint("/v1/scores", ScoreInputs, Scores, "Scores of nodes for a pod, as an array.", api.scores),
        Endpoint(
            "/v1/limits", ScoreInputs, LimitedNodes, "Nodes that a pod's hard limit of latency leaves.", api.limit
        ),
        Endpoint("/v1/suggestions", ScoreInputs, Suggestion, "The node that would be chosen.", api.suggest),
        Endpoint(
            "/v1/explain", ScoreInputs, Explanation, "Why this node, and why not others.", explainer.explain, False
        ),
        Endpoint("/score", ScoreRequest, ScoreResponse, "Scores of nodes that are sent, by name.", api.score),
        Endpoint(
            "/filter", ExtenderArgs, ExtenderFilterResult, "Scheduler extender: nodes that a pod fits.", api.filter
        ),
        Endpoint(
            "/prioritize", ExtenderArgs, list[HostPriority], "Scheduler extender: scores, 0 to 10.", api.prioritize
        ),
    )


class HttpServer(WebServer):
    """The service's HTTP server."""

    def __init__(
        self, config: ServiceConfig, api: Api, explainer: Explainer, metrics: ServiceMetrics, probes: Probes
    ) -> None:
        self.config, self._metrics = config, metrics
        self._guard = Authenticator(config)
        self._in_flight = 0
        self._large = None if api.takes_sent else TimeBudget(LARGE_SHARE, LARGE_SAVED_SECONDS)
        self._bodies, self._connections = BodyBudget(config.max_body_bytes), Connections()
        self._known = {*OPEN, "/openapi.json"}
        app = web.Application(client_max_size=config.max_body_bytes, middlewares=[self._watch])
        routes = endpoints(api, explainer)
        for each in routes:
            self._known.add(each.path)
            app.router.add_post(each.path, self._handler(each))
        document = openapi(routes, secured=self._guard.has_token)
        app.router.add_get("/openapi.json", _constant(msgspec.json.encode(document), "application/json"))
        probes = replace(probes, notes={**probes.notes, "files": lambda: self._guard.problem})
        metrics.watch_files(lambda: self._guard.problem)
        super().__init__(
            metrics.registry,
            probes,
            ListenAddress(config.address, config.port, self._guard.tls),
            app,
            keepalive_seconds=IDLE_SECONDS,
        )

    async def __aenter__(self) -> Self:
        """Listen. Raises SteersmanError: the address and port cannot be bound."""
        await super().__aenter__()
        self._beside = [asyncio.create_task(each) for each in (self._connections.sweep(self._open), self._guard.keep())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._beside:
            task.cancel()
        await super().__aexit__(kind, error, trace)

    def _open(self) -> Collection[Connection]:
        server = self._runner.server
        return () if server is None else server.connections

    @web.middleware
    async def _watch(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count and time every request, and turn errors into one line of JSON."""
        began = asyncio.get_running_loop().time()
        self._connections.began(request.protocol)
        try:
            if request.path not in OPEN and self._guard.is_unauthorized(request):
                answer: web.StreamResponse = _problem(401, "a bearer token is needed")
            else:
                answer = await handler(request)
        except web.HTTPException as error:
            answer = _of_http(error, self.config.max_body_bytes)
        except (InvalidRequestError, msgspec.DecodeError) as error:
            answer = _problem(400, str(error))
        except UnicodeDecodeError as error:
            answer = _problem(400, f"body: is no UTF-8: {error.reason}")
        except UnknownNodeSetError as error:
            answer = _problem(404, str(error))
        except RefusedRequestError as error:
            answer = _problem(403, str(error))
        except UnusualPodError as error:
            answer = _problem(503, str(error), {"Retry-After": "1"})
        except SteersmanError as error:
            log.error("no answer", path=request.path, error=str(error))
            answer = _problem(503, str(error))
        except TooManyBodiesError:
            answer = _problem(503, "too many bodies are being read; try again", {"Retry-After": "1"})
            # The rest of the body is unread, and would be taken for the next request of the connection.
            answer.force_close()
        except TimeoutError:
            answer = _problem(408, f"the body did not come within {BODY_SECONDS:g} seconds")
            answer.force_close()
        except (web.RequestPayloadError, HttpProcessingError) as error:
            answer = _problem(400, f"body: {str(error) or type(error).__name__}")
            answer.force_close()
        except Exception:  # an unexpected error: one line in the response, the place where it was raised in the log
            log.exception("request failed", path=request.path)
            answer = _problem(500, "the service failed at this; its log says why")
        finally:
            self._connections.ended(request.protocol)
        endpoint = request.path if request.path in self._known else OTHER
        self._metrics.request(endpoint, answer.status, asyncio.get_running_loop().time() - began)
        return answer

    def _handler(self, endpoint: Endpoint) -> Handler:
        decode = msgspec.json.Decoder(endpoint.request_type).decode

        async def handle(request: web.Request) -> web.Response:
            deadline = Deadline(self.config.deadline_milliseconds / 1000)
            body = await self._bodies.read(request)
            try:
                return await self._answer(endpoint, decode, body, deadline)
            finally:
                self._bodies.release(body)

        return handle

    async def _answer(
        self, endpoint: Endpoint, decode: Callable[[bytes], Any], body: bytes, deadline: Deadline
    ) -> web.Response:
        self._in_flight += 1
        try:
            if len(self._connections) > 1:
                await asyncio.sleep(0)  # requests whose bodies arrived are counted, slow ones are not
            overloaded = self._in_flight > self.config.max_requests
            if self._large is not None and len(body) > LARGE_BODY:
                if self._large.is_spent:
                    message = f"the body has {len(body)} bytes, and many such came just now; try again"
                    return _problem(503, message, {"Retry-After": "1"})
                decode = self._large.charging(decode)
            if endpoint.may_be_neutral:
                answer = endpoint.answer(decode(body), deadline, overloaded)
            elif overloaded:
                return _problem(503, f"{self._in_flight} requests are being answered; try again", {"Retry-After": "1"})
            else:
                answer = endpoint.answer(decode(body))
            return web.Response(body=msgspec.json.encode(answer), content_type="application/json")
        # msgspec's decoder recurses by the nesting of the body.
        except RecursionError:
            return _problem(400, "body: nested too deeply")
        finally:
            self._in_flight -= 1


def _problem(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    # Messages quote the request, which may hold line breaks and lone surrogates.
    line = " ".join(message.split()).encode("utf-8", "replace").decode()
    body = msgspec.json.encode(Problem(error=line))
    more = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return web.Response(status=status, body=body, content_type="application/json", headers={**more, **(headers or {})})


def _of_http(error: web.HTTPException, largest: int) -> web.Response:
    match error.status:
        case 404:
            return _problem(404, "there is no such path; /openapi.json lists those there are")
        case 405:
            allowed = ", ".join(sorted(getattr(error, "allowed_methods", ())))
            return _problem(405, f"the method is not allowed here; expected {allowed}", {"Allow": allowed})
        case 413:
            return _problem(413, f"the body is larger than {largest} bytes (maxBodyBytes)")
    return _problem(error.status, error.reason)


def _constant(body: bytes, content_type: str) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type=content_type, charset="utf-8")

    return answer
