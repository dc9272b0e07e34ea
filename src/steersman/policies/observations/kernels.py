"""An observation, as networks read it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.core.compiled import inlined_kernel


class ObservationArrays(NamedTuple):
    """An observation.

    Attributes:
        nodes: [N, F] float32.
        flat: [N F] the same memory.
        pod: [P] float32.
        context: [X] float32.
        mask: [N] int8, 1 where the pod may run.
    """

    nodes: npt.NDArray[np.float32]
    flat: npt.NDArray[np.float32]
    pod: npt.NDArray[np.float32]
    context: npt.NDArray[np.float32]
    mask: npt.NDArray[np.int8]


@inlined_kernel
def write_terminal_observation(observation: ObservationArrays) -> None:
    """Write an observation without a pod and nodes to choose: all is 0 but the context, which stays."""
    for n in range(observation.mask.shape[0]):
        observation.mask[n] = 0
    for i in range(observation.flat.shape[0]):
        observation.flat[i] = 0.0
    for i in range(observation.pod.shape[0]):
        observation.pod[i] = 0.0
