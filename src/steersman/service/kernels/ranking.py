"""Scores of nodes as other schedulers want them, in compiled code: the best of those in question, and whole numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.compiled import kernel

BEST = 100
"""The score of the node that the policy would choose."""
NOWHERE = -1


@kernel
def pick(
    scores: npt.NDArray[np.float64], slots: npt.NDArray[np.int64], wanted: int, raw: npt.NDArray[np.float64]
) -> int:
    """The position of the node to choose among those in question, NOWHERE if the pod fits on none of them.

    Args:
        scores: [N] of all slots, -inf where the pod does not fit.
        slots: [K] those in question, below 0 for a node that is not known.
        wanted: the slot that is chosen if it is in question; else that of the highest score is, of equals the lowest.
        raw: [K] their scores are written to it.
    """
    found, best = NOWHERE, NOWHERE
    for i in range(slots.shape[0]):
        slot = slots[i]
        raw[i] = scores[slot] if slot >= 0 else -np.inf
        if slot < 0:
            continue
        if slot == wanted and found == NOWHERE:
            found = i
        if raw[i] > -np.inf and (best == NOWHERE or raw[i] > raw[best] or (raw[i] == raw[best] and slot < slots[best])):
            best = i
    return best if found == NOWHERE else found


@kernel
def rank(raw: npt.NDArray[np.float64], chosen: int, best: int, ranks: npt.NDArray[np.int64]) -> None:
    """Whole numbers from 0 to `best`: that for the chosen node alone, the others by how near they come.

    Args:
        raw: [K] scores, -inf where the pod does not fit, which gets 0.
        chosen: the position of the chosen node; NOWHERE: all get 0.
        best: at most BEST; if less, what would be the numbers up to BEST is cut off to fewer.
        ranks: [K] is written to.
    """
    low, high = np.inf, -np.inf
    for i in range(raw.shape[0]):
        ranks[i] = 0
        if raw[i] > -np.inf:
            low, high = min(low, raw[i]), max(high, raw[i])
    if chosen == NOWHERE or low > high:
        return
    for i in range(raw.shape[0]):
        if raw[i] > -np.inf:
            near = int((BEST - 1) * (raw[i] - low) / (high - low)) if high > low else BEST - 1
            ranks[i] = near * best // BEST
    ranks[chosen] = best
