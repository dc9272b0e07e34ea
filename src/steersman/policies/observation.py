"""An observation, as networks read it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.policies.features import View


class ObservationArrays(NamedTuple):
    """An observation.

    Attributes:
        nodes: [N, F] float32.
        pod: [P] float32.
        context: [X] float32.
        mask: [N] int8, 1 where the pod may run.
    """

    nodes: npt.NDArray[np.float32]
    pod: npt.NDArray[np.float32]
    context: npt.NDArray[np.float32]
    mask: npt.NDArray[np.int8]


def empty_observation(view: View, nodes: int) -> ObservationArrays:
    """Return the observation of so many nodes in a view, all zero, which is written later."""
    return ObservationArrays(
        nodes=np.zeros((nodes, len(view.node)), dtype=np.float32),
        pod=np.zeros(len(view.pod), dtype=np.float32),
        context=np.zeros(len(view.context), dtype=np.float32),
        mask=np.zeros(nodes, dtype=np.int8),
    )
