"""The dashboard's server without a browser, for tests of screens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from steersman.apps.dashboard.server import Screen, application

TOKEN = "a-token"


@dataclass(frozen=True)
class Reply:
    """A response: its status and text."""

    status: int
    text: str

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


def tell(screens: Sequence[Screen], story: Callable[[AskServer], Awaitable[None]]) -> None:
    """Run a story with a function that asks a server with these screens: a path, then what is posted, and headers."""

    async def run() -> None:
        server = TestServer(application(screens, TOKEN, "127.0.0.1"))
        async with TestClient(server) as client:

            async def ask(path: str, posted: object = None, **headers: str) -> Reply:
                own = f"http://127.0.0.1:{server.port}"
                given = {"Authorization": f"Bearer {TOKEN}", "Origin": own} | headers
                given = {name: value for name, value in given.items() if value}
                method = "GET" if posted is None else "POST"
                url = URL(path, encoded=True)
                async with client.request(method, url, json=posted, headers=given) as response:
                    return Reply(response.status, await response.text())

            await story(ask)

    asyncio.run(run())
