"""The running pods of each namespace, by what they request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from steersman.cluster.model import Pod, Requests


class NamespaceUse:
    """Counts of running pods.

    Attributes:
        version: increases with each change.
    """

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
        """Return the number of running pods of a namespace by their requests."""
        return self._pods.get(namespace, {})
