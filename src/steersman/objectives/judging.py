"""The reward of an action that was seen, not simulated: the formulas of `measures` for whoever is no kernel."""

from __future__ import annotations

import numpy as np

from steersman.compiled import kernel
from steersman.objectives.measures import Floats, weighted
from steersman.objectives.registry import Mix


def reward(mix: Mix, before: Floats, after: Floats) -> float:
    """Return the reward of one action from the state before it and the one after it (`summary`, [15]).

    Raises:
        SteersmanError: a user's own objective failed.
    """
    numbers, weights = np.array(mix.numbers, dtype=np.int64), np.array(mix.compiled_weights, dtype=np.float64)
    compiled = float(_reward(numbers, weights, before, after))
    return compiled + float(mix.own_rewards(before[None], after[None])[0]) if mix.has_own else compiled


@kernel
def _reward(
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]], weights: Floats, before: Floats, after: Floats
) -> float:
    return weighted(numbers, weights, before, after)
