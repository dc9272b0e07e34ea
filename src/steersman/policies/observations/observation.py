"""An observation, as networks read it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


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
