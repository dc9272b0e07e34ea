"""Pods of the owner (a Deployment's ReplicaSet, a job) of the pod to place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OwnerPods:
    """Where pods of an owner run, and how many wait.

    Attributes:
        running: slot -> number of its running pods.
        waiting: number of its pods without a node, the pod to place included.
    """

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
        """Number of its pods."""
        return sum(self.running.values()) + self.waiting


NO_OWNER_PODS = OwnerPods({})
"""Of a pod without an owner, or the first of its owner."""
