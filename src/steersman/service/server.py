"""The service over HTTP: routes, limits, who may ask, and what is said of what goes wrong."""

from __future__ import annotations

import asyncio
import hmac
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog
from aiohttp import web

from steersman.errors import InputError, SteersmanError
from steersman.live.web import OPEN, Checks, Handler, WebServer
from steersman.service.admission import Deadline
from steersman.service.api import Api
from steersman.service.config import Config, Tls, read_token
from steersman.service.documents import Route, openapi, page
from steersman.service.explaining import Explainer
from steersman.service.messages import (
    Explanation,
    ExtenderArgs,
    ExtenderFilterResult,
    HostPriority,
    Problem,
    Question,
    ScoreAnswer,
    ScoreQuestion,
    Scores,
    Suggestion,
)
from steersman.service.metrics import Metrics
from steersman.service.opinions import BadQuestion, UnknownSet

OTHER = "other"
"""What all paths that there are not are called in metrics."""

log = structlog.get_logger("service")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A question that can be asked.

    Attributes:
        route: for the document.
        answer: from the decoded body.
        may_be_neutral: whether an overloaded service still answers, neutrally.
    """

    route: Route
    answer: Callable[..., Any]
    may_be_neutral: bool = True


def endpoints(api: Api, explainer: Explainer) -> tuple[Endpoint, ...]:
    """All of them."""

    def route(path: str, asked: Any, answered: Any, summary: str) -> Route:
        return Route(path, asked, answered, summary)

    return (
        Endpoint(route("/v1/scores", Question, Scores, "Scores of nodes for a pod, as an array."), api.scores),
        Endpoint(route("/v1/suggestions", Question, Suggestion, "The node that would be chosen."), api.suggest),
        Endpoint(
            route("/v1/explain", Question, Explanation, "Why this node, and why not others."),
            explainer.explain,
            may_be_neutral=False,
        ),
        Endpoint(route("/score", ScoreQuestion, ScoreAnswer, "Scores of nodes that are sent, by name."), api.score),
        Endpoint(
            route("/filter", ExtenderArgs, ExtenderFilterResult, "Scheduler extender: nodes that a pod fits."),
            api.filter,
        ),
        Endpoint(
            route("/prioritize", ExtenderArgs, list[HostPriority], "Scheduler extender: scores, 0 to 10."),
            api.prioritize,
        ),
    )


class Server(WebServer):
    """The service's HTTP server.

    Args:
        config: how it runs.
        api, explainer: what answers.
        metrics: are shown, and told of every request.
        healthy, ready: by name, what is wrong in a few words, "" for nothing.

    Attributes:
        port: where it listens.

    Raises:
        InputError: a file of the configuration cannot be used.
    """

    def __init__(
        self, config: Config, api: Api, explainer: Explainer, metrics: Metrics, healthy: Checks, ready: Checks
    ) -> None:
        self.config, self._metrics = config, metrics
        self._token = read_token(config.token_file) if config.token_file else None
        self._busy = 0
        self._known = {*OPEN, "/openapi.json", "/docs"}
        app = web.Application(client_max_size=config.max_body_bytes, middlewares=[self._watch])
        asked = endpoints(api, explainer)
        for each in asked:
            self._known.add(each.route.path)
            app.router.add_post(each.route.path, self._handler(each))
        document = openapi([each.route for each in asked], secured=self._token is not None)
        app.router.add_get("/openapi.json", _constant(msgspec.json.encode(document), "application/json"))
        app.router.add_get("/docs", _constant(page(document).encode(), "text/html"))
        tls = None if config.tls is None else _tls(config.tls)
        super().__init__(metrics.registry, healthy, ready, config.address, config.port, app, tls)

    @web.middleware
    async def _watch(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count and time every request, and turn what goes wrong into one line of JSON."""
        began = asyncio.get_running_loop().time()
        try:
            answer = _problem(401, "a bearer token is needed") if self._is_stranger(request) else await handler(request)
        except web.HTTPException as error:
            answer = _of_http(error, self.config.max_body_bytes)
        except (BadQuestion, msgspec.DecodeError) as error:
            answer = _problem(400, str(error))
        except UnknownSet as error:
            answer = _problem(404, str(error))
        except SteersmanError as error:
            log.error("no answer", path=request.path, error=str(error))
            answer = _problem(503, str(error))
        endpoint = request.path if request.path in self._known else OTHER
        self._metrics.request(endpoint, answer.status, asyncio.get_running_loop().time() - began)
        return answer

    def _is_stranger(self, request: web.Request) -> bool:
        if self._token is None or request.path in OPEN:
            return False
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        return kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token)

    def _handler(self, endpoint: Endpoint) -> Handler:
        decode = msgspec.json.Decoder(endpoint.route.asked).decode

        async def handle(request: web.Request) -> web.Response:
            deadline = Deadline(self.config.deadline_milliseconds / 1000)
            overloaded = self._busy >= self.config.max_requests
            if overloaded and not endpoint.may_be_neutral:
                return _problem(503, f"{self._busy} requests are being answered; try again", {"Retry-After": "1"})
            self._busy += 1
            try:
                body = decode(await request.read())
                answer = (
                    endpoint.answer(body, deadline, overloaded) if endpoint.may_be_neutral else endpoint.answer(body)
                )
            except RecursionError:
                return _problem(400, "body: nested too deeply")
            finally:
                self._busy -= 1
            return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

        return handle


def _tls(files: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(files.certificate, files.key)
    except (OSError, ssl.SSLError) as error:
        raise InputError(files.certificate, "", "", f"with {files.key} is no usable certificate: {error}") from None
    if files.client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(files.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise InputError(files.client_ca, "", "", f"is no usable certificate: {error}") from None
    return context


def _problem(status: int, said: str, headers: Mapping[str, str] | None = None) -> web.Response:
    line = " ".join(said.split()).encode("utf-8", "replace").decode()
    body = msgspec.json.encode(Problem(error=line))
    more = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return web.Response(status=status, body=body, content_type="application/json", headers={**more, **(headers or {})})


def _of_http(error: web.HTTPException, largest: int) -> web.Response:
    """What aiohttp refuses, in our form."""
    match error.status:
        case 404:
            return _problem(404, "there is no such path; /docs lists those there are")
        case 405:
            allowed = ", ".join(sorted(getattr(error, "allowed_methods", ())))
            return _problem(405, f"the method is not allowed here; {allowed} is right", {"Allow": allowed})
        case 413:
            return _problem(413, f"the body is larger than {largest} bytes (maxBodyBytes)")
    return _problem(error.status, error.reason)


def _constant(body: bytes, content_type: str) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type=content_type, charset="utf-8")

    return answer
