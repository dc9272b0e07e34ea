"""Observations of a live cluster for networks, equal to those of an environment in the same state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from steersman.cluster.model import Node
from steersman.cluster.pod_query import PodQuery
from steersman.objectives import summary as summed
from steersman.policies.base import Candidates
from steersman.policies.decision.kernels import DecisionState
from steersman.policies.features import View
from steersman.policies.gpu_state.fragmentation_cache import empty_fragmentation_cache, profile_key
from steersman.policies.observations.encoder import ObservationEncoder, owner_arrays, summary_of
from steersman.policies.observations.encoding import EncodingContext, OwnerArrays
from steersman.policies.observations.kernels import ObservationArrays
from steersman.policies.observations.outcomes import write_outcome
from steersman.workloads.topology import node_places

Row = npt.NDArray[np.float64]


class LiveObservations:
    """Observe a live cluster, whose arrays the caller keeps up to date."""

    def __init__(self, view: View, nodes: Sequence[Node | None], cluster: DecisionState) -> None:
        self.view, self._cluster = view, cluster
        places = node_places(nodes)
        self._groups = np.stack([places.rack, places.server], axis=1).astype(np.int32)
        self._owners: OwnerArrays = owner_arrays(1, places.rack, places.racks)
        self._context = EncodingContext(
            cluster.nodes,
            cluster.classes,
            cluster.profile,
            cluster.fragments,
            empty_fragmentation_cache(profile_key(cluster.profile)),
            cluster.learned.leftovers,
            cluster.learned.room,
        )
        self.reset_cache()

    def reset_cache(self) -> None:
        table = self._cluster.table
        every = np.ones(len(self._cluster.nodes.gpu_count), dtype=np.bool_)  # the summary is rewritten every time
        self._observer = ObservationEncoder(self.view, self._context, self._owners, every, table.log, table.logged)

    def observe(self, query: PodQuery, nodes: Candidates) -> tuple[ObservationArrays, npt.NDArray[np.int32]]:
        """Return the observation of a decision, see `base.Observations`."""
        owner = self._count(query.owner_pods.running)
        count = self._summarise(nodes)
        observation = self._observer.encode(query.class_id, owner, nodes.feasible)
        observation = observation._replace(nodes=observation.nodes[:count], mask=observation.mask[:count])
        return observation, self._groups[:count]

    def state(self) -> Row:
        """Return the state when a pod was last observed, [16], see `objectives.summary`."""
        return self._observer.summary.copy()

    def outcome(self, query: PodQuery, nodes: Candidates, slot: int) -> tuple[Row, Row]:
        """Return the states before and after the placement on `slot` of the pod that was last observed, [16] each."""
        before = self.state()
        after, owner = before.copy(), 0 if query.owner_pods.running else -1
        write_outcome(self._context, self._owners, query.class_id, owner, slot, after)
        return before, after

    def _count(self, running: Mapping[int, int]) -> int:
        owners = self._owners
        owners.running[0], owners.on_node[0], owners.in_rack[0] = 0, 0, 0
        for slot, count in running.items():
            owners.running[0] += count
            owners.on_node[0, slot] = count
            if owners.rack[slot] >= 0:
                owners.in_rack[0, owners.rack[slot]] += count
        return 0 if running else -1

    def _summarise(self, nodes: Candidates) -> int:
        """Write the state of the cluster into the observed summary; return the number of slots up to the last node.

        Free slots after that are spare.
        """
        cluster, summary = self._cluster, self._observer.summary
        count = int(np.flatnonzero(cluster.nodes.allocatable.any(axis=1))[-1]) + 1
        summary[:] = summary_of(cluster.nodes, nodes.eligible, cluster.fragments.total, nodes.waiting)
        summary[summed.SLOTS] = count
        return count
