"""The screen of workload files: their list, and the document of each, read again while a run appends to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from aiohttp import web

from steersman.apps.dashboard.access import refused
from steersman.apps.dashboard.runs.folders import FoundRun
from steersman.apps.dashboard.runs.tables import parse_growing
from steersman.apps.dashboard.screens import Screen, json_response
from steersman.apps.dashboard.workload.bindings import BindingsDocument, bindings_document
from steersman.apps.dashboard.workload.deployments import DeploymentsDocument, deployments_document
from steersman.core.errors import SteersmanError
from steersman.workloads.experiments import parse_bindings
from steersman.workloads.generators.deployments import parse_rows

KEPT_FILES = 8
"""Files whose documents are kept in memory."""


class FileEntry(msgspec.Struct, kw_only=True):
    """A file in the list; `version` changes when the file does, and `problem` says why it cannot be shown."""

    id: str
    name: str
    kind: str
    version: str = ""
    problem: str = ""


class WorkloadScreen(Screen):
    """Files of `workload run`, and recordings of a scheduler.

    Args:
        runs: where they are.
    """

    name = "workload"
    title = "Workload"

    def __init__(self, runs: Sequence[FoundRun]) -> None:
        self._runs = {run.id: run for run in runs}
        self._read: dict[str, tuple[str, DeploymentsDocument | BindingsDocument | SteersmanError]] = {}
        self._lock = asyncio.Lock()  # files are read for one request at a time

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes of the list and of a file."""
        return (
            web.get("/api/workload/files", self._get_files),
            web.get("/api/workload/file", self._get_file),
        )

    async def _get_files(self, _: web.Request) -> web.Response:
        async with self._lock:
            return json_response(await asyncio.to_thread(lambda: [self._entry(run) for run in self._runs.values()]))

    def _entry(self, run: FoundRun) -> FileEntry:
        entry = FileEntry(id=run.id, name=run.name, kind=run.kind)
        try:
            entry.version = run.version(run.table)
        except SteersmanError as error:
            entry.problem = str(error)
        else:
            cached = self._read.get(run.id)
            if cached is not None and cached[0] == entry.version and isinstance(cached[1], SteersmanError):
                entry.problem = str(cached[1])
        return entry

    async def _get_file(self, request: web.Request) -> web.Response:
        if (run := self._runs.get(request.query.get("file", ""))) is None:
            return refused(404, "there is no such file among those that this dashboard was started with")
        async with self._lock:
            return json_response(await asyncio.to_thread(self._document, run))

    def _document(self, run: FoundRun) -> DeploymentsDocument | BindingsDocument:
        version = run.version(run.table)
        cached = self._read.pop(run.id, None)
        if cached is None or cached[0] != version:
            cached = version, _load(run)
        self._read[run.id] = cached  # the newest last
        while len(self._read) > KEPT_FILES:
            del self._read[next(iter(self._read))]
        if isinstance(cached[1], SteersmanError):
            raise cached[1]
        return cached[1]


def _load(run: FoundRun) -> DeploymentsDocument | BindingsDocument | SteersmanError:
    try:
        with run.wrapped_read_errors():
            if run.kind == "deployments":
                return deployments_document(parse_growing(run, run.table, parse_rows))
            return bindings_document(parse_growing(run, run.table, parse_bindings))
    except SteersmanError as error:
        return error
