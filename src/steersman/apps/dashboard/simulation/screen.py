"""The screen of simulated runs: their document, and explanations of their decisions."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Sequence

import msgspec
from aiohttp import web

from steersman.apps.dashboard.access import refused
from steersman.apps.dashboard.screens import json_response, position_in_query
from steersman.apps.dashboard.simulation.document import replay_of
from steersman.apps.dashboard.simulation.explanations import RunExplainer
from steersman.apps.service.messages.types import Explanation
from steersman.core.errors import SteersmanError
from steersman.policies.base import Policy
from steersman.simulation.result import RunResult
from steersman.workloads.workload import Workload

KEPT = 1000
"""Explanations that are kept."""


class SimulationScreen:
    """Runs of policies on a workload, and what the page asks about them.

    Args:
        workload: nodes and pods.
        policies: the policies of the runs.
        results: the runs, with recorded placements.
    """

    name = "simulation"
    title = "Simulation"

    def __init__(self, workload: Workload, policies: Sequence[Policy], results: Sequence[RunResult]) -> None:
        self._replay = replay_of(workload, results)
        self._explainers = [RunExplainer(policy, workload, self._replay, run) for run, policy in enumerate(policies)]
        self._document = gzip.compress(msgspec.json.encode(self._replay), compresslevel=6)
        self._explained: dict[tuple[int, int], Explanation] = {}
        self._lock = asyncio.Lock()  # one explanation at a time: each scores all nodes several times

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes of the document and of explanations."""
        return (
            web.get("/api/simulation/replay", self._get_replay),
            web.get("/api/simulation/explanation", self._get_explanation),
        )

    async def run(self) -> None:
        """Return at once: the runs are over."""

    async def _get_replay(self, _: web.Request) -> web.Response:
        headers = {"Content-Encoding": "gzip"}
        return web.Response(body=self._document, content_type="application/json", headers=headers)

    async def _get_explanation(self, request: web.Request) -> web.Response:
        try:
            run, event = (position_in_query(request, name) for name in ("run", "event"))
            if run >= len(self._replay.runs) or event >= len(self._replay.runs[run].time):
                return refused(404, f"run {run} has no event {event}")
            return json_response(await self._explain(run, event))
        except SteersmanError as error:
            return refused(400, str(error))

    async def _explain(self, run: int, event: int) -> Explanation:
        async with self._lock:
            if (run, event) not in self._explained:
                while len(self._explained) >= KEPT:
                    del self._explained[next(iter(self._explained))]
                self._explained[run, event] = await asyncio.to_thread(self._explainers[run].explain, event)
        return self._explained[run, event]
