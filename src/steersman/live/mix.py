"""The mix of a live cluster: which pods are typical of it by those that came last, and what follows from that."""

from __future__ import annotations

import time
from collections import deque

import structlog

from steersman.cluster.model import GpuType, PodClass
from steersman.policies.outlook import OutlookArrays, outlook_arrays
from steersman.processes import ask_process
from steersman.workloads.mix import TypicalPod, mix_arrays, typical_pods

WINDOW = 10_000
"""Pods that the mix is made of: those that were seen last."""
NEW_SHARE = 0.1
"""Of the window: as many new pods make a new mix."""

Task = tuple[tuple[TypicalPod, ...], tuple[GpuType, ...]]
"""Typical pods, and the types of the cluster's GPUs."""

log = structlog.get_logger("mix")


class PodWindow:
    """The classes of the pods that came last."""

    def __init__(self) -> None:
        self._classes: deque[PodClass] = deque(maxlen=WINDOW)
        self._new = 0

    def __len__(self) -> int:
        return len(self._classes)

    def see(self, pod_class: PodClass) -> None:
        """A pod came."""
        self._classes.append(pod_class)
        self._new += 1

    @property
    def classes(self) -> tuple[PodClass, ...]:
        """Of the pods that came last, the newest at the end."""
        return tuple(self._classes)

    @property
    def due(self) -> bool:
        """Whether so many pods came since the mix was made that it should be made anew."""
        return self._new > NEW_SHARE * len(self._classes)

    def typical_pods(self) -> tuple[TypicalPod, ...]:
        """The mix as it is now."""
        self._new = 0
        return typical_pods(self._classes)


class LiveMix(PodWindow):
    """The mix of a sliding window over pods.

    Attributes:
        pods: the mix in use.
        outlook: what follows from it, None: nobody looks at it, or not worked out yet.
        made_at: when it was made, in seconds of `time.time`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pods: tuple[TypicalPod, ...] = ()
        self.outlook: OutlookArrays | None = None
        self.made_at = time.time()

    async def make(self, types: tuple[GpuType, ...], *, outlook: bool) -> bool:
        """Make the mix anew; whether it is another. What follows from it is worked out by a process of its own.

        Args:
            types: of the cluster's GPUs.
            outlook: whether somebody looks at what follows from the mix.
        """
        self.made_at = time.time()
        pods = self.typical_pods()
        if pods == self.pods and (self.outlook is not None or not outlook):
            return False
        # It takes about a second, in which this process must not stand still.
        found = await ask_process(_outlook, (pods, types)) if outlook else None
        self.pods, self.outlook = pods, found
        log.info("new mix", typical_pods=len(pods), of=len(self))
        return True


def _outlook(task: Task) -> OutlookArrays:
    pods, types = task
    return outlook_arrays(pods, mix_arrays(pods, types))
