"""Rewards of actions that were observed or recorded, by the formulas that environments reward by."""

from __future__ import annotations

import numpy as np

from steersman.core.handles import rewards_of
from steersman.objectives.measures import Floats
from steersman.objectives.registry import WeightedObjectives


def reward(objective: WeightedObjectives, before: Floats, after: Floats) -> float:
    """Return the reward of an action from the states before and after it (`summary`, [16])."""
    return float(rewards(objective, before[None], after[None])[0])


def rewards(objective: WeightedObjectives, before: Floats, after: Floats) -> Floats:
    """Return the rewards of actions, [E], from the states before and after them, [E, 16] each."""
    numbers = np.array(objective.numbers, dtype=np.int64)
    result = rewards_of(numbers, np.array(objective.compiled_weights, dtype=np.float64), before, after)
    if objective.has_own and len(before):
        result += objective.own_rewards(before, after)
    return result
