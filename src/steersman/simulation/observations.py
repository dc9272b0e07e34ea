"""Observations of a run for networks, equal to those of an environment in the same state."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.cluster.pod_query import PodQuery
from steersman.policies.base import Candidates
from steersman.policies.decision.kernels import DecisionState
from steersman.policies.features import View
from steersman.policies.gpu_state.fragmentation_cache import empty_fragmentation_cache, profile_key
from steersman.policies.observations.encoder import ObservationEncoder, owner_arrays
from steersman.policies.observations.encoding import EncodingContext
from steersman.policies.observations.kernels import ObservationArrays
from steersman.simulation import event_arrays
from steersman.simulation.arrivals import Schedule
from steersman.simulation.run_tracker import follow
from steersman.workloads.topology import Places


class RunObservations:
    """Observe the cluster of a run and follow its events.

    Args:
        view: the view that the policy observes.
        cluster, run, record: of the event loop.
        plan: the arrivals.
        places: of the workload.
    """

    def __init__(
        self,
        view: View,
        cluster: DecisionState,
        run: event_arrays.Run,
        record: event_arrays.EventRecord,
        plan: Schedule,
        places: Places,
    ) -> None:
        self._run, self._record = run, record
        self._owner = places.owner[plan.pods]
        self._groups = np.stack([places.rack[plan.nodes], places.server[plan.nodes]], axis=1).astype(np.int32)
        self._owners = owner_arrays(places.owners, places.rack[plan.nodes], places.racks)
        self._followed = 0
        leftovers, room = cluster.learned.leftovers, cluster.learned.room
        known = empty_fragmentation_cache(profile_key(cluster.profile))
        context = EncodingContext(
            cluster.nodes, cluster.classes, cluster.profile, cluster.fragments, known, leftovers, room
        )
        table = cluster.table
        self._observer = ObservationEncoder(view, context, self._owners, run.eligible, table.log, table.logged)

    def observe(self, query: PodQuery, nodes: Candidates) -> tuple[ObservationArrays, npt.NDArray[np.int32]]:
        """Return the observation of a decision, see `policies.base.Observations`."""
        self._follow()
        return self._observer.encode(query.class_id, query.owner, nodes.feasible), self._groups

    def reset_cache(self) -> None:
        """Do nothing: the log of a run holds all of it; see `policies.base.Observations`."""

    def _follow(self) -> None:
        """Count where pods of owners came and went since the last observation, and update the cluster's summary."""
        cursor, sums, numbers, summary = self._run.cursor, self._run.sums, self._record.numbers, self._observer.summary
        follow(self._owners, self._owner, numbers, cursor, sums, self._followed, summary)
        self._followed = int(cursor[event_arrays.EVENTS])
