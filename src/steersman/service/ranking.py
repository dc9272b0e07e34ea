"""A policy's scores of nodes as other schedulers want them: whole numbers, the best one told from all others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

BEST, NEUTRAL = 100, 50
"""The score of the node that the policy would choose; of every node where it has no opinion."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ranking:
    """What a policy thinks of the nodes in question.

    Attributes:
        names: [K] of the nodes.
        raw: [K] its scores, -inf where the pod does not fit.
        chosen: the position of the node it would choose, -1: the pod fits on none of them.
        devices: says the GPU devices there, as a bit mask.
    """

    names: Sequence[str]
    raw: Floats
    chosen: int
    devices: Callable[[], int] = int

    def scores(self) -> npt.NDArray[np.int64]:
        """[K] 0 to 100: 100 the chosen node alone, the others by how near they come, 0 where the pod does not fit.

        The best is alone at the top, so that whoever takes the highest score takes the policy's choice even where
        rounding, or the policy itself, makes no difference.
        """
        found = np.zeros(len(self.raw), dtype=np.int64)
        fits = np.isfinite(self.raw)
        raw = self.raw[fits]
        if self.chosen < 0 or not len(raw):
            return found
        low = raw.min()
        span = raw.max() - low
        found[fits] = (BEST - 1) * (raw - low) / span if span > 0 else BEST - 1  # cut off: nobody else gets 100
        found[self.chosen] = BEST
        return found


def neutral(count: int) -> npt.NDArray[np.int64]:
    """[K] the same score for every one of so many nodes."""
    return np.full(count, NEUTRAL)


def version_of(names: Sequence[str]) -> str:
    """A short name for a list of nodes: equal lists have equal ones."""
    return hashlib.blake2b("\n".join(names).encode(), digest_size=8).hexdigest()
