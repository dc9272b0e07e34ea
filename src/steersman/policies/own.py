"""A user's own policy at arm's length: it can neither break a run nor pass for a fault of steersman."""

from __future__ import annotations

import copy

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import NodeArrays
from steersman.cluster.state import ClusterState
from steersman.errors import SteersmanError
from steersman.extensions import attribute_errors
from steersman.policies.policy import Policy
from steersman.workloads.mix import TypicalPod


class OwnPolicy:
    """Asks a policy written in Python, and checks what it answers.

    Args:
        policy: what the user wrote.
        state: the cluster of the run; the policy gets it with arrays that it cannot write to.
    """

    def __init__(self, policy: Policy, state: ClusterState) -> None:
        self._policy = policy
        self._who = f"policy {policy.name!r}"
        self._state = copy.copy(state)
        self._state.arrays = NodeArrays(*(_read_only(array) for array in state.arrays))

    def prepare(self, mix: tuple[TypicalPod, ...], seed: int) -> None:
        """Let the policy prepare for a run."""
        with attribute_errors(self._who):
            self._policy.prepare(self._state, mix, seed)

    def choose(self, class_id: int, feasible: npt.NDArray[np.bool_]) -> int:
        """The feasible slot with the highest score, the first of equals; some slot must be feasible. As `scores`."""
        return int(np.argmax(self.scores(class_id, feasible)))

    def scores(self, class_id: int, feasible: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """[N] the policy's scores, -inf where a pod of the class may not run.

        Raises:
            SteersmanError: the policy failed, or its scores are not one finite number for every feasible node.
        """
        with attribute_errors(self._who):
            answer = self._policy.scores(self._state, class_id, feasible.copy())
            scores = np.asarray(answer, dtype=np.float64)
        if scores.shape != feasible.shape:
            raise SteersmanError(f"{self._who}: scores have the shape {scores.shape}, not {feasible.shape}")
        if not np.isfinite(scores[feasible]).all():
            raise SteersmanError(f"{self._who}: a node that the pod fits on has a score that is not a finite number")
        return np.where(feasible, scores, -np.inf)


def _read_only(array: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    view = array.view()
    view.flags.writeable = False
    return view
