"""The screen of simulated runs: their list, the document of those that are shown, and reasons of their decisions."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Sequence

import msgspec
from aiohttp import web

from steersman.apps.dashboard.access import refused
from steersman.apps.dashboard.runs.entries import RunEntries
from steersman.apps.dashboard.screens import json_response, position_in_query
from steersman.apps.dashboard.simulation.document import RunColumns, replay_of
from steersman.apps.dashboard.simulation.explanations import RunExplainer
from steersman.apps.dashboard.simulation.sources import LoadedRun, RunSource
from steersman.apps.service.messages.types import Explanation
from steersman.core.errors import SteersmanError, UsageError

KEPT = 1000
"""Explanations that are kept."""
KEPT_RUNS = 4
"""Loaded runs that are kept."""
MOST_SHOWN = 2


class RunEntry(msgspec.Struct, kw_only=True):
    """A run in the list; `problem` says why it cannot be shown, and runs of equal `arrivals` can be compared."""

    name: str
    policy: str = ""
    workload: str = ""
    protocol: str = ""
    seed: int = 0
    arrivals: str = ""
    problem: str = ""


class SimulationScreen:
    """Runs of policies on workloads, and what the page asks about them.

    Args:
        sources: the runs.
    """

    name = "simulation"
    title = "Simulation"

    def __init__(self, sources: Sequence[RunSource]) -> None:
        self._sources = sources
        self._loaded: dict[int, tuple[LoadedRun, RunColumns]] = {}
        self._explainers: dict[int, RunExplainer] = {}
        self._explained: dict[tuple[int, int], Explanation] = {}
        self._entries = RunEntries(sources, lambda source: source.version(), _entry)
        self._lock = asyncio.Lock()  # one at a time: each explanation scores all nodes several times

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes of the list, the document and explanations."""
        return (
            web.get("/api/simulation/runs", self._get_runs),
            web.get("/api/simulation/replay", self._get_replay),
            web.get("/api/simulation/explanation", self._get_explanation),
        )

    async def run(self) -> None:
        """Return at once: the runs are over."""

    async def _get_runs(self, _: web.Request) -> web.Response:
        return json_response(await self._list())

    async def _list(self) -> list[RunEntry]:
        async with self._lock:
            return await asyncio.to_thread(self._entries.read)

    async def _get_replay(self, request: web.Request) -> web.Response:
        try:
            shown = await self._shown(request)
            async with self._lock:
                document = await asyncio.to_thread(self._document, shown)
        except SteersmanError as error:
            return refused(400, str(error))
        headers = {"Content-Encoding": "gzip"}
        return web.Response(body=document, content_type="application/json", headers=headers)

    async def _shown(self, request: web.Request) -> list[int]:
        """Return the runs that a request names as `first` and `second`; without these the first two alike."""
        entries = await self._list()
        if "first" not in request.query:
            first = next((i for i, entry in enumerate(entries) if not entry.problem), 0)
            return [first, *_comparable(entries, first)][:MOST_SHOWN]
        names = [name for name in ("first", "second") if name in request.query]
        shown = [position_in_query(request, name) for name in names]
        for number in shown:
            if number >= len(entries):
                raise UsageError(f"there is no run {number}")
            if entries[number].problem:
                raise UsageError(entries[number].problem)
        if len(shown) == MOST_SHOWN and shown[1] not in _comparable(entries, shown[0]):
            raise UsageError(f"{entries[shown[1]].name} has other arrivals than {entries[shown[0]].name}")
        return shown

    def _document(self, shown: Sequence[int]) -> bytes:
        loaded = [self._load(number)[0] for number in shown]
        first = loaded[0]
        replay = replay_of(first.workload, [each.result for each in loaded], first.profile)
        replay.sources = list(shown)
        return gzip.compress(msgspec.json.encode(replay), compresslevel=6)

    def _load(self, number: int) -> tuple[LoadedRun, RunColumns]:
        if number not in self._loaded:
            while len(self._loaded) >= KEPT_RUNS:
                oldest = next(iter(self._loaded))
                del self._loaded[oldest]
                self._explainers.pop(oldest, None)
            loaded = self._sources[number].load()
            self._loaded[number] = loaded, replay_of(loaded.workload, [loaded.result], ()).runs[0]
        return self._loaded[number]

    async def _get_explanation(self, request: web.Request) -> web.Response:
        try:
            run, event = (position_in_query(request, name) for name in ("run", "event"))
            if run >= len(self._sources):
                return refused(404, f"there is no run {run}")
            async with self._lock:
                _, columns = await asyncio.to_thread(self._load, run)
                if event >= len(columns.time):
                    return refused(404, f"run {run} has no event {event}")
                return json_response(await asyncio.to_thread(self._explain, run, event))
        except SteersmanError as error:
            return refused(400, str(error))

    def _explain(self, run: int, event: int) -> Explanation:
        if (run, event) not in self._explained:
            while len(self._explained) >= KEPT:
                del self._explained[next(iter(self._explained))]
            if run not in self._explainers:
                loaded, columns = self._load(run)
                self._explainers[run] = RunExplainer(self._sources[run].open_policy(), loaded.workload, columns)
            self._explained[run, event] = self._explainers[run].explain(event)
        return self._explained[run, event]


def _entry(source: RunSource) -> RunEntry:
    try:
        label = source.describe()
    except SteersmanError as error:
        return RunEntry(name=source.name, problem=str(error))
    return RunEntry(
        name=source.name,
        policy=label.policy,
        workload=label.workload,
        protocol=label.protocol,
        seed=label.seed,
        arrivals=label.arrivals,
    )


def _comparable(entries: Sequence[RunEntry], first: int) -> list[int]:
    """Return the other runs with the arrivals of a run."""
    arrivals = entries[first].arrivals
    return [i for i, entry in enumerate(entries) if i != first and not entry.problem and entry.arrivals == arrivals]
