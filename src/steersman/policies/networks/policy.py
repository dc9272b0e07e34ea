"""A learned policy that is a network: it observes what environments show, and chooses the node with the best score."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from steersman.cluster.pod_query import PodQuery
from steersman.core.errors import SteersmanError
from steersman.core.event_loop import SLICE_SECONDS
from steersman.orders.order import AGE, Order
from steersman.policies.base import Candidates, Need, Observations, Policy, Scorer, ScoringContext
from steersman.policies.decision.contributions import Contribution, occlusion_contributions
from steersman.policies.embedded_profile import EmbeddedProfile
from steersman.policies.features import TELEMETRY, View
from steersman.policies.gpu_state.arrays import GPU_VIEW
from steersman.policies.networks.layers import first_best
from steersman.policies.networks.network import Network
from steersman.policies.observations.observation import ObservationArrays

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class NetworkPolicy(Policy):
    """A network and the view that it was trained on; GPU devices are chosen by the best-fit rule, as in training."""

    name: str  # its name in results
    view: View  # the view that it observes
    network: Network  # scores nodes
    prepared: EmbeddedProfile | None = None  # see `Policy`
    order: Order = AGE

    is_learned: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[Need]:
        """See `Policy`; leftover tables or measured metrics, if the view has them."""
        return frozenset({Need.PEERS}) | needs_of_view(self.view)

    def scorer(self, context: ScoringContext) -> Scorer:
        return NetworkScorer(self, context.observations(self.view))

    def contributions(
        self, context: ScoringContext, query: PodQuery, nodes: Candidates, slot: int, other: int
    ) -> list[Contribution]:
        """Return contributions by occlusion, see `Policy`."""
        observation, groups = context.observations(self.view).observe(query, nodes)
        row, other_row = observation.nodes[slot].copy(), observation.nodes[other].copy()

        def score(rows: Floats) -> Floats:
            scores = []
            for each in rows:
                # Written into the observation itself: features of other nodes and the context have to stay in place.
                observation.nodes[slot] = each
                scores.append(float(self.scores(observation, groups)[slot]))
            return np.array(scores)

        try:
            names = [feature.name for feature in self.view.node]
            return occlusion_contributions(names, row.astype(np.float64), other_row.astype(np.float64), score)
        finally:
            # The buffers are the encoder's, and the next decision reads them.
            observation.nodes[slot] = row

    def choose(self, observation: ObservationArrays, groups: npt.NDArray[np.int32]) -> int:
        """Return the feasible node with the highest score, the first of equals; some node must be feasible.

        Raises:
            SteersmanError: a score is not a finite number.
        """
        return first_best(self.scores(observation, groups), observation.nodes)

    def scores(self, observation: ObservationArrays, groups: npt.NDArray[np.int32]) -> Floats:
        """Return [N] the network's scores, -inf where a node is not feasible.

        Raises:
            SteersmanError: a score is not a finite number.
        """
        mask = observation.mask != 0
        with np.errstate(all="ignore"):  # of a package's network: a score that is not finite is an error below
            scores = self.network.scores(observation.nodes, observation.pod, observation.context, mask, groups)
        if not np.isfinite(scores[mask]).all():
            raise SteersmanError(f"policy {self.name!r}: the score of a node is not a finite number")
        return np.where(mask, scores, -np.inf)


def needs_of_view(view: View) -> frozenset[Need]:
    """Return what observations in a view are computed from."""
    needs = {GPU_VIEW: Need.LEFTOVER_TABLES, TELEMETRY.name: Need.TELEMETRY}
    return frozenset({needs[view.name]} if view.name in needs else ())


class NetworkScorer(Scorer):
    """Score nodes by a network. `observations`: source of its observations.

    A network that takes longer than a time slice of the event loop computes in a thread, where `ask` is awaited.
    """

    def __init__(self, policy: NetworkPolicy, observations: Observations) -> None:
        self._policy, self._observations = policy, observations
        self._seconds = 0.0  # processor time of the last scores
        self._asked: tuple[PodQuery, Floats, ObservationArrays] | None = None

    @property
    def asks_first(self) -> bool:
        return self._seconds >= SLICE_SECONDS

    async def ask(self, query: PodQuery, nodes: Candidates) -> None:
        seen, groups = self._observations.observe(query, nodes)
        # Copied, since other decisions write to the same arrays meanwhile.
        seen = deepcopy(seen)
        self._asked = None
        with suppress(SteersmanError):  # `choose` raises it
            self._asked = query, await asyncio.to_thread(self._scores, seen, groups), seen

    def choose(self, query: PodQuery, nodes: Candidates) -> int:
        if self.asks_first and self._asked is not None and self._asked[0].pod is query.pod is not None:
            _, scores, seen = self._asked
            # Nodes may have become feasible, or not, since the observation.
            scores = np.where(nodes.feasible[: len(scores)], scores[: len(nodes.feasible)], -np.inf)
            if np.isfinite(scores).any():
                return first_best(scores, seen.nodes)
        seen, groups = self._observations.observe(query, nodes)
        return first_best(self._scores(seen, groups), seen.nodes)

    def scores(self, query: PodQuery, nodes: Candidates) -> Floats:
        observation, groups = self._observations.observe(query, nodes)
        scores = np.full(len(nodes.feasible), -np.inf)
        # Observations end with the last node; slots after it are free.
        scores[: len(groups)] = self._scores(observation, groups)
        return scores

    def _scores(self, observation: ObservationArrays, groups: npt.NDArray[np.int32]) -> Floats:
        began = time.thread_time()
        scores = self._policy.scores(observation, groups)
        self._seconds = time.thread_time() - began
        return scores
