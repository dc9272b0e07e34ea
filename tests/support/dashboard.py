"""The dashboard's server without a browser, for tests of screens."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from steersman.live.dashboard.server import Screen, application

TOKEN = "a-token"


@dataclass(frozen=True)
class Reply:
    """A response: its status, text and headers."""

    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def content(self) -> Any:
        """The JSON of a response that has succeeded."""
        assert self.status == 200, self.text
        return json.loads(self.text)

    def is_line(self, status: int, *parts: object) -> bool:
        """Whether it is a refusal of one line that has these parts."""
        assert (self.status, len(self.text.splitlines())) == (status, 1), self
        assert all(str(part) in self.text for part in parts), self
        return True


AskServer = Callable[..., Awaitable[Reply]]


@asynccontextmanager
async def asking(*screens: Screen) -> AsyncIterator[AskServer]:
    """Serve screens in the block, and ask them: a path, a method, and headers; those without text go."""
    server = TestServer(application(screens, TOKEN, "127.0.0.1"))
    async with TestClient(server) as client:

        async def ask(path: str, method: str = "GET", **headers: str) -> Reply:
            own = f"http://127.0.0.1:{server.port}"
            given = {"Authorization": f"Bearer {TOKEN}", "Origin": own} | headers
            given = {name: value for name, value in given.items() if value}
            url = URL(path, encoded=True)
            client.session.cookie_jar.clear()
            async with client.request(method, url, headers=given, allow_redirects=False) as response:
                return Reply(response.status, await response.text(), response.headers)

        yield ask
