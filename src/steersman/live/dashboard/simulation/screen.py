"""The screen of simulated runs: their list, the document of those that are shown, and reasons of their decisions."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import msgspec
from aiohttp import web

from steersman.cluster.model import Pod
from steersman.core.errors import SteersmanError, UsageError
from steersman.live.dashboard.server import Screen, json_response, position_in_query, refused
from steersman.live.dashboard.simulation.document import OUTCOMES, RunColumns, replay_of
from steersman.live.dashboard.simulation.sources import LoadedRun, RunEntry, RunSource
from steersman.live.service.messages import Explanation
from steersman.live.service.scoring.explanation import explain_placed
from steersman.policies.base import Policy, renamed
from steersman.simulation.run import Simulator
from steersman.workloads.workload import Workload

BOUND, FINISHED, EVICTED = (OUTCOMES.index(each) for each in ("bound", "finished", "evicted"))
KEPT = 1000  # explanations of a run that are kept
KEPT_RUNS = 4  # loaded runs that are kept
MOST_SHOWN = 2
CHANGED = "has changed since this page was loaded; reload the page"


def pods_before(workload: Workload, columns: RunColumns, event: int) -> list[Pod]:
    """Return the pods that run before an event, each bound to its node and devices."""
    nodes = workload.nodes
    running: dict[int, list[tuple[int, str]]] = {}
    for e in range(event):
        if columns.outcome[e] == BOUND:
            running.setdefault(columns.pod[e], []).append((columns.node[e], columns.devices[e]))
        elif columns.outcome[e] in (FINISHED, EVICTED):
            # A pod may run several times at once; the one that was bound first ends first.
            running[columns.pod[e]].pop(0)
    result = []
    for pod, places in running.items():
        for number, (node, devices) in enumerate(places):
            original = workload.pods[pod]
            held = tuple(int(device) for device in devices.split("-")) if devices else ()
            name = f"{original.name}-{number}" if number else original.name
            result.append(replace(original, name=name).bound(nodes[node].name, held))
    return result


class RunExplainer:
    """Explanations of a run's decisions; of a portfolio the deciding member is chosen at the first question."""

    def __init__(self, policy: Policy, workload: Workload, columns: RunColumns) -> None:
        self._policy, self._workload, self._columns = policy, workload, columns
        self._member = self._choice = ""

    def explain(self, event: int) -> Explanation:
        """Return why the policy takes the node that it takes for the pod of an event, and why not others."""
        columns = self._columns
        if columns.outcome[event] == FINISHED:
            raise UsageError(f"event {event} is the end of a pod, and no decision")
        if columns.outcome[event] == EVICTED:
            raise UsageError(f"event {event} is an eviction; the pod that it makes room for is the next one bound")
        if self._policy.members:
            chosen = Simulator(self._workload).member(self._policy)
            self._member, self._choice = chosen.policy.name, chosen.evidence
            self._policy = renamed(chosen.policy, self._policy.name)
        pod = self._workload.pods[columns.pod[event]]
        others = pods_before(self._workload, columns, event)
        result = explain_placed(self._policy, self._workload, pod, others)
        # In a simulation every pod is placed by this policy.
        result.member, result.choice, result.not_scheduled = self._member, self._choice, ""
        return result


class ShownRun:
    """A loaded run, and the explanations of its decisions that were asked for."""

    def __init__(self, source: RunSource, version: str, loaded: LoadedRun, columns: RunColumns) -> None:
        self.source, self.version, self.loaded, self.columns = source, version, loaded, columns
        self._explainer: RunExplainer | None = None
        self.explain = lru_cache(KEPT)(self._explain)

    def _explain(self, event: int) -> Explanation:
        """Return why the policy decided as it did at an event. Raises SteersmanError: there is no reason, and why."""
        try:
            return self._open_explainer().explain(event)
        except ArithmeticError as error:  # a damaged file may hold any number
            raise SteersmanError(f"{self.source.name} has numbers that nothing can be computed with: {error}") from None

    def _open_explainer(self) -> RunExplainer:
        if self._explainer is None:
            policy = self.source.open_policy()
            if self.source.version() != self.version:
                raise UsageError(f"{self.source.name} {CHANGED}")
            self._explainer = RunExplainer(policy, self.loaded.workload, self.columns)
        return self._explainer


