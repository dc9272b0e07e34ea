"""Buffers of observations and summaries that all environments write to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# Rows of the summary of an environment: the state at the decision that is to be made; before and after the last action.
NOW, BEFORE, AFTER = range(3)


class Observation(NamedTuple):
    """Observations of E environments.

    Attributes:
        nodes: [E, N, F] float32.
        pod: [E, P] float32.
        context: [E, X] float32.
        mask: [E, N] int8, 1 where the pod may run.
        groups: [E, N, 2] int32, index of the node's rack and server, -1: none.
    """

    nodes: npt.NDArray[np.float32]
    pod: npt.NDArray[np.float32]
    context: npt.NDArray[np.float32]
    mask: npt.NDArray[np.int8]
    groups: npt.NDArray[np.int32]
