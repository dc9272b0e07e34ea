"""What a screen of the dashboard is: a page of its own, routes that its scripts ask, and what runs behind it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

import msgspec
from aiohttp import web

from steersman.core.errors import UsageError

LARGEST_POSITION_DIGITS = 9


class Screen(Protocol):
    """A screen of the dashboard.

    Attributes:
        name: folder of its page below `static`, and of its routes below `/api`.
        title: what the navigation calls it.
    """

    name: str
    title: str

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes that the page's scripts ask; their paths begin with `/api/NAME/`."""
        ...

    async def run(self) -> None:
        """Do what goes on while pages are served, until cancelled: nothing, unless a screen does something.

        Raises:
            SteersmanError: it cannot go on; the command ends with this line.
        """
        return


def position_in_query(request: web.Request, name: str) -> int:
    """Return a whole number from 0 of a request's query.

    Raises:
        UsageError: it is missing, or something else.
    """
    text = request.query.get(name, "")
    if not re.fullmatch(rf"[0-9]{{1,{LARGEST_POSITION_DIGITS}}}", text):
        raise UsageError(f"{name}: {text!r} is not a position; expected a whole number from 0")
    return int(text)


def json_response(content: object) -> web.Response:
    """Return a response with an object as JSON."""
    return web.Response(body=msgspec.json.encode(content), content_type="application/json")
