"""The live mix: which pods are typical of a cluster by those that the informers saw last, and what follows from it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from steersman.live.mix import PodWindow
from steersman.policies.outlook import OutlookArrays, outlook_arrays
from steersman.processes import Workers
from steersman.workloads.mix import TypicalPod, mix_arrays

Task = tuple[tuple[TypicalPod, ...], tuple[str, ...]]
"""Typical pods, and the cluster's GPU models."""

log = structlog.get_logger("mix")


class LiveMix(PodWindow):
    """The mix of a sliding window over pods.

    Args:
        clock: seconds.

    Attributes:
        pods: the mix in use.
        outlook: what follows from it, None: nobody looks at it, or not worked out yet.
        made_at: when it was made, in seconds of the clock.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self.clock = clock
        self.pods: tuple[TypicalPod, ...] = ()
        self.outlook: OutlookArrays | None = None
        self.made_at = clock()

    async def make(self, models: tuple[str, ...], *, outlook: bool) -> bool:
        """Make the mix anew; whether it is another. What follows from it is worked out by a process of its own.

        Args:
            models: the cluster's GPU models.
            outlook: whether somebody looks at what follows from the mix.
        """
        self.made_at = self.clock()
        pods = self.typical_pods()
        if pods == self.pods and (self.outlook is not None or not outlook):
            return False
        # It takes about a second, in which this process must not stand still.
        found = await asyncio.to_thread(_in_process, pods, models) if outlook else None
        self.pods, self.outlook = pods, found
        log.info("new mix", typical_pods=len(pods), of=len(self))
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
