"""Rewards of actions that were observed or recorded: the formulas of `measures` outside kernels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.core.compiled import kernel
from steersman.objectives.measures import Floats, weighted
from steersman.objectives.registry import WeightedObjectives


def reward(objective: WeightedObjectives, before: Floats, after: Floats) -> float:
    """Return the reward of an action from the states before and after it (`summary`, [16])."""
    return float(rewards(objective, before[None], after[None])[0])


def rewards(objective: WeightedObjectives, before: Floats, after: Floats) -> Floats:
    """Return the rewards of actions, [E], from the states before and after them, [E, 16] each."""
    numbers, weights = (
        np.array(objective.numbers, dtype=np.int64),
        np.array(objective.compiled_weights, dtype=np.float64),
    )
    result = np.zeros(len(before))
    _rewards(numbers, weights, before, after, result)
    if objective.has_own and len(before):
        result += objective.own_rewards(before, after)
    return result


@kernel
def _rewards(numbers: npt.NDArray[np.int64], weights: Floats, before: Floats, after: Floats, out: Floats) -> None:
    for e in range(out.shape[0]):
        out[e] = weighted(numbers, weights, before[e], after[e])
