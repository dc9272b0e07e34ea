"""The reward of an action that was seen, not simulated: the formulas of `measures` for whoever is no kernel."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.compiled import kernel
from steersman.objectives.measures import weighted


@kernel
def reward(
    objectives: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float64],
    before: npt.NDArray[np.float64],
    after: npt.NDArray[np.float64],
) -> float:
    """The weighted sum of objectives [K] from the state before an action and the one after it (`summary`, [15])."""
    return weighted(objectives, weights, before, after)
