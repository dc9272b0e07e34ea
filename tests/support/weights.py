"""Weights of linear policies for tests."""

import numpy as np
import numpy.typing as npt

from steersman.policies.heuristics import heuristic
from steersman.policies.kinds import heuristic_as_linear


def fgd_weights() -> npt.NDArray[np.float64]:
    """Return [4, W] the weights of FGD's score alone."""
    return heuristic_as_linear(heuristic("fgd")).weights
