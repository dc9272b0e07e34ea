"""A policy's scores of nodes as other schedulers want them: whole numbers, the best one told from all others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from steersman.service.kernels.ranking import BEST, rank

HIGHEST = 10
"""The best score that a scheduler extender may give."""
NEUTRAL = 50
"""The score of every node where the policy has no opinion."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ranking:
    """What a policy thinks of the nodes in question.

    Attributes:
        names: [K] of the nodes.
        raw: [K] its scores, -inf where the pod does not fit.
        chosen: the position of the node it would choose, `NOWHERE`: the pod fits on none of them.
        devices: says the GPU devices there, as a bit mask.
    """

    names: Sequence[str]
    raw: Floats
    chosen: int
    devices: Callable[[], int] = int

    def scores(self, best: int = BEST) -> npt.NDArray[np.int64]:
        """[K] 0 to `best`, at most 100: that for the chosen node alone, others by how near they come, 0 if it fits not.

        The best is alone at the top, so that whoever takes the highest score takes the policy's choice even where
        rounding, or the policy itself, makes no difference.
        """
        found = np.empty(len(self.raw), dtype=np.int64)
        rank(self.raw, self.chosen, best, found)
        return found

    def settled(self) -> Ranking:
        """The same, with the devices worked out, for when the state is another afterwards."""
        devices = self.devices() if self.chosen >= 0 else 0
        return replace(self, devices=lambda: devices)


def neutral(count: int, best: int = BEST) -> npt.NDArray[np.int64]:
    """[K] the same score for every one of so many nodes."""
    return np.full(count, NEUTRAL * best // BEST)


def version_of(names: Sequence[str]) -> str:
    """A short name for a list of nodes: equal lists have equal ones."""
    return hashlib.blake2b("\n".join(names).encode(), digest_size=8).hexdigest()
