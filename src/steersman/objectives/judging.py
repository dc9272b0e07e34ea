"""Reward of an observed action: the formulas of `measures` outside kernels."""

from __future__ import annotations

import numpy as np

from steersman.core.compiled import kernel
from steersman.objectives.measures import Floats, weighted
from steersman.objectives.registry import WeightedObjectives


def reward(profile: WeightedObjectives, before: Floats, after: Floats) -> float:
    """Return the reward of an action from the states before and after it (`summary`, [16]).

    Raises:
        SteersmanError: a user's own objective failed.
    """
    numbers, weights = np.array(profile.numbers, dtype=np.int64), np.array(profile.compiled_weights, dtype=np.float64)
    compiled = float(_reward(numbers, weights, before, after))
    return compiled + float(profile.own_rewards(before[None], after[None])[0]) if profile.has_own else compiled


@kernel
def _reward(
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]], weights: Floats, before: Floats, after: Floats
) -> float:
    return weighted(numbers, weights, before, after)
