"""Scores of orders, compiled: among waiting pods of the same priority the lowest goes first.

`r` is the estimated run time in seconds, `n` the size in GPUs (in CPUs where no pod requests a GPU), `w` the time
waited in seconds. Sources: WFP3 and UNICEF of Tang, Lan, Desai and Buettner, "Fault-aware, utility-based job scheduling
on Blue Gene/P systems" (CLUSTER 2009); F1 of Carastan-Santos and de Camargo, "Obtaining dynamic scheduling policies
with simulation and machine learning" (SC 2017).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from steersman.core.compiled import called_kernel, inlined_kernel

Floats = npt.NDArray[np.float64]

GIVEN, SHORTEST, AREA, WFP3, UNICEF, F1, FAIR, LEARNED, EXTERNAL = range(9)
"""Kinds of scores. `GIVEN` ones are known when a pod arrives: age, smallest, largest. `EXTERNAL`: the agent of an
environment chooses, where the order commits to one pod. `FAIR`: the namespace that has least running goes first, by its
dominant share of the cluster; Ghodsi et al., "Dominant Resource Fairness" (NSDI 2011)."""

INPUTS = ("estimate", "size", "wait", "fits", "free", "queue", "spread", "delay")
"""Inputs of learned scores, about 1 in size; see `learned_score`."""
LINEAR = (
    *("estimate", "size", "wait", "estimate^2", "size^2", "wait^2", "estimate*size", "estimate*wait", "size*wait"),
    *("fits", "fits*estimate", "fits*size", "free*estimate", "free*size", "queue*estimate", "queue*size", "spread"),
    *("delay", "delay^2", "delay*estimate", "delay*size", "delay*free", "delay*queue", "delay*wait"),
)
"""Terms of the linear part of learned scores."""
UNIT_SIZE = len(INPUTS) + 2
"""Weights of a hidden unit."""


def learned_size(hidden: int) -> int:
    return len(LINEAR) + hidden * UNIT_SIZE


def delay_weights(hidden: int) -> npt.NDArray[np.bool_]:
    """Return which weights of a learned order are those of the delay."""
    linear = [name.startswith("delay") for name in LINEAR]
    return np.array(linear + hidden * [*(name == "delay" for name in INPUTS), False, False])


@inlined_kernel
def simple_score(kind: int, r: float, n: float, w: float, arrived: float) -> float:
    """Return a score that needs nothing but the pod."""
    if kind == SHORTEST:
        return r
    if kind == AREA:
        return r * n
    if kind == WFP3:
        return float(-((w / r) ** 3) * n)
    if kind == UNICEF:
        # log2(n) in the source, which is 0 for one processor and negative for shares of a GPU.
        return -w / (math.log2(1.0 + n) * r)
    # F1: `arrived` counts from the start of the trace; its logarithm needs at least 1 s.
    return math.log10(max(r, 1.0)) * n + 870.0 * math.log10(max(arrived, 1.0))


@called_kernel
def learned_score(
    weights: Floats, r: float, spread: float, share: float, w: float, free: float, queue: float, delay: float
) -> float:
    """Return the score of a learned order.

    A linear function of `LINEAR`, and on top of it a layer of units x / (1 + |x|) on `INPUTS`.

    Args:
        weights: [24 + 10 H] those of the linear part; then for each of H units 8 weights, a bias and its output weight.
        r: estimated seconds.
        spread: logarithm of the 90th percentile of the estimate over its median.
        share: requested share of the cluster, at most 1.
        w: seconds waited.
        free: free share of the cluster.
        queue: pods that wait.
        delay: seconds until running pods are expected to have freed as much as is requested; 0 where the order does
            not commit to one pod.
    """
    e = (math.log(max(r, 1.0)) - 7.0) / 3.0
    s = (math.log(max(share, 1e-6)) + 3.0) / 2.0
    t = (math.log1p(w) - 6.0) / 3.0
    fits = 1.0 if share <= free + 1e-9 else 0.0
    q = (math.log1p(queue) - 4.0) / 2.0
    d = math.log1p(delay) / 6.0
    score = weights[0] * e + weights[1] * s + weights[2] * t
    score += weights[3] * e * e + weights[4] * s * s + weights[5] * t * t
    score += weights[6] * e * s + weights[7] * e * t + weights[8] * s * t
    score += fits * (weights[9] + weights[10] * e + weights[11] * s)
    score += free * (weights[12] * e + weights[13] * s) + q * (weights[14] * e + weights[15] * s)
    score += weights[16] * spread
    score += d * (weights[17] + weights[18] * d + weights[19] * e + weights[20] * s)
    score += d * (weights[21] * free + weights[22] * q + weights[23] * t)
    unit = 24
    while unit < weights.shape[0]:
        total = weights[unit + 8] + weights[unit] * e + weights[unit + 1] * s + weights[unit + 2] * t
        total += weights[unit + 3] * fits + weights[unit + 4] * free + weights[unit + 5] * q
        total += weights[unit + 6] * spread + weights[unit + 7] * d
        score += weights[unit + 9] * total / (1.0 + abs(total))
        unit += 10
    return float(score)
