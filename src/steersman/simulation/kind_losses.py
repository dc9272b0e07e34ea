"""What each kind of pod loses under a policy against a baseline, over common draws, and by how much beyond a limit."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from steersman.simulation.pod_kinds import KINDS
from steersman.simulation.result import Protocol
from steersman.simulation.waiting import MINUTE

Floats = npt.NDArray[np.float64]


def kind_losses(sums: Floats, baseline: Floats, protocol: Protocol) -> Floats:
    """Return [4] what kinds lose against a baseline, negative: they gain; 0 for kinds that do not arrive.

    Percentage points of the kind's pods that fail; in `timed`, percent of the baseline's mean wait plus a minute, so
    that seconds of waiting are no large loss.

    Args:
        sums: [2, 4] of `Execution.paid_by_kind`, added over draws.
        baseline: the same of the baseline.
    """
    (paid, count), (paid_before, count_before) = sums, baseline
    mean = np.divide(paid, count, out=np.zeros(len(KINDS)), where=count > 0)
    before = np.divide(paid_before, count_before, out=np.zeros(len(KINDS)), where=count_before > 0)
    both = (count > 0) & (count_before > 0)
    loss = (mean - before) / (before + MINUTE) if protocol == "timed" else mean - before
    return np.where(both, 100.0 * loss, 0.0)


def excess_loss(sums: Floats, baseline: Floats, protocol: Protocol, percent: float) -> float:
    """Return by how much the kind that loses most loses more than `percent`; 0: none does. See `kind_losses`."""
    return max(0.0, float(kind_losses(sums, baseline, protocol).max()) - percent)


class KindLosses:
    """What kinds lose under candidates against a baseline in the draws that each of them played.

    Args:
        percent: what any kind may lose, see `kind_losses`.
    """

    def __init__(self, percent: float, protocol: Protocol) -> None:
        self._percent, self._protocol = percent, protocol
        self._sums: dict[int, dict[int, Floats]] = defaultdict(dict)
        self.baseline: dict[int, Floats] = {}  # by seed of a draw what kinds paid under the baseline

    def add(self, candidate: int, seed: int, sums: Floats) -> None:
        """Note what kinds paid under a candidate in a draw that the baseline has played."""
        self._sums[candidate][seed] = sums

    def excess(self, candidate: int) -> float:
        """Return by how much the kind that loses most loses beyond the limit, in percent; 0: the limit holds."""
        sums = self._sums[candidate]
        baseline = [self.baseline[seed] for seed in sums]
        return excess_loss(np.sum(list(sums.values()), axis=0), np.sum(baseline, axis=0), self._protocol, self._percent)
