"""Pods that share GPUs by annotations, and pods whose GPUs the kubelet or a driver chose: a node has one kind only.

What annotations say of a device is not known to the kubelet, nor its choice to us, so both may mean the same device. As
in `SteersmanGpuShare`, the plugin for kube-scheduler. GPUs that a node counts are others than those that pods share.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from steersman.cluster.gpu_resources import PLUGIN_GPUS, SHARED_GPUS
from steersman.cluster.model import Requests
from steersman.cluster.state import ClusterState

SHARED_THERE = "node(s) had pods that share GPUs"
CHOSEN_THERE = "node(s) had pods whose GPUs the kubelet chose"

Refusal = tuple[str, npt.NDArray[np.bool_]]


class GpuPods:
    """How many pods with GPUs of each name are on each node."""

    def __init__(self) -> None:
        self._shared: dict[str, Counter[str]] = {}
        self._chosen: dict[str, Counter[str]] = {}

    def add(self, node: str, requests: Requests) -> None:
        """A pod came to a node."""
        if requests.gpu_count:
            self._kind(requests).setdefault(node, Counter())[requests.gpu_resource] += 1

    def remove(self, node: str, requests: Requests) -> None:
        """A pod left a node."""
        if requests.gpu_count:
            kind = self._kind(requests)
            kind[node][requests.gpu_resource] -= 1
            kind[node] = +kind[node]
            if not kind[node]:
                del kind[node]

    def refusal(self, state: ClusterState, requests: Requests) -> Refusal | None:
        """Return why a pod may not be on which nodes, [N], for the sake of pods that are there; None: nothing is."""
        if not requests.gpu_count:
            return None
        is_shared = requests.gpu_resource not in PLUGIN_GPUS
        slots = [
            slot
            for name, there in (self._chosen if is_shared else self._shared).items()
            if (slot := state.slots.get(name)) is not None and _may_clash(state, slot, requests.gpu_resource, there)
        ]
        if not slots:
            return None
        refused = np.zeros(len(state.nodes), dtype=np.bool_)
        refused[slots] = True
        return (CHOSEN_THERE if is_shared else SHARED_THERE), refused

    def _kind(self, requests: Requests) -> dict[str, Counter[str]]:
        return self._chosen if requests.gpu_resource in PLUGIN_GPUS else self._shared


def _may_clash(state: ClusterState, slot: int, resource: str, there: Counter[str]) -> bool:
    """Whether the pods there may have devices that are offered to pods that share, too."""
    node = state.nodes[slot]
    if node is None or SHARED_GPUS not in node.gpu_resources or node.counted_gpus.get(resource):
        return False
    return any(not node.counted_gpus.get(name) for name in there)
