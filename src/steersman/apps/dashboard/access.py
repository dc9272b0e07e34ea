"""Who may read the dashboard: whoever has its token, from a page of its own. Probes and metrics need none."""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import SplitResult, quote, urlsplit

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from steersman.apps.runtime.http_server import OPEN

COOKIE = "steersman-dashboard-{}"
"""Name of the cookie by the server's port, since browsers send a cookie to all ports of a host."""
TOKEN = "token"
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


def new_token() -> str:
    """Return a random token."""
    return secrets.token_urlsafe(24)


def guard(token: str, address: str) -> Middleware:
    """Return the middleware that lets requests with the token pass.

    A page that names the server by a domain of its own (DNS rebinding) has another Host, and a page of another site
    another Origin; both are refused. The token comes once in the address, and then as a cookie that no script can read
    and no other site's request carries. `OPEN` paths pass without any of these checks.

    Args:
        token: the token.
        address: address that the server listens on; it may be named as Host.
    """
    hosts = {*LOCAL_HOSTS, address}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await _checked(request, handler, token, hosts)
        response.headers.update(HEADERS)
        return response

    return check


async def _checked(request: web.Request, handler: Handler, token: str, hosts: set[str]) -> web.StreamResponse:
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
        response = web.Response(status=303, headers={"Location": _own_path(request)})
        response.set_cookie(_cookie_name(request), token, httponly=True, samesite="Strict", path="/")
        return response
    kind, _, bearer = request.headers.get("Authorization", "").partition(" ")
    given = bearer.strip() if kind.lower() == "bearer" else request.cookies.get(_cookie_name(request), "")
    if not _equal(given, token):
        return refused(401, "token is missing: open the address that the command printed, which has it")
    try:
        return await handler(request)
    except web.HTTPException as error:
        return refused(error.status, error.reason)
    except (web.RequestPayloadError, HttpProcessingError) as error:
        return refused(400, " ".join(f"body: {error}".split()))


def refused(status: int, problem: str) -> web.Response:
    """Return a response with one line of what is wrong."""
    return web.Response(status=status, text=f"{problem}\n")


def _cookie_name(request: web.Request) -> str:
    return COOKIE.format(request.get_extra_info("sockname", ("", 0))[1])


def _own_path(request: web.Request) -> str:
    """Return the path of a request for a Location: encoded, and not begun as the name of another host is."""
    return "/" + quote(request.path.lstrip("/\\"), errors="surrogateescape")


def _split(url: str) -> SplitResult:
    """Return the parts of an address; of a malformed one they are empty."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def _equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode())
