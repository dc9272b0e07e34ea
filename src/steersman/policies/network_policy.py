"""A learned policy that is a network: it sees what environments show, and takes the node that scores best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from steersman.errors import SteersmanError
from steersman.features import View
from steersman.policies.base import Observations, Policy, ScoreQuery, Scorer, ScoringContext
from steersman.policies.contributions import Contribution, by_replacing
from steersman.policies.layers import first_best
from steersman.policies.learned import VIEW
from steersman.policies.networks import Network
from steersman.policies.prepared import Prepared
from steersman.policies.showing import Seen

if TYPE_CHECKING:
    from steersman.policies.decider import Decider

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class NetworkPolicy(Policy):
    """A network and the view that it was trained on; GPU devices are chosen by the best-fit rule, as it was trained.

    Attributes:
        name: what results call it.
        view: what it sees.
        network: scores nodes.
        prepared: see `Policy`.
    """

    name: str
    view: View
    network: Network
    prepared: Prepared | None = None

    needs_peers: ClassVar[bool] = True
    is_learned: ClassVar[bool] = True
    is_network: ClassVar[bool] = True

    @property
    def needs_leftover_tables(self) -> bool:
        """See `Policy`."""
        return self.view.name == VIEW

    def scorer(self, context: ScoringContext) -> Scorer:
        """See `Policy`."""
        return NetworkScorer(self, context.observations(self.view))

    def contributions(self, decider: Decider, query: ScoreQuery, slot: int, other: int) -> list[Contribution]:
        """See `Policy`: by occlusion."""
        seen, groups = decider.observations(self.view).observe(query)
        row, other_row = seen.nodes[slot].copy(), seen.nodes[other].copy()

        def score(rows: Floats) -> Floats:
            scores = []
            for each in rows:
                seen.nodes[slot] = each
                scores.append(float(self.scores(seen, groups)[slot]))
            return np.array(scores)

        try:
            names = [feature.name for feature in self.view.node]
            return by_replacing(names, row.astype(np.float64), other_row.astype(np.float64), score)
        finally:
            seen.nodes[slot] = row

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


class NetworkScorer(Scorer):
    """Asks a network about what it is shown.

    Args:
        policy: the network.
        observations: show it the cluster.
    """

    def __init__(self, policy: NetworkPolicy, observations: Observations) -> None:
        self._policy, self._observations = policy, observations

    def choose(self, query: ScoreQuery) -> int:
        """See `Scorer`."""
        return self._policy.choose(*self._observations.observe(query))

    def scores(self, query: ScoreQuery) -> Floats:
        """See `Scorer`."""
        seen, groups = self._observations.observe(query)
        scores = np.full(len(query.feasible), -np.inf)
        scores[: len(groups)] = np.where(seen.mask != 0, self._policy.scores(seen, groups), -np.inf)
        return scores

    def reset_cache(self) -> None:
        """See `Scorer`."""
        self._observations.reset_cache()
