"""Workload profile of a live cluster: the typical pods of a sliding window over arrivals, and their leftover tables."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from itertools import chain
from statistics import median_low

import structlog

from steersman.cluster.model import GPU_MILLI, Node, PodClass, Requests
from steersman.core.errors import SteersmanError
from steersman.core.processes import ask_process
from steersman.policies.gpu_state.leftovers import LeftoverArrays, leftover_arrays
from steersman.workloads.profile import TypicalPod, typical_pods

WINDOW = 10_000
"""Size of the sliding window in pods."""
NEW_SHARE = 0.1
"""Share of the window that must be new before the profile is rebuilt."""
GENERIC_KINDS = 10
"""Kinds of pods whose weight the generic ones have: half of a profile where the window holds as many kinds."""
PODS_OF_EMPTY_WINDOW = 100
"""Number of generic pods for an empty window."""

"""Typical pods and the types of the cluster's GPUs."""

log = structlog.get_logger("profile")


class PodWindow:
    """Sliding window over the classes of arriving pods."""

    def __init__(self) -> None:
        self._classes: deque[PodClass] = deque(maxlen=WINDOW)
        self._new = 0

    def __len__(self) -> int:
        """Return the number of pods."""
        return len(self._classes)

    def see(self, pod_class: PodClass) -> None:
        """Add the class of an arriving pod."""
        self._classes.append(pod_class)
        self._new += 1

    @property
    def classes(self) -> tuple[PodClass, ...]:
        """Classes in the window, the newest last."""
        return tuple(self._classes)

    @property
    def is_due(self) -> bool:
        """Whether enough pods arrived since the profile was built to rebuild it."""
        return self._new > NEW_SHARE * len(self._classes)

    @property
    def is_mostly_new(self) -> bool:
        """Whether the number of pods has doubled since the profile was built, or half of a full window is new."""
        return self._new > 0 and self._new >= len(self._classes) / 2

    def typical_pods(self) -> tuple[TypicalPod, ...]:
        """Return the workload profile of the present window, and restart the count of new pods."""
        self._new = 0
        return typical_pods(self._classes)

    def expected_pods(self, nodes: Iterable[Node]) -> tuple[TypicalPod, ...]:
        """Return the profile of the window and of generic pods for these nodes.

        The pods of a burst are those of its first controllers, which tell little of the pods that follow: what counts
        is the number of kinds, not that of pods.
        """
        kinds = len(set(self._classes))
        count = round(GENERIC_KINDS * len(self._classes) / kinds) if kinds else PODS_OF_EMPTY_WINDOW
        return typical_pods(chain(self._classes, generic_pods(nodes, count)))


def generic_pods(nodes: Iterable[Node], count: int) -> list[PodClass]:
    """Return about so many pods of 1, 2, 4 and more whole GPUs, up to the largest node; none without GPUs.

    Those of each size request as many GPUs in all, and half of the CPU that a typical node has for each GPU.
    """
    with_gpus = [node for node in nodes if node.gpu_count]
    if not with_gpus:
        return []
    cpu = median_low(node.cpu_milli // node.gpu_count for node in with_gpus) // 2
    largest = max(node.gpu_count for node in with_gpus)
    sizes = [1 << i for i in range(largest.bit_length())]
    total = sum(1 / size for size in sizes)
    return [
        PodClass(Requests(cpu_milli=size * cpu, memory_bytes=0, gpu_count=size, gpu_milli=GPU_MILLI))
        for size in sizes
        for _ in range(round(count / size / total))
    ]


class LiveProfile(PodWindow):
    """Workload profile of a sliding window over pods.

    Attributes:
        pods: the typical pods in use.
        leftovers: their leftover tables; None if no policy needs them or they are not computed yet.
        made_at: time of the last build, in seconds of `time.time`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pods: tuple[TypicalPod, ...] = ()
        self.leftovers: LeftoverArrays | None = None
        self.made_at = time.time()

    async def make(self, *, leftovers: bool) -> bool:
        """Rebuild the profile, and return True if it changed. A separate process computes the leftover tables.

        If that process fails, for example for lack of memory, the previous one stays until enough pods are new again.

        `leftovers`: whether a policy needs the leftover tables.
        """
        pods = self.typical_pods()
        # Equal pods need no new deciders, but are known to be current.
        if pods == self.pods and (self.leftovers is not None or not leftovers):
            self.made_at = time.time()
            return False
        # The tables take about a second, for which the event loop must not be blocked.
        try:
            tables = await ask_process(leftover_arrays, pods) if leftovers else None
        except SteersmanError as error:
            log.error("the workload profile could not be rebuilt; the previous one stays", error=str(error))
            return False
        self.pods, self.leftovers, self.made_at = pods, tables, time.time()
        log.info("workload profile rebuilt", typical_pods=len(pods), of=len(self))
        return True
