"""HTTP routes of the dashboard: the page, the document of its runs, and explanations of their decisions."""

from __future__ import annotations

import asyncio
import gzip
import mimetypes
from collections.abc import Sequence
from functools import cache
from importlib import resources

import msgspec
from aiohttp import web

from steersman.apps.dashboard.access import guard, refused
from steersman.apps.dashboard.explanations import RunExplainer
from steersman.apps.dashboard.replay import replay_of
from steersman.apps.service.messages.types import Explanation
from steersman.core.errors import SteersmanError, UsageError
from steersman.policies.base import Policy
from steersman.simulation.result import RunResult
from steersman.workloads.workload import Workload

PAGE = "index.html"
KEPT = 1000
"""Explanations that are kept."""


class Dashboard:
    """Runs of policies on a workload, and what the page asks about them.

    Args:
        workload: nodes and pods.
        policies: the policies of the runs.
        results: the runs, with recorded placements.
    """

    def __init__(self, workload: Workload, policies: Sequence[Policy], results: Sequence[RunResult]) -> None:
        self._replay = replay_of(workload, results)
        self._explainers = [RunExplainer(policy, workload, self._replay, run) for run, policy in enumerate(policies)]
        self._document = gzip.compress(msgspec.json.encode(self._replay), compresslevel=6)
        self._explained: dict[tuple[int, int], Explanation] = {}
        self._lock = asyncio.Lock()  # one explanation at a time: each scores all nodes several times

    def app(self, token: str, address: str) -> web.Application:
        """Return the application; requests need the token."""
        app = web.Application(middlewares=[guard(token, address)])
        app.router.add_get("/", _page)
        app.router.add_get(r"/static/{name:[a-z]+\.[a-z]+}", _static)
        app.router.add_get("/api/replay", self._get_replay)
        app.router.add_get("/api/explanation", self._get_explanation)
        return app

    async def _get_replay(self, _: web.Request) -> web.Response:
        headers = {"Content-Encoding": "gzip"}
        return web.Response(body=self._document, content_type="application/json", headers=headers)

    async def _get_explanation(self, request: web.Request) -> web.Response:
        try:
            run, event = (_position(request, name) for name in ("run", "event"))
            if run >= len(self._replay.runs) or event >= len(self._replay.runs[run].time):
                return refused(404, f"run {run} has no event {event}")
            return _json(await self._explain(run, event))
        except SteersmanError as error:
            return refused(400, str(error))

    async def _explain(self, run: int, event: int) -> Explanation:
        async with self._lock:
            if (run, event) not in self._explained:
                while len(self._explained) >= KEPT:
                    del self._explained[next(iter(self._explained))]
                self._explained[run, event] = await asyncio.to_thread(self._explainers[run].explain, event)
        return self._explained[run, event]


def _position(request: web.Request, name: str) -> int:
    text = request.query.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError(f"{name}: {text!r} is no position; a whole number from 0 is right")
    return int(text)


def _json(content: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(content), content_type="application/json")


async def _page(_: web.Request) -> web.Response:
    return _file(PAGE)


async def _static(request: web.Request) -> web.Response:
    try:
        return _file(request.match_info["name"])
    except FileNotFoundError:
        return refused(404, "there is no such file")


def _file(name: str) -> web.Response:
    kind, _ = mimetypes.guess_type(name)
    return web.Response(body=_content(name), content_type=kind or "application/octet-stream", charset="utf-8")


@cache
def _content(name: str) -> bytes:
    return (resources.files("steersman.apps.dashboard") / "static" / name).read_bytes()
