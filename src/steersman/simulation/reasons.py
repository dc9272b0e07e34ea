"""Reasons why pods were not bound in a run, by the code that explains a refusal in a live cluster."""

from __future__ import annotations

from steersman.cluster.constraints.reasons import other_gpus, unschedulable_message
from steersman.cluster.state import ClusterState


class Reasons:
    """Texts such as `0/3 nodes are available: 1 Insufficient cpu, 2 Insufficient nvidia.com/gpu.`, numbered from 1 on.

    Args:
        state: the cluster of the run; each text is about the cluster as it is when it is asked for.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._numbers: dict[str, int] = {"": 0}
        self._known: dict[tuple[int, int], tuple[int, int]] = {}

    def number(self, class_id: int, labels_id: int, version: int) -> int:
        """Return the number of the reason for which a pod is refused now.

        `version` is another one whenever a pod came to a node or left it.
        """
        # Many pods of a class are refused in the same state, and the text takes far longer than the decision.
        known = self._known.get((class_id, labels_id))
        if known is None or known[0] != version:
            parts = unschedulable_message(self._state, class_id, labels_id), other_gpus(self._state, class_id)
            text = " ".join(filter(None, parts))
            known = self._known[class_id, labels_id] = version, self._numbers.setdefault(text, len(self._numbers))
        return known[1]

    def text_number(self, text: str) -> int:
        """Return the number of a reason that is no matter of nodes."""
        return self._numbers.setdefault(text, len(self._numbers))

    def texts(self) -> list[str]:
        """Return the texts by number; number 0 is no reason."""
        return list(self._numbers)
