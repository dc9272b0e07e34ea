"""A learned policy that is a network: it sees what environments show, and takes the node that scores best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steersman.errors import SteersmanError
from steersman.features import View
from steersman.policies.layers import first_best
from steersman.policies.networks import Network
from steersman.policies.showing import Seen


@dataclass(frozen=True, eq=False, slots=True)
class NetworkPolicy:
    """A network and the view that it was trained on; GPU devices are chosen by the best-fit rule, as it was trained.

    Attributes:
        name: what results call it.
        view: what it sees.
        network: scores nodes.
    """

    name: str
    view: View
    network: Network

    def choose(self, seen: Seen, groups: npt.NDArray[np.int32]) -> int:
        """The feasible node with the highest score, the first of equals; some node must be feasible.

        Raises:
            SteersmanError: a score is not a finite number.
        """
        return first_best(self.scores(seen, groups), seen.nodes)

    def scores(self, seen: Seen, groups: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        """[N] the network's scores; what they are where a node is not feasible means nothing.

        Raises:
            SteersmanError: a score is not a finite number.
        """
        mask = seen.mask != 0
        with np.errstate(all="ignore"):  # what overflows is no number in the end, and said below
            scores = self.network.scores(seen.nodes, seen.pod, seen.context, mask, groups)
        if not np.isfinite(scores).all():
            raise SteersmanError(f"policy {self.name!r}: the score of a node is not a finite number")
        return scores
