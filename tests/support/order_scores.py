"""Scores of orders as their definitions say, of one pod."""

from __future__ import annotations

import math
from collections.abc import Sequence

from steersman.orders.scores import AREA, F1, INPUTS, LINEAR, SHORTEST, UNICEF, UNIT_SIZE, WFP3


def simple_score(kind: int, run_time: float, size: float, wait: float, arrived: float) -> float:
    """Return a score that needs nothing but the pod: estimated seconds of at least 1, size, seconds waited, arrival."""
    return {
        SHORTEST: run_time,
        AREA: run_time * size,
        WFP3: -((wait / run_time) ** 3) * size,
        UNICEF: -wait / (math.log2(1 + size) * run_time),
        F1: math.log10(run_time) * size + 870 * math.log10(max(arrived, 1.0)),
    }[kind]


def learned_score(
    weights: Sequence[float],
    run_time: float,
    spread: float,
    share: float,
    wait: float,
    free: float,
    queue: float,
    delay: float,
) -> float:
    """Return the score of a learned order: its terms by their names, and its units."""
    values = {
        "estimate": (math.log(max(run_time, 1.0)) - 7) / 3,
        "size": (math.log(max(share, 1e-6)) + 3) / 2,
        "wait": (math.log1p(wait) - 6) / 3,
        "fits": float(share <= free + 1e-9),
        "free": free,
        "queue": (math.log1p(queue) - 4) / 2,
        "spread": spread,
        "delay": math.log1p(delay) / 6,
    }
    score = 0.0
    for name, weight in zip(LINEAR, weights, strict=False):
        factors = [name[:-2]] * 2 if name.endswith("^2") else name.split("*")
        score += weight * math.prod(values[each] for each in factors)
    inputs = [values[name] for name in INPUTS]
    for first in range(len(LINEAR), len(weights), UNIT_SIZE):
        *own, bias, output = weights[first : first + UNIT_SIZE]
        total = bias + sum(weight * value for weight, value in zip(own, inputs, strict=True))
        score += output * total / (1 + abs(total))
    return score
