"""Events of waiting pods that say when they are expected to start, as `steersman wait` predicts it.

The prediction is made in a process of its own, which reads the cluster by itself, so that it costs no decision.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from steersman.core.errors import SteersmanError
from steersman.core.quantities import format_duration
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.kubernetes.events import EventRecorder, ObjectReference
from steersman.policies.base import Policy

REASON, ACTION = "StartPredicted", "Scheduling"
MOST_EVENTS = 100
"""Events of one prediction, those of the pods that go first: the API server gets no more, however many pods wait."""
LEAST_CHANGE = 0.5
"""Share by which a median must differ from what the last event of the pod says, to be told again."""
LEAST_SECONDS = 60.0
"""A median that differs by less is not told again."""

log = structlog.get_logger("scheduler")


@dataclass(frozen=True, slots=True)
class PredictedStart:
    """When a waiting pod is expected to start, seconds from now on; inf: beyond the horizon.

    Attributes:
        pod: namespace and name.
        p10, p50, p90: seconds within which 10 %, 50 % and 90 % of the simulated futures start it.
        horizon: seconds that these last.
    """

    pod: str
    p10: float
    p50: float
    p90: float
    horizon: float

    def sentence(self) -> str:
        """Return what the event says."""

        def when(seconds: float) -> str:
            far = math.isinf(seconds)
            return f"more than {format_duration(self.horizon)}" if far else format_duration(seconds)

        if math.isinf(self.p10):
            return f"Expected to start in {when(self.p50)}."
        spread = f"between {when(self.p10)} and {when(self.p90)} in 80 % of the simulated futures"
        return f"Expected to start in {when(self.p50)} ({spread})."


Predict = Callable[[Policy], Awaitable[Sequence[PredictedStart]]]
"""Returns when the pods start that wait now under a policy, the one that goes next first, without blocking the event
loop."""


class WaitEvents:
    """Writer of events with predicted starts."""

    def __init__(
        self,
        predict: Callable[[], Awaitable[Sequence[PredictedStart]]],
        seconds: float,  # between the end of one prediction and the next
        pods: Mapping[str, CachedPod],  # the cluster's pods by namespace and name
        name: str,  # `schedulerName` of the pods that get events
        is_due: Callable[[], bool],  # whether there is something to predict: pods wait, and we lead
        events: EventRecorder,
        clock: Callable[[], float],  # monotonic, seconds
    ) -> None:
        self._predict, self._seconds, self._pods, self._name = predict, seconds, pods, name
        self._is_due, self._events, self._clock = is_due, events, clock
        # By uid: the time at which the last event of the pod says that it starts, inf: beyond the horizon.
        self._told: dict[str, float] = {}
        self._failed = ""

    async def run(self) -> None:
        """Predict and write events until cancelled; a failed prediction is logged once."""
        while True:
            await asyncio.sleep(self._seconds)
            if not self._is_due():
                continue
            try:
                self.tell(await self._predict())
            except SteersmanError as error:
                if str(error) != self._failed:
                    log.warning("starts not predicted", error=str(error))
                self._failed = str(error)
            else:
                self._failed = ""

    def tell(self, starts: Sequence[PredictedStart]) -> None:
        """Write events of the pods that still wait, unless their last event says nearly the same."""
        now, told, written = self._clock(), self._told, 0
        self._told = {}
        for start in starts:
            pod = self._pods.get(start.pod)
            if pod is None or pod.node or pod.deleting or pod.pod.scheduler_name != self._name:
                continue
            before = told.get(pod.uid)
            if before is not None:
                self._told[pod.uid] = before
            if written == MOST_EVENTS or (before is not None and _is_near(before - now, start.p50)):
                continue
            written += 1
            self._told[pod.uid] = now + start.p50
            about = ObjectReference(pod.pod.namespace, pod.pod.name, pod.uid)
            self._events.record(about, REASON, start.sentence(), action=ACTION)


def _is_near(before: float, seconds: float) -> bool:
    if math.isinf(before) or math.isinf(seconds):
        return before == seconds
    return abs(seconds - before) <= max(LEAST_SECONDS, LEAST_CHANGE * seconds)
