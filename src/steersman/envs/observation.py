"""Buffers of observations and summaries that all environments write to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.core.compiled import inlined_kernel
from steersman.policies.observations.kernels import ObservationArrays

# Rows of the summary of an environment: the state at the decision that is to be made; before and after the last action.
NOW, BEFORE, AFTER = range(3)


class Observation(NamedTuple):
    """Observations of E environments.

    Attributes:
        nodes: [E, N, F] float32.
        flat: [E, N F] the same memory.
        pod: [E, P] float32.
        context: [E, X] float32.
        mask: [E, N] int8, 1 where the pod may run.
        groups: [E, N, 2] int32, index of the node's rack and server, -1: none.
    """

    nodes: npt.NDArray[np.float32]
    flat: npt.NDArray[np.float32]
    pod: npt.NDArray[np.float32]
    context: npt.NDArray[np.float32]
    mask: npt.NDArray[np.int8]
    groups: npt.NDArray[np.int32]


class StepResults(NamedTuple):
    """What a step says of each of E environments, beside the observation: [E] float64 rewards, and bool."""

    rewards: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]


@inlined_kernel
def observation_of(out: Observation, e: int) -> ObservationArrays:
    return ObservationArrays(out.nodes[e], out.flat[e], out.pod[e], out.context[e], out.mask[e])


@inlined_kernel
def attempt(counts: npt.NDArray[np.int64], steps: int, illegal: int, mask: npt.NDArray[np.int8], n: int) -> bool:
    """Return whether node `n` exists and may take the pod; count a step, and note in column `illegal` if it may not."""
    counts[steps] += 1
    legal = 0 <= n < mask.shape[0] and mask[n] == 1
    counts[illegal] = not legal
    return bool(legal)