class SimulationScreen(Screen):
    """Runs of policies on workloads, and what the page asks about them."""

    name = "simulation"
    title = "Simulation"

    def __init__(self, sources: Sequence[RunSource]) -> None:
        self._sources = sources
        # By version, so that files which have changed are read again.
        self._loaded = lru_cache(KEPT_RUNS)(lambda number, version: _loaded(sources[number], version))
        self._entry = lru_cache(max(1, len(sources)))(lambda number, _version: _entry(sources[number]))
        self._loading = asyncio.Lock()
        self._explaining = asyncio.Lock()  # one at a time: each explanation scores all nodes several times

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes of the list, the document and explanations."""
        return (
            web.get("/api/simulation/runs", self._get_runs),
            web.get("/api/simulation/replay", self._get_replay),
            web.get("/api/simulation/explanation", self._get_explanation),
        )

    async def _get_runs(self, _: web.Request) -> web.Response:
        return json_response(await self._list())

    async def _list(self) -> list[RunEntry]:
        async with self._loading:
            return await asyncio.to_thread(self._entries)

    def _entries(self) -> list[RunEntry]:
        return [self._entry(number, _version(source)) for number, source in enumerate(self._sources)]

    async def _get_replay(self, request: web.Request) -> web.Response:
        shown = await self._shown(request)
        async with self._loading:
            document = await asyncio.to_thread(self._document, shown)
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
        if len(set(shown)) < len(shown):
            raise UsageError("first and second are the same run; expected another one with the same arrivals")
        if len(shown) == MOST_SHOWN and shown[1] not in _comparable(entries, shown[0]):
            raise UsageError(f"{entries[shown[1]].name} has other arrivals than {entries[shown[0]].name}")
        return shown

    def _document(self, shown: Sequence[int]) -> bytes:
        runs = [self._load(number) for number in shown]
        first = runs[0].loaded
        replay = replay_of(first.workload, [each.loaded.result for each in runs], first.profile)
        replay.sources, replay.versions = list(shown), [each.version for each in runs]
        if len({run.policy for run in replay.runs}) < len(runs):
            for columns, run in zip(replay.runs, runs, strict=True):
                columns.policy += f" ({run.source.name})"
        return gzip.compress(msgspec.json.encode(replay), compresslevel=6)

    def _load(self, number: int) -> ShownRun:
        return self._loaded(number, self._sources[number].version())

    async def _get_explanation(self, request: web.Request) -> web.Response:
        run, event = (position_in_query(request, name) for name in ("run", "event"))
        if run >= len(self._sources):
            return refused(404, f"there is no run {run}")
        async with self._loading:
            shown = await asyncio.to_thread(self._load, run)
        if request.query.get("version", shown.version) != shown.version:
            return refused(409, f"{shown.source.name} {CHANGED}")
        if event >= len(shown.columns.time):
            return refused(404, f"run {run} has no event {event}")
        async with self._explaining:
            return json_response(await asyncio.to_thread(shown.explain, event))


def _loaded(source: RunSource, version: str) -> ShownRun:
    loaded = source.load()
    return ShownRun(source, version, loaded, replay_of(loaded.workload, [loaded.result], ()).runs[0])


def _version(source: RunSource) -> str:
    try:
        return source.version()
    except SteersmanError:
        return ""  # its entry says why


def _entry(source: RunSource) -> RunEntry:
    try:
        return source.describe()
    except SteersmanError as error:
        return RunEntry(name=source.name, problem=str(error))


def _comparable(entries: Sequence[RunEntry], first: int) -> list[int]:
    arrivals = entries[first].arrivals
    return [i for i, entry in enumerate(entries) if i != first and not entry.problem and entry.arrivals == arrivals]
