"""Reasons why a pod was not bound, in kube-scheduler's words where it has words."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from steersman.cluster.constraints.node import FEATURES, constraint_reasons, declaring_nodes, offering_nodes
from steersman.cluster.constraints.reasons import format_unschedulable, insufficient_gpu
from steersman.cluster.state import ClusterState
from steersman.simulation.engine import NOT_ALLOWED

OTHER_PODS_REASON = "node(s) didn't match the pod's rules about other pods"


class Reasons:
    """Format failures as text such as `0/3 nodes are available: 1 Insufficient cpu, 2 Insufficient GPU.`.

    Args:
        state: the cluster of the run.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        resources = ["Insufficient cpu", "Insufficient memory", "Too many pods", "Insufficient ephemeral-storage"]
        resources += [f"Insufficient {name}" for name in state.resources]
        # In the order of the columns of `EventRecord.reasons` after NOT_ALLOWED.
        self._words = [*resources, "Insufficient extended resources"]
        self._static: dict[int, Counter[str]] = {}

    def text(self, class_id: int, counts: npt.NDArray[np.int64]) -> str:
        """Return the text for a pod of a class and its row of `EventRecord.reasons`."""
        too_few_gpus = insufficient_gpu(self._state.classes[class_id].requests.gpu_resource)
        words = [OTHER_PODS_REASON, too_few_gpus, *self._words]
        result: Counter[str] = Counter()
        for why, count in zip(words, counts[NOT_ALLOWED + 1 :].tolist(), strict=True):
            result[why] += count  # resources include GPUs that some nodes count
        if counts[NOT_ALLOWED]:
            result += self._not_allowed(class_id)
        return format_unschedulable(len(self._state.nodes), result)

    def _not_allowed(self, class_id: int) -> Counter[str]:
        """Count by reason the nodes that the class's constraints or GPU resource names exclude, whatever runs there."""
        if class_id not in self._static:
            table, pod_class = self._state.table, self._state.classes[class_id]
            resource = pod_class.requests.gpu_resource
            why = constraint_reasons(table, pod_class.constraints, resource)
            for slot in np.flatnonzero(~offering_nodes(table, resource)):
                why[slot] = why[slot] or insufficient_gpu(resource)
            for slot in np.flatnonzero(~declaring_nodes(table, pod_class.constraints.node_features)):
                why[slot] = why[slot] or FEATURES
            self._static[class_id] = Counter(filter(None, why))
        return self._static[class_id]
