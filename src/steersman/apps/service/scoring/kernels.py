"""Choice among the requested nodes and integer scores, compiled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.core.compiled import kernel

BEST = 100
"""Score of the node that the policy would choose."""
NOWHERE = -1


@kernel
def pick(
    scores: npt.NDArray[np.float64], slots: npt.NDArray[np.int64], preferred: int, raw: npt.NDArray[np.float64]
) -> int:
    """Return the position of the chosen node among the requested ones; NOWHERE if the pod fits on none of them.

    Args:
        scores: [N] scores of all slots, -inf where the pod does not fit.
        slots: [K] requested slots, below 0 for unknown nodes.
        preferred: slot that is chosen if it is requested; else the highest score, of equals the lowest slot.
        raw: [K] output: scores of the requested nodes.
    """
    position, best = NOWHERE, NOWHERE
    for i in range(slots.shape[0]):
        slot = slots[i]
        raw[i] = scores[slot] if slot >= 0 else -np.inf
        if slot < 0:
            continue
        if slot == preferred and position == NOWHERE:
            position = i
        if raw[i] > -np.inf and (best == NOWHERE or raw[i] > raw[best] or (raw[i] == raw[best] and slot < slots[best])):
            best = i
    return best if position == NOWHERE else position


@kernel
def rank(raw: npt.NDArray[np.float64], chosen: int, best: int, ranks: npt.NDArray[np.int64]) -> None:
    """Write integer scores from 0 to `best`: `best` for the chosen node alone, others by how near they come.

    Args:
        raw: [K] scores, -inf where the pod does not fit, which gets 0.
        chosen: position of the chosen node; NOWHERE: all get 0.
        best: at most BEST; if less, scores up to BEST are scaled down to it.
        ranks: [K] output.
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
            # `near` is at most 99, so this stays below `best`, even of 10.
            ranks[i] = near * best // BEST
    ranks[chosen] = best
