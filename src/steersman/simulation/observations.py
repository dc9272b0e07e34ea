"""What networks are shown of a run: what an environment would show of the same state."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steersman.features import View
from steersman.policies.afterstates import afterstates, mark_of
from steersman.policies.base import ScoreQuery
from steersman.policies.deciding import Cluster
from steersman.policies.encoding import Scene
from steersman.policies.observer import Observer, owner_arrays
from steersman.policies.showing import Seen
from steersman.simulation import engine
from steersman.simulation.arrivals import Schedule
from steersman.simulation.following import follow
from steersman.workloads.places import Places


class RunObservations:
    """Shows the cluster of a run, and follows what happens in it.

    Args:
        view: what is seen.
        cluster, run, record: of the event loop.
        plan: what arrives.
        places: of the workload.
    """

    def __init__(
        self,
        view: View,
        cluster: Cluster,
        run: engine.Run,
        record: engine.Record,
        plan: Schedule,
        places: Places,
    ) -> None:
        self._run, self._record = run, record
        self._owner = places.owner[plan.pods]
        self._groups = np.stack([places.rack[plan.nodes], places.server[plan.nodes]], axis=1).astype(np.int32)
        self._owners = owner_arrays(places.owners, places.rack[plan.nodes], places.racks)
        self._followed = 0
        outlook, room = cluster.learned.outlook, cluster.learned.room
        known = afterstates(mark_of(cluster.mix))
        scene = Scene(cluster.nodes, cluster.classes, cluster.mix, cluster.fragments, known, outlook, room)
        self._observer = Observer(view, scene, self._owners, cluster.table.log, cluster.table.logged)

    def observe(self, query: ScoreQuery) -> tuple[Seen, npt.NDArray[np.int32]]:
        """See `policies.base.Observations`."""
        self._follow()
        return self._observer.look(query.class_id, query.owner, query.feasible), self._groups

    def reset_cache(self) -> None:
        """See `policies.base.Observations`: the log of a run has room for all of it."""

    def _follow(self) -> None:
        """Count where pods of owners came and went since the last look, and see how the cluster is."""
        cursor, sums, numbers, summary = self._run.cursor, self._run.sums, self._record.numbers, self._observer.summary
        follow(self._owners, self._owner, numbers, cursor, sums, self._followed, summary)
        self._followed = int(cursor[engine.EVENTS])
