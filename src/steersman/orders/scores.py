"""Kinds of scores of orders, and the terms of learned ones; `core/src/order.rs` computes them and has the sources."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

GIVEN, SHORTEST, AREA, WFP3, UNICEF, F1, FAIR, LEARNED, EXTERNAL, LAS = range(10)
"""Kinds of scores. `GIVEN` ones are known when a pod arrives: age, smallest, largest. `EXTERNAL`: the agent of an
environment chooses, where the order commits to one pod. `FAIR`: the namespace that has least running goes first, by its
dominant share of the cluster; Ghodsi et al., "Dominant Resource Fairness" (NSDI 2011). `LAS`: age, and
pods that were evicted after all others, see `orders.evictions`."""

INPUTS = ("estimate", "size", "wait", "fits", "free", "queue", "spread", "delay")
"""Inputs of learned scores, about 1 in size: logarithms of the estimate in seconds, of the requested share of the
cluster, and of the seconds waited; whether as much is free; the free share; logarithms of the pods that wait, of the
90th percentile of the estimate over its median, and of the seconds until as much is expected to be free."""
LINEAR = (
    *("estimate", "size", "wait", "estimate^2", "size^2", "wait^2", "estimate*size", "estimate*wait", "size*wait"),
    *("fits", "fits*estimate", "fits*size", "free*estimate", "free*size", "queue*estimate", "queue*size", "spread"),
    *("delay", "delay^2", "delay*estimate", "delay*size", "delay*free", "delay*queue", "delay*wait"),
)
"""Terms of the linear part of learned scores, on top of which is a layer of units x / (1 + |x|) on `INPUTS`."""
UNIT_SIZE = len(INPUTS) + 2
"""Weights of a hidden unit: of its inputs, a bias, and its output weight."""


def learned_size(hidden: int) -> int:
    return len(LINEAR) + hidden * UNIT_SIZE


def delay_weights(hidden: int) -> npt.NDArray[np.bool_]:
    """Return which weights of a learned order are those of the delay."""
    linear = [name.startswith("delay") for name in LINEAR]
    return np.array(linear + hidden * [*(name == "delay" for name in INPUTS), False, False])
