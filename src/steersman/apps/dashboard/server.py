"""The dashboard's web application: pages, the list of its screens, and the screens' own routes."""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from functools import cache
from importlib import resources

from aiohttp import web

from steersman.apps.dashboard.access import OneTimeCode, guard, refused
from steersman.apps.dashboard.screens import Screen, json_response

PAGE = "index.html"


def application(
    screens: Sequence[Screen], token: str, address: str, code: OneTimeCode | None = None
) -> web.Application:
    """Return the application; requests need the token.

    Args:
        screens: at least one; `/` leads to the first.
        token: the token.
        address: address that the server listens on.
        code: see `access.guard`.
    """
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
    return (resources.files("steersman.apps.dashboard") / "static" / folder / name).read_bytes()
