"""Scores of nodes as other schedulers need them: integers, with the best node distinct from all others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from steersman.apps.service.scoring.kernels import BEST, rank

HIGHEST = 10
"""The best score that a scheduler extender may give."""
NEUTRAL = 50
"""The score of every node where the policy does not score."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ranking:
    """A policy's scores of the requested nodes.

    Attributes:
        names: [K] names of the nodes.
        raw: [K] scores, -inf where the pod does not fit.
        chosen: position of the chosen node; `NOWHERE`: the pod fits on none of them.
        devices: returns the GPU devices there, as a bit mask.
    """

    names: Sequence[str]
    raw: Floats
    chosen: int
    devices: Callable[[], int] = int

    def scores(self, best: int = BEST) -> npt.NDArray[np.int64]:
        """Return integer scores, [K] from 0 to `best` (at most 100), 0 where the pod does not fit.

        The chosen node alone has `best`, so that whoever takes the highest score takes the policy's choice even where
        rounding, or the policy itself, makes no difference.
        """
        result = np.empty(len(self.raw), dtype=np.int64)
        rank(self.raw, self.chosen, best, result)
        return result

    def settled(self) -> Ranking:
        """Return the same ranking with its devices computed, before the state changes."""
        devices = self.devices() if self.chosen >= 0 else 0
        return replace(self, devices=lambda: devices)


def neutral(count: int, best: int = BEST) -> npt.NDArray[np.int64]:
    """Return the same score for each of `count` nodes, [K]."""
    return np.full(count, NEUTRAL * best // BEST)


def version_of(names: Sequence[str]) -> str:
    """Return a short name for a list of nodes; equal lists have equal ones."""
    return hashlib.blake2b("\n".join(names).encode(), digest_size=8).hexdigest()
