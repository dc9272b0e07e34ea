"""Weights of linear policies for tests."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.policies.heuristics import heuristic
from steersman.policies.kinds import heuristic_as_linear


def fgd_weights() -> npt.NDArray[np.float64]:
    """The weights, [4, W], of FGD's score alone."""
    return heuristic_as_linear(heuristic("fgd")).weights
