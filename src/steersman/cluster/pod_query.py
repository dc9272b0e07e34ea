"""A pod that wants a node, as it is asked about, and the running pods of owners and namespaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import NO_LIMITS, LatencyLimits, Pod, Requests


@dataclass(frozen=True, slots=True)
class OwnerPods:
    """Where pods of an owner run (slot -> their number), and how many wait, the pod to place included."""

    running: Mapping[int, int]
    waiting: int = 1

    def without(self, slot: int) -> OwnerPods:
        """Return the same with a pod of this slot waiting."""
        if not self.running.get(slot):
            return self
        left = {at: count - (at == slot) for at, count in self.running.items()}
        return OwnerPods({at: count for at, count in left.items() if count}, self.waiting + 1)

    @property
    def replicas(self) -> int:
        return sum(self.running.values()) + self.waiting


NO_OWNER_PODS = OwnerPods({})  # of a pod without an owner, or the first of its owner


@dataclass(frozen=True, slots=True)
class PodQuery:
    """A pod that wants a node."""

    class_id: int  # the pod's class
    labels_id: int = 0  # the pod's label set
    owner_pods: OwnerPods = NO_OWNER_PODS  # pods of the same owner; set in live clusters
    limits: LatencyLimits = NO_LIMITS  # the pod's latency limits
    # [N] what VolumeBinding of kube-scheduler adds to the scores of slots, with its weight; None: nothing
    storage: npt.NDArray[np.int64] | None = None
    # [N] bool, the node slots that other constraints such as volumes leave; None: all
    allowed: npt.NDArray[np.bool_] | None = None
    owner: int = -1  # index of the pod's owner, -1 for none; set in simulations
    pod: Pod | None = None  # the pod itself, where the caller has it

    def within(self, allowed: npt.NDArray[np.bool_] | None) -> PodQuery:
        """Return the same pod where only these slots are left, [N] bool; None: all."""
        return self if allowed is self.allowed else replace(self, allowed=allowed)


class NamespaceUse:
    """Counts of running pods; `version` increases with each change."""

    def __init__(self) -> None:
        self.version = 0
        self._pods: dict[str, Counter[Requests]] = {}

    def count(self, pod: Pod, amount: int) -> None:
        """Count a pod that runs (1), or runs no more (-1)."""
        pods = self._pods.setdefault(pod.namespace, Counter())
        pods[pod.requests] += amount
        if not pods[pod.requests]:
            del pods[pod.requests]
        if not pods:
            del self._pods[pod.namespace]
        self.version += 1

    def pods(self, namespace: str) -> Mapping[Requests, int]:
        return self._pods.get(namespace, {})
