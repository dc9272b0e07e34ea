"""Why a pod was not bound, in kube-scheduler's words."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from steersman.cluster.constraints import offering_nodes, reasons
from steersman.cluster.explaining import insufficient_gpu, sentence
from steersman.cluster.state import ClusterState
from steersman.simulation.engine import NOT_ALLOWED

OTHER_PODS_REASON = "node(s) didn't match the pod's rules about other pods"


class Reasons:
    """Writes a failure as text, such as `0/3 nodes are available: 1 Insufficient cpu, 2 Insufficient GPU.`.

    Args:
        state: the cluster of the run.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        resources = ["Insufficient cpu", "Insufficient memory", "Too many pods", "Insufficient ephemeral-storage"]
        resources += [f"Insufficient {name}" for name in state.resources]
        # In the order of the columns of `Record.reasons` behind NOT_ALLOWED.
        self._words = [*resources, "Insufficient extended resources"]
        self._static: dict[int, Counter[str]] = {}

    def text(self, class_id: int, counts: npt.NDArray[np.int64]) -> str:
        """The line for a pod of a class and its row of `Record.reasons`."""
        too_few_gpus = insufficient_gpu(self._state.classes[class_id].requests.gpu_resource)
        words = [OTHER_PODS_REASON, too_few_gpus, *self._words]
        found: Counter[str] = Counter()
        for why, count in zip(words, counts[NOT_ALLOWED + 1 :].tolist(), strict=True):
            found[why] += count  # GPUs that some nodes count are among the resources, too
        if counts[NOT_ALLOWED]:
            found += self._not_allowed(class_id)
        return sentence(len(self._state.nodes), found)

    def _not_allowed(self, class_id: int) -> Counter[str]:
        """Nodes that the class's constraints, or the names of GPUs, rule out whatever runs there, by reason."""
        if class_id not in self._static:
            table, pod_class = self._state.table, self._state.classes[class_id]
            resource = pod_class.requests.gpu_resource
            why = reasons(table, pod_class.constraints, resource)
            for slot in np.flatnonzero(~offering_nodes(table, resource)):
                why[slot] = why[slot] or insufficient_gpu(resource)
            self._static[class_id] = Counter(filter(None, why))
        return self._static[class_id]
