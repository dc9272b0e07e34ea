"""The live mix: which pods are typical of a cluster, by those that the informers saw last."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import structlog

from steersman.cluster.model import PodClass
from steersman.policies.outlook import OutlookArrays, outlook_arrays
from steersman.processes import become_worker
from steersman.workloads.mix import TypicalPod, mix_arrays, typical_pods

WINDOW = 10_000
"""Pods that the mix is made of: those that were seen last."""
CHECK_SECONDS = 30.0
NEW_SHARE = 0.1
"""Of the window: as many new pods make a new mix."""

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
        found = await _in_process(pods, models) if outlook else None
        self.pods, self.outlook = pods, found
        log.info("new mix", typical_pods=len(pods), of=len(self._window))
        return True


async def _in_process(pods: tuple[TypicalPod, ...], models: tuple[str, ...]) -> OutlookArrays:
    """What follows from a mix. It takes about a second, in which this process must not stand still."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=become_worker) as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, outlook_of, pods, models)


def outlook_of(pods: tuple[TypicalPod, ...], models: tuple[str, ...]) -> OutlookArrays:
    """What follows from a mix on a cluster with these GPU models."""
    return outlook_arrays(pods, mix_arrays(pods, models))
