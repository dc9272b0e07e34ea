"""Keep pods that share GPUs by annotations apart from pods whose GPUs the kubelet or a driver chose: one kind per node.

The kubelet does not know the devices of annotations, and its choice is not known here, so both could use one device.
The plugin `SteersmanGpuShare` keeps them apart, too. GPUs that a node merely counts are not those that pods share.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import PLUGIN_GPUS, SHARED_GPUS, Requests
from steersman.cluster.state import ClusterState

SHARED_THERE = "node(s) had pods that share GPUs"
CHOSEN_THERE = "node(s) had pods whose GPUs the kubelet chose"

Refusal = tuple[str, npt.NDArray[np.bool_]]


class GpuPods:
    """Number of pods with GPUs of each resource name on each node."""

    def __init__(self) -> None:
        self._shared: dict[str, Counter[str]] = {}
        self._chosen: dict[str, Counter[str]] = {}

    def add(self, node: str, requests: Requests) -> None:
        if requests.gpu_count:
            self._kind(requests).setdefault(node, Counter())[requests.gpu_resource] += 1

    def remove(self, node: str, requests: Requests) -> None:
        if requests.gpu_count:
            kind = self._kind(requests)
            kind[node][requests.gpu_resource] -= 1
            # Unary plus drops counts of zero.
            kind[node] = +kind[node]
            if not kind[node]:
                del kind[node]

    def refusal(self, state: ClusterState, requests: Requests) -> Refusal | None:
        """Return a reason and the nodes, [N], that the GPU pods there close to a pod; None: it may use all."""
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
    """Return whether the pods there may have devices that are also offered for sharing."""
    node = state.nodes[slot]
    if node is None or SHARED_GPUS not in node.gpu_resources or node.counted_gpus.get(resource):
        return False
    return any(not node.counted_gpus.get(name) for name in there)
