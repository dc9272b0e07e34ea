"""The screen of training runs: their list, what is new of those that a page shows, and requests to them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from aiohttp import web

from steersman.apps.dashboard.access import refused
from steersman.apps.dashboard.runs.folders import FoundRun, find_runs
from steersman.apps.dashboard.screens import json_response
from steersman.apps.dashboard.training.runs import TABLES, Position, RunHead, TrainingFolder
from steersman.core.errors import SteersmanError, UsageError

LOOK_EVERY_SECONDS = 5.0
"""Time between two looks for runs that have begun meanwhile, as those of `tune` do."""


class RequestBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a page asks of a run."""

    run: str
    request: str


class TrainingScreen:
    """Training runs in folders, and what the page asks about them, and of them.

    Args:
        folders: the folders that a person named; runs that begin below them later are found, too.
        runs: those that are there now.
    """

    name = "training"
    title = "Training"

    def __init__(self, folders: Sequence[Path], runs: Sequence[FoundRun]) -> None:
        self._folders = folders
        self._runs = {run.id: TrainingFolder(run) for run in runs}
        self._looked = time.monotonic()
        self._lock = asyncio.Lock()  # the tables of a run are read by one request at a time

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes of the list, of news and of requests."""
        return (
            web.get("/api/training/runs", self._get_runs),
            web.get("/api/training/news", self._get_news),
            web.post("/api/training/request", self._post_request),
        )

    async def run(self) -> None:
        """Return at once: folders are read when a page asks."""

    async def _get_runs(self, _: web.Request) -> web.Response:
        async with self._lock:
            return json_response(await asyncio.to_thread(self._heads))

    def _heads(self) -> list[RunHead]:
        if time.monotonic() - self._looked > LOOK_EVERY_SECONDS:
            self._look()
            self._looked = time.monotonic()
        heads = [each.head() for each in self._runs.values()]
        for head in heads:
            if head.progress is not None:
                # The list does not show them.
                head.progress.histograms = {}
        return heads

    def _look(self) -> None:
        try:
            found, _ = find_runs(self._folders)
        except SteersmanError:
            return  # a folder was removed meanwhile; what was there is still listed
        for run in found:
            if run.kind == "training" and run.id not in self._runs:
                self._runs[run.id] = TrainingFolder(run)

    async def _get_news(self, request: web.Request) -> web.Response:
        if (folder := self._runs.get(request.query.get("run", ""))) is None:
            return refused(404, "there is no such run in the folders that this dashboard was started with")
        try:
            known = {name: _position(request, name.removesuffix(".csv")) for name in TABLES}
            async with self._lock:
                return json_response(await asyncio.to_thread(folder.news, known))
        except SteersmanError as error:
            return refused(400, str(error))

    async def _post_request(self, request: web.Request) -> web.Response:
        # Browsers send Origin with every POST, and ask this server first before another site's page may send JSON.
        if request.content_type != "application/json" or request.headers.get("Origin") is None:
            return refused(403, "requests to runs are taken from this server's own pages alone, as JSON")
        try:
            body = msgspec.json.decode(await request.read(), type=RequestBody)
        except (msgspec.MsgspecError, ValueError) as error:
            return refused(400, f"the body is no request: {error}")
        if (folder := self._runs.get(body.run)) is None:
            return refused(404, "there is no such run in the folders that this dashboard was started with")
        try:
            await asyncio.to_thread(folder.ask, body.request)
        except UsageError as error:
            return refused(400, str(error))
        except SteersmanError as error:
            return refused(409, str(error))
        return json_response(folder.head())


def _position(request: web.Request, name: str) -> Position:
    """Return what a page has of a table, as GENERATION:ROWS in the query; nothing if it does not say."""
    text = request.query.get(name, "0:0")
    if not re.fullmatch(r"[0-9]{1,9}:[0-9]{1,9}", text):
        raise UsageError(f"{name}: {text[:40]!r} is not a position; expected GENERATION:ROWS")
    generation, rows = text.split(":")
    return Position(int(generation), int(rows))
