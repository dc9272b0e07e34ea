"""The dashboard's web application: who may read it, its pages, the list of its screens, and the screens' routes."""

from __future__ import annotations

import hmac
import mimetypes
import re
import secrets
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from typing import Protocol
from urllib.parse import SplitResult, quote, urlsplit

import msgspec
from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from steersman.core.errors import SteersmanError, UsageError
from steersman.live.runtime.http_server import OPEN

COOKIE = "steersman-dashboard-{}"  # name of the cookie by the server's port: browsers send a cookie to all ports
TOKEN, CODE = "token", "code"
CODE_SECONDS = 300.0  # time in which a browser must have used its code
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every response: the page loads nothing from elsewhere, runs no inline script, and is in nobody's frame."""
LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")
LARGEST_POSITION_DIGITS = 9
PAGE = "index.html"


def new_token() -> str:
    return secrets.token_urlsafe(24)


class OneTimeCode:
    """A code that a browser exchanges for the token, once.

    The address that a browser is started with is in the list of processes, where others on this machine read it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.text, self._clock = new_token(), clock
        self._ends_at, self._is_used = clock() + CODE_SECONDS, False

    def take(self, given: str) -> bool:
        """Return whether `given` is the code and was never taken before."""
        if self._is_used or self._clock() > self._ends_at or not _equal(given, self.text):
            return False
        self._is_used = True
        return True


def guard(token: str, address: str, code: OneTimeCode | None = None) -> Middleware:
    """Return the middleware that lets requests with the token pass.

    A page that names the server by a domain of its own (DNS rebinding) has another Host, and a page of another site
    another Origin; both are refused. The token comes once in the address, and then as a cookie that no script can read
    and no other site's request carries. `OPEN` paths pass without any of these checks.
    A SteersmanError of a handler is answered by status 400 and its line.
    """
    hosts = {*LOCAL_HOSTS, address}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await _checked(request, handler, token, hosts, code)
        response.headers.update(HEADERS)
        return response

    return check


async def _checked(
    request: web.Request, handler: Handler, token: str, hosts: set[str], code: OneTimeCode | None
) -> web.StreamResponse:
    if request.path in OPEN:
        return await handler(request)
    if _split(f"//{request.host}").hostname not in {host.strip("[]") for host in hosts}:
        return refused(403, "Host is not this server's: open the address that the command printed")
    origin = request.headers.get("Origin")
    if origin is not None and _split(origin).netloc != request.host:
        return refused(403, "Origin is another site's: requests are answered for this server's own pages alone")
    if TOKEN in request.query:
        if not _equal(request.query[TOKEN], token):
            return refused(401, "token is wrong: open the address that the command printed")
        return _with_cookie(request, token)
    if code is not None and CODE in request.query:
        if not code.take(request.query[CODE]):
            return refused(401, "code is wrong or was used already: open the address that the command printed")
        return _with_cookie(request, token)
    kind, _, bearer = request.headers.get("Authorization", "").partition(" ")
    given = bearer.strip() if kind.lower() == "bearer" else request.cookies.get(_cookie_name(request), "")
    if not _equal(given, token):
        return refused(401, "token is missing: open the address that the command printed, which has it")
    try:
        return await handler(request)
    except web.HTTPException as error:
        return refused(error.status, error.reason)
    except SteersmanError as error:
        return refused(400, str(error))
    except (web.RequestPayloadError, HttpProcessingError) as error:
        return refused(400, " ".join(f"body: {error}".split()))


def _with_cookie(request: web.Request, token: str) -> web.Response:
    # Encoded, and not begun as the name of another host is.
    location = "/" + quote(request.path.lstrip("/\\"), errors="surrogateescape")
    response = web.Response(status=303, headers={"Location": location})
    response.set_cookie(_cookie_name(request), token, httponly=True, samesite="Strict", path="/")
    return response


def refused(status: int, problem: str) -> web.Response:
    """Return a response with one line of what is wrong."""
    return web.Response(status=status, text=f"{problem}\n")


def _cookie_name(request: web.Request) -> str:
    return COOKIE.format(request.get_extra_info("sockname", ("", 0))[1])


def _split(url: str) -> SplitResult:
    """Return the parts of an address; of a malformed one they are empty."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def _equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode())


class Screen(Protocol):
    """A screen of the dashboard."""

    name: str  # folder of its page below `static`, and of its routes below `/api`
    title: str  # what the navigation calls it

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes that the page's scripts ask; their paths begin with `/api/NAME/`."""

    async def run(self) -> None:
        """Do what goes on while pages are served, until cancelled: nothing, unless a screen does something."""
        return


def position_in_query(request: web.Request, name: str) -> int:
    """Return a whole number from 0 of a request's query. Raises UsageError: it is missing, or something else."""
    text = request.query.get(name, "")
    if not re.fullmatch(rf"[0-9]{{1,{LARGEST_POSITION_DIGITS}}}", text):
        raise UsageError(f"{name}: {text!r} is not a position; expected a whole number from 0")
    return int(text)


def json_response(content: object) -> web.Response:
    """Return a response with an object as JSON."""
    return web.Response(body=msgspec.json.encode(content), content_type="application/json")


def application(
    screens: Sequence[Screen], token: str, address: str, code: OneTimeCode | None = None
) -> web.Application:
    """Return the application; requests need the token."""
    app = web.Application(middlewares=[guard(token, address, code)])
    titles = [{"name": screen.name, "title": screen.title} for screen in screens]
    names = {screen.name for screen in screens}

    async def first(_: web.Request) -> web.Response:
        return web.Response(status=303, headers={"Location": f"/{screens[0].name}/"})

    async def listed(_: web.Request) -> web.Response:
        return json_response(titles)

    async def page(request: web.Request) -> web.Response:
        return _file(request.match_info["folder"], PAGE) if request.match_info["folder"] in names else _missing()

    app.router.add_get("/", first)
    app.router.add_get("/api/screens", listed)
    app.router.add_get("/{folder:[a-z]+}/", page)
    app.router.add_get(r"/static/{folder:[a-z]+}/{name:[A-Za-z]+(\.[a-z]+)+}", _static)
    for screen in screens:
        for route in screen.routes():  # without HEAD, which aiohttp adds to GET: it would follow a stream
            app.router.add_route(route.method, route.path, route.handler)
    return app


async def _static(request: web.Request) -> web.Response:
    try:
        return _file(request.match_info["folder"], request.match_info["name"])
    except OSError:  # also of a name that is longer than names of files are
        return _missing()


def _missing() -> web.Response:
    return refused(404, "there is no such page")


def _file(folder: str, name: str) -> web.Response:
    kind, _ = mimetypes.guess_type(name)
    return web.Response(body=_content(folder, name), content_type=kind or "application/octet-stream", charset="utf-8")


@cache
def _content(folder: str, name: str) -> bytes:
    return (resources.files("steersman.live.dashboard") / "static" / folder / name).read_bytes()
