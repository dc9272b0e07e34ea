"""Choice among the requested nodes and integer scores."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BEST = 100
"""Score of the node that the policy would choose."""
NOWHERE = -1


def pick(raw: npt.NDArray[np.float64], slots: npt.NDArray[np.int64], preferred: int) -> int:
    """Return the position of the chosen node among the requested ones; NOWHERE if the pod fits on none of them.

    Args:
        raw: [K] scores of the requested nodes, -inf where the pod does not fit and for unknown nodes.
        slots: [K] their slots, -1 for unknown nodes.
        preferred: slot that is chosen if it is requested; else the highest score, of equals the lowest slot.
    """
    if preferred >= 0 and len(there := np.flatnonzero(slots == preferred)):
        return int(there[0])
    fitting = raw[raw > -np.inf]
    if not len(fitting):
        return NOWHERE
    best = np.flatnonzero(raw == fitting.max())
    return int(best[slots[best].argmin()])


def rank(raw: npt.NDArray[np.float64], chosen: int, best: int) -> npt.NDArray[np.int64]:
    """Return integer scores from 0 to `best`, [K]: `best` for the chosen node alone, others by how near they come.

    Args:
        raw: [K] scores, -inf where the pod does not fit, which gets 0.
        chosen: position of the chosen node; NOWHERE: all get 0.
        best: at most BEST; if less, scores up to BEST are scaled down to it.
    """
    ranks, fits = np.zeros(len(raw), dtype=np.int64), raw > -np.inf
    if chosen == NOWHERE or not fits.any():
        return ranks
    fitting = raw[fits]
    low, high = fitting.min(), fitting.max()
    near = ((BEST - 1) * (fitting - low) / (high - low)).astype(np.int64) if high > low else BEST - 1
    # `near` is at most 99, so this stays below `best`, even of 10.
    ranks[fits] = near * best // BEST
    ranks[chosen] = best
    return ranks
