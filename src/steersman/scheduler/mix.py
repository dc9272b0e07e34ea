"""The live mix: which pods are typical of a cluster, by those that the informers saw last."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

import structlog

from steersman.cluster.model import PodClass
from steersman.policies.outlook import OutlookArrays, outlook_arrays
from steersman.processes import Workers
from steersman.workloads.mix import TypicalPod, mix_arrays, typical_pods

WINDOW = 10_000
"""Pods that the mix is made of: those that were seen last."""
NEW_SHARE = 0.1
"""Of the window: as many new pods make a new mix."""

Task = tuple[tuple[TypicalPod, ...], tuple[str, ...]]
"""Typical pods, and the cluster's GPU models."""

log = structlog.get_logger("mix")


class LiveMix:
    """A sliding window over pods.

    Args:
        clock: seconds.

    Attributes:
        pods: the mix in use.
        outlook: what follows from it, None: nobody looks at it, or not worked out yet.
        made_at: when it was made, in seconds of the clock.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.pods: tuple[TypicalPod, ...] = ()
        self.outlook: OutlookArrays | None = None
        self.made_at = clock()
        self._window: deque[PodClass] = deque(maxlen=WINDOW)
        self._new = 0

    def see(self, pod_class: PodClass) -> None:
        """A pod came."""
        self._window.append(pod_class)
        self._new += 1

    @property
    def due(self) -> bool:
        """Whether so many pods came that the mix should be made anew."""
        return self._new > NEW_SHARE * len(self._window)

    async def make(self, models: tuple[str, ...], *, outlook: bool) -> bool:
        """Make the mix anew; whether it is another. What follows from it is worked out by a process of its own.

        Args:
            models: the cluster's GPU models.
            outlook: whether somebody looks at what follows from the mix.
        """
        self._new, self.made_at = 0, self.clock()
        pods = typical_pods(self._window)
        if pods == self.pods and (self.outlook is not None or not outlook):
            return False
        # It takes about a second, in which this process must not stand still.
        found = await asyncio.to_thread(_in_process, pods, models) if outlook else None
        self.pods, self.outlook = pods, found
        log.info("new mix", typical_pods=len(pods), of=len(self._window))
        return True


def _in_process(pods: tuple[TypicalPod, ...], models: tuple[str, ...]) -> OutlookArrays:
    """What follows from a mix on a cluster with these GPU models, worked out by a process of its own."""
    with Workers(1, _planner) as workers:
        ((_, found),) = workers.answers([(pods, models)])
    return found


def _planner() -> Callable[[Task], OutlookArrays]:
    """In the process: what works it out."""
    return _outlook


def _outlook(task: Task) -> OutlookArrays:
    pods, models = task
    return outlook_arrays(pods, mix_arrays(pods, models))
