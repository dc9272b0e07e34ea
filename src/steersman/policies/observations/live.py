"""Observations of a live cluster for networks, equal to those of an environment in the same state."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from steersman.cluster.pod_query import PodQuery
from steersman.core.handles import CoreDecider
from steersman.objectives import summary as summed
from steersman.policies.base import Candidates
from steersman.policies.features import View
from steersman.policies.observations.observation import ObservationArrays, empty_observation
from steersman.workloads.topology import NodePlaces

Row = npt.NDArray[np.float64]


class ObservedCluster(Protocol):
    """A live cluster that can be observed, see `decision.live_core.LiveCore`."""

    places: NodePlaces

    @property
    def decider(self) -> CoreDecider: ...

    def watching(self, view: View) -> CoreDecider: ...


class LiveObservations:
    """Observe a live cluster in a view."""

    def __init__(self, view: View, live: ObservedCluster) -> None:
        self.view, self._live = view, live
        self._state = np.zeros(summed.COLUMNS)
        self._seen = empty_observation(view, 0)

    def observe(self, query: PodQuery, nodes: Candidates) -> tuple[ObservationArrays, npt.NDArray[np.int32]]:
        """Return the observation of a decision, see `base.Observations`."""
        core, count = self._live.watching(self.view), len(nodes.feasible)
        if len(self._seen.mask) != count:
            self._seen = empty_observation(self.view, count)
        seen, places = self._seen, self._live.places
        core.observe(nodes.waiting, nodes.eligible.view(np.int8), query.owner_pods.running)
        parts = seen.nodes, seen.pod, seen.context, seen.mask
        count = core.look(query.class_id, nodes.feasible, *parts, self._state)
        groups = np.stack([places.rack[:count], places.server[:count]], axis=1).astype(np.int32)
        return seen._replace(nodes=seen.nodes[:count], mask=seen.mask[:count]), groups

    def state(self) -> Row:
        """Return the state when a pod was last observed, [16], see `objectives.summary`."""
        return self._state.copy()

    def outcome(self, query: PodQuery, nodes: Candidates, slot: int) -> tuple[Row, Row]:
        """Return the states before and after the placement on `slot` of the pod that was last observed, [16] each."""
        before, after = self.state(), self.state()
        self._live.decider.write_outcome(query.class_id, slot, after)
        return before, after
