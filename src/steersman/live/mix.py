"""The mix of a live cluster: which pods are typical of it, by those that came last."""

from __future__ import annotations

from collections import deque

from steersman.cluster.model import PodClass
from steersman.workloads.mix import TypicalPod, typical_pods

WINDOW = 10_000
"""Pods that the mix is made of: those that were seen last."""
NEW_SHARE = 0.1
"""Of the window: as many new pods make a new mix."""


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
    def due(self) -> bool:
        """Whether so many pods came since the mix was made that it should be made anew."""
        return self._new > NEW_SHARE * len(self._classes)

    def typical_pods(self) -> tuple[TypicalPod, ...]:
        """The mix as it is now."""
        self._new = 0
        return typical_pods(self._classes)
